"""Values by boosted trees, and their blend with the courses: one weight each, learnt across patients."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, permutations

import numpy as np

from safeimpute.learning.best.evidence import Evidence, Source
from safeimpute.learning.trees import BaggedTrees, BinnedRows, TreeSettings, fit_bagged_trees
from safeimpute.visits.arrays import FloatArray, IntArray

BRISK = TreeSettings(learning_rate=0.14, patience=18)
DIRECT = replace(BRISK, objective="regression")
BEYOND_COURSE = replace(BRISK, objective="huber", options={"alpha": 0.3})
BINS = 63  # of a column at most
MANY = 5_000  # targets; beyond it larger trees pay, and the blend leans little on trees that predict the target itself


@dataclass(frozen=True)
class BoostedTarget:
    """Trees whose output is the target, or is added to the course; in standard units."""

    trees: BaggedTrees
    beyond_course: bool

    def predict(self, evidence: Evidence) -> FloatArray:
        """The target at every visit read, in standard units."""
        base = evidence.course if self.beyond_course else 0.0
        return base + self.trees.predict(evidence.matrix)


def fit_boosted(
    evidence: Evidence, binned: BinnedRows, fold: IntArray, seed: int, *, beyond_course: bool, pace: float = 1.0
) -> tuple[BoostedTarget, FloatArray]:
    """Fit to the visits' own targets; also, at each visit, the prediction of the member that never saw its patient."""
    base = evidence.course if beyond_course else np.zeros(len(fold))
    settings = _grown(BEYOND_COURSE if beyond_course else DIRECT, len(fold))
    trees, out_of_fold = fit_bagged_trees(
        binned, evidence.matrix, evidence.target - base, fold, settings.at_pace(pace), seed
    )
    return BoostedTarget(trees, beyond_course), base + out_of_fold


def _grown(settings: TreeSettings, targets: int) -> TreeSettings:
    """Trees as large, and those of the target itself learning as fast, as so many targets allow."""
    if targets <= MANY:
        return settings
    larger = replace(settings, leaves=31)
    return replace(larger, learning_rate=0.2, patience=15) if settings is DIRECT else larger


GRID = 20  # weights are multiples of 1 / GRID; those of 2 / GRID are tried first, then neighbours
ROWS_TO_WEIGH = 20_000
Predictions = Mapping[str, FloatArray]  # by part, in standard units


@dataclass(frozen=True)
class Blended:
    """The blend at some visits, in standard units, and how far each part stands from it."""

    z: FloatArray
    apart: Predictions


def blend(predictions: Predictions, weights: Mapping[str, float]) -> Blended:
    """Weigh the parts' predictions."""
    z: FloatArray = np.stack([weights[name] * predictions[name] for name in weights]).sum(axis=0)
    return Blended(z, {name: each - z for name, each in predictions.items()})


def convex_weights(
    predictions: Predictions, target: FloatArray, source: Source, rng: np.random.Generator
) -> dict[str, float]:
    """The grid point of the simplex with the least mean absolute error in the target's unit.

    `predictions` come from members that never saw the patient; `target` is in standard units.
    """
    rows = np.arange(len(target))
    if len(rows) > ROWS_TO_WEIGH:
        rows = rng.choice(rows, ROWS_TO_WEIGH, replace=False)
    table = np.stack([each[rows] for each in predictions.values()])
    units, truth = source.units.labs, source.units.labs.in_unit(target[rows], source.target)

    def error(steps: IntArray) -> float:
        return float(np.mean(np.abs(units.in_unit(steps / GRID @ table, source.target) - truth)))

    best = min(2 * _simplex(len(table), GRID // 2), key=error)
    while (nearby := min(_neighbours(best), key=error)) is not best:
        best = nearby
    return {name: float(steps / GRID) for name, steps in zip(predictions, best, strict=True)}


def _simplex(parts: int, total: int) -> IntArray:
    """All ways to share `total` among `parts`."""
    bars = np.array(list(combinations(range(total + parts - 1), parts - 1)), dtype=np.int64)
    edges = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), total + parts - 1)])
    return np.diff(edges, axis=1) - 1


def _neighbours(steps: IntArray) -> Iterator[IntArray]:
    """The point itself, and those that give one step from one part to another."""
    yield steps
    for giver, taker in permutations(range(len(steps)), 2):
        if steps[giver] > 0:
            moved = steps.copy()
            moved[giver], moved[taker] = steps[giver] - 1, steps[taker] + 1
            yield moved
