"""The joint rule taken apart for portions of patients, against the rule itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.selection.patients import (
    RESERVE,
    Everyone,
    candidate_counts,
    pool_calibration,
    release_unmeasured_of_new_patients,
    unmeasured_sizes,
)
from safeimpute.selection.thresholds import LabelledVisits
from safeimpute.selection.weighted import largest_release, least_release, prune


@given(
    st.lists(st.one_of(st.floats(0, 60), st.integers(0, 60).map(float)), max_size=60),
    st.floats(0.01, 1.0),
)
def test_pruning_by_counts_is_pruning(sizes: list[float], xi: float) -> None:
    size = np.array(sizes)
    kept = prune(size, np.ones(len(size), dtype=bool), xi)
    least, how_many = np.unique(least_release(xi * size), return_counts=True)
    most = largest_release(least, how_many)
    assert np.array_equal(least_release(xi * size) <= most, kept)
    assert kept.sum() == most


def test_the_largest_release_of_nobody() -> None:
    assert largest_release(np.empty(0, np.int64), np.empty(0, np.int64)) == 0
    assert largest_release(np.array([5]), np.array([4])) == 0
    assert largest_release(np.array([5]), np.array([5])) == 5
    assert largest_release(np.array([1, 9]), np.array([3, 7])) == 10


def test_portions_of_patients_release_the_same() -> None:
    rng = np.random.default_rng(7)
    some = 0
    for _ in range(30):
        candidates, own, calibration = (_visits(rng, patients) for patients in (40, 40, 60))
        thresholds, alpha, xi = np.linspace(0.05, 1.0, 20), 0.3, float(rng.random())
        expected = release_unmeasured_of_new_patients(candidates, own, calibration, thresholds, alpha, xi)
        pooled = pool_calibration(calibration, thresholds)
        portions = [range(7), range(7, 8), range(8, 40)]
        totals = sum(candidate_counts(_of(candidates, part), thresholds).sum(axis=0) for part in portions)
        everyone = Everyone(np.asarray(totals), 40)
        size = np.empty(len(candidates.risk))
        for part in portions:
            rows = np.isin(candidates.patient, part)
            size[rows] = unmeasured_sizes(
                _of(candidates, part), _of(own, part), pooled, everyone, thresholds, alpha
            )
        least = least_release(RESERVE * xi * np.nan_to_num(size, nan=1e9))
        counted, how_many = np.unique(least[~np.isnan(size)], return_counts=True)
        released = ~np.isnan(size) & (least <= largest_release(counted, how_many))
        assert np.array_equal(released, expected)
        some += int(expected.sum())
    assert some > 0


def _visits(rng: np.random.Generator, patients: int) -> LabelledVisits:
    patient = np.repeat(np.arange(patients), rng.integers(0, 9, patients))
    risk = rng.random(len(patient))
    bad = rng.random(len(patient)) < risk**2
    return LabelledVisits(patient, risk, rng.uniform(0.5, 2.0, len(patient)), patients, bad)


def _of(visits: LabelledVisits, patients: range) -> LabelledVisits:
    rows = np.isin(visits.patient, patients)
    return LabelledVisits(
        visits.patient[rows] - patients.start,
        visits.risk[rows],
        visits.weight[rows],
        len(patients),
        visits.bad[rows],
    )
