"""A fitted table with weights and scope: all that a release at any level and tolerance is decided from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from safeimpute.learning.protocol import Estimates
from safeimpute.selection.bounds import Bound
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.groups import Grouping
from safeimpute.selection.measuring.diagnosis import MeasuringDiagnosis
from safeimpute.selection.measuring.model import MeasuringModel
from safeimpute.selection.questions import Question
from safeimpute.selection.reasons import NO_EVIDENCE, OUT_OF_RANGE, RISK_ABOVE_CAP
from safeimpute.selection.release import Decision, SelectionData, bound_of, decide
from safeimpute.selection.what_if import (
    LEVELS,
    AtTolerance,
    Stability,
    UnderDoubt,
    reaches,
    released_under_doubt,
    released_without_folds,
    tolerances_around,
)
from safeimpute.settings import Settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays, on_its_way


@dataclass(frozen=True)
class IntervalErrors:
    """Errors of judged visits in units of their spread, smallest first, and the weight reached up to each."""

    ratio: FloatArray
    reached: FloatArray

    def radii(self, candidate_weight: FloatArray, coverage: float) -> FloatArray:
        """Per candidate the multiple of its spread that covers with the asked probability.

        The weighted quantile of |error| / spread, the candidate's own weight standing at infinity; infinite where
        the judged visits cannot support the coverage.
        """
        total = self.reached[-1] if len(self.reached) else 0.0
        needed = coverage * (total + candidate_weight) * (1 - 1e-12)
        radii: FloatArray = np.append(self.ratio, np.inf)[np.searchsorted(self.reached, needed)]
        return radii


def interval_errors(error: FloatArray, spread: FloatArray, weight: FloatArray) -> IntervalErrors:
    """Gather the errors that intervals are made from."""
    ratio = error / spread
    order = np.argsort(ratio, kind="stable")
    return IntervalErrors(ratio[order], np.cumsum(weight[order]))


Range = tuple[float, float]


@dataclass(frozen=True)
class Calibrated:
    """A fitted table with weights and scope: all that a release at any level needs."""

    question: Question
    truth: FloatArray  # every measured target
    estimates: Estimates
    weight: FloatArray
    outside: dict[str, BoolArray]
    shown: Grouping  # what is looked at one by one, asked for or not
    measuring: MeasuringModel | None = None  # where the claim weighs visits
    diagnosis: MeasuringDiagnosis | None = None
    grouping: Grouping | None = None  # where the level shall hold within groups
    risk_cap: float | None = None
    late: BoolArray | None = None  # under claim later: results still on their way at the visit's own time

    @property
    def candidates(self) -> IntArray:
        """Rows that are released or withheld."""
        return np.flatnonzero(self.question.candidate)

    def selection_data(self, tolerance: Tolerance) -> SelectionData:
        """What a release at this tolerance is decided from."""
        risk = self.estimates.risk_at(tolerance)
        visits, judged = self.question.visits, self.question.judged
        value, truth = self.estimates.value, self.truth
        if self.measuring is not None:  # a limit tells of errors too; an imputation that may be risky counts as such
            judged, truth = judged | visits.target_bounded, tolerance.farthest_truth(value, truth, visits.target_limits)
        return SelectionData(
            risk=risk,
            tie=self.question.tie,
            patient=visits.patient,
            weight=self.weight,
            outside=self.outside | capped(risk, self.risk_cap),
            judged=judged,
            risky=tolerance.loss(value, truth),
            candidate=self.question.candidate,
            cell=None if self.grouping is None else self.grouping.cells(visits, self.estimates.value),
            late=self.late,
        )

    def bound(self, tolerance: Tolerance, rule: Rule, decision: Decision) -> Bound:
        """With the rule's confidence, how many of the released values are risky at most."""
        return bound_of(self.selection_data(tolerance), rule, decision)

    def release(self, tolerance: Tolerance, rule: Rule) -> Decision:
        """Decide every candidate."""
        return decide(self.selection_data(tolerance), rule)

    @cached_property
    def intervals(self) -> IntervalErrors:
        """What intervals are made from: the errors at judged visits."""
        judged = self.question.judged
        error = np.abs(self.estimates.value - self.truth)[judged]
        weight = self.weight if self.late is None else self.weight + self.late
        return interval_errors(error, self.estimates.spread[judged], weight[judged])

    def half_widths(self, coverage: float) -> FloatArray:
        """Half the width of each candidate's interval."""
        rows = self.candidates
        return self.intervals.radii(self.weight[rows], coverage) * self.estimates.spread[rows]

    def under_doubt(self, tolerance: Tolerance, rule: Rule, gammas: Sequence[float]) -> list[UnderDoubt]:
        """How many values would still be released if the odds of measuring were off by each factor: an analysis."""
        return released_under_doubt(self.selection_data(tolerance), rule, gammas)

    def stability(self, tolerance: Tolerance, rule: Rule) -> Stability:
        """How much the release hangs on which patients decide it: an analysis."""
        return released_without_folds(self.selection_data(tolerance), rule, self.question.fold)

    def elsewhere(self, tolerance: Tolerance, rule: Rule) -> tuple[AtTolerance, ...]:
        """What other levels and tolerances would release: an analysis."""
        levels = sorted({*LEVELS, rule.alpha})
        return tuple(
            AtTolerance(each, typed, reaches(self.selection_data(each), rule, levels, bounded=each is tolerance))
            for each, typed in tolerances_around(tolerance)
            if each is tolerance or each != tolerance  # limits have no multiples
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


def late_results(visits: VisitArrays, settings: Settings) -> BoolArray | None:
    """Measured visits that looked unmeasured at their own time; None where the claim or the table knows none."""
    if settings.claim != "later":
        return None
    late = on_its_way(visits, visits.target)
    return late if late.any() else None
