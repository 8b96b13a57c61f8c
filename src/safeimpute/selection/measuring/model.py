"""Who gets measured: the odds that a visit is one of those nobody measured, from what the table shows.

Odds w(x) = P(unmeasured | x) / P(measured | x) let measured visits speak for unmeasured ones. Every visit is weighed
by the model of its own fold, learnt from the measured and unmeasured visits of other folds' patients.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from safeimpute.learning.trees import Table, TreeSettings, raw_trees, train_trees, tree_from_text
from safeimpute.machine.resources import side_by_side, steady_sums
from safeimpute.machine.state import Arrays, Plain, State
from safeimpute.selection.logistic import newton
from safeimpute.selection.measuring.features import MeasuringTable
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, Stream, generator

if TYPE_CHECKING:
    import lightgbm as lgb

RIDGE = 1.0  # on columns in standard units
LEVEL_RIDGE = (
    0.1  # on a level of a high-cardinality column: it has few visits, and a site that rarely measures must show
)
FAR = 4.0  # standard units; farther counts as this far
MOST_ROWS = 50_000  # learnt from
BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class Logistic:
    """Coefficients, and how columns become regressors: standard units, absence, levels of high-cardinality columns."""

    coefficients: FloatArray
    centre: FloatArray
    scale: FloatArray
    absent: BoolArray  # plain columns whose absence is a regressor
    plain: IntArray  # columns that are amounts
    high_cardinality: tuple[int, ...]
    levels: tuple[FloatArray, ...]  # of each high-cardinality column

    def logit(self, matrix: Table) -> FloatArray:
        """Log odds of being unmeasured, row by row."""
        found = np.empty(len(matrix))
        for start in range(0, len(matrix), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            # A row-wise product: a visit's bytes must not depend on the rows around it.
            found[part] = (self.regressors(matrix[part]) * self.coefficients).sum(axis=1)
        return found

    def regressors(self, matrix: Table) -> FloatArray:
        """One, amounts in standard units (0 where absent), absences, levels."""
        amounts = (matrix[:, self.plain].astype(np.float64) - self.centre) / self.scale
        missing = np.isnan(amounts)
        parts = [np.ones((len(matrix), 1)), np.where(missing, 0.0, np.clip(amounts, -FAR, FAR))]
        parts.append(missing[:, self.absent].astype(np.float64))
        for column, levels in zip(self.high_cardinality, self.levels, strict=True):
            parts.append((matrix[:, [column]] == levels).astype(np.float64))
        return np.ascontiguousarray(np.hstack(parts))  # rows in one piece: each is summed the same way, also alone

    def importance(self, columns: int) -> FloatArray:
        """Per column its share of the absolute coefficients, absence and levels counted with their column."""
        size = np.abs(self.coefficients[1:])
        found = np.zeros(columns)
        plain, absent = len(self.plain), int(self.absent.sum())
        found[self.plain] += size[:plain]
        found[self.plain[self.absent]] += size[plain : plain + absent] / 2
        place = plain + absent
        for column, levels in zip(self.high_cardinality, self.levels, strict=True):
            found[column] += size[place : place + len(levels)].mean() if len(levels) else 0.0
            place += len(levels)
        total = float(found.sum())
        return found / total if total > 0 else found


def fit_logistic(table: MeasuringTable, unmeasured: FloatArray, rows: IntArray, rng: np.random.Generator) -> Logistic:
    """Fit to some rows; Newton's method on the penalised likelihood."""
    if len(rows) > MOST_ROWS:
        rows = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    matrix, plain = table.matrix[rows], np.setdiff1d(np.arange(table.matrix.shape[1]), table.high_cardinality)
    amounts = matrix[:, plain].astype(np.float64)
    there = ~np.isnan(amounts)
    count = np.maximum(there.sum(axis=0), 1)
    centre = np.where(there, amounts, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(there, (amounts - centre) ** 2, 0.0).sum(axis=0) / count)
    share = there.mean(axis=0)
    start = Logistic(
        coefficients=np.empty(0),
        centre=centre,
        scale=np.where(spread > 0, spread, 1.0),
        absent=(share > 0.01) & (share < 0.99),
        plain=plain.astype(np.int64),
        high_cardinality=table.high_cardinality,
        levels=tuple(
            np.unique(matrix[:, k][~np.isnan(matrix[:, k])]).astype(np.float64) for k in table.high_cardinality
        ),
    )
    levels = sum(len(each) for each in start.levels)
    regressors = start.regressors(matrix)
    penalty = np.full(regressors.shape[1], RIDGE)
    penalty[0], penalty[len(penalty) - levels :] = 1e-6, LEVEL_RIDGE
    coefficients = newton(regressors, unmeasured[rows], penalty)
    return Logistic(**vars(start) | {"coefficients": coefficients})


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
                    name: each
                    for name, each in vars(member.plain).items()
                    if name not in ("high_cardinality", "levels")
                }
                arrays |= {start + name: each for name, each in plain.items()}
                arrays |= {f"{start}levels.{k}": each for k, each in enumerate(member.plain.levels)}
                members.append(
                    {"high_cardinality": list(member.plain.high_cardinality), "trees": member.trees.model_to_string()}
                )
            folds.append({name: each for name, each in vars(fold).items() if name != "members"} | {"members": members})
        return arrays, {"folds": folds, "columns": list(self.columns)}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "MeasuringModel":
        """What `state` took apart."""
        folds = []
        for number, facts in enumerate(plain["folds"]):
            members = tuple(_member(arrays, f"{number}.{place}.", each) for place, each in enumerate(facts["members"]))
            reach = None if facts["reach"] is None else (facts["reach"][0], facts["reach"][1])
            folds.append(FoldMeasuring(members, facts["overall"], reach, facts["most_visits"]))
        return cls(tuple(folds), tuple(plain["columns"]))


def _member(arrays: Arrays, start: str, facts: Plain) -> Member:
    names = ("coefficients", "centre", "scale", "absent", "plain")
    kept = {name: arrays[start + name] for name in names}
    kept["absent"] = kept["absent"].astype(bool)
    levels = tuple(arrays[f"{start}levels.{k}"] for k in range(len(facts["high_cardinality"])))
    plain = Logistic(**kept, high_cardinality=tuple(facts["high_cardinality"]), levels=levels)
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
            categories=table.high_cardinality,
            start=base,
        )
        members.append(Member(plain, trees))
    return tuple(members)
