"""A patient's course: the Gaussian conditional mean, and parameters found again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.learning.best.course import Course, Variances, fit_course, predict_course
from safeimpute.visits.arrays import NONE, FloatArray, nearest_own_visits


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.integers(0, 3), st.integers(0, 3))
def test_nearest_own_visits_agree_with_a_search_by_hand(rows: list[tuple[int, bool]], before: int, after: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    patient = np.array([row[0] for row in rows], dtype=np.int64)
    observed = np.array([row[1] for row in rows], dtype=bool)
    found = nearest_own_visits(patient, observed, before, after)
    for i in range(len(rows)):
        own = [j for j in range(len(rows)) if patient[j] == patient[i] and observed[j] and j != i]
        earlier, later = [j for j in own if j < i][::-1][:before], [j for j in own if j > i][:after]
        expected = earlier + [NONE] * (before - len(earlier)) + later + [NONE] * (after - len(later))
        assert found[i].tolist() == expected


def test_the_course_is_the_gaussian_conditional_mean() -> None:
    time = np.array([0.0, 30.0, 45.0, 200.0])
    target = np.array([1.0, np.nan, -0.5, 0.3])
    design = np.column_stack([np.ones(4), [0.2, -0.1, 0.4, 0.0]])
    course = Course(Variances(0.5, 0.8, 90.0, 0.3), np.array([0.1, 0.7]))
    own = nearest_own_visits(np.zeros(4, np.int64), ~np.isnan(target), 3, 3)
    predicted = predict_course(course, design, target, time, own, np.arange(4))
    for visit in range(4):
        others = [j for j in (0, 2, 3) if j != visit]
        gaps = np.abs(time[others][:, None] - time[others])
        among = 0.5 + 0.8 * np.exp(-gaps / 90) + 0.3 * np.eye(len(others))
        to_visit = 0.5 + 0.8 * np.exp(-np.abs(time[others] - time[visit]) / 90)
        residual = target[others] - design[others] @ course.coefficients
        mean = design[visit] @ course.coefficients + to_visit @ np.linalg.solve(among, residual)
        variance = 1.6 - to_visit @ np.linalg.solve(among, to_visit)
        assert predicted.mean[visit] == pytest.approx(mean)
        assert predicted.deviation[visit] == pytest.approx(np.sqrt(variance))
    some = predict_course(course, design, target, time, own, np.array([2]))
    assert some.mean.tobytes() == predicted.mean[2:3].tobytes()


def test_the_regression_and_the_memory_of_a_simulation_are_found_again() -> None:
    rng = np.random.default_rng(3)
    patients, each, memory = 400, 8, 100.0
    patient = np.repeat(np.arange(patients), each)
    time = np.cumsum(rng.exponential(40.0, (patients, each)), axis=1)
    drift = np.stack([_ornstein_uhlenbeck(row, memory, rng) for row in time]).ravel()
    design = np.column_stack([np.ones(len(patient)), rng.standard_normal(len(patient))])
    target = 0.8 * design[:, 1] + drift + 0.3 * rng.standard_normal(len(patient))
    own = nearest_own_visits(patient, np.ones(len(patient), bool), 6, 6)
    fitted = fit_course(design, target, time.ravel(), own, rng)
    assert fitted.coefficients[1] == pytest.approx(0.8, abs=0.05)
    assert fitted.variances.memory_days == pytest.approx(memory, rel=0.5)
    assert fitted.variances.drifting + fitted.variances.steady == pytest.approx(1.0, rel=0.35)
    assert fitted.variances.noise == pytest.approx(0.09, abs=0.06)
    predicted = predict_course(fitted, design, target, time.ravel(), own, np.arange(len(patient)))
    standardised = (target - predicted.mean) / predicted.deviation
    assert np.std(standardised) == pytest.approx(1.0, abs=0.07)


def _ornstein_uhlenbeck(time: FloatArray, memory: float, rng: np.random.Generator) -> FloatArray:
    level = [rng.standard_normal()]
    for gap in np.diff(time):
        keep = np.exp(-gap / memory)
        level.append(keep * level[-1] + np.sqrt(1 - keep**2) * rng.standard_normal())
    return np.array(level)
