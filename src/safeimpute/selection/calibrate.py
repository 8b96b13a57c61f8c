"""The flow on arrays: a question is fitted, its visits are weighed, and a release can be decided at any level.

The estimator and every evaluation run through these few functions, so that what is judged is what is shipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.measuring.diagnosis import MeasuringDiagnosis, diagnose
from safeimpute.measuring.features import measuring_table
from safeimpute.measuring.model import MeasuringModel, Weights, learn_measuring
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.runtime.progress import Progress, silent
from safeimpute.selection.intervals import IntervalGround, interval_ground
from safeimpute.selection.ledger import risk_grid
from safeimpute.selection.reasons import NO_EVIDENCE, OUT_OF_RANGE, OUT_OF_SCOPE
from safeimpute.selection.release import Decision, Ground, Rule, decide, entries_of
from safeimpute.selection.sensitivity import UnderDoubt, released_under_doubt
from safeimpute.settings import Settings
from safeimpute.splits.folds import fold_of
from safeimpute.splits.questions import Question
from safeimpute.splits.streams import ties
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
    tie: FloatArray
    measuring: MeasuringModel | None = None  # where the claim weighs visits
    diagnosis: MeasuringDiagnosis | None = None

    @property
    def candidates(self) -> IntArray:
        """Rows that are released or withheld."""
        return np.flatnonzero(self.question.candidate)

    def ground(self, tolerance: Tolerance) -> Ground:
        """What a release at this tolerance is decided from."""
        return Ground(
            risk=self.estimates.risk_at(tolerance),
            tie=self.tie,
            patient=self.question.visits.patient,
            weight=self.weight,
            outside=self.outside,
            judged=self.question.judged,
            risky=tolerance.risky(self.estimates.value, self.truth),
            candidate=self.question.candidate,
        )

    def release(self, tolerance: Tolerance, rule: Rule) -> Decision:
        """Decide every candidate: the only place where calibration errors are used."""
        return decide(self.ground(tolerance), rule)

    @property
    def intervals(self) -> IntervalGround:
        """What intervals are made from: the errors at judged visits."""
        judged = self.question.judged
        error = np.abs(self.estimates.value - self.truth)[judged]
        return interval_ground(error, self.estimates.spread[judged], self.weight[judged])

    def half_widths(self, coverage: float) -> FloatArray:
        """Half the width of each candidate's interval."""
        rows = self.candidates
        return self.intervals.radii(self.weight[rows], coverage) * self.estimates.spread[rows]

    def under_doubt(self, tolerance: Tolerance, alpha: float, gammas: Sequence[float]) -> list[UnderDoubt]:
        """How many values would still be released if the odds of measuring were off by each factor: an analysis."""
        ground = self.ground(tolerance)
        there = ground.inside
        grid = risk_grid(ground.risk[there & (ground.judged | ground.candidate)])
        candidate_risk = ground.risk[there & ground.candidate]
        return released_under_doubt(entries_of(ground), grid, candidate_risk, alpha, gammas)

    def with_estimates(self, estimates: Estimates) -> "Calibrated":
        """The same table ranked otherwise."""
        return replace(self, estimates=estimates)


def fit_system(
    question: Question, settings: Settings, device: str = "cpu", progress: Progress = silent
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
        calendar=uses_calendar(settings),
        device=device,
        progress=progress,
    )


def uses_calendar(settings: Settings) -> bool:
    """Absolute time counts, except where the months to come are promised for: they lie beyond what was learnt."""
    return settings.claim != "later"


def calibrate(
    question: Question,
    truth: FloatArray,
    estimates: Estimates,
    settings: Settings,
    plausible: Range | None = None,
    *,
    weigh: bool = True,
) -> Calibrated:
    """Weigh the visits and say which of them the claim cannot cover; without `weigh`, all visits count alike."""
    visits = question.visits
    outside = evidence_scope(estimates, plausible)
    weight, measuring, diagnosis = np.ones(len(visits)), None, None
    if weigh and settings.claim != "visits" and question.candidate.any():
        measuring, found, diagnosis = _weigh(question, settings)
        weight, outside[OUT_OF_SCOPE] = found.odds, found.outside
    tie = ties(visits.visit_key, settings.random_state)
    return Calibrated(question, truth, estimates, weight, outside, tie, measuring, diagnosis)


def evidence_scope(estimates: Estimates, plausible: Range | None) -> dict[str, BoolArray]:
    """Visits no promise covers whatever the claim: nothing supports them, or their value cannot be."""
    impossible = ~np.isfinite(estimates.value)
    if plausible is not None:
        impossible |= (estimates.value < plausible[0]) | (estimates.value > plausible[1])
    return {NO_EVIDENCE: estimates.no_evidence, OUT_OF_RANGE: impossible}


def _weigh(question: Question, settings: Settings) -> tuple[MeasuringModel, Weights, MeasuringDiagnosis]:
    visits, seed, folds = question.visits, settings.random_state, settings.best.folds
    calendar = uses_calendar(settings)
    table = measuring_table(visits, past_only=settings.past_only, calendar=calendar)
    fold = fold_of(visits.patient_key, seed, folds)
    measured, candidate = question.judged, question.candidate
    model = learn_measuring(table, visits.time, fold, folds, measured, candidate, seed, calendar=calendar)
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
) -> tuple[Fitted, Calibrated]:
    """Fit and calibrate in one go; `visits` holds every measured target."""
    fitted = fit_system(question, settings, device, progress)
    if settings.claim != "visits":
        progress("learning who gets measured", 0.9)
    return fitted, calibrate(question, visits.target_values, fitted.estimates, settings, plausible)
