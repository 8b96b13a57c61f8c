"""What a fit and its release came to, as data: all that summaries, reports and pages are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safeimpute.records.arrays import BoolArray
from safeimpute.selection.bounds import Bound
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.claims import Promised, bound_in_words, promise_in_words, without_promise
from safeimpute.selection.gathering import Gathering, where_risky_gathers
from safeimpute.selection.help import next_step, what_would_help
from safeimpute.selection.release import Decision, Rule, passing, rule_of
from safeimpute.selection.what_if import AtTolerance, UnderDoubt
from safeimpute.settings import Settings


@dataclass(frozen=True)
class RunResult:
    """The release, what it promises, and what other choices would have released."""

    settings: Settings
    unit: str | None  # of the target
    calibrated: Calibrated
    rule: Rule
    decision: Decision
    promised: Promised
    bound: Bound
    bound_in_words: str
    passing: BoolArray  # every visit within the promise, measured or not, that the decision lets through
    gathering: list[Gathering]  # to look at, not to promise; so are the next two
    doubts: list[UnderDoubt]  # empty where the claim does not look at who gets measured
    elsewhere: tuple[AtTolerance, ...]
    next_step: str  # the nearest that would have released, where nothing was; empty elsewhere
    seconds: Mapping[str, float]  # spent in each stage of the fit


def result_of(
    settings: Settings,
    unit: str | None,
    decision_limits: Sequence[float],
    calibrated: Calibrated,
    decision: Decision,
    promised: Promised,
    bound: Bound,
    seconds: Mapping[str, float],
) -> RunResult:
    """Put together what was decided, and look at what other choices would have released."""
    tolerance, rule, weighed = settings.allowed_error, rule_of(settings), settings.claim != "visits"
    elsewhere = calibrated.elsewhere(tolerance, rule)
    advice = what_would_help(calibrated, decision, settings)
    return RunResult(
        settings=settings,
        unit=unit,
        calibrated=calibrated,
        rule=rule,
        decision=decision,
        promised=promised,
        bound=bound,
        bound_in_words=bound_in_words(bound, tolerance.describe(unit)),
        passing=passing(calibrated.ground(tolerance), decision),
        gathering=where_risky_gathers(calibrated, tolerance, rule, decision_limits),
        doubts=calibrated.under_doubt(tolerance, rule.alpha, settings.gammas) if weighed else [],
        elsewhere=elsewhere,
        next_step=next_step(settings, decision, elsewhere, advice),
        seconds={name: float(each) for name, each in seconds.items()},
    )


def promised_by(
    settings: Settings, unit: str | None, calibrated: Calibrated, decision: Decision | None
) -> Promised:
    """The promise in words; or, where a decision was refused, that there is none."""
    if decision is not None and decision.refused:
        return without_promise(decision.refused)
    measuring = calibrated.measuring
    return promise_in_words(settings, unit, () if measuring is None else measuring.columns)
