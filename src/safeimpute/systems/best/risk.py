"""The learned risk: how likely an imputation is off by the tolerance or more, learnt from errors out of sample.

It learns from visits imputed by members that never saw their patient; the risk of a fold learns nothing from that
fold. Any imputer can be ranked by it: it needs features, imputed values and what was measured.
"""

from dataclasses import dataclass, replace

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.systems.best.blend import Blended
from safeimpute.systems.best.evidence import Evidence, EvidenceTable
from safeimpute.systems.trees import COARSE, BaggedTrees, TreeSettings, bin_rows, fit_bagged_trees
from safeimpute.tolerance import Tolerance

LARGEST_RATIO = 5.0  # an error five times the tolerance says no more about ranking than a larger one
CAUTIOUS = TreeSettings(leaves=7, feature_share=0.3)
PROBABILITY = replace(CAUTIOUS, objective="binary", metric="binary_logloss")
SIZE = replace(CAUTIOUS, objective="regression", metric="l2")
COMPARED = ("course", "target previous", "target next", "own mean", "analogue mean")


@dataclass(frozen=True)
class RiskModel:
    """Ranks imputations by their chance of being unacceptable under one tolerance."""

    probability: BaggedTrees
    ratio: BaggedTrees  # expected |error| in units of what is allowed
    tolerance: Tolerance

    def judge(self, features: EvidenceTable, value: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Per visit the risk, in (0, 1), larger is riskier, and the expected size of the error in the target's unit.

        The risk is the mean of two estimates of the chance that an error reaches the tolerance: were errors Laplace
        with mean `ratio` times what is allowed, exp(-1 / ratio) of them would.
        """
        ratio = np.maximum(self.ratio.predict(features), 1e-3)
        risk = (self.probability.predict(features) + np.exp(-1.0 / ratio)) / 2
        return risk, ratio * np.maximum(self.tolerance.allowed(value), 1e-12)


def fit_risk(
    features: EvidenceTable,
    value: FloatArray,
    truth: FloatArray,
    fold: IntArray,
    tolerance: Tolerance,
    seed: int,
    pace: float = 1.0,
    smallest_bin: int = COARSE,
) -> RiskModel:
    """Learn which errors reach the tolerance, from visits whose `value` was imputed without their patient."""
    risky = tolerance.risky(value, truth).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(value - truth) / tolerance.allowed(truth)
    counted = ratio[np.isfinite(ratio)]  # where no error is allowed, any is the largest
    largest = max(LARGEST_RATIO, float(np.quantile(counted, 0.9)) if len(counted) else 0.0)
    ratio = np.where(np.isfinite(ratio), np.minimum(ratio, largest), largest)
    binned = bin_rows(features, np.arange(len(features)), smallest_bin)
    probability, _ = fit_bagged_trees(binned, features, risky, fold, PROBABILITY.at_pace(pace), seed)
    size, _ = fit_bagged_trees(binned, features, ratio, fold, SIZE.at_pace(pace), seed)
    return RiskModel(probability, size, tolerance)


def risk_features(evidence: Evidence, blended: Blended, *, calendar: bool) -> EvidenceTable:
    """Evidence, the imputed value against each kind of it, how far the parts stand apart, the joint
    course's standard deviation, and absolute time.
    """
    compared = [blended.z - evidence[name] for name in COMPARED if name in evidence.names]
    apart = [blended.apart[name] for name in sorted(blended.apart)]
    columns = [blended.z, *compared, *apart, *(np.abs(each) for each in (*compared, *apart))]
    columns += [evidence.joint[:, 1], *([evidence.time] if calendar else [])]
    wide = evidence.matrix.shape[1]
    table = np.empty((len(evidence), wide + len(columns)), np.float32)
    table[:, :wide] = evidence.matrix
    for place, column in enumerate(columns, start=wide):
        table[:, place] = column
    return table
