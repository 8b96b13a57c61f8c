"""Cohorts with known truth for the study of draws: values missing by covariates, or by the value (NumPy only)."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays, mix

Measuring = Literal["covariates", "value"]
MEAN, SLOPE = 7.0, 0.5  # of the population: the target's mean, and its regression on age
LAB = 0.6
BETWEEN, DRIFT, NOISE = 0.7, 0.5, 0.45
MEMORY_DAYS = 250.0


@dataclass(frozen=True)
class Cohort:
    """Visits as the program sees them, and the truth at every one."""

    visits: VisitArrays
    truth: FloatArray

    @property
    def age(self) -> FloatArray:
        """In standard units, one per visit."""
        return np.asarray(self.visits.attributes[:, 0])


def draw_cohort(measuring: Measuring, patients: int, rng: np.random.Generator) -> Cohort:
    """Patients with two to some ten visits; the target follows age, a lab, a level and a drift of their own."""
    count = 2 + rng.poisson(3.0, patients)
    number = np.repeat(np.arange(patients), count)
    time = _times(number, patients, rng)
    age, sex = rng.standard_normal(patients)[number], (rng.random(patients) < 0.5).astype(float)[number]
    lab, other = rng.standard_normal((2, len(number)))
    level = BETWEEN * rng.standard_normal(patients)[number]
    within = DRIFT * _course(number, time, rng) + NOISE * rng.standard_normal(len(number))
    truth = MEAN + SLOPE * age + LAB * lab + level + within
    shown = np.where(rng.random(len(number)) < 0.15, np.nan, lab)
    measured = _measured(measuring, age, shown, truth, rng)
    key = mix(number.astype(np.uint64))
    visits = VisitArrays(
        patient=number,
        time=time,
        labs=np.column_stack([np.where(measured, truth, np.nan), shown, other]),
        lab_names=("target", "lab", "other"),
        target=0,
        attributes=np.column_stack([age, sex]),
        attribute_names=("age", "sex"),
        patient_key=key,
        visit_key=mix(key ^ mix(np.round(time * 1000.0).astype(np.uint64))),
    )
    return Cohort(visits, truth)


def _measured(
    measuring: Measuring, age: FloatArray, lab: FloatArray, truth: FloatArray, rng: np.random.Generator
) -> BoolArray:
    """About half of the visits: by age and the lab the table shows, or the more often the higher the value."""
    logit = 0.1 - 0.8 * age - 0.8 * np.nan_to_num(lab)
    if measuring == "value":
        logit = 0.1 + 1.0 * (truth - MEAN)
    return np.asarray(rng.random(len(truth)) < 1.0 / (1.0 + np.exp(-np.clip(logit, -2.5, 2.5))))


def _times(number: IntArray, patients: int, rng: np.random.Generator) -> FloatArray:
    first = np.r_[True, number[1:] != number[:-1]]
    run = np.cumsum(np.where(first, 0.0, rng.lognormal(math.log(90.0), 0.6, len(number))))
    return np.asarray(run - run[first][number] + rng.uniform(0.0, 1500.0, patients)[number])


def _course(number: IntArray, time: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A standard normal course per patient that forgets."""
    course = rng.standard_normal(len(number))
    for row in range(1, len(course)):
        if number[row] == number[row - 1]:
            kept = math.exp(-(time[row] - time[row - 1]) / MEMORY_DAYS)
            course[row] = kept * course[row - 1] + math.sqrt(1.0 - kept**2) * course[row]
    return course
