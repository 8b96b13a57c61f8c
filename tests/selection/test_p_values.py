import numpy as np
import pytest
from crepes.base import p_values_batch
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.errors import GuaranteeRefused, SafeImputeError
from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.p_values import (
    Scores,
    conformal_p_values,
    joint_ranks,
    paper_p_values,
    require_attainable_level,
    require_calibration_size,
)


def scores(rng, n, levels=None):
    risk = rng.standard_normal(n) if levels is None else rng.integers(0, levels, n).astype(float)
    return Scores(risk, rng.random(n))


def literal_p_value(candidate, j, calibration, bad, own, weight):
    below = sum(
        weight[i]
        for i in range(len(calibration))
        if bad[i] and (calibration.risk[i], calibration.tie[i]) < (candidate.risk[j], candidate.tie[j])
    )
    return (own[j] + below) / (own[j] + weight.sum())


@given(st.integers(0, 10_000), st.integers(0, 30), st.integers(0, 20), st.integers(1, 6))
def test_weighted_p_values_equal_the_written_formula_with_ties(seed, n, m, levels):
    rng = np.random.default_rng(seed)
    calibration, candidate = scores(rng, n, levels), scores(rng, m, levels)
    bad, own, weight = rng.random(n) < 0.5, rng.gamma(1.0, size=m), rng.gamma(1.0, size=n)
    p = conformal_p_values(candidate, calibration, bad, own, weight)
    expected = [literal_p_value(candidate, j, calibration, bad, own, weight) for j in range(m)]
    np.testing.assert_allclose(p, expected, rtol=1e-12)


def test_unit_weights_are_the_unweighted_form():
    rng = np.random.default_rng(1)
    calibration, candidate, bad = scores(rng, 50), scores(rng, 40), rng.random(50) < 0.4
    weighted = conformal_p_values(candidate, calibration, bad, np.ones(40), np.ones(50))
    np.testing.assert_array_equal(conformal_p_values(candidate, calibration, bad), weighted)
    below = (calibration.risk[bad][None, :] < candidate.risk[:, None]).sum(axis=1)
    np.testing.assert_array_equal(weighted, (1 + below) / 51)


def test_scaling_all_weights_changes_nothing():
    rng = np.random.default_rng(2)
    calibration, candidate, bad = scores(rng, 50), scores(rng, 40), rng.random(50) < 0.4
    own, weight = rng.gamma(1.0, size=40), rng.gamma(1.0, size=50)
    np.testing.assert_allclose(
        conformal_p_values(candidate, calibration, bad, own, weight),
        conformal_p_values(candidate, calibration, bad, 7 * own, 7 * weight),
    )


def test_agrees_with_crepes_where_good_visits_can_never_count():
    rng = np.random.default_rng(3)
    calibration, candidate, bad = scores(rng, 300), scores(rng, 200), rng.random(300) < 0.3
    oracle = p_values_batch(np.where(bad, -calibration.risk, -np.inf), -candidate.risk, smoothing=False)
    np.testing.assert_allclose(conformal_p_values(candidate, calibration, bad), oracle)
    uniform = rng.random(200)
    np.testing.assert_allclose(paper_p_values(candidate.risk, calibration.risk, bad, uniform), oracle)


def test_published_form_spreads_ties_by_each_visits_own_uniform():
    bad = np.array([True, True, True, False])
    p = paper_p_values(np.array([1.0, 1.0]), np.array([0.0, 1.0, 1.0, 1.0]), bad, np.array([0.0, 0.5]))
    np.testing.assert_allclose(p, [2 / 5, 3 / 5])


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.1, 0.2, 0.35]))
def test_counting_only_bad_visits_is_another_level(seed, alpha):
    rng = np.random.default_rng(seed)
    n, m = 60, 80
    calibration, candidate, bad = scores(rng, n), scores(rng, m), rng.random(n) < 0.4
    p = conformal_p_values(candidate, calibration, bad)
    only_bad = p * (n + 1) / (bad.sum() + 1)
    np.testing.assert_array_equal(
        benjamini_hochberg(p, alpha),
        benjamini_hochberg(np.minimum(only_bad, 1.0), alpha * (n + 1) / (bad.sum() + 1)),
    )


def test_p_values_of_bad_visits_are_never_too_small():
    rng = np.random.default_rng(4)
    hits = np.zeros(3)
    for _ in range(4000):
        pool, bad = scores(rng, 20, levels=3), rng.random(20) < 0.5
        p = conformal_p_values(
            Scores(pool.risk[:1], pool.tie[:1]), Scores(pool.risk[1:], pool.tie[1:]), bad[1:]
        )
        hits += bad[0] & (p[0] <= np.array([0.1, 0.2, 0.4]))
    rate = hits / 4000
    assert (rate <= np.array([0.1, 0.2, 0.4]) + 3 * np.sqrt(rate * (1 - rate) / 4000)).all()
    assert (rate >= np.array([0.08, 0.17, 0.35])).all()


def test_row_order_does_not_matter():
    rng = np.random.default_rng(5)
    calibration, candidate, bad = scores(rng, 30, 3), scores(rng, 25, 3), rng.random(30) < 0.5
    p = conformal_p_values(candidate, calibration, bad)
    a, b = rng.permutation(30), rng.permutation(25)
    shuffled = conformal_p_values(
        Scores(candidate.risk[b], candidate.tie[b]), Scores(calibration.risk[a], calibration.tie[a]), bad[a]
    )
    np.testing.assert_array_equal(shuffled, p[b])


def test_equal_pairs_share_a_rank():
    first, second = joint_ranks(
        Scores(np.array([1.0, 0.0]), np.array([0.5, 0.5])), Scores(np.array([1.0, 1.0]), np.array([0.5, 0.7]))
    )
    np.testing.assert_array_equal(first, [1, 0])
    np.testing.assert_array_equal(second, [1, 2])


def test_a_missing_risk_is_an_error_not_a_rank():
    with pytest.raises(SafeImputeError, match="needs a risk"):
        Scores(np.array([0.1, np.nan]), np.array([0.2, 0.3]))


@pytest.mark.parametrize(("alpha", "enough"), [(0.1, 9), (0.2, 4), (0.05, 19), (0.35, 2)])
def test_too_few_calibration_visits_are_refused(alpha, enough):
    require_calibration_size(enough, alpha)
    with pytest.raises(
        GuaranteeRefused, match=f"at least {enough} calibration visits; there are {enough - 1}"
    ):
        require_calibration_size(enough - 1, alpha)


def test_weights_under_which_nothing_could_be_released_are_refused():
    require_attainable_level(np.array([1.0, 50.0]), np.ones(9), 0.1)
    with pytest.raises(GuaranteeRefused, match="too little weight"):
        require_attainable_level(np.array([1.1, 50.0]), np.ones(9), 0.1)
