"""Bagged gradient-boosted trees: one model per fold of patients, stopped early on the fold it never saw.

The same out-of-fold predictions that stop the training serve blending and risk as honest errors.
"""

from dataclasses import dataclass, field
from typing import Any

import lightgbm as lgb
import numpy as np

from safeimpute.graph.neighbour_pairs import thread_count
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray

SMALL_TABLE = 10_000  # rows


@dataclass(frozen=True)
class TreeSettings:
    """How the trees grow; small leaves' worth of regularisation, since most cohorts are small."""

    objective: str = "regression"
    metric: str = "l1"
    learning_rate: float = 0.05
    leaves: int = 15
    smallest_leaf: int = 20
    feature_share: float = 0.5
    row_share: float = 0.8
    rounds: int = 2000
    patience: int = 50
    options: dict[str, Any] = field(default_factory=dict)  # of the objective


@dataclass(frozen=True)
class BaggedTrees:
    """The trees of every fold; predictions are averaged."""

    members: tuple[lgb.Booster, ...]

    def predict(self, matrix: FloatArray) -> FloatArray:
        mean: FloatArray = np.mean([predict_trees(member, matrix) for member in self.members], axis=0)
        return mean

    def texts(self) -> list[str]:
        return [member.model_to_string() for member in self.members]

    @classmethod
    def from_texts(cls, texts: list[str]) -> "BaggedTrees":
        return cls(tuple(lgb.Booster(model_str=text) for text in texts))


def patient_folds(patient: IntArray, folds: int, rng: np.random.Generator) -> IntArray:
    """A fold for every visit; a patient's visits share one, unless there are fewer patients than folds."""
    patients = int(patient.max(initial=-1)) + 1
    if patients < folds:
        return rng.permutation(len(patient)) % folds
    fold: IntArray = (rng.permutation(patients) % folds)[patient]
    return fold


def fit_bagged_trees(
    matrix: FloatArray, label: FloatArray, rows: BoolArray, fold: IntArray, settings: TreeSettings, seed: int
) -> tuple[BaggedTrees, FloatArray]:
    """Trees on `rows`, and at those rows the prediction of the member that never saw the patient."""
    members, out_of_fold = [], np.full(len(label), np.nan)
    for held_out in np.unique(fold[rows]):
        learning, stopping = rows & (fold != held_out), rows & (fold == held_out)
        member = train_trees(matrix, label, learning, stopping, settings, seed + int(held_out))
        out_of_fold[stopping] = predict_trees(member, matrix[stopping])
        members.append(member)
    return BaggedTrees(tuple(members)), out_of_fold


def train_trees(
    matrix: FloatArray,
    label: FloatArray,
    learning: BoolArray,
    stopping: BoolArray,
    settings: TreeSettings,
    seed: int,
) -> lgb.Booster:
    parameters = {
        "objective": settings.objective,
        "metric": settings.metric,
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.smallest_leaf,
        "feature_fraction": settings.feature_share,
        "bagging_fraction": settings.row_share,
        "bagging_freq": 1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": _threads(int(learning.sum())),
        "verbose": -1,
        **settings.options,
    }
    return lgb.train(
        parameters,
        lgb.Dataset(matrix[learning], label[learning]),
        settings.rounds,
        valid_sets=[lgb.Dataset(matrix[stopping], label[stopping])],
        callbacks=[lgb.early_stopping(settings.patience, verbose=False)],
    )


def predict_trees(member: lgb.Booster, matrix: FloatArray) -> FloatArray:
    return np.asarray(member.predict(matrix, num_threads=_threads(len(matrix))), dtype=np.float64)


def _threads(rows: int) -> int:
    """On small tables threads wait for each other longer than they work."""
    return 1 if rows < SMALL_TABLE else thread_count()
