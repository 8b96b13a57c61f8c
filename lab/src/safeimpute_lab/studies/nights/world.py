"""Hospitals over two years for the study of nights: patients come back, measuring shifts, results are late.

NumPy only, so that it runs on a bare machine.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from safeimpute.visits.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute_lab.studies.guarantee.cohorts import (
    BY_KEY,
    _draw_labs,
    _draw_measuring,
    _draw_target,
    _Patients,
    _visit_arrays,
)

YEAR = 365.25
DRIFT_DAY = 456.0  # three months into the second year
LATE_SHARE, LATE_DAYS = 0.4, 6.0  # of the results, and by how much on average
IFCC_TIMES, IFCC_PLUS = 0.0915, 2.15  # % = times x mmol/mol + plus

Drift = Literal["none", "doubled", "halved", "unit"]
SCENARIO = BY_KEY["covariate"]


@dataclass(frozen=True)
class Hospital:
    """All visits of two years, and the truth at every one."""

    visits: VisitArrays
    truth: FloatArray

    def until(self, day: float) -> "Hospital":
        """As the table stood at the end of a day: no later visit, no result still on its way."""
        there = self.visits.time < day
        visits = self.visits
        if visits.known is not None:
            late = visits.known >= day
            visits = replace(
                visits, labs=np.where(late, np.nan, visits.labs), known=np.where(late, np.nan, visits.known)
            )
        return Hospital(visits.take(there), self.truth[there])


def draw_hospital(rng: np.random.Generator, patients: int, *, delayed: bool) -> Hospital:
    """Patients who enrol over two years and come back every few weeks; covariates decide who is measured."""
    who = _draw_comings(rng, patients)
    labs, deviation = _draw_labs(who, rng)
    truth = _draw_target(SCENARIO, who, deviation, rng)
    measured = _draw_measuring(SCENARIO, who, labs, rng)
    table = np.column_stack([np.where(measured, truth, np.nan), labs])
    visits = _visit_arrays(SCENARIO, who, table, np.arange(len(truth)), who.number, 0)
    if delayed:
        visits = replace(visits, known=_clocks(visits, rng))
    return Hospital(visits, truth)


def _draw_comings(rng: np.random.Generator, patients: int) -> _Patients:
    """A third is there from the first day on; gaps of about two months; everybody leaves at some time."""
    count = 2 + rng.poisson(9.0, patients)
    number = np.repeat(np.arange(patients), count)
    gaps = np.maximum(rng.lognormal(np.log(60.0), 0.6, len(number)), 1.0)
    first = np.r_[True, number[1:] != number[:-1]]
    run = np.cumsum(np.where(first, 0.0, gaps))
    start = np.where(rng.random(patients) < 0.35, rng.uniform(0, 40, patients), rng.uniform(0, 2 * YEAR, patients))
    time = np.floor(run - run[first][number] + start[number]) + 0.001 * np.arange(len(number)) % 0.5
    kept = time < 2 * YEAR
    number = np.unique(number[kept], return_inverse=True)[1].astype(np.int64)
    people = int(number.max()) + 1
    return _Patients(
        number,
        time[kept],
        np.bincount(number)[number],
        rng.standard_normal(people)[number],
        (rng.random(people) < 0.4).astype(np.float64)[number],
        rng.standard_normal(people)[number],
        rng.standard_normal(people)[number],
        rng.integers(0, 40, people)[number],
    )


def _clocks(visits: VisitArrays, rng: np.random.Generator) -> FloatArray:
    """When each value became known: most at the visit, targets often days later."""
    known = np.where(np.isnan(visits.labs), np.nan, visits.time[:, None])
    late = rng.random(len(visits)) < LATE_SHARE
    known[:, visits.target] += np.where(late, rng.exponential(LATE_DAYS, len(visits)), 0.0)
    return known


def drift(hospital: Hospital, kind: Drift, rng: np.random.Generator, sd: float = 0.0) -> Hospital:
    """The same hospital with something changed from the drift's day on."""
    visits, truth = hospital.visits, hospital.truth
    after: BoolArray = visits.time >= DRIFT_DAY
    target = visits.target_values
    if kind == "doubled":
        truth = truth + np.where(after, rng.normal(0, sd, len(truth)), 0.0)
        target = np.where(np.isnan(target), np.nan, truth)
    if kind == "halved":
        target = np.where(after & (rng.random(len(target)) < 0.5), np.nan, target)
    if kind == "unit":
        target = np.where(after, (target - IFCC_PLUS) / IFCC_TIMES, target)
    return Hospital(visits.with_target(target), truth)
