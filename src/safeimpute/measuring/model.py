"""Who gets measured: the odds that a visit is one of those nobody measured, from what the table shows.

Odds w(x) = P(unmeasured | x) / P(measured | x) let measured visits speak for unmeasured ones. Every visit is weighed
by the model of its own fold, learnt from the measured and unmeasured visits of other folds' patients.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from safeimpute.measuring.features import MeasuringTable
from safeimpute.measuring.logistic import Logistic, fit_logistic
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.runtime.state import Arrays, Plain, State
from safeimpute.runtime.threads import side_by_side, steady_sums
from safeimpute.splits.streams import Stream, generator
from safeimpute.systems.trees import Table, TreeSettings, raw_trees, train_trees, tree_from_text

if TYPE_CHECKING:
    import lightgbm as lgb

LARGEST_ODDS = 15.0  # times the overall odds; visits beyond it are outside the promise
FARTHEST = 2  # times the most visits of one patient learnt from; longer records are outside the promise
SMALL_TABLE = 20_000  # visits; up to it every fold's model is a bag with one member per other fold
MEASURING = TreeSettings(
    objective="binary",
    metric="binary_logloss",
    leaves=4,
    smallest_leaf=30,
    rounds=1000,
    options={"boost_from_average": False},  # they are added to the main effects
)


@dataclass(frozen=True)
class Weights:
    """Odds of being unmeasured at every visit, and which visits no promise can cover."""

    odds: FloatArray
    outside: BoolArray  # odds too large, or outside the range of time or of visits per patient learnt from


@dataclass(frozen=True)
class Member:
    """Main effects, and trees on what they leave."""

    plain: Logistic
    trees: "lgb.Booster"

    def logit(self, matrix: Table) -> FloatArray:
        """Log odds of being unmeasured."""
        return self.plain.logit(matrix) + raw_trees(self.trees, matrix)


@dataclass(frozen=True)
class FoldMeasuring:
    """Who gets measured among patients of other folds, and how far their records reach."""

    members: tuple[Member, ...]
    overall: float  # odds of all visits learnt from
    reach: tuple[float, float] | None  # first and last time learnt from; None: any time is like another
    most_visits: int  # of one patient

    def weigh(self, matrix: Table, time: FloatArray, visits_of_patient: IntArray) -> Weights:
        """Odds and scope of visits of patients this model never saw."""
        logit = np.zeros(len(matrix))
        for member in self.members:
            logit += member.logit(matrix)
        odds = np.exp(np.clip(logit / len(self.members), -20.0, 20.0))
        outside = (odds > LARGEST_ODDS * self.overall) | (visits_of_patient > self.most_visits)
        if self.reach is not None:
            outside |= (time < self.reach[0]) | (time > self.reach[1])
        return Weights(odds, outside)


@dataclass(frozen=True)
class MeasuringModel:
    """One model per fold."""

    folds: tuple[FoldMeasuring, ...]
    columns: tuple[str, ...]  # of the user's table that it used

    @steady_sums()
    def weigh(self, table: MeasuringTable, time: FloatArray, fold: IntArray) -> Weights:
        """Weigh every visit by the model of its patient's fold."""
        odds, outside = np.empty(len(fold)), np.empty(len(fold), dtype=bool)
        for number, model in enumerate(self.folds):
            rows = fold == number
            if rows.any():
                found = model.weigh(table.matrix[rows], time[rows], table.visits[rows])
                odds[rows], outside[rows] = found.odds, found.outside
        return Weights(odds, outside)

    def state(self) -> State:
        """Everything to store: arrays, and the rest as plain JSON."""
        arrays: Arrays = {}
        folds = []
        for number, fold in enumerate(self.folds):
            members = []
            for place, member in enumerate(fold.members):
                start = f"{number}.{place}."
                plain = {
                    name: each for name, each in vars(member.plain).items() if name not in ("fine", "levels")
                }
                arrays |= {start + name: each for name, each in plain.items()}
                arrays |= {f"{start}levels.{k}": each for k, each in enumerate(member.plain.levels)}
                members.append({"fine": list(member.plain.fine), "trees": member.trees.model_to_string()})
            folds.append(
                {name: each for name, each in vars(fold).items() if name != "members"} | {"members": members}
            )
        return arrays, {"folds": folds, "columns": list(self.columns)}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "MeasuringModel":
        """What `state` took apart."""
        folds = []
        for number, facts in enumerate(plain["folds"]):
            members = tuple(
                _member(arrays, f"{number}.{place}.", each) for place, each in enumerate(facts["members"])
            )
            reach = None if facts["reach"] is None else (facts["reach"][0], facts["reach"][1])
            folds.append(FoldMeasuring(members, facts["overall"], reach, facts["most_visits"]))
        return cls(tuple(folds), tuple(plain["columns"]))


def _member(arrays: Arrays, start: str, facts: Plain) -> Member:
    names = ("coefficients", "centre", "scale", "absent", "plain")
    kept = {name: arrays[start + name] for name in names}
    kept["absent"] = kept["absent"].astype(bool)
    levels = tuple(arrays[f"{start}levels.{k}"] for k in range(len(facts["fine"])))
    plain = Logistic(**kept, fine=tuple(facts["fine"]), levels=levels)
    return Member(plain, tree_from_text(facts["trees"]))


@steady_sums()
def learn_measuring(
    table: MeasuringTable,
    time: FloatArray,
    fold: IntArray,
    folds: int,
    measured: BoolArray,
    candidate: BoolArray,
    seed: int,
    *,
    calendar: bool,
    pace: float = 1.0,
) -> MeasuringModel:
    """Learn, for every fold, who is a candidate rather than measured among the patients of the other folds."""

    def of_fold(number: int) -> FoldMeasuring:
        others = fold != number
        learn = others & (measured | candidate)
        overall = int(np.sum(learn & candidate)) / max(int(np.sum(learn & measured)), 1)
        reach = (float(time[others].min()), float(time[others].max())) if calendar else None
        members = _bag(table, candidate.astype(np.float64), learn, fold, number, folds, seed, pace)
        most = FARTHEST * int(table.visits[others].max())
        return FoldMeasuring(members, overall, reach, most)

    own_rows = 0 if len(time) <= MEASURING.most_visits else len(time)  # the table itself is shared
    return MeasuringModel(tuple(side_by_side(of_fold, range(folds), own_rows)), table.columns)


def _bag(
    table: MeasuringTable,
    label: FloatArray,
    learn: BoolArray,
    fold: IntArray,
    number: int,
    folds: int,
    seed: int,
    pace: float,
) -> tuple[Member, ...]:
    """Members that each leave one other fold out and are stopped by it; one member where there is plenty to learn."""
    stops = [each for each in range(folds) if (learn & (fold == each)).any()]
    if int(learn.sum()) > SMALL_TABLE:
        stops = stops[number % len(stops) :][:1]
    rng = generator(seed, Stream.MEASURING, number)
    members = []
    for stop in stops:
        rows, held_out = learn & (fold != stop), learn & (fold == stop)
        plain = fit_logistic(table, label, np.flatnonzero(rows), rng)
        base = plain.logit(table.matrix)
        own_seed = int(rng.integers(2**31 - 1000))
        trees = train_trees(
            table.matrix,
            label,
            rows,
            held_out,
            MEASURING.at_pace(pace),
            own_seed,
            categories=table.fine,
            start=base,
        )
        members.append(Member(plain, trees))
    return tuple(members)
