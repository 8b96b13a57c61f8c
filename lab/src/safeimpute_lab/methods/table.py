"""Visits as one table for methods that know neither patients nor time order: labs, attributes and follow-up.

Every tabular method reads the same table and answers with the target column in standard units; the way there
and back is shared, so no method can see more than another.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Task
from safeimpute.learning.scaling import Scaler, fit_scaler
from safeimpute.visits.arrays import FloatArray, IntArray, VisitArrays, first_visit

TARGET = 0  # the table's first column
FAR = 10.0  # standard units; beyond it a logarithmic lab's value could overflow

Predict = Callable[[FloatArray], FloatArray]  # from a table to its target column, in standard units


@dataclass(frozen=True)
class TableUnits:
    """Standard units of every column, and which columns carry something to learn from."""

    labs: Scaler
    others: Scaler  # attributes and follow-up time
    target: int  # among the labs
    kept: IntArray  # columns besides the target that vary over the training visits


@dataclass(frozen=True)
class FittedOnTable:
    """A trained tabular method with the units it was trained in."""

    units: TableUnits
    predict: Predict

    def impute(self, task: Task) -> Imputation:
        z = self.predict(read_table(task.visits, self.units))
        return Imputation(self.units.labs.in_unit(np.clip(z, -FAR, FAR), self.units.target))


def fit_on_table(task: Task, learn: Callable[[FloatArray], Predict]) -> FittedOnTable:
    """Train on the task's table; with no column to go by, every method's answer is the mean."""
    units = fit_units(task)
    if not len(units.kept):
        return FittedOnTable(units, lambda table: np.zeros(len(table)))
    return FittedOnTable(units, learn(read_table(task.visits, units)))


def without_target(table: FloatArray) -> FloatArray:
    """The table with every target hidden, so that a visit is imputed alike whether its target is visible or not."""
    hidden = table.copy()
    hidden[:, TARGET] = np.nan
    return hidden


def only_for(table: FloatArray, z: FloatArray) -> Predict:
    """The answer of a method that completes one table and learns nothing to take to another."""

    def predict(other: FloatArray) -> FloatArray:
        if not np.array_equal(other, table, equal_nan=True):
            raise ValueError("this method imputes only the visits it was fitted on")
        return z

    return predict


def fit_units(task: Task) -> TableUnits:
    """Learn units from the training visits; columns without spread there are left out."""
    visits, training = task.visits, task.training
    others = _other_columns(visits)
    lab_units = fit_scaler(visits.labs, visits.lab_names, training)
    other_units = fit_scaler(others, tuple("" for _ in others.T), training, log_labs=())
    joined = np.hstack([visits.labs[:, visits.other_labs], others])[training]
    kept = [column for column, seen in enumerate(joined.T) if np.nanmax(seen, initial=-np.inf) > _least(seen)]
    return TableUnits(lab_units, other_units, visits.target, np.array(kept, dtype=np.int64))


def read_table(visits: VisitArrays, units: TableUnits) -> FloatArray:
    """Visits x columns in standard units, the target first; NaN where nobody measured or it is hidden."""
    labs = units.labs.standardise(visits.labs)
    joined = np.hstack([labs[:, visits.other_labs], units.others.standardise(_other_columns(visits))])
    return np.column_stack([labs[:, visits.target], joined[:, units.kept]])


def _other_columns(visits: VisitArrays) -> FloatArray:
    return np.column_stack([visits.attributes, visits.time - visits.time[first_visit(visits.patient)]])


def _least(seen: FloatArray) -> float:
    return float(np.nanmin(seen, initial=np.inf))
