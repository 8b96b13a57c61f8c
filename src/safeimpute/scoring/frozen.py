"""A frozen model: visits that came in after the fit, estimated and decided one by one (arrays).

A patient of the fit, one who comes back and one never met are one case: each is estimated and weighed by the models
of its own fold, which never saw it. A visit's decision depends on its own patient's visits and on the model alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from safeimpute.measuring.features import measuring_table
from safeimpute.measuring.model import MeasuringModel
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.runtime.memory import Size, scored_at_once
from safeimpute.runtime.progress import Progress, silent
from safeimpute.selection.calibrate import Calibrated, Range, capped, evidence_scope
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.groups import Grouping, Merged
from safeimpute.selection.intervals import IntervalGround
from safeimpute.selection.reasons import OUT_OF_SCOPE
from safeimpute.selection.reference import Reference
from safeimpute.selection.release import Decision, decide_by_cutoff, withhold_all
from safeimpute.settings import Settings
from safeimpute.systems.best.system import FrozenBest
from safeimpute.systems.protocol import Estimates

NO_SHIFT = (0.0, 1.0)
VISITS_AT_ONCE = 20_000  # at most; bounds memory, portions hold whole patients


@dataclass(frozen=True)
class FrozenModel:
    """What scoring needs of a fit."""

    system: FrozenBest
    measuring: MeasuringModel | None
    cutoffs: Mapping[int, Cutoff]
    intervals: IntervalGround
    plausible: Range | None
    past_only: bool
    calendar: bool
    coverage: float
    reference: Reference
    no_promise: str = ""  # why nothing is promised; empty where something is
    grouping: Grouping | None = None
    merged: Merged | None = None  # which of its cells stand together
    risk_cap: float | None = None
    help: str = ""  # what would help where nothing is released
    since: float | None = None  # first time calibrated on; earlier visits are outside the promise
    until: float = -np.inf  # last time of the fitted table: what is later came since
    shift: tuple[float, float] = NO_SHIFT  # log odds of being unmeasured = first + second x those learnt


def freeze(
    system: FrozenBest,
    calibrated: Calibrated,
    decision: Decision,
    settings: Settings,
    plausible: Range | None,
    reference: Reference,
    help_: str,
) -> FrozenModel:
    """Keep what scoring needs; `decision` is the fit's own release, `help_` what would help where it is empty."""
    no_promise = decision.refused
    if settings.claim == "visits":
        no_promise = "the claim 'visits' speaks for the fitted table only"
    elif calibrated.measuring is None:
        no_promise = "the fitted table had no unmeasured visit, so who gets measured could not be learnt"
    return FrozenModel(
        system=system,
        measuring=calibrated.measuring,
        cutoffs=decision.cutoffs,
        intervals=calibrated.intervals,
        plausible=plausible,
        past_only=settings.past_only,
        calendar=settings.uses_calendar,
        coverage=settings.interval,
        reference=reference,
        no_promise=no_promise,
        grouping=calibrated.grouping,
        merged=decision.merged,
        risk_cap=calibrated.risk_cap,
        help=help_,
        since=settings.since_days,
        until=float(calibrated.question.visits.time.max()),
    )


@dataclass(frozen=True)
class Scored:
    """Every visit of a new table: estimates, weight, and what was decided where the target is missing."""

    estimates: Estimates
    weight: FloatArray
    candidate: BoolArray  # nobody measured the target
    half_width: FloatArray
    released: BoolArray
    reason: NDArray[np.str_]
    cutoff: FloatArray
    inside: BoolArray  # the promise, measured or not
    group: IntArray  # the level holds within each; 0 where there are none


def score_visits(
    visits: VisitArrays,
    model: FrozenModel,
    *,
    promised: bool = True,
    measured_too: bool = False,
    progress: Progress = silent,
) -> Scored:
    """Score a table, portion by portion; without `promised`, nothing is released.

    Visits with a measured target are estimated only if `measured_too`, as if it were missing; NaN elsewhere.
    """
    at_once = scored_at_once(_size_of(visits, model), VISITS_AT_ONCE)
    parts, done = [], 0
    for rows in _portions(visits.patient, at_once):
        progress("imputing and deciding", done / len(visits))
        parts.append(_score_portion(visits.take(rows), model, promised=promised, measured_too=measured_too))
        done += int(rows.sum())
    return parts[0] if len(parts) == 1 else _joined(parts)


def let_through(scored: Scored, visits: VisitArrays, model: FrozenModel) -> BoolArray:
    """Missing values that the cut-off of the fit lets through, whether or not anything is promised about them."""
    outside = evidence_scope(scored.estimates, model.plausible) | capped(
        scored.estimates.risk, model.risk_cap
    )
    group = _group(visits, scored.estimates, model)
    return decide_by_cutoff(scored.estimates.risk, outside, model.cutoffs, group).released & scored.candidate


def _size_of(visits: VisitArrays, model: FrozenModel) -> Size:
    source = model.system.models[0].source
    return Size(
        visits=len(visits),
        measured=0,
        labs=visits.labs.shape[1] - 1,
        attributes=visits.attributes.shape[1],
        own=source.own_each_way * (1 if source.past_only else 2),
        analogues=source.analogues,
    )


def _score_portion(visits: VisitArrays, model: FrozenModel, *, promised: bool, measured_too: bool) -> Scored:
    candidate = np.isnan(visits.target_values)
    wanted = np.ones(len(visits), dtype=bool) if measured_too else candidate
    estimates = model.system.estimate(visits, wanted=wanted)
    outside = evidence_scope(estimates, model.plausible)
    weight, outside[OUT_OF_SCOPE] = _weigh(visits, model, wanted)
    outside |= capped(estimates.risk, model.risk_cap)
    group = _group(visits, estimates, model)
    if group is not None:
        outside[OUT_OF_SCOPE] = outside[OUT_OF_SCOPE] | (group < 0)  # a group the fit never met
    decision = decide_by_cutoff(estimates.risk, outside, model.cutoffs, group)
    if not promised or model.no_promise:
        decision = withhold_all(decision, model.no_promise)
    inside = np.isfinite(estimates.risk)
    for visits_outside in outside.values():
        inside &= ~visits_outside
    half = model.intervals.radii(weight, model.coverage) * estimates.spread
    return Scored(
        estimates,
        weight,
        candidate,
        half,
        decision.released & candidate,
        decision.reason,
        decision.cutoff,
        inside,
        np.zeros(len(visits), np.int64) if group is None else group,
    )


def _group(visits: VisitArrays, estimates: Estimates, model: FrozenModel) -> IntArray | None:
    if model.grouping is None or model.merged is None:
        return None
    return model.merged.of(model.grouping.cells(visits, estimates.value))


def _weigh(visits: VisitArrays, model: FrozenModel, wanted: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Odds of being unmeasured at the wanted visits, and the visits no promise covers."""
    odds, outside = np.ones(len(visits)), np.ones(len(visits), dtype=bool)
    if model.measuring is None or not wanted.any():
        return odds, outside
    table = measuring_table(visits, past_only=model.past_only, calendar=model.calendar)
    some = replace(table, matrix=table.matrix[wanted], visits=table.visits[wanted])
    found = model.measuring.weigh(some, visits.time[wanted], model.system.fold(visits)[wanted])
    odds[wanted], outside[wanted] = shifted(found.odds, model.shift), found.outside
    return odds, outside if model.since is None else outside | (visits.time < model.since)


def shifted(odds: FloatArray, shift: tuple[float, float]) -> FloatArray:
    """Odds of being unmeasured as nights since the fit have them; those of the fit where nothing moved."""
    if shift == NO_SHIFT:
        return odds
    return np.asarray(np.exp(shift[0] + shift[1] * np.log(odds)), dtype=np.float64)


def _portions(patient: IntArray, at_once: int) -> Iterator[BoolArray]:
    """Whole patients, about so many visits together."""
    first = np.r_[True, patient[1:] != patient[:-1]]
    starts = np.flatnonzero(first)
    portion = np.searchsorted(starts, np.arange(at_once, len(patient), at_once))
    edges = np.unique(np.r_[0, np.append(starts, len(patient))[portion], len(patient)])
    for start, stop in pairwise(edges):
        rows = np.zeros(len(patient), dtype=bool)
        rows[start:stop] = True
        yield rows


def _joined(parts: list[Scored]) -> Scored:
    estimates = [part.estimates for part in parts]
    joined = Estimates(
        np.concatenate([each.value for each in estimates]),
        np.concatenate([each.risk for each in estimates]),
        np.concatenate([each.spread for each in estimates]),
        np.concatenate([each.no_evidence for each in estimates]),
        estimates[0].learnt_for,
    )
    rest = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("weight", "candidate", "half_width", "released", "reason", "cutoff", "inside", "group")
    }
    return Scored(joined, **rest)
