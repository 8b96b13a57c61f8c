"""The paper's hold-out for any method: a risk learnt from its own validation errors, a release under claim `visits`."""

import numpy as np

from safeimpute.benchmark.tasks import held_out_task
from safeimpute.evaluation.trials import Trial
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.selection.calibrate import Range, calibrate
from safeimpute.settings import BestSettings, Settings
from safeimpute.splits.questions import question_of
from safeimpute.splits.roles import Roles, Task
from safeimpute.splits.streams import Stream, generator
from safeimpute.systems.best.blend import Blended
from safeimpute.systems.best.evidence import learn_source, read_evidence
from safeimpute.systems.best.risk import fit_risk, risk_features
from safeimpute.systems.protocol import Estimates, Imputation, Imputer
from safeimpute.systems.trees import patient_folds
from safeimpute.tolerance import Tolerance

FOLDS = 5


def impute_held_out(
    imputer: Imputer,
    visits: VisitArrays,
    roles: Roles,
    seed: int,
    *,
    stops: bool = True,
    device: str = "cpu",
) -> Imputation:
    """The second fit of a method: 70 % of what is not tested is visible, calibration and test are hidden."""
    task = held_out_task(visits, roles, stops=stops)
    return imputer.fit(task, generator(seed, Stream.FIT), device).impute(task)


def hold_out_trial(
    visits: VisitArrays,
    imputation: Imputation,
    roles: Roles,
    settings: Settings,
    plausible: Range | None = None,
    device: str = "cpu",
) -> Trial:
    """A method's values with a risk from its validation errors, ready to be released; the settings claim `visits`."""
    question = question_of(visits, "paper", settings.claim, roles)
    asked = question.judged | question.candidate
    estimates = rank_by_validation(
        question.task, imputation, asked, settings.allowed_error, settings.random_state, device
    )
    calibrated = calibrate(question, visits.target_values, estimates, settings, plausible)
    return Trial(calibrated, visits.target_values, settings, {})


def rank_by_validation(
    task: Task, imputation: Imputation, asked: BoolArray, tolerance: Tolerance, seed: int, device: str = "cpu"
) -> Estimates:
    """Estimates of the visits asked about (NaN elsewhere), their risk learnt from the errors at validation visits.

    Errors at training visits are in sample, hence of no use: the risk learns nothing from them. What it looks at is
    the evidence of `best`, the imputed value against it, and the method's own signals.
    """
    rng, wanted, settings = generator(seed, Stream.RISK), task.validation | asked, BestSettings()
    source = learn_source(task.visits, settings, rng, past_only=False)
    evidence = read_evidence(task.visits, source, wanted, settings.block_visits, device)
    value = imputation.value[wanted]
    apart = {name: column[wanted] for name, column in imputation.signals.items()}
    blended = Blended(source.units.labs.standard(value, source.target), apart)
    features = risk_features(evidence, blended, calendar=True)
    learn, truth = task.validation[wanted], task.validation_target[task.validation]
    fold = _folds(task.visits.patient[task.validation], rng)
    model = fit_risk(features[learn], value[learn], truth, fold, tolerance, seed)
    risk, spread = (_at(wanted, column) for column in model.judge(features, value))
    nothing = np.ones(len(wanted), dtype=bool)
    nothing[wanted] = evidence.nothing_known
    return Estimates(imputation.value, risk, spread, nothing, tolerance, imputation.signals)


def _folds(patient: IntArray, rng: np.random.Generator) -> IntArray:
    """Folds of the patients that have a validation visit, so that none is empty."""
    return patient_folds(np.unique(patient, return_inverse=True)[1], FOLDS, rng)


def _at(wanted: BoolArray, column: FloatArray) -> FloatArray:
    """A column of the wanted visits among all visits."""
    whole = np.full(len(wanted), np.nan)
    whole[wanted] = column
    return whole
