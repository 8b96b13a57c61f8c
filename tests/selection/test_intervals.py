"""Intervals as wide as the errors of measured visits say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.selection.calibrated import interval_errors


def literal_radius(ratio: np.ndarray, weight: np.ndarray, own: float, coverage: float) -> float:
    """The smallest ratio up to which the judged visits hold the asked share of all weight, the candidate's included."""
    for limit in sorted(ratio):
        if weight[ratio <= limit].sum() >= coverage * (weight.sum() + own) * (1 - 1e-12):
            return float(limit)
    return np.inf


@given(st.integers(0, 10_000), st.integers(0, 30), st.floats(0.05, 0.95))
def test_radius_is_the_weighted_quantile_with_the_candidate_at_infinity(
    seed: int, visits: int, coverage: float
) -> None:
    rng = np.random.default_rng(seed)
    error, spread, weight = (rng.gamma(1.0, size=visits), rng.gamma(2.0, size=visits), rng.gamma(2.0, size=visits))
    own = rng.gamma(2.0, size=4)
    radii = interval_errors(error, spread, weight).radii(own, coverage)
    assert radii.tolist() == [literal_radius(error / spread, weight, each, coverage) for each in own]


def test_too_few_visits_give_an_infinite_interval() -> None:
    data = interval_errors(np.ones(8), np.ones(8), np.ones(8))
    assert np.isinf(data.radii(np.ones(1), 0.9)).all()
    assert data.radii(np.ones(1), 0.8) == pytest.approx(1.0)


def test_the_asked_share_is_covered_and_not_much_more() -> None:
    """Candidates are riskier than measured visits; the weights say so."""
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(200):
        x = rng.random(400)
        error = rng.exponential(0.5 + x)
        measured = rng.random(400) < 1 - 0.8 * x
        weight = 0.8 * x / (1 - 0.8 * x)
        data = interval_errors(error[measured], np.ones(measured.sum()), weight[measured])
        covered.append(np.mean(error[~measured] <= data.radii(weight[~measured], 0.9)))
    assert np.mean(covered) >= 0.9 - 3 * np.std(covered) / np.sqrt(200)
    assert np.mean(covered) <= 0.93
