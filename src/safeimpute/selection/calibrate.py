"""The flow on arrays: a question is fitted, its visits are weighed, and a release can be decided at any level.

The estimator and every evaluation run through these few functions, so that what is judged is what is shipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from safeimpute.measuring.diagnosis import MeasuringDiagnosis, diagnose
from safeimpute.measuring.features import measuring_table
from safeimpute.measuring.model import MeasuringModel, Weights, learn_measuring
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.runtime.kept import Kept
from safeimpute.runtime.progress import Progress, part_of, silent
from safeimpute.runtime.threads import steady_sums
from safeimpute.selection.bounds import Bound
from safeimpute.selection.groups import Grouping, make_grouping
from safeimpute.selection.intervals import IntervalGround, interval_ground
from safeimpute.selection.late import decide_at_night, late_results
from safeimpute.selection.reasons import NO_EVIDENCE, OUT_OF_RANGE, OUT_OF_SCOPE, RISK_ABOVE_CAP
from safeimpute.selection.release import Decision, Ground, Rule, bound_of, decide, entries_of, grid_of
from safeimpute.selection.what_if import (
    LEVELS,
    AtTolerance,
    UnderDoubt,
    reaches,
    released_under_doubt,
    tolerances_around,
)
from safeimpute.settings import Settings
from safeimpute.splits.enough import require_groups
from safeimpute.splits.questions import Question
from safeimpute.systems.protocol import Estimates, Fitted
from safeimpute.tolerance import Tolerance

Range = tuple[float, float]


@dataclass(frozen=True)
class Calibrated:
    """A fitted table with weights and scope: all that a release at any level needs."""

    question: Question
    truth: FloatArray  # every measured target
    estimates: Estimates
    weight: FloatArray
    outside: dict[str, BoolArray]
    measuring: MeasuringModel | None = None  # where the claim weighs visits
    diagnosis: MeasuringDiagnosis | None = None
    grouping: Grouping | None = None  # where the level shall hold within groups
    risk_cap: float | None = None
    late: BoolArray | None = None  # under claim later: results still on their way at the visit's own time

    @property
    def candidates(self) -> IntArray:
        """Rows that are released or withheld."""
        return np.flatnonzero(self.question.candidate)

    def ground(self, tolerance: Tolerance) -> Ground:
        """What a release at this tolerance is decided from."""
        risk = self.estimates.risk_at(tolerance)
        visits = self.question.visits
        return Ground(
            risk=risk,
            tie=self.question.tie,
            patient=visits.patient,
            weight=self.weight,
            outside=self.outside | capped(risk, self.risk_cap),
            judged=self.question.judged,
            risky=tolerance.risky(self.estimates.value, self.truth),
            candidate=self.question.candidate,
            cell=None if self.grouping is None else self.grouping.cells(visits, self.estimates.value),
        )

    def bound(self, tolerance: Tolerance, rule: Rule, decision: Decision) -> Bound:
        """With the rule's confidence, how many of the released values are risky at most."""
        return bound_of(self.ground(tolerance), rule, decision)

    def release(self, tolerance: Tolerance, rule: Rule) -> Decision:
        """Decide every candidate: the only place where calibration errors are used."""
        ground = self.ground(tolerance)
        return decide(ground, rule) if self.late is None else decide_at_night(ground, self.late, rule)

    @cached_property
    def intervals(self) -> IntervalGround:
        """What intervals are made from: the errors at judged visits."""
        judged = self.question.judged
        error = np.abs(self.estimates.value - self.truth)[judged]
        weight = self.weight if self.late is None else self.weight + self.late
        return interval_ground(error, self.estimates.spread[judged], weight[judged])

    def half_widths(self, coverage: float) -> FloatArray:
        """Half the width of each candidate's interval."""
        rows = self.candidates
        return self.intervals.radii(self.weight[rows], coverage) * self.estimates.spread[rows]

    def under_doubt(self, tolerance: Tolerance, alpha: float, gammas: Sequence[float]) -> list[UnderDoubt]:
        """How many values would still be released if the odds of measuring were off by each factor: an analysis."""
        ground = self.ground(tolerance)
        candidate_risk = ground.risk[ground.inside & ground.candidate]
        return released_under_doubt(entries_of(ground), grid_of(ground), candidate_risk, alpha, gammas)

    def elsewhere(self, tolerance: Tolerance, rule: Rule) -> tuple[AtTolerance, ...]:
        """What other levels and tolerances would release: an analysis."""
        levels = sorted({*LEVELS, rule.alpha})
        return tuple(
            AtTolerance(each, typed, reaches(self.ground(each), rule, levels, bounded=each is tolerance))
            for each, typed in tolerances_around(tolerance)
        )

    def with_estimates(self, estimates: Estimates) -> "Calibrated":
        """The same table ranked otherwise."""
        return replace(self, estimates=estimates)


def fit_system(
    question: Question,
    settings: Settings,
    device: str = "cpu",
    progress: Progress = silent,
    kept: Kept | None = None,
) -> Fitted:
    """Fit the preset's system to what the question shows."""
    if settings.preset == "paper":
        from safeimpute.systems.paper.system import fit_paper

        return fit_paper(question.task, settings.paper, settings.random_state, device, progress)
    from safeimpute.systems.best.system import fit_best

    return fit_best(
        question.visits,
        settings.best,
        settings.allowed_error,
        settings.random_state,
        past_only=settings.past_only,
        calendar=settings.uses_calendar,
        device=device,
        progress=progress,
        kept=kept,
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
    outside, recent = evidence_scope(estimates, plausible), question.recent
    weight, measuring, diagnosis = np.ones(len(question.visits)), None, None
    if weigh and settings.claim != "visits" and (question.candidate & recent).any():
        measuring, found, diagnosis = _weigh(question, settings)
        weight, outside[OUT_OF_SCOPE] = found.odds, found.outside | ~recent
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
        measuring,
        diagnosis,
        grouping,
        settings.risk_cap,
        late_results(question.visits, settings),
    )


def evidence_scope(estimates: Estimates, plausible: Range | None) -> dict[str, BoolArray]:
    """Visits no promise covers whatever the claim: nothing supports them, or their value cannot be."""
    impossible = ~np.isfinite(estimates.value)
    if plausible is not None:
        impossible |= (estimates.value < plausible[0]) | (estimates.value > plausible[1])
    return {NO_EVIDENCE: estimates.no_evidence, OUT_OF_RANGE: impossible}


def capped(risk: FloatArray, cap: float | None) -> dict[str, BoolArray]:
    """Visits whose own risk is above the largest one asked for; reads no target, so it is a matter of scope."""
    return {} if cap is None else {RISK_ABOVE_CAP: risk > cap}


def _weigh(question: Question, settings: Settings) -> tuple[MeasuringModel, Weights, MeasuringDiagnosis]:
    visits, seed, folds = question.visits, settings.random_state, settings.best.folds
    calendar, fold = settings.uses_calendar, question.fold
    table = measuring_table(visits, past_only=settings.past_only, calendar=calendar)
    measured, candidate = question.judged & question.recent, question.candidate & question.recent
    pace = settings.best.pace
    model = learn_measuring(
        table, visits.time, fold, folds, measured, candidate, seed, calendar=calendar, pace=pace
    )
    found = model.weigh(table, visits.time, fold)
    told = diagnose(model, table, found.odds, found.outside, measured, candidate, visits.patient)
    return model, found, told


def fit_question(
    visits: VisitArrays,
    question: Question,
    settings: Settings,
    plausible: Range | None = None,
    device: str = "cpu",
    progress: Progress = silent,
    limits: Sequence[float] = (),
    kept: Kept | None = None,
) -> tuple[Fitted, Calibrated]:
    """Fit and calibrate in one go; `visits` holds every measured target, `kept` folds fitted before."""
    require_groups(settings.groups, visits)
    weighed = settings.claim != "visits"
    fitted = fit_system(question, settings, device, part_of(progress, 0.0, 0.85 if weighed else 1.0), kept)
    if weighed:
        progress("learning who gets measured", 0.85)
    return fitted, calibrate(
        question, visits.target_values, fitted.estimates, settings, plausible, limits=limits
    )
