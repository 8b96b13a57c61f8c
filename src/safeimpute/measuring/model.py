"""Who gets measured: the odds that a visit is one of those nobody measured, from what the table shows.

Odds w(x) = P(unmeasured | x) / P(measured | x) let measured visits speak for unmeasured ones. Every visit is weighed
by the model of its own fold, learnt from the measured and unmeasured visits of other folds' patients.
"""

from dataclasses import dataclass

import numpy as np

from safeimpute.measuring.features import MeasuringTable
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.runtime.threads import side_by_side
from safeimpute.splits.streams import Stream, generator
from safeimpute.systems.state import Arrays, Plain, State
from safeimpute.systems.trees import BaggedTrees, Table, TreeSettings, train_trees

LARGEST_ODDS = 10.0  # times the overall odds; visits beyond it are outside the promise
FARTHEST = 2  # times the most visits of one patient learnt from; longer records are outside the promise
SMALL_TABLE = 20_000  # visits; up to it every fold's model is a bag with one member per other fold
MEASURING = TreeSettings(
    objective="binary",
    metric="binary_logloss",
    learning_rate=0.05,
    leaves=4,
    smallest_leaf=30,
    rounds=1000,
)


@dataclass(frozen=True)
class Weights:
    """Odds of being unmeasured at every visit, and which visits no promise can cover."""

    odds: FloatArray
    outside: BoolArray  # odds too large, or outside the range of time or of visits per patient learnt from


@dataclass(frozen=True)
class FoldMeasuring:
    """Who gets measured among patients of other folds, and how far their records reach."""

    trees: BaggedTrees
    overall: float  # odds of all visits learnt from
    first_time: float
    last_time: float
    most_visits: int  # of one patient

    def weigh(self, matrix: Table, time: FloatArray, visits_of_patient: IntArray) -> Weights:
        """Odds and scope of visits of patients this model never saw."""
        probability = self.trees.predict(matrix)
        odds = np.maximum(probability, 1e-9) / np.maximum(1.0 - probability, 1e-9)
        outside = (odds > LARGEST_ODDS * self.overall) | (visits_of_patient > self.most_visits)
        return Weights(odds, outside | (time < self.first_time) | (time > self.last_time))


@dataclass(frozen=True)
class MeasuringModel:
    """One model per fold."""

    folds: tuple[FoldMeasuring, ...]
    columns: tuple[str, ...]  # of the user's table that it used

    def weigh(self, table: MeasuringTable, time: FloatArray, patient: IntArray, fold: IntArray) -> Weights:
        """Weigh every visit by the model of its patient's fold."""
        odds, outside = np.empty(len(fold)), np.empty(len(fold), dtype=bool)
        per_patient = np.bincount(patient)[patient] if len(patient) else patient
        for number, model in enumerate(self.folds):
            rows = fold == number
            if rows.any():
                found = model.weigh(table.matrix[rows], time[rows], per_patient[rows])
                odds[rows], outside[rows] = found.odds, found.outside
        return Weights(odds, outside)

    def state(self) -> State:
        """Everything to store, as plain JSON."""
        folds = [vars(model) | {"trees": model.trees.texts()} for model in self.folds]
        return {}, {"folds": folds, "columns": list(self.columns)}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "MeasuringModel":  # noqa: ARG003
        """What `state` took apart."""
        folds = [
            FoldMeasuring(**facts | {"trees": BaggedTrees.from_texts(facts["trees"])})
            for facts in plain["folds"]
        ]
        return cls(tuple(folds), tuple(plain["columns"]))


def learn_measuring(
    table: MeasuringTable,
    time: FloatArray,
    patient: IntArray,
    fold: IntArray,
    folds: int,
    measured: BoolArray,
    candidate: BoolArray,
    seed: int,
    *,
    calendar: bool,
) -> MeasuringModel:
    """Learn, for every fold, who is a candidate rather than measured among the patients of the other folds."""
    per_patient = np.bincount(patient)[patient]

    def of_fold(number: int) -> FoldMeasuring:
        others = fold != number
        learn = others & (measured | candidate)
        overall = int(np.sum(learn & candidate)) / max(int(np.sum(learn & measured)), 1)
        reach = (time[others].min(), time[others].max()) if calendar else (-np.inf, np.inf)
        trees = _bag(table, candidate.astype(np.float64), learn, fold, number, folds, seed)
        most = FARTHEST * int(per_patient[others].max())
        return FoldMeasuring(trees, overall, float(reach[0]), float(reach[1]), most)

    return MeasuringModel(tuple(side_by_side(of_fold, range(folds), len(time))), table.columns)


def _bag(
    table: MeasuringTable,
    label: FloatArray,
    learn: BoolArray,
    fold: IntArray,
    number: int,
    folds: int,
    seed: int,
) -> BaggedTrees:
    """Members that each leave one other fold out and are stopped by it; one member where there is plenty to learn."""
    stops = [each for each in range(folds) if (learn & (fold == each)).any()]
    if int(learn.sum()) > SMALL_TABLE:
        stops = stops[number % len(stops) :][:1]
    seeds = generator(seed, Stream.MEASURING, number).integers(2**31 - 1000, size=folds)
    return BaggedTrees(
        tuple(
            train_trees(
                table.matrix,
                label,
                learn & (fold != stop),
                learn & (fold == stop),
                MEASURING,
                int(seeds[stop]),
                categories=table.fine,
            )
            for stop in stops
        )
    )
