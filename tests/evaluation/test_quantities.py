"""Estimates over visits with standard errors over patients, against plain formulas and repetition."""

import numpy as np
import pytest

from safeimpute.evaluation.completions import mean_of, quantile_of, share_above, slope_of


def test_one_visit_per_patient_is_the_textbook() -> None:
    rng = np.random.default_rng(0)
    values, patient = rng.standard_normal(200), np.arange(200)
    found = mean_of(values, patient)
    assert found.value == pytest.approx(values.mean())
    assert found.variance == pytest.approx(values.var(ddof=1) / 200)
    assert share_above(values, 0.0, patient).value == pytest.approx(np.mean(values >= 0))
    x = rng.standard_normal(200)
    slope = slope_of(2 * x + values, x, patient)
    assert slope.value == pytest.approx(np.polyfit(x, 2 * x + values, 1)[0])


def test_visits_of_a_patient_count_as_one() -> None:
    """The same value repeated ten times is no more information."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(100)
    once = mean_of(values, np.arange(100))
    often = mean_of(np.repeat(values, 10), np.repeat(np.arange(100), 10))
    assert often.variance == pytest.approx(once.variance)
    assert often.patients == once.patients == 100


def test_standard_errors_are_those_of_repetition() -> None:
    found: dict[str, list[tuple[float, float]]] = {"mean": [], "median": [], "slope": []}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        patient = np.repeat(np.arange(60), 4)
        x = rng.standard_normal(60)[patient]
        values = x + rng.standard_normal(60)[patient] + rng.standard_normal(240)
        for name, each in (
            ("mean", mean_of(values, patient)),
            ("median", quantile_of(values, 0.5, patient)),
            ("slope", slope_of(values, x, patient)),
        ):
            found[name].append((each.value, each.variance))
    for name, pairs in found.items():
        values, variances = np.array(pairs).T
        assert np.sqrt(variances.mean()) / values.std() == pytest.approx(1.0, abs=0.13), name


def test_weights_count() -> None:
    values, patient = np.array([0.0, 1.0]), np.array([0, 1])
    assert mean_of(values, patient, np.array([3.0, 1.0])).value == 0.25
    assert mean_of(values[:1], patient[:1]).variance == np.inf, "one patient says nothing about others"
