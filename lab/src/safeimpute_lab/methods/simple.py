"""Three imputers anyone can do by hand: the mean, the last value carried forward, the patient's own mean."""

import numpy as np

from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import NONE, FloatArray, previous_observed


class Mean:
    """The mean of the training targets, everywhere."""

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> "Mean":
        self.mean_ = float(np.nanmean(task.visits.target_values))
        return self

    def impute(self, task: Task) -> Imputation:
        return Imputation(np.full(len(task.visits), self.mean_))


class LastValue(Mean):
    """The patient's last visible target before the visit; the overall mean where there is none."""

    def impute(self, task: Task) -> Imputation:
        visits = task.visits
        previous = previous_observed(visits.patient, task.training)
        carried = visits.target_values[previous]
        return Imputation(np.where(previous == NONE, self.mean_, carried))


class PatientMean(Mean):
    """The mean of the patient's other visible targets; the overall mean where there is none."""

    def impute(self, task: Task) -> Imputation:
        total, count = _others(task)
        return Imputation(np.where(count > 0, total / np.maximum(count, 1), self.mean_))


def _others(task: Task) -> tuple[FloatArray, FloatArray]:
    """Sum and number of the patient's visible targets at other visits."""
    patient, seen = task.visits.patient, task.training
    value = np.where(seen, task.visits.target_values, 0.0)
    total = np.bincount(patient, weights=value)[patient] - value
    count = np.bincount(patient, weights=seen.astype(np.float64))[patient] - seen
    return total.astype(np.float64), count.astype(np.float64)
