"""The blend: courses and two sets of boosted trees, combined by the convex weights with the least absolute error."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.systems.best.evidence import Source

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
