"""The blend: courses and two sets of boosted trees, combined by the convex weights with the least absolute error."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.systems.best.evidence import Source

GRID = 20  # weights are multiples of 1 / GRID
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

    def error(weights: FloatArray) -> float:
        return float(np.mean(np.abs(units.in_unit(weights @ table, source.target) - truth)))

    best = min(_simplex(len(table)) / GRID, key=error)
    return {name: float(weight) for name, weight in zip(predictions, best, strict=True)}


def _simplex(parts: int) -> IntArray:
    """All ways to share GRID among `parts`."""
    bars = np.array(list(combinations(range(GRID + parts - 1), parts - 1)), dtype=np.int64)
    edges = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), GRID + parts - 1)])
    return np.diff(edges, axis=1) - 1
