"""Conformal p-values against the formula written out and against crepes."""

import numpy as np
import pytest
from crepes.base import p_values_batch  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.errors import SafeImputeError
from safeimpute.selection.enough import fewest_calibration
from safeimpute.selection.p_values import Ranked, benjamini_hochberg, conformal_p_values, joint_ranks, paper_p_values


def ranked(rng: np.random.Generator, n: int, levels: int | None = None) -> Ranked:
    risk = rng.standard_normal(n) if levels is None else rng.integers(0, levels, n).astype(float)
    return Ranked(risk, rng.random(n))


def literal_p_value(candidate: Ranked, j: int, calibration: Ranked, risky: np.ndarray) -> float:
    below = sum(
        bool(risky[i]) and (calibration.risk[i], calibration.tie[i]) < (candidate.risk[j], candidate.tie[j])
        for i in range(len(calibration))
    )
    return (1 + below) / (1 + len(calibration))


@given(st.integers(0, 10_000), st.integers(0, 30), st.integers(0, 20), st.integers(1, 6))
def test_equal_the_written_formula_with_ties(seed: int, n: int, m: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    calibration, candidate, risky = ranked(rng, n, levels), ranked(rng, m, levels), rng.random(n) < 0.5
    p = conformal_p_values(candidate, calibration, risky)
    np.testing.assert_allclose(p, [literal_p_value(candidate, j, calibration, risky) for j in range(m)])


def test_agree_with_crepes_where_good_visits_can_never_count() -> None:
    rng = np.random.default_rng(3)
    calibration, candidate, risky = ranked(rng, 300), ranked(rng, 200), rng.random(300) < 0.3
    oracle = p_values_batch(np.where(risky, -calibration.risk, -np.inf), -candidate.risk, smoothing=False)
    np.testing.assert_allclose(conformal_p_values(candidate, calibration, risky), oracle)
    uniform = rng.random(200)
    np.testing.assert_allclose(paper_p_values(candidate.risk, calibration.risk, risky, uniform), oracle)


def test_published_form_spreads_ties_by_each_visits_own_uniform() -> None:
    risky = np.array([True, True, True, False])
    p = paper_p_values(np.array([1.0, 1.0]), np.array([0.0, 1.0, 1.0, 1.0]), risky, np.array([0.0, 0.5]))
    np.testing.assert_allclose(p, [2 / 5, 3 / 5])


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.1, 0.2, 0.35]))
def test_counting_only_risky_visits_is_another_level(seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    n, m = 60, 80
    calibration, candidate, risky = ranked(rng, n), ranked(rng, m), rng.random(n) < 0.4
    p = conformal_p_values(candidate, calibration, risky)
    only_risky = p * (n + 1) / (risky.sum() + 1)
    np.testing.assert_array_equal(
        benjamini_hochberg(p, alpha),
        benjamini_hochberg(np.minimum(only_risky, 1.0), alpha * (n + 1) / (risky.sum() + 1)),
    )


def test_those_of_risky_visits_are_never_too_small() -> None:
    rng = np.random.default_rng(4)
    hits = np.zeros(3)
    for _ in range(4000):
        pool, risky = ranked(rng, 20, levels=3), rng.random(20) < 0.5
        p = conformal_p_values(Ranked(pool.risk[:1], pool.tie[:1]), Ranked(pool.risk[1:], pool.tie[1:]), risky[1:])
        hits += risky[0] & (p[0] <= np.array([0.1, 0.2, 0.4]))
    rate = hits / 4000
    assert (rate <= np.array([0.1, 0.2, 0.4]) + 3 * np.sqrt(rate * (1 - rate) / 4000)).all()
    assert (rate >= np.array([0.08, 0.17, 0.35])).all()


def test_row_order_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    calibration, candidate, risky = ranked(rng, 30, 3), ranked(rng, 25, 3), rng.random(30) < 0.5
    p = conformal_p_values(candidate, calibration, risky)
    a, b = rng.permutation(30), rng.permutation(25)
    shuffled = conformal_p_values(
        Ranked(candidate.risk[b], candidate.tie[b]), Ranked(calibration.risk[a], calibration.tie[a]), risky[a]
    )
    np.testing.assert_array_equal(shuffled, p[b])


def test_equal_pairs_share_a_rank() -> None:
    first, second = joint_ranks(
        Ranked(np.array([1.0, 0.0]), np.array([0.5, 0.5])), Ranked(np.array([1.0, 1.0]), np.array([0.5, 0.7]))
    )
    np.testing.assert_array_equal(first, [1, 0])
    np.testing.assert_array_equal(second, [1, 2])


def test_a_missing_risk_is_an_error_not_a_rank() -> None:
    with pytest.raises(SafeImputeError, match="needs a risk"):
        Ranked(np.array([0.1, np.nan]), np.array([0.2, 0.3]))


@pytest.mark.parametrize(("alpha", "enough"), [(0.1, 9), (0.2, 4), (0.05, 19), (0.35, 2)])
def test_fewest_calibration_visits(alpha: float, enough: int) -> None:
    """With one visit fewer even the safest candidate has a p-value above the level."""
    assert fewest_calibration(alpha) == enough
    safest = Ranked(np.array([-1.0]), np.array([0.5]))
    for visits, possible in ((enough, True), (enough - 1, False)):
        calibration = Ranked(np.zeros(visits), np.zeros(visits))
        p = conformal_p_values(safest, calibration, np.ones(visits, bool))
        assert bool(benjamini_hochberg(p, alpha)[0]) is possible
