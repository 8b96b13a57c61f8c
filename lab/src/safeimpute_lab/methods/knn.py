"""K nearest neighbours: the mean target of the ten training visits most alike in what both have measured."""

import numpy as np
from sklearn import config_context
from sklearn.impute import KNNImputer

from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.methods.table import TARGET, FittedOnTable, Predict, fit_on_table, without_target

NEIGHBOURS = 10
ROWS_AT_ONCE = 2_000
MEGABYTES_OF_DISTANCES = 256


class NearestNeighbours:
    """scikit-learn's imputer; only visits with a visible target can give one, so only these are searched."""

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        return fit_on_table(task, _learn)


def _learn(table: FloatArray) -> Predict:
    donors = table[~np.isnan(table[:, TARGET])]
    imputer = KNNImputer(n_neighbors=NEIGHBOURS, keep_empty_features=True).fit(donors)

    def predict(asked: FloatArray) -> FloatArray:
        hidden = without_target(asked)
        starts = range(0, len(hidden), ROWS_AT_ONCE)
        with config_context(working_memory=MEGABYTES_OF_DISTANCES):
            parts = [imputer.transform(hidden[at : at + ROWS_AT_ONCE])[:, TARGET] for at in starts]
        return np.concatenate(parts)

    return predict
