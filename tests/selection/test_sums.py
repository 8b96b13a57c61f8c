"""Balances per patient against their definition, and the same sums however patients are divided."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.ledgers import drawn_entries
from safeimpute.selection import ledger, sums
from safeimpute.selection.ledger import Entries, Ledger, risk_grid, sums_of
from safeimpute.selection.sums import Level, Sums, kish_size


def entries_of(seed: int, patients: int = 300) -> Entries:
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, patients, 4 * patients)
    risk = rng.beta(2, 5, len(patient))
    return Entries(patient, risk, rng.lognormal(-0.4, 0.6, len(patient)), rng.random(len(patient)) < risk)


def literal_balances(entries: Entries, threshold: float, level: Level) -> list[float]:
    """X_q(T), one patient and one visit at a time."""
    balance: dict[int, float] = {}
    for i in range(len(entries.risk)):
        if entries.risk[i] <= threshold:
            cost = (1 - level.alpha) * level.gamma if entries.risky[i] else -level.alpha / level.gamma
            patient = int(entries.patient[i])
            balance[patient] = balance.get(patient, 0.0) + entries.weight[i] * cost
    return list(balance.values())


def moments(ledger: Ledger, place: int, level: Level) -> list[float]:
    """Sum of the balances, of their squares and of their cubes, as the sums have them."""
    cost, good = level.risky + level.good, level.good
    at = {name: float(ledger.patient(name)[place]) for name in sums.PATIENT_MOMENTS}
    first = cost * ledger.visit("risky_weight")[place] - good * ledger.visit("weight")[place]
    second = cost**2 * at["risky_square"] - 2 * cost * good * at["size_risky"] + good**2 * at["size_square"]
    third = cost**3 * at["risky_cube"] - 3 * cost**2 * good * at["size_risky_square"]
    third += 3 * cost * good**2 * at["square_size_risky"] - good**3 * at["size_cube"]
    return [float(first), second, third]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 40), st.sampled_from([Level(0.05), Level(0.35), Level(0.1, 1.5)]))
def test_equals_a_double_loop(seed: int, visits: int, level: Level) -> None:
    entries = drawn_entries(np.random.default_rng(seed), visits, patients=7)
    ledger = Ledger(entries, np.unique(np.r_[entries.risk, 0.35]))
    for place, threshold in enumerate(ledger.thresholds):
        balance = np.array(literal_balances(entries, threshold, level))
        assert moments(ledger, place, level) == pytest.approx([sum(balance**power) for power in (1, 2, 3)], abs=1e-7)
        there = entries.risk <= threshold
        weights, risky = entries.weight[there], entries.risky[there]
        assert ledger.visit("weight")[place] == pytest.approx(weights.sum(), abs=1e-8)
        assert ledger.visit("weight_square")[place] == pytest.approx(np.square(weights).sum(), abs=1e-8)
        assert ledger.visit("risky_square")[place] == pytest.approx(np.square(weights[risky]).sum(), abs=1e-8)
        assert ledger.patient("largest_visit")[place] == pytest.approx(weights.max(initial=0.0), abs=1e-8)


def part(entries: Entries, first: int, last: int) -> Entries:
    return entries.at((entries.patient >= first) & (entries.patient < last))


@pytest.mark.parametrize("edges", [[0, 250, 500], [0, 1, 2, 499, 500], list(range(0, 501, 20))])
def test_any_partition_adds_up_to_the_same_numbers(edges: list[int]) -> None:
    entries = entries_of(7, 500)
    grid = risk_grid(entries.risk)
    whole = sums_of(Ledger(entries, grid))
    ledgers = [Ledger(part(entries, *pair), grid) for pair in pairwise(edges)]
    total: Sums | None = None
    for each in reversed(ledgers):
        found = Sums.from_dict(json.loads(json.dumps(sums_of(each).to_dict())))
        total = found if total is None else found.plus(total)
    assert total == whole


def test_row_order_patient_numbers_and_the_thresholds_asked_for_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = entries_of(4, 40)
    rng = np.random.default_rng(4)
    order, numbers = rng.permutation(len(entries.risk)), rng.permutation(40)
    grid = risk_grid(entries.risk)
    moved = Entries(
        numbers[entries.patient[order]] * 7, entries.risk[order], entries.weight[order], entries.risky[order]
    )
    whole = sums_of(Ledger(entries, grid))
    assert sums_of(Ledger(moved, grid)) == whole
    monkeypatch.setattr(ledger, "AT_ONCE", 41)
    assert sums_of(Ledger(entries, grid)) == whole


def test_heavy_patients_do_not_overflow() -> None:
    entries = Entries(np.repeat(np.arange(3000), 4), np.zeros(12_000), np.full(12_000, 2e4), np.ones(12_000, bool))
    found = sums_of(Ledger(entries, np.array([0.1])))
    assert found.patient("size_square")[0] == pytest.approx(3000 * (8e4) ** 2)
    assert found.patient("risky_cube")[0] == pytest.approx(3000 * (8e4) ** 3)
    one, other = (sums_of(Ledger(part(entries, *pair), np.array([0.1]))) for pair in ((0, 7), (7, 3000)))
    assert one.plus(other) == found
    assert found.effective_size.patients == pytest.approx(3000)


def test_no_visit_makes_empty_sums() -> None:
    nobody = drawn_entries(np.random.default_rng(0), 0, patients=3)
    found = sums_of(Ledger(nobody, np.array([0.1, 0.2])))
    assert not any(found.of_visits["weight"])
    assert found.effective_size.visits == 0
    assert not sums_of(Ledger(nobody, np.empty(0))).asked


def test_sums_of_other_thresholds_are_not_added() -> None:
    entries = entries_of(1, 20)
    one, other = (sums_of(Ledger(entries, np.array([each]))) for each in (0.1, 0.2))
    with pytest.raises(ValueError, match="other thresholds"):
        one.plus(other)


@given(st.lists(st.floats(0, 1), max_size=500))
def test_thresholds_increase_and_are_risks(risks: list[float]) -> None:
    grid = risk_grid(np.array(risks))
    assert len(grid) <= ledger.THRESHOLDS
    assert (np.diff(grid) > 0).all()
    assert set(grid) <= set(risks)
    if risks:
        assert grid[-1] == max(risks)


def test_effective_sizes() -> None:
    assert kish_size(np.full(40, 3.0)) == pytest.approx(40)
    assert kish_size(np.array([1.0, 0.0])) == pytest.approx(1)
    assert kish_size(np.zeros(0)) == 0.0
    entries = Entries(np.array([0, 0, 1]), np.zeros(3), np.ones(3), np.zeros(3, bool))
    effective_size = Ledger(entries, np.empty(0)).effective_size
    assert (effective_size.visits, effective_size.patients) == pytest.approx((3, 9 / 5))
