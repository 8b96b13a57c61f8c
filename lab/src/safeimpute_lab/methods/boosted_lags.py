"""The bar to clear: gradient-boosted trees on lag features, the approach that won the public lab-imputation challenge.

Features: the current labs; each lab's previous and next value with its gap; the previous and next two visible
targets with gaps; the mean, number and spread of the patient's other visible targets; attributes; follow-up time.
"""

import lightgbm as lgb
import numpy as np

from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Task
from safeimpute.learning.scaling import Scaler, fit_scaler
from safeimpute.visits.arrays import NONE, BoolArray, FloatArray, IntArray, VisitArrays, first_visit, previous_observed

PARAMETERS = {
    "objective": "regression",
    "metric": "l1",
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
ROUNDS, PATIENCE = 1000, 50


class BoostedLags:
    """LightGBM on lag features, stopped early on the validation error."""

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> "FittedBoostedLags":
        visits = task.visits
        scaler = fit_scaler(visits.labs, visits.lab_names, task.training)
        matrix = lag_features(visits, scaler)
        target = scaler.standardise(visits.labs)[:, visits.target]
        checked = scaler.standardise(visits.with_target(task.validation_target).labs)[:, visits.target]
        rows, stop = task.training, task.validation
        parameters = PARAMETERS | {"seed": int(rng.integers(2**31))}
        booster = lgb.train(
            parameters,
            lgb.Dataset(matrix[rows], target[rows]),
            ROUNDS,
            valid_sets=[lgb.Dataset(matrix[stop], checked[stop])],
            callbacks=[lgb.early_stopping(PATIENCE, verbose=False)],
        )
        return FittedBoostedLags(booster, scaler)


class FittedBoostedLags:
    """Trees and the units they were grown in."""

    def __init__(self, booster: lgb.Booster, scaler: Scaler) -> None:
        self.booster, self.scaler = booster, scaler

    def impute(self, task: Task) -> Imputation:
        z = np.asarray(self.booster.predict(lag_features(task.visits, self.scaler)), dtype=np.float64)
        return Imputation(self.scaler.in_unit(z, task.visits.target))


def lag_features(visits: VisitArrays, scaler: Scaler) -> FloatArray:
    """One row per visit; a visit's own target is never among them."""
    z = scaler.standardise(visits.labs)
    target, patient = z[:, visits.target], visits.patient
    visible = ~np.isnan(target)
    before, after = previous_observed(patient, visible), next_observed(patient, visible)
    columns = [visits.time - visits.time[first_visit(patient)], *visits.attributes.T]
    for place in (before, _again(before, before), after, _again(after, after)):
        columns += _value_and_gap(target, visits.time, place)
    columns += _patient_summary(target, patient)
    for lab in visits.other_labs:
        observed = ~np.isnan(z[:, lab])
        columns.append(z[:, lab])
        for place in (previous_observed(patient, observed), next_observed(patient, observed)):
            columns += _value_and_gap(z[:, lab], visits.time, place)
    return np.column_stack(columns)


def _again(place: IntArray, step: IntArray) -> IntArray:
    return np.where(place == NONE, NONE, step[place])


def _value_and_gap(values: FloatArray, time: FloatArray, place: IntArray) -> list[FloatArray]:
    there = place != NONE
    return [np.where(there, values[place], np.nan), np.where(there, np.abs(time[place] - time), np.nan)]


def _patient_summary(target: FloatArray, patient: IntArray) -> list[FloatArray]:
    """Mean, number and spread of the patient's visible targets at other visits."""
    seen = ~np.isnan(target)
    value = np.where(seen, target, 0.0)
    count = np.bincount(patient, seen.astype(float))[patient] - seen
    total = np.bincount(patient, value)[patient] - value
    squares = np.bincount(patient, value**2)[patient] - value**2
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    spread = np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean**2, 0.0))
    return [mean, count.astype(np.float64), np.where(count > 1, spread, np.nan)]


def next_observed(patient: IntArray, observed: BoolArray) -> IntArray:
    """Row of the same patient's next later visit where `observed` holds, or NONE."""
    backwards = previous_observed(patient[::-1], observed[::-1])[::-1]
    return np.where(backwards == NONE, NONE, len(patient) - 1 - backwards)
