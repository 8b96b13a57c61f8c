"""Other levels, and odds of measuring that are off by a factor: what would be released then."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.ledgers import drawn_entries
from safeimpute.selection.cutoff import average_cutoff
from safeimpute.selection.ledger import Entries, risk_grid
from safeimpute.selection.release import Rule, cutoff_for
from safeimpute.selection.what_if import LEVELS, average_cutoffs, released_under_doubt

GAMMAS = (1.0, 1.1, 1.5, 2.0, 5.0)


def world(seed: int) -> tuple[Entries, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    entries = drawn_entries(rng, 1000, patients=200)
    return entries, risk_grid(entries.risk), rng.integers(0, 20, 700) / 20


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.35])
def test_no_doubt_is_the_average_rule(alpha: float) -> None:
    for seed in range(5):
        entries, grid, candidate = world(seed)
        cutoff = average_cutoff(entries, grid, alpha).risk
        assert cutoff is not None
        (found,) = released_under_doubt(entries, grid, candidate, alpha, [1.0])
        assert found.released == int(np.sum(candidate <= cutoff))
        assert 0 < found.released < len(candidate)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.05, 0.5))
def test_more_doubt_releases_no_more(seed: int, alpha: float) -> None:
    entries, grid, candidate = world(seed)
    released = [each.released for each in released_under_doubt(entries, grid, candidate, alpha, GAMMAS)]
    assert released == sorted(released, reverse=True)


def test_it_covers_the_worst_odds_it_speaks_of() -> None:
    """Errors twice as heavy and good visits half: the average rule on those odds releases no less than the bound."""
    entries, grid, candidate = world(3)
    gamma, alpha = 1.5, 0.2
    worst = Entries(
        entries.patient,
        entries.risk,
        entries.weight * np.where(entries.risky, gamma, 1 / gamma),
        entries.risky,
        entries.n_patients,
    )
    cutoff = average_cutoff(worst, grid, alpha).risk
    assert cutoff is not None
    (found,) = released_under_doubt(entries, grid, candidate, alpha, [gamma])
    assert 0 < found.released <= int(np.sum(candidate <= cutoff))


@pytest.mark.parametrize("seed", range(8))
def test_cutoffs_at_many_levels_are_those_of_the_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, patients = 60 * (seed + 1), 8 * (seed + 2)
    risk = np.round(rng.random(n), 1 if seed % 3 == 0 else 6)  # ties, too
    weight = np.ones(n) if seed % 2 else rng.gamma(0.5, 1.0, n)
    entries = Entries(rng.integers(0, patients, n), risk, weight, rng.random(n) < 0.6 * risk, patients)
    grid = risk_grid(risk)
    expected = [cutoff_for(entries, grid, Rule("unmeasured", level)).risk for level in LEVELS]
    found = [None if np.isnan(each) else each for each in average_cutoffs(entries, grid, LEVELS)]
    assert found == expected
    assert any(each is not None for each in expected) or n * 0.5 < 100
