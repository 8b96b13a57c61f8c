"""Boosted trees on evidence: one set predicts the target, another what the patient's course leaves open."""

from dataclasses import dataclass

import numpy as np

from safeimpute.graph.evidence import Evidence
from safeimpute.imputers.state import Arrays, Plain, State
from safeimpute.imputers.trees import BaggedTrees, TreeSettings, fit_bagged_trees
from safeimpute.records.arrays import FloatArray, IntArray

DIRECT = TreeSettings(objective="regression")
BEYOND_COURSE = TreeSettings(objective="huber", options={"alpha": 0.3})


@dataclass(frozen=True)
class BoostedTarget:
    """Trees whose output is the target, or is added to the kriged course; in standard units."""

    trees: BaggedTrees
    beyond_course: bool

    def predict(self, evidence: Evidence) -> FloatArray:
        base = evidence.kriged.mean if self.beyond_course else 0.0
        return base + self.trees.predict(evidence.matrix)

    def state(self) -> State:
        return {}, {"trees": self.trees.texts(), "beyond_course": self.beyond_course}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "BoostedTarget":  # noqa: ARG003
        return cls(BaggedTrees.from_texts(plain["trees"]), plain["beyond_course"])


def fit_boosted(
    evidence: Evidence, fold: IntArray, seed: int, *, beyond_course: bool
) -> tuple[BoostedTarget, FloatArray]:
    """Fit to the visible targets; also the out-of-fold predictions at those visits."""
    base = evidence.kriged.mean if beyond_course else np.zeros(len(fold))
    target = evidence.record.target
    settings = BEYOND_COURSE if beyond_course else DIRECT
    trees, out_of_fold = fit_bagged_trees(
        evidence.matrix, target - base, ~np.isnan(target), fold, settings, seed
    )
    return BoostedTarget(trees, beyond_course), base + out_of_fold
