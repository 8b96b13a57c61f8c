"""How errors of one patient hang together: what is drawn has the correlation asked for, what is fitted finds it."""

import numpy as np
import pytest

from safeimpute.records.arrays import VisitArrays
from safeimpute.selection.dependence import INDEPENDENT, Dependence, fit_dependence, hide_together


def test_draws_have_the_correlation_asked_for() -> None:
    patients = 40_000
    patient, time = np.repeat(np.arange(patients), 3), np.tile([0.0, 50.0, 250.0], patients)
    told = Dependence(steady=0.2, drifting=0.5, memory_days=100.0)
    table = told.normals(patient, time, np.random.default_rng(0)).reshape(-1, 3)
    expected = 0.2 + 0.5 * np.exp(-np.array([50.0, 200.0, 250.0]) / 100.0)
    found = np.asarray(np.corrcoef(table.T))[[0, 1, 0], [1, 2, 2]]
    assert np.abs(found - expected).max() < 0.02
    assert abs(table.std() - 1) < 0.01


@pytest.mark.parametrize("told", [Dependence(0.3, 0.4, 120.0), Dependence(0.0, 0.6, 60.0), INDEPENDENT])
def test_the_fit_finds_the_correlation(told: Dependence) -> None:
    rng = np.random.default_rng(1)
    patient = np.repeat(np.arange(3000), 5)
    time = np.cumsum(rng.uniform(10, 150, len(patient)))
    found = fit_dependence(told.normals(patient, time, rng), patient, time)
    gaps = np.array([30.0, 100.0, 300.0])

    def at(each: Dependence) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(each.steady + each.drifting * np.exp(-gaps / each.memory_days))

    assert np.abs(at(found) - at(told)).max() < 0.06


def test_too_few_pairs_count_as_independent() -> None:
    assert fit_dependence(np.ones(10), np.arange(10), np.arange(10.0)) == INDEPENDENT


def test_values_are_hidden_together(cohort_arrays: VisitArrays) -> None:
    before = cohort_arrays.labs.copy()
    some, hidden, truth = hide_together(cohort_arrays, np.random.default_rng(2))
    visible = ~np.isnan(some.target_values)
    assert not (hidden & visible).any()
    assert np.isfinite(truth[hidden]).all()
    assert (np.bincount(some.patient[hidden]) >= 2).any(), "several of one patient"
    left = np.bincount(some.patient[visible], minlength=int(some.patient.max()) + 1)
    assert 0 < (left == 0).sum() < len(left), "of some patients everything, of others a part"
    assert np.array_equal(before, cohort_arrays.labs, equal_nan=True)
