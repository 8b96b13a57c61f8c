"""A frozen model: visits that came in after the fit, estimated and decided one by one (arrays).

A patient of the fit, one who comes back and one never met are one case: each is estimated and weighed by the models
of its own fold, which never saw it. A visit's decision depends on its own patient's visits and on the model alone.

With it goes what the fit saw of each lab and of its own weights: what drift is measured against.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from safeimpute.learning.best.system import FrozenBest
from safeimpute.learning.protocol import Estimates
from safeimpute.machine.progress import Progress, silent
from safeimpute.machine.resources import Size, scored_at_once
from safeimpute.model.betting import BetCalibration, calibrate_bets, fit_chances
from safeimpute.selection.calibrated import Calibrated, IntervalErrors, Range, capped, evidence_scope
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.groups import Grouping, Merged
from safeimpute.selection.measuring.features import measuring_table
from safeimpute.selection.measuring.model import MeasuringModel
from safeimpute.selection.reasons import OUT_OF_SCOPE
from safeimpute.selection.release import Decision, decide_by_cutoff, grid_of, parts_of, passing, withhold_all
from safeimpute.settings import Settings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays

NO_SHIFT = (0.0, 1.0)
VISITS_AT_ONCE = 20_000  # at most; bounds memory, portions hold whole patients
PERCENTILES = np.arange(1, 100)
BEYOND = 1.15  # times the first and last percentile: farther values are strange
FEWEST_SEEN = 50  # values of a lab that tell its range
LONGEST_WAIT = 120.0  # days that a result is waited for, at most
WAITED_FOR = 0.99  # share of the fit's results that have come in by then


@dataclass(frozen=True)
class Reference:
    """Percentiles of every lab, what counts as strange, and how long results take."""

    percentiles: FloatArray  # labs x 99; NaN where a lab was seen too seldom
    low: FloatArray  # per lab; below it a value is strange
    high: FloatArray
    present: FloatArray  # share of visits with a value, per lab
    patients: int
    wait: float  # days after which a visit without a result counts as unmeasured
    bet_calibration: BetCalibration
    errors: tuple[float, float]  # log odds of a risky value = first + second x those of the risk
    thresholds: FloatArray  # risks that a calibration may choose from, group after group
    threshold_group: IntArray  # which group each is for

    def grid(self, group: int) -> FloatArray:
        """The thresholds of one group."""
        return np.asarray(self.thresholds[self.threshold_group == group])

    def strange(self, values: FloatArray, lab: int) -> BoolArray:
        """Values far from nearly all that the fit saw of a lab."""
        with np.errstate(invalid="ignore"):
            return np.asarray((values < self.low[lab]) | (values > self.high[lab]))

    def ranks(self, values: FloatArray, lab: int) -> FloatArray:
        """Where values lie among those of the fit, 0 to 1; ties in the middle."""
        known = self.percentiles[lab]
        places = np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")
        return np.asarray(places / (2.0 * len(known)), dtype=np.float64)


def learn_reference(calibrated: Calibrated, decision: Decision, settings: Settings) -> Reference:
    """From the period a fit was calibrated on."""
    visits = calibrated.question.visits
    since = settings.since_days
    labs = visits.labs[visits.time >= since] if since is not None else visits.labs
    tables = [_percentiles(column) for column in labs.T]
    limits = np.array([_limits(each) for each in tables]).reshape(-1, 2)
    data = calibrated.selection_data(settings.allowed_error)
    below = data.judged & passing(data, decision)
    weight = data.weight if calibrated.late is None else data.weight + calibrated.late
    grids = {number: grid_of(part) for number, part in parts_of(data, decision.merged).items()}
    return Reference(
        percentiles=np.array(tables).reshape(len(tables), len(PERCENTILES)),
        low=limits[:, 0],
        high=limits[:, 1],
        present=np.mean(~np.isnan(labs), axis=0),
        patients=int(visits.patient.max(initial=-1)) + 1,
        wait=_wait(visits),
        bet_calibration=calibrate_bets(weight[below], data.risky[below]),
        errors=fit_chances(data.risk[below], data.risky[below]),
        thresholds=np.concatenate([np.empty(0), *grids.values()]),
        threshold_group=np.repeat(list(grids), [len(each) for each in grids.values()]).astype(np.int64),
    )


def _percentiles(column: FloatArray) -> FloatArray:
    seen = column[~np.isnan(column)]
    if len(seen) < FEWEST_SEEN:
        return np.full(len(PERCENTILES), np.nan)
    return np.asarray(np.percentile(seen, PERCENTILES), dtype=np.float64)


def _limits(percentiles: FloatArray) -> tuple[float, float]:
    """Beyond the outer percentiles by a share of themselves; where a lab can be negative, of their distance."""
    first, last = float(percentiles[0]), float(percentiles[-1])
    if np.isnan(first):
        return -np.inf, np.inf
    if first > 0:
        return first / BEYOND, last * BEYOND
    return first - (BEYOND - 1) * (last - first), last + (BEYOND - 1) * (last - first)


def _wait(visits: VisitArrays) -> float:
    if visits.known is None:
        return 0.0
    delay = (visits.known[:, visits.target] - visits.time)[~np.isnan(visits.target_values)]
    delay = np.maximum(np.nan_to_num(delay), 0.0)
    return float(min(np.quantile(delay, WAITED_FOR), LONGEST_WAIT)) if len(delay) else 0.0


@dataclass(frozen=True)
class FrozenModel:
    """What scoring needs of a fit."""

    system: FrozenBest
    measuring: MeasuringModel | None
    cutoffs: Mapping[int, Cutoff]
    intervals: IntervalErrors
    plausible: Range | None
    past_only: bool
    calendar: bool
    coverage: float
    reference: Reference
    shown: Grouping  # what monitoring looks at one by one
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
        shown=calibrated.shown,
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
    outside = evidence_scope(scored.estimates, model.plausible) | capped(scored.estimates.risk, model.risk_cap)
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
    candidate = np.isnan(visits.target_values) & ~visits.target_censored
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
        above=None if estimates[0].above is None else np.concatenate([each.above for each in estimates]),
    )
    rest = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("weight", "candidate", "half_width", "released", "reason", "cutoff", "inside", "group")
    }
    return Scored(joined, **rest)
