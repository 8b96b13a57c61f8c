"""The learned risk: how likely an imputation is off by the tolerance or more, from errors out of sample.

It learns from training visits imputed by models that never saw them, and from validation visits; never from
calibration visits. What does not depend on the tolerance is done once (`prepare_risk`); another tolerance
refits `fit_risk` only. Any imputer can be ranked: `cross_fit` refits it on parts of the training visits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.splits.roles import Task
from safeimpute.systems.best.evidence import Evidence, EvidenceTable
from safeimpute.systems.protocol import FittedImputer, Imputation
from safeimpute.systems.state import Arrays, Plain, State
from safeimpute.systems.trees import (
    BLOCK_ROWS,
    BaggedTrees,
    BinnedRows,
    TreeSettings,
    bin_rows,
    fit_bagged_trees,
    patient_folds,
)
from safeimpute.tolerance import Tolerance

FOLDS = 5
LARGEST_RATIO = 5.0  # an error five times the tolerance says no more about ranking than a larger one
CAUTIOUS = TreeSettings(leaves=7, feature_share=0.3)
PROBABILITY = replace(CAUTIOUS, objective="binary", metric="binary_logloss")
SIZE = replace(CAUTIOUS, objective="regression", metric="l2")
COMPARED = ("course", "target previous", "target next", "own mean", "analogue mean")


@dataclass(frozen=True)
class RiskGround:
    """What a risk learns from, whatever the tolerance."""

    rows: IntArray  # visits it speaks of
    features: EvidenceTable
    binned: BinnedRows  # all of them
    value: FloatArray  # imputed out of sample, in the target's unit
    truth: FloatArray
    fold: IntArray
    spread: "SpreadModel"


@dataclass(frozen=True)
class SpreadModel:
    """Predicted absolute error, in the target's unit."""

    trees: BaggedTrees
    floor: float

    def spread(self, evidence: Evidence, imputation: Imputation) -> FloatArray:
        return np.maximum(_predicted(evidence, imputation, self.trees)[0], self.floor)

    def state(self) -> State:
        return {}, {"trees": self.trees.texts(), "floor": self.floor}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "SpreadModel":  # noqa: ARG003
        return cls(BaggedTrees.from_texts(plain["trees"]), plain["floor"])


@dataclass(frozen=True)
class FittedRisk:
    """Ranks imputations by their chance of being unacceptable under one tolerance."""

    probability: BaggedTrees
    ratio: BaggedTrees  # expected |error| in units of what is allowed
    out_of_fold: FloatArray  # risk at the visits it learnt from, by trees that never saw the patient

    def score(self, evidence: Evidence, imputation: Imputation) -> FloatArray:
        """A number in (0, 1) per visit; larger is riskier."""
        return _risk(*_predicted(evidence, imputation, self.probability, self.ratio))

    def state(self) -> State:
        return {}, {"probability": self.probability.texts(), "ratio": self.ratio.texts()}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "FittedRisk":  # noqa: ARG003
        probability, ratio = (BaggedTrees.from_texts(plain[name]) for name in ("probability", "ratio"))
        return cls(probability, ratio, out_of_fold=np.empty(0))


def cross_fit(
    task: Task,
    imputation: Imputation,
    refit: Callable[[Task], FittedImputer],
    rng: np.random.Generator,
    folds: int = FOLDS,
) -> Imputation:
    """`imputation` with every training visit replaced by what an imputer says that was fitted without it."""
    value, signals = imputation.value.copy(), {name: each.copy() for name, each in imputation.signals.items()}
    rows = rng.permutation(np.flatnonzero(task.training))
    for held_out in np.array_split(rows, folds):
        reduced = _without(task, held_out)
        honest = refit(reduced).impute(reduced)
        value[held_out] = honest.value[held_out]
        for name, column in signals.items():
            column[held_out] = honest.signals[name][held_out]
    return Imputation(value, signals)


def prepare_risk(
    task: Task, evidence: Evidence, out_of_sample: Imputation, rng: np.random.Generator
) -> RiskGround:
    """Gather the honest errors of training and validation visits and learn how large they are."""
    truth = np.where(task.training, task.visits.target_values, task.validation_target)
    rows = ~np.isnan(truth)
    features = risk_features(evidence, out_of_sample, np.flatnonzero(rows))
    binned = bin_rows(features, np.arange(len(features)))
    value, truth = out_of_sample.value[rows], truth[rows]
    fold = patient_folds(task.visits.patient, FOLDS, rng)[rows]
    spread = _fit_spread(binned, features, np.abs(value - truth), fold, int(rng.integers(2**31 - 1000)))
    return RiskGround(np.flatnonzero(rows), features, binned, value, truth, fold, spread)


def fit_risk(ground: RiskGround, tolerance: Tolerance, seed: int) -> FittedRisk:
    """Learn which of the honest errors reach the tolerance."""
    bad = tolerance.risky(ground.value, ground.truth)
    ratio = np.abs(ground.value - ground.truth) / tolerance.allowed(ground.truth)
    ratio = np.minimum(np.nan_to_num(ratio, nan=LARGEST_RATIO), LARGEST_RATIO)
    probability, held_out = fit_bagged_trees(
        ground.binned, ground.features, bad.astype(np.float64), ground.fold, PROBABILITY, seed
    )
    size, held_out_size = fit_bagged_trees(ground.binned, ground.features, ratio, ground.fold, SIZE, seed)
    return FittedRisk(probability, size, _risk(held_out, held_out_size))


def _risk(probability: FloatArray, ratio: FloatArray) -> FloatArray:
    """The mean of two estimates of the chance that an error reaches the tolerance.

    Were errors Laplace with mean `ratio` times what is allowed, exp(-1 / ratio) of them would.
    """
    return np.asarray((probability + np.exp(-1.0 / np.maximum(ratio, 1e-3))) / 2, dtype=np.float64)


def risk_features(evidence: Evidence, imputation: Imputation, rows: IntArray | None = None) -> EvidenceTable:
    """Evidence, the imputed value against each kind of evidence, and the imputer's own signals; at some rows or all."""
    part = slice(None) if rows is None else rows
    z = evidence.source.units.labs.standard(imputation.value[part], evidence.visits.target)
    apart = [z - evidence[name][part] for name in COMPARED if name in evidence.names]
    signals = [imputation.signals[name][part] for name in sorted(imputation.signals)]
    columns = [z, *apart, *(np.abs(each) for each in apart), *signals, *(np.abs(each) for each in signals)]
    wide = evidence.matrix.shape[1]
    table = np.empty((len(z), wide + len(columns)), np.float32)
    table[:, :wide] = evidence.matrix[part]
    for place, column in enumerate(columns, start=wide):
        table[:, place] = column
    return table


def _predicted(evidence: Evidence, imputation: Imputation, *models: BaggedTrees) -> list[FloatArray]:
    """Several models at every visit, block by block: the features of all visits never exist at once."""
    found = [np.empty(len(evidence)) for _ in models]
    for start in range(0, len(evidence), BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, len(evidence)))
        features = risk_features(evidence, imputation, rows)
        for each, model in zip(found, models, strict=True):
            each[rows] = model.predict(features)
    return found


def _fit_spread(
    binned: BinnedRows, features: EvidenceTable, error: FloatArray, fold: IntArray, seed: int
) -> SpreadModel:
    capped = np.minimum(error, np.quantile(error, 0.99))
    trees, _ = fit_bagged_trees(binned, features, capped, fold, SIZE, seed)
    return SpreadModel(trees, floor=float(np.median(error)) / 10)


def _without(task: Task, rows: IntArray) -> Task:
    target = task.visits.target_values.copy()
    target[rows] = np.nan
    return Task(task.visits.with_target(target), task.validation_target)
