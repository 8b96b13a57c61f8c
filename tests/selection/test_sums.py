"""The ledger as whole numbers: the engine's cut-offs, and the same sums however patients are dealt out."""

from itertools import pairwise

import numpy as np
import pytest

from safeimpute.selection.cutoff import average_cutoff, confident_cutoff
from safeimpute.selection.ledger import Entries, risk_grid
from safeimpute.selection.sums import (
    LedgerSums,
    average_from,
    confident_from,
    ledger_sums,
    log_wealth_sums,
    stakes_of,
)


def entries_of(seed: int, patients: int = 300) -> Entries:
    rng = np.random.default_rng(seed)
    patient = np.sort(rng.integers(0, patients, 4 * patients))
    risk = rng.beta(2, 5, len(patient))
    weight = rng.lognormal(-0.4, 0.6, len(patient))
    return Entries(patient, risk, weight, rng.random(len(patient)) < risk, patients)


def part(entries: Entries, first: int, last: int) -> Entries:
    rows = (entries.patient >= first) & (entries.patient < last)
    some = entries.at(rows)
    return Entries(some.patient - first, some.risk, some.weight, some.risky, last - first)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_cutoffs_are_the_engines(seed: int, alpha: float) -> None:
    entries = entries_of(seed)
    grid = risk_grid(entries.risk)
    thresholds = np.append(grid, np.inf)
    sums = ledger_sums(entries, thresholds, alpha)
    expected = average_cutoff(entries, grid, alpha)
    found = average_from(sums, thresholds, alpha)
    assert found.risk == expected.risk
    assert found.share == pytest.approx(expected.share, abs=1e-6)
    assert (found.visits, found.patients) == pytest.approx((expected.visits, expected.patients), rel=1e-6)
    sure = confident_cutoff(entries, grid, alpha, 0.9)
    wealth = log_wealth_sums(entries, thresholds, alpha, stakes_of(sums, alpha, 0.9))
    assert confident_from(sums, wealth, thresholds, alpha, 0.9).risk == sure.risk


def test_something_is_compared() -> None:
    """The seeds above find cut-offs under both rules."""
    found = [
        average_cutoff(entries_of(seed), risk_grid(entries_of(seed).risk), 0.2).risk for seed in range(6)
    ]
    sure = [
        confident_cutoff(entries_of(seed), risk_grid(entries_of(seed).risk), 0.2, 0.9).risk
        for seed in range(6)
    ]
    assert None not in found
    assert len({*sure} - {None}) > 1


def test_any_partition_adds_up_to_the_same_numbers() -> None:
    entries = entries_of(7, 500)
    thresholds = np.append(risk_grid(entries.risk), np.inf)
    whole = ledger_sums(entries, thresholds, 0.2)
    stakes = stakes_of(whole, 0.2, 0.9)
    for edges in ([0, 250, 500], [0, 1, 2, 499, 500], list(range(0, 501, 20))):
        parts = [part(entries, *pair) for pair in pairwise(edges)]
        total: LedgerSums | None = None
        for each in reversed(parts):
            found = ledger_sums(each, thresholds, 0.2)
            total = found if total is None else found.plus(total)
        assert total == whole
        wealth = [log_wealth_sums(each, thresholds, 0.2, stakes) for each in parts]
        assert [sum(column) for column in zip(*wealth, strict=True)] == log_wealth_sums(
            entries, thresholds, 0.2, stakes
        )
