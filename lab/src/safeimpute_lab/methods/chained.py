"""Chained equations: each column predicted from all others in turn, by ridge (MICE) or forests (MissForest)."""

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import BayesianRidge

from safeimpute.learning.roles import Task
from safeimpute.machine.resources import thread_count
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray
from safeimpute_lab.methods.table import TARGET, FittedOnTable, Predict, fit_on_table, only_for, without_target

ROUNDS = 10
TREES = 100
SMALLEST_SPLIT = 6  # randomForest's node size of 5 for regression: larger nodes are split


class Mice:
    """Round-robin Bayesian ridge regressions; the point estimate is the chain's conditional mean, or one draw."""

    def __init__(self, *, draw: bool = False) -> None:
        self.draw = draw

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        seed = int(rng.integers(2**31))

        def learn(table: FloatArray) -> Predict:
            chain = IterativeImputer(
                BayesianRidge(),
                max_iter=ROUNDS,
                random_state=seed,
                skip_complete=True,
                keep_empty_features=True,
                sample_posterior=self.draw,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # ten rounds are the published rule
                chain.fit(table)
            return lambda asked: np.asarray(chain.transform(without_target(asked))[:, TARGET], dtype=np.float64)

        return fit_on_table(task, learn)


class MissForest:
    """Round-robin random forests, stopped when the imputed values first move more than the round before.

    Forests are dropped as soon as their column is filled: kept for all columns and rounds they would need
    tens of gigabytes on a large cohort.
    """

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        return fit_on_table(task, lambda table: only_for(table, _target(table, rng)))


def _target(table: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The settled target; where it was visible, what the trees say that were grown without that visit."""
    settled = _settled(table, rng)
    visible = ~np.isnan(table[:, TARGET])
    forest = _forest(rng, out_of_bag=True)
    forest.fit(np.delete(settled, TARGET, axis=1)[visible], table[visible, TARGET])
    target: FloatArray = settled[:, TARGET]
    target[visible] = forest.oob_prediction_
    return target


def _settled(table: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The table of the last round before the movement grew."""
    missing = np.isnan(table)
    filled = np.where(missing, np.nanmean(table, axis=0), table)
    least = np.inf
    for after in _rounds(filled, missing, rng):
        moved = float(np.sum((after - filled) ** 2) / max(np.sum(after[missing] ** 2), 1e-12))
        if moved >= least:
            break
        filled, least = after, moved
    return filled


def _rounds(filled: FloatArray, missing: BoolArray, rng: np.random.Generator) -> Iterator[FloatArray]:
    order = _fewest_missing_first(missing)
    for _ in range(ROUNDS):
        filled = filled.copy()
        for column in order:
            filled[missing[:, column], column] = _forest_prediction(filled, missing[:, column], column, rng)
        yield filled


def _fewest_missing_first(missing: BoolArray) -> IntArray:
    count = missing.sum(axis=0)
    order = np.argsort(count, kind="stable")
    incomplete: IntArray = order[count[order] > 0]
    return incomplete


def _forest_prediction(filled: FloatArray, hidden: BoolArray, column: int, rng: np.random.Generator) -> FloatArray:
    others = np.delete(filled, column, axis=1)
    forest = _forest(rng).fit(others[~hidden], filled[~hidden, column])
    return np.asarray(forest.predict(others[hidden]), dtype=np.float64)


def _forest(rng: np.random.Generator, out_of_bag: bool = False) -> RandomForestRegressor:
    return RandomForestRegressor(
        TREES,
        max_features="sqrt",
        min_samples_split=SMALLEST_SPLIT,
        oob_score=out_of_bag,
        n_jobs=thread_count(),
        random_state=int(rng.integers(2**31)),
    )
