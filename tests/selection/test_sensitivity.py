import numpy as np

from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.p_values import Scores, conformal_p_values
from safeimpute.selection.sensitivity import released_over_gamma, sensitivity_p_values


def batch(seed=0, n=400, m=300):
    rng = np.random.default_rng(seed)
    candidate, calibration = (Scores(rng.random(k), rng.random(k)) for k in (m, n))
    return (
        candidate,
        calibration,
        rng.random(n) < calibration.risk,
        rng.gamma(3.0, size=m),
        rng.gamma(3.0, size=n),
    )


def test_equals_the_formula_in_a_and_b():
    candidate, calibration, bad, own, weight = batch()
    p = conformal_p_values(candidate, calibration, bad, own, weight)
    below = np.array([weight[bad & (calibration.risk < r)].sum() for r in candidate.risk])
    a, b = own + below, weight.sum() - below
    for gamma in (1.0, 1.3, 2.0):
        np.testing.assert_allclose(sensitivity_p_values(p, gamma), gamma * a / (gamma * a + b / gamma))


def test_bounds_the_p_value_under_any_weights_within_gamma():
    candidate, calibration, bad, own, weight = batch()
    worst = sensitivity_p_values(conformal_p_values(candidate, calibration, bad, own, weight), 1.5)
    rng = np.random.default_rng(1)
    for _ in range(50):
        tilt = 1.5 ** rng.uniform(-1, 1, len(own) + len(weight))
        p = conformal_p_values(candidate, calibration, bad, own * tilt[: len(own)], weight * tilt[len(own) :])
        assert (p <= worst + 1e-12).all()


def test_released_counts_start_at_bh_and_fall_with_gamma():
    candidate, calibration, bad, own, weight = batch()
    counts = released_over_gamma(
        candidate, calibration, bad, own, weight, 0.3, np.array([1.0, 1.1, 1.25, 1.5, 2.0, 5.0])
    )
    p = conformal_p_values(candidate, calibration, bad, own, weight)
    assert counts[0] == benjamini_hochberg(p, 0.3).sum() > 50
    assert (np.diff(counts) <= 0).all()
    assert counts[-1] < counts[0] / 2
