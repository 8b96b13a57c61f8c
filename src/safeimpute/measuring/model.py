"""Who gets measured: the odds that a visit is one of those nobody measured, from what the table shows.

Weights w(x) = P(unmeasured | x) / P(measured | x) let measured calibration visits speak for unmeasured ones. They
are learnt from training, validation and unmeasured visits, never from calibration visits and never from a target
of the visit itself. Every visit, calibration or candidate, is weighed by models that saw none of its patient: one of
the folds where the patient taught the others, all of them where it taught none.
"""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.systems.best.evidence import EvidenceTable
from safeimpute.systems.state import Arrays, Plain, State
from safeimpute.systems.trees import BaggedTrees, TreeSettings, patient_folds, predict_trees, train_trees

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


@dataclass(frozen=True)
class MeasuringModel:
    """Who gets measured, frozen: one member per fold of the patients it was learnt from."""

    trees: BaggedTrees
    overall: float  # odds of all visits learnt from

    def odds(self, features: EvidenceTable) -> MeasuringOdds:
        """Weigh visits of patients that no member saw."""
        return _odds(self.trees.predict(features), self.overall)

    def state(self) -> State:
        return {}, {"trees": self.trees.texts(), "overall": self.overall}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "MeasuringModel":  # noqa: ARG003
        return cls(BaggedTrees.from_texts(plain["trees"]), plain["overall"])


def learn_measuring(
    features: EvidenceTable,
    unmeasured: BoolArray,
    learn: BoolArray,
    patient: IntArray,
    rng: np.random.Generator,
) -> tuple[MeasuringModel, MeasuringOdds]:
    """Learn from the visits marked by `learn` who gets measured; weigh every visit by its fold's own member."""
    fold = patient_folds(patient, FOLDS, rng)
    label, seed = unmeasured.astype(np.float64), int(rng.integers(2**31 - 1000))
    members, probability = [], np.empty(len(label))
    for number in range(FOLDS):
        own, stop = fold == number, fold == (number + 1) % FOLDS
        member = train_trees(features, label, learn & ~own & ~stop, learn & stop, MEASURING, seed + number)
        if own.any():
            probability[own] = predict_trees(member, features[own])
        members.append(member)
    overall = int(np.sum(learn & unmeasured)) / max(int(np.sum(learn & ~unmeasured)), 1)
    return MeasuringModel(BaggedTrees(tuple(members)), overall), _odds(probability, overall)


def _odds(probability: FloatArray, overall: float) -> MeasuringOdds:
    odds = np.maximum(probability, 1e-9) / np.maximum(1.0 - probability, 1e-9)
    return MeasuringOdds(odds, odds > LARGEST_ODDS * overall)
