"""The plain prediction model: finds what there is, judges across patients."""

import numpy as np
import pytest

from safeimpute.evaluation.completions import fit_logit, judge, predict_across


def test_coefficients_are_found() -> None:
    rng = np.random.default_rng(0)
    design = np.column_stack([np.ones(20_000), rng.standard_normal(20_000)])
    outcome = rng.random(20_000) < 1 / (1 + np.exp(-(design @ [-1.0, 0.8])))
    found = fit_logit(design, outcome.astype(float), np.ones(20_000))
    assert found == pytest.approx([-1.0, 0.8], abs=0.06)


def test_noise_predicts_nothing_across_patients() -> None:
    """A value that names the patient tells the outcome within patients, never across them."""
    rng = np.random.default_rng(1)
    patient = np.repeat(np.arange(100), 5)
    own = rng.standard_normal(100)[patient]
    outcome = (rng.random(100) < 0.5)[patient]
    chance = predict_across(own[:, None], outcome, patient, np.ones(500), rng)
    told = judge(chance, outcome, patient, rng)
    assert told is not None
    assert abs(told.auc[0] - 0.5) < 3 * told.auc[1] + 0.05


def test_a_true_signal_is_told_and_calibrated() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(3000)
    outcome = rng.random(3000) < 1 / (1 + np.exp(-1.5 * x))
    chance = predict_across(x[:, None], outcome, np.arange(3000), np.ones(3000), rng)
    told = judge(chance, outcome, np.arange(3000), rng)
    assert told is not None
    assert told.auc[0] > 0.78
    assert abs(told.slope[0] - 1) < 3 * told.slope[1]
    assert judge(chance, np.ones(3000, dtype=bool), np.arange(3000), rng) is None
