"""The risk of another tool's values, learnt from their errors at validation visits (arrays only)."""

import numpy as np

from safeimpute.learning.best.blend import Blended
from safeimpute.learning.best.evidence import learn_source, read_evidence
from safeimpute.learning.best.fold_model import deviation_in_unit, fit_risk, risk_features
from safeimpute.learning.protocol import Estimates, Imputation
from safeimpute.learning.roles import Task
from safeimpute.learning.trees import SMALL_BIN_ROWS, patient_folds
from safeimpute.settings import BestSettings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, Stream, generator

FOLDS = 5


def rank_by_validation(
    task: Task, imputation: Imputation, asked: BoolArray, tolerance: Tolerance, seed: int, device: str = "cpu"
) -> Estimates:
    """Estimates of the visits asked about (NaN elsewhere), their risk learnt from the errors at validation visits.

    Errors at training visits are in sample, hence of no use: the risk learns nothing from them. What it looks at is
    the evidence of `best`, the imputed value against it, and the method's own signals.
    """
    rng, settings = generator(seed, Stream.RISK), BestSettings()
    given = np.isfinite(imputation.value)  # a method may leave visits out
    taught = task.validation & given
    wanted = taught | (asked & given)
    source = learn_source(task.visits, settings, rng, past_only=False)
    evidence = read_evidence(task.visits, source, wanted, settings.block_visits, device)
    value = imputation.value[wanted]
    apart = {name: column[wanted] for name, column in imputation.signals.items()}
    blended = Blended(source.units.labs.standard(value, source.target), apart)
    features = risk_features(evidence, blended, calendar=True)
    deviation = deviation_in_unit(source, evidence, blended.z)
    learn, truth = taught[wanted], task.validation_target[taught]
    shown = features[learn], value[learn], deviation[learn], truth, _folds(task.visits.patient[taught], rng)
    model = fit_risk(*shown, tolerance, seed, smallest_bin=SMALL_BIN_ROWS)
    risk, spread, above = (_at(wanted, column) for column in model.judge(features, value, deviation))
    nothing = np.ones(len(wanted), dtype=bool)
    nothing[wanted] = evidence.nothing_known
    return Estimates(imputation.value, risk, spread, nothing, tolerance, imputation.signals, above)


def _folds(patient: IntArray, rng: np.random.Generator) -> IntArray:
    """Folds of the patients that have a validation visit, so that none is empty."""
    return patient_folds(np.unique(patient, return_inverse=True)[1], FOLDS, rng)


def _at(wanted: BoolArray, column: FloatArray) -> FloatArray:
    """A column of the wanted visits among all visits."""
    whole = np.full((len(wanted), *column.shape[1:]), np.nan)
    whole[wanted] = column
    return whole
