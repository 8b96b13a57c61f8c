"""The flow on arrays: a question is fitted, its visits are weighed, and a release can be decided at any level.

The estimator and every evaluation run through these few functions, so that what is judged is what is shipped.
"""

from collections.abc import Sequence

import numpy as np

from safeimpute.learning.protocol import Estimates, Fitted
from safeimpute.machine.progress import Progress, part_of, silent
from safeimpute.machine.resources import steady_sums
from safeimpute.machine.state import Checkpoint
from safeimpute.selection.calibrated import Calibrated, Range, evidence_scope, late_results
from safeimpute.selection.enough import require_groups, require_sides
from safeimpute.selection.groups import make_grouping, shown_grouping
from safeimpute.selection.measuring.diagnosis import MeasuringDiagnosis, diagnose
from safeimpute.selection.measuring.features import measuring_table
from safeimpute.selection.measuring.model import MeasuringModel, Weights, learn_measuring
from safeimpute.selection.questions import Question
from safeimpute.selection.reasons import OUT_OF_SCOPE
from safeimpute.settings import Settings
from safeimpute.visits.arrays import FloatArray, VisitArrays


def fit_system(
    question: Question,
    settings: Settings,
    device: str = "cpu",
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> Fitted:
    """Fit the preset's system to what the question shows."""
    if settings.preset == "paper":
        from safeimpute.learning.paper.system import fit_paper

        return fit_paper(question.task, settings.paper, settings.random_state, device, progress)
    from safeimpute.learning.best.system import fit_best

    return fit_best(
        question.visits,
        settings.best,
        settings.allowed_error,
        settings.random_state,
        past_only=settings.past_only,
        calendar=settings.uses_calendar,
        device=device,
        progress=progress,
        checkpoint=checkpoint,
    )


@steady_sums()
def calibrate(
    question: Question,
    truth: FloatArray,
    estimates: Estimates,
    settings: Settings,
    plausible: Range | None = None,
    *,
    weigh: bool = True,
    limits: Sequence[float] = (),
) -> Calibrated:
    """Weigh the visits and say which of them the claim cannot cover; without `weigh`, all visits count alike.

    `limits` of the target that decisions hang on are where groups by value divide.
    """
    weight, measuring, diagnosis = np.ones(len(question.visits)), None, None
    beyond = ~question.recent  # visits before the period that calibrates are never within the promise
    if weigh and settings.claim != "visits" and (question.candidate & question.recent).any():
        measuring, found, diagnosis = _weigh(question, settings)
        weight, beyond = found.odds, found.outside | beyond
    outside = evidence_scope(estimates, plausible)
    if measuring is not None or beyond.any():
        outside[OUT_OF_SCOPE] = beyond
    grouping = None
    if settings.groups:
        grouping = make_grouping(
            settings.groups, question.visits, estimates.value, limits, past_only=settings.past_only
        )
    return Calibrated(
        question,
        truth,
        estimates,
        weight,
        outside,
        shown_grouping(question.visits, estimates.value, limits, past_only=settings.past_only),
        measuring,
        diagnosis,
        grouping,
        settings.risk_cap,
        late_results(question.visits, settings),
    )


def _weigh(question: Question, settings: Settings) -> tuple[MeasuringModel, Weights, MeasuringDiagnosis]:
    visits, seed, folds = question.visits, settings.random_state, settings.best.folds
    calendar, fold = settings.uses_calendar, question.fold
    table = measuring_table(visits, past_only=settings.past_only, calendar=calendar)
    measured, candidate = question.judged & question.recent, question.candidate & question.recent
    seen = measured | (visits.target_censored & question.recent)  # a result beyond a limit was measured too
    pace = settings.best.pace
    model = learn_measuring(table, visits.time, fold, folds, seen, candidate, seed, calendar=calendar, pace=pace)
    found = model.weigh(table, visits.time, fold)
    told = diagnose(model, table, found.odds, found.outside, measured, seen, candidate, visits.patient)
    return model, found, told


def fit_question(
    visits: VisitArrays,
    question: Question,
    settings: Settings,
    plausible: Range | None = None,
    device: str = "cpu",
    progress: Progress = silent,
    limits: Sequence[float] = (),
    checkpoint: Checkpoint | None = None,
) -> tuple[Fitted, Calibrated]:
    """Fit and calibrate in one go; `visits` holds every measured target, `checkpoint` folds fitted before."""
    require_groups(settings.groups, visits)
    require_sides(settings.target, visits.target_values, settings.allowed_error)
    weighed = settings.claim != "visits"
    fitted = fit_system(question, settings, device, part_of(progress, 0.0, 0.85 if weighed else 1.0), checkpoint)
    if weighed:
        progress("learning who gets measured", 0.85)
    return fitted, calibrate(question, visits.target_values, fitted.estimates, settings, plausible, limits=limits)
