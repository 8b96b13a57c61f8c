"""Random thinning of a relation: an edge close to its threshold is dropped more often than a firm one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray
from safeimpute.systems.paper.edges import Edges


@dataclass(frozen=True)
class PerturbationSettings:
    """Keep probability of an edge with margin m: least + (most - least) * m ** sharpness."""

    passes: int = 20
    least: float = 0.5
    most: float = 0.95
    sharpness: float = 1.0


def keep_probability(edges: Edges, settings: PerturbationSettings) -> FloatArray:
    return settings.least + (settings.most - settings.least) * edges.margin**settings.sharpness


def draw_kept(probability: NDArray[np.floating[Any]], rng: np.random.Generator) -> BoolArray:
    """One draw per undirected edge, so both directions live or die together."""
    return rng.random(len(probability), dtype=np.float32) < probability
