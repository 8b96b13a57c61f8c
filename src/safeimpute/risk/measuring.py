"""Who gets measured: the odds that a visit is one of those nobody measured, from what the table shows.

Weights w(x) = P(unmeasured | x) / P(measured | x) let measured calibration visits speak for unmeasured ones. They
are learnt from training, validation and unmeasured visits, never from calibration visits and never from a target
of the visit itself. Every visit, calibration or candidate, is weighed by a model that saw none of its patient.
"""

from dataclasses import dataclass

import numpy as np

from safeimpute.imputers.trees import TreeSettings, patient_folds, predict_trees, train_trees
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray

FOLDS = 5
LARGEST_ODDS = 10.0  # times the overall odds; visits beyond it are outside the promise
MEASURING = TreeSettings(
    objective="binary",
    metric="binary_logloss",
    learning_rate=0.05,
    leaves=4,
    smallest_leaf=30,
    rounds=1000,
)


@dataclass(frozen=True)
class MeasuringOdds:
    """Odds of being unmeasured at every visit, and which are too large to calibrate against."""

    odds: FloatArray
    too_large: BoolArray


def measuring_odds(
    features: FloatArray,
    unmeasured: BoolArray,
    learn: BoolArray,
    patient: IntArray,
    rng: np.random.Generator,
) -> MeasuringOdds:
    """Learn from the visits marked by `learn` who gets measured; weigh every visit."""
    fold = patient_folds(patient, FOLDS, rng)
    label, seed = unmeasured.astype(np.float64), int(rng.integers(2**31 - 1000))
    probability = np.empty(len(label))
    for number in range(FOLDS):
        own, stop = fold == number, fold == (number + 1) % FOLDS
        model = train_trees(features, label, learn & ~own & ~stop, learn & stop, MEASURING, seed + number)
        if own.any():
            probability[own] = predict_trees(model, features[own])
    overall = int(np.sum(learn & unmeasured)) / max(int(np.sum(learn & ~unmeasured)), 1)
    odds = np.maximum(probability, 1e-9) / np.maximum(1.0 - probability, 1e-9)
    return MeasuringOdds(odds, odds > LARGEST_ODDS * overall)
