"""Random thinning of a relation: an edge close to its threshold is dropped more often than a firm one."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray
from safeimpute.settings import PerturbationSettings
from safeimpute.systems.paper.edges import Edges


def keep_probability(edges: Edges, settings: PerturbationSettings) -> FloatArray:
    """pi = least + (most - least) * margin ** sharpness, per edge. Equation 26."""
    return settings.least + (settings.most - settings.least) * edges.margin**settings.sharpness


def draw_kept(probability: NDArray[np.floating[Any]], rng: np.random.Generator) -> BoolArray:
    """One draw per undirected edge, so both directions live or die together."""
    return rng.random(len(probability), dtype=np.float32) < probability
