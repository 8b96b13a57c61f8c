"""The paper's hold-out for any method: a risk learnt from its own validation errors, a release under claim `visits`."""

from safeimpute.evaluation.trials import Trial
from safeimpute.foreign.ranking import rank_by_validation
from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Roles
from safeimpute.model.fit import calibrate
from safeimpute.selection.calibrated import Range
from safeimpute.selection.questions import question_of
from safeimpute.settings import Settings
from safeimpute.visits.arrays import Stream, VisitArrays, generator
from safeimpute_lab.benchmark.tasks import held_out_task
from safeimpute_lab.registry import Imputer


def impute_held_out(
    imputer: Imputer, visits: VisitArrays, roles: Roles, seed: int, *, stops: bool = True, device: str = "cpu"
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
    question = question_of(visits, settings, roles, validated=True)
    asked = question.judged | question.candidate
    estimates = rank_by_validation(
        question.task, imputation, asked, settings.allowed_error, settings.random_state, device
    )
    calibrated = calibrate(question, visits.target_values, estimates, settings, plausible)
    return Trial(calibrated, visits.target_values, settings, {})
