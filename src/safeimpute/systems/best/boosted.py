"""Boosted trees on evidence: one set predicts the target, another what the patient's course leaves open."""

from dataclasses import dataclass, replace

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.systems.best.evidence import Evidence
from safeimpute.systems.trees import BaggedTrees, BinnedRows, TreeSettings, fit_bagged_trees

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
    evidence: Evidence,
    binned: BinnedRows,
    fold: IntArray,
    seed: int,
    *,
    beyond_course: bool,
    pace: float = 1.0,
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
