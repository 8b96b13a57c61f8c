import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.learning.scaling import EPSILON_DAYS, fit_scaler, lab_trends


def test_scale_comes_from_training_visits_alone() -> None:
    rng = np.random.default_rng(0)
    labs = rng.normal(5, 2, (100, 2))
    training = np.arange(100) < 60
    scaler = fit_scaler(labs, ("a", "b"), training)
    moved = labs.copy()
    moved[~training] = 1e6
    again = fit_scaler(moved, ("a", "b"), training)
    np.testing.assert_array_equal(scaler.centre, again.centre)
    z = scaler.standardise(labs)[training]
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(axis=0), 1)


def test_skewed_positive_lab_is_logged_and_a_symmetric_one_is_not() -> None:
    rng = np.random.default_rng(1)
    labs = np.column_stack([np.exp(rng.normal(0, 1, 500)), rng.normal(10, 1, 500), -np.exp(rng.normal(0, 1, 500))])
    scaler = fit_scaler(labs, ("skewed", "plain", "negative"), np.ones(500, bool))
    assert scaler.log.tolist() == [True, False, False]
    assert fit_scaler(labs, ("skewed", "plain", "negative"), np.ones(500, bool), log_labs=()).log.sum() == 0


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_in_unit_undoes_standardise(seed: int, skewed: bool) -> None:
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, 1.2 if skewed else 0.1, (60, 1)))
    scaler = fit_scaler(values, ("lab",), np.ones(60, bool))
    np.testing.assert_allclose(scaler.in_unit(scaler.standardise(values)[:, 0], 0), values[:, 0])


def test_constant_and_unmeasured_labs_stay_finite() -> None:
    labs = np.column_stack([np.full(10, 3.0), np.full(10, np.nan)])
    z = fit_scaler(labs, ("constant", "unmeasured"), np.ones(10, bool)).standardise(labs)
    assert np.all(z[:, 0] == 0)
    assert np.isnan(z[:, 1]).all()


def test_trend_is_the_rate_since_the_last_observation_of_that_lab() -> None:
    patient = np.array([0, 0, 0, 1, 1])
    time = np.array([0.0, 9.0, 29.0, 0.0, 4.0])
    labs = np.array([[1.0, 5.0], [np.nan, 6.0], [4.0, np.nan], [2.0, np.nan], [2.5, 1.0]])
    trends = lab_trends(patient, time, labs)
    expected = np.full((5, 2), np.nan)
    expected[2, 0] = 3.0 / (29.0 + EPSILON_DAYS)
    expected[1, 1] = 1.0 / (9.0 + EPSILON_DAYS)
    expected[4, 0] = 0.5 / (4.0 + EPSILON_DAYS)
    np.testing.assert_allclose(trends, expected)


@pytest.mark.parametrize("visits", [0, 1])
def test_trends_of_almost_nothing(visits: int) -> None:
    trends = lab_trends(np.zeros(visits, np.int64), np.arange(visits, dtype=float), np.ones((visits, 2)))
    assert trends.shape == (visits, 2)
    assert np.isnan(trends).all()


@pytest.mark.parametrize("logged", [False, True])
def test_values_cut_at_a_limit_neither_shift_nor_narrow_a_scale(logged: bool) -> None:
    z = np.random.default_rng(1).normal(size=(4000, 1))
    whole = np.exp(z) if logged else 7.0 + 2.0 * z
    limit = float(np.quantile(whole, 0.3))
    cut, limits = np.where(whole < limit, np.nan, whole), np.full((4000, 1, 2), np.nan)
    limits[(whole < limit)[:, 0], 0] = -np.inf, limit
    everyone, log = np.ones(4000, dtype=bool), ("lab",) if logged else ()
    uncut = fit_scaler(whole, ("lab",), everyone, log)
    found, blind = fit_scaler(cut, ("lab",), everyone, log, limits), fit_scaler(cut, ("lab",), everyone, log)
    assert found.scale[0] == pytest.approx(uncut.scale[0], rel=0.03)
    assert blind.scale[0] < 0.8 * uncut.scale[0]
    assert found.centre[0] == pytest.approx(uncut.centre[0], abs=0.03 * uncut.scale[0])
    below = uncut.standardise(whole)[whole < limit].mean()
    assert np.nanmean(found.expected(limits)) == pytest.approx(below, abs=0.05)
    limits[:, 0] = -np.inf, np.inf
    assert np.isnan(found.expected(limits)).all(), "what excludes nothing says nothing"


def test_below_a_limit_nothing_negative_is_expected_of_a_lab_that_has_none() -> None:
    random = np.random.default_rng(3)
    skewed = np.exp(random.standard_t(3, (800, 1)))
    for labs, least in ((skewed, 0.0), (skewed - 1.0, -np.inf)):
        cut = float(np.quantile(labs, 0.3))
        below = labs < cut
        limits = np.where(below[..., None], np.array([-np.inf, cut]), np.nan)
        exact = np.where(below, np.nan, labs)
        exact[0] = labs.min() if least < 0 else exact[0]
        scaler = fit_scaler(exact, ("lab",), np.ones(800, bool), (), limits)
        expected = scaler.in_unit(scaler.expected(limits)[below[:, 0], 0], 0)
        assert (expected < cut).all()
        assert (expected > 0.0).all() == (least == 0.0)
