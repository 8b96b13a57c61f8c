"""What each way of going on with missing values does to what people compute from them, judged by known values.

Known values are hidden, or the truth of a simulated cohort is given. Every way then estimates the same quantities as
if nobody knew; beside them stands what the same analysis says with nothing missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from safeimpute.draws.drawing import draws_of, learn_predictive
from safeimpute.evaluation.completions import (
    DRAWN,
    FILLED,
    NOTHING_MISSING,
    RELEASED,
    WAYS,
    Completed,
    Estimated,
    Interval,
    complete,
    interval_of,
    judge,
    mean_of,
    nothing_missing,
    predict_across,
    quantile_of,
    share_above,
    slope_of,
)
from safeimpute.evaluation.crossing import decisions, resampled_interval
from safeimpute.evaluation.metrics import MeanSe, mean_se
from safeimpute.machine.progress import Progress, silent
from safeimpute.model.fit import fit_question
from safeimpute.selection.calibrated import Range
from safeimpute.selection.cutoff import rule_of
from safeimpute.selection.questions import HideBy, draw_roles, hide_some, hiding_rng, question_of, roles_with_hidden
from safeimpute.settings import Settings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays

QUANTILES = {"10th percentile": 0.1, "median": 0.5, "90th percentile": 0.9}
NEAR = 0.25  # of the interval's half width with nothing missing: a difference nobody would act on
HELD = 0.9  # share of splits whose interval must hold the value
SAME = 0.01  # performances this close are alike
SIGN = {"performance": 1.0, "error": -1.0}


@dataclass(frozen=True)
class Plan:
    """What is computed, from which visits, and how known values are hidden."""

    limits: tuple[float, ...]  # of the target: shares above, who crosses
    regressor: FloatArray  # one per visit; NaN where unknown
    regressor_name: str
    outcome: FloatArray | None = None  # 0 or 1 per visit; NaN where unknown
    outcome_name: str = ""
    hide_by: HideBy = "random"
    hide: float = 0.3  # share of the known values
    splits: int = 3
    draws: int = 20


@dataclass(frozen=True)
class _Found:
    """One quantity by one way in one split."""

    interval: Interval | None
    value: float
    spoken_for: float
    again: FloatArray | None = None  # the value over resampled patients, the same ones by every way


Table = Mapping[tuple[str, str], _Found]  # by quantity and way


class WayOutcome(TypedDict):
    """One quantity by one way: means over splits with standard errors."""

    estimate: MeanSe
    off: MeanSe  # from the same analysis with nothing missing
    lower: float | None  # mean ends of the 95 % intervals, where the quantity has one
    upper: float | None
    covers: float | None  # share of splits whose interval holds what nothing missing says
    width: float | None  # of the interval, times that with nothing missing
    spoken_for: float  # share of the visits the way has a value for
    behind: MeanSe | None  # of a performance or error: by how much the best way is better, and the error of that


class QuantityOutcome(TypedDict):
    """One quantity by every way, and what to use for it."""

    quantity: str
    kind: str  # estimate, or performance (larger is better), or error (smaller is better)
    ways: dict[str, WayOutcome]
    advice: str


class Downstream(TypedDict):
    """Everything `downstream` measures."""

    splits: int
    visits: int  # the quantities are computed from, mean over splits
    hidden: float  # share of them without a visible value
    released: float  # share of the hidden that was released
    quantities: list[QuantityOutcome]


def run_downstream(
    visits: VisitArrays,
    settings: Settings,
    plan: Plan,
    truth: FloatArray | None = None,
    plausible: Range | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> Downstream:
    """Fit on several splits, go on in every way, and gather; with `truth` nothing is hidden and one fit is enough."""
    tables, counts = [], []
    for number in range(plan.splits):
        progress(f"split {number + 1} of {plan.splits}", number / plan.splits)
        seeded = replace(settings, random_state=settings.random_state + number)
        table, count = _one_split(visits, seeded, plan, truth, plausible, device)
        tables.append(table)
        counts.append(count)
    means = np.mean(counts, axis=0)
    return {
        "splits": plan.splits,
        "visits": int(means[0]),
        "hidden": float(means[1]),
        "released": float(means[2]),
        "quantities": _gathered(tables),
    }


def _one_split(
    visits: VisitArrays, settings: Settings, plan: Plan, truth: FloatArray | None, plausible: Range | None, device: str
) -> tuple[Table, tuple[float, float, float]]:
    seed = settings.random_state
    if truth is None:
        hidden = hide_some(visits, plan.hide, plan.hide_by, hiding_rng(seed))
        roles, known = roles_with_hidden(visits, hidden, seed), visits.target_values
    else:
        roles = draw_roles(visits, seed)
        known = np.where(np.isnan(visits.target_values), truth, visits.target_values)
    question = question_of(visits, settings, roles)
    fitted, calibrated = fit_question(visits, question, settings, plausible, device, limits=plan.limits)
    released = calibrated.release(settings.allowed_error, rule_of(settings)).released
    predictive = learn_predictive(calibrated, fitted.frozen, plausible, seed, device)
    rng = np.random.default_rng([seed, 18])
    ways = complete(
        calibrated, released, settings.allowed_error.settled(draws_of(predictive, plan.draws, seed)), settings, rng
    )
    there = np.isfinite(known)
    rows = [way.at(there) for way in (nothing_missing(known), *ways)]
    table = _quantities(rows, visits.patient[there], known[there], _at(plan, there))
    share = float(question.candidate[there].mean())
    return table, (float(there.sum()), share, float(released.mean()) if len(released) else 0.0)


def _at(plan: Plan, rows: BoolArray) -> Plan:
    outcome = None if plan.outcome is None else plan.outcome[rows]
    return replace(plan, regressor=plan.regressor[rows], outcome=outcome)


def _quantities(ways: Sequence[Completed], patient: IntArray, truth: FloatArray, plan: Plan) -> Table:
    found: dict[tuple[str, str], _Found] = {}
    for way in ways:
        rows, spoken = way.available, float(way.available.mean())
        for name, interval in _estimates(way.at(rows), patient[rows], plan.regressor[rows], plan).items():
            found[name, way.way] = _Found(interval, interval.estimate, spoken)
        for name, again in decisions(way, patient, truth, plan.limits).items():
            told = None if way.way == NOTHING_MISSING else resampled_interval(again)
            found[name, way.way] = _Found(told, float(again[0]), spoken, again[1:])
        for name, interval in _prediction(way, patient, plan).items():
            found[name, way.way] = _Found(interval, interval.estimate, spoken)
    return found


def _estimates(way: Completed, patient: IntArray, regressor: FloatArray, plan: Plan) -> dict[str, Interval]:
    """Means, quantiles, shares and a slope, from visits that all have a value."""
    columns, weight = way.values.T, way.weight
    found = {"mean": interval_of([mean_of(each, patient, weight) for each in columns])}
    for name, chance in QUANTILES.items():
        found[name] = interval_of([quantile_of(each, chance, patient, weight) for each in columns])
    for limit in plan.limits:
        shares = [share_above(each, limit, patient, weight) for each in columns]
        found[f"share at or above {limit:g}"] = interval_of(shares)
    there = np.isfinite(regressor)
    if plan.regressor_name and there.sum() > 2:
        slopes: list[Estimated] = [
            slope_of(each[there], regressor[there], patient[there], weight[there]) for each in columns
        ]
        found[f"slope on {plan.regressor_name}"] = interval_of(slopes)
    return found


def _prediction(way: Completed, patient: IntArray, plan: Plan) -> dict[str, Interval]:
    """Discrimination and calibration of a model of the outcome from the target and the regressor."""
    if plan.outcome is None:
        return {}
    rows = way.available & np.isfinite(plan.outcome) & np.isfinite(plan.regressor)
    outcome, there = plan.outcome[rows] > 0.5, patient[rows]
    if outcome.all() or not outcome.any():
        return {}
    chances = [
        predict_across(
            np.column_stack([each, plan.regressor[rows]]), outcome, there, way.weight[rows], np.random.default_rng(18)
        )
        for each in way.values[rows].T
    ]
    told = judge(np.mean(chances, axis=0), outcome, there, np.random.default_rng(19))
    if told is None:
        return {}
    figures = {f"AUC for {plan.outcome_name}": told.auc, f"calibration slope for {plan.outcome_name}": told.slope}
    return {name: Interval(value, se, value - 1.96 * se, value + 1.96 * se) for name, (value, se) in figures.items()}


def _gathered(tables: Sequence[Table]) -> list[QuantityOutcome]:
    names = list(dict.fromkeys(name for table in tables for name, _ in table))
    ways = list(dict.fromkeys(way for table in tables for _, way in table))
    gathered: list[QuantityOutcome] = []
    for name in names:
        by_way = {way: _over_splits(tables, name, way) for way in ways}
        kind = kind_of(name)
        told = {way: each for way, each in by_way.items() if each is not None}
        if kind != "estimate" and (considered := _considered(kind, told)):
            best = max(considered, key=lambda way: SIGN[kind] * _mean_of(told[way]))
            for way, each in told.items():
                each["behind"] = _behind(tables, (name, best), (name, way), SIGN[kind])
        gathered.append({"quantity": name, "kind": kind, "ways": told, "advice": advise(name, kind, told)})
    return gathered


def kind_of(quantity: str) -> str:
    """Whether a quantity is estimated, or says how well something works."""
    if quantity.startswith(("ranking", "found", "patients found", "AUC")):
        return "performance"
    return "error" if quantity.startswith(("false alarms", "patients falsely")) else "estimate"


def _considered(kind: str, ways: Mapping[str, WayOutcome]) -> list[str]:
    """The ways compared; who says nothing raises no false alarm."""
    there = [way for way in WAYS if way in ways]
    everywhere = [way for way in there if ways[way]["spoken_for"] > 0.99] or there
    return everywhere if kind == "error" else there


def _behind(tables: Sequence[Table], best: tuple[str, str], other: tuple[str, str], sign: float) -> MeanSe:
    """How much worse a way is than the best in the same splits; its error is that of patients and of splits."""
    pairs = [(table[best], table[other]) for table in tables if best in table and other in table]
    pairs = [pair for pair in pairs if np.isfinite(pair[0].value) and np.isfinite(pair[1].value)]
    off = mean_se([sign * (one.value - two.value) for one, two in pairs])
    again = [one.again - two.again for one, two in pairs if one.again is not None and two.again is not None]
    if again:
        sampling = float(np.nanstd(np.mean(again, axis=0), ddof=1))
    else:  # without the same patients drawn again: as if the two had nothing in common
        squares = [each.interval.se**2 for pair in pairs if best != other for each in pair if each.interval]
        sampling = float(np.sqrt(np.sum(squares) / max(len(pairs), 1)))
    return {"mean": off["mean"], "se": float(np.hypot(off["se"] or 0.0, sampling))}


def _over_splits(tables: Sequence[Table], name: str, way: str) -> WayOutcome | None:
    pairs = [
        (table[name, way], table[name, NOTHING_MISSING])
        for table in tables
        if (name, way) in table and (name, NOTHING_MISSING) in table
    ]
    pairs = [pair for pair in pairs if np.isfinite(pair[0].value) and np.isfinite(pair[1].value)]
    if not pairs:
        return None
    both = [(own.interval, whole.interval) for own, whole in pairs if own.interval and whole.interval]
    ends = [own.interval for own, _ in pairs if own.interval]
    return {
        "estimate": mean_se([own.value for own, _ in pairs]),
        "off": mean_se([own.value - whole.value for own, whole in pairs]),
        "lower": float(np.mean([each.lower for each in ends])) if ends else None,
        "upper": float(np.mean([each.upper for each in ends])) if ends else None,
        "covers": float(np.mean([own.covers(whole.estimate) for own, whole in both])) if both else None,
        "width": float(np.mean([own.width / max(whole.width, 1e-300) for own, whole in both])) if both else None,
        "spoken_for": float(np.mean([own.spoken_for for own, _ in pairs])),
        "behind": None,
    }


def advise(quantity: str, kind: str, ways: Mapping[str, WayOutcome]) -> str:
    """What to use for a quantity, and what not; `ways` are outcomes by way."""
    there = [way for way in WAYS if way in ways]
    if not there or NOTHING_MISSING not in ways:
        return f"{quantity}: too little to say anything."
    return (_advise_estimate if kind == "estimate" else _advise_performance)(quantity, kind, ways, there)


def _advise_estimate(quantity: str, _kind: str, ways: Mapping[str, WayOutcome], there: list[str]) -> str:
    whole = ways[NOTHING_MISSING]
    half = 0.0 if whole["upper"] is None or whole["lower"] is None else (whole["upper"] - whole["lower"]) / 2
    good = [way for way in there if _holds(ways[way], half)]
    pick = DRAWN if DRAWN in good else min(good or there, key=lambda way: _off(ways[way]))
    wide = ways[pick]["width"] or 0.0
    said = f"{quantity}: use {pick} (off by {_signed(ways[pick])}, interval {wide:.2f} times that with nothing missing)"
    if not good:
        return f"{said}, and say that no way came close."
    worst = max(there, key=lambda way: _off(ways[way]))
    named = RELEASED if RELEASED in there and RELEASED not in good else worst
    if named in good:
        return f"{said}; the other ways do no worse here."
    if _off(ways[named]) <= 2 * (ways[named]["off"]["se"] or 0.0):
        return f"{said}; the interval of {named} misses too often."
    return f"{said}; {named} is off by {_signed(ways[named])}."


def _holds(outcome: WayOutcome, half: float) -> bool:
    near = max(NEAR * half, 2 * (outcome["off"]["se"] or 0.0))
    return _off(outcome) <= near and (outcome["covers"] is None or outcome["covers"] >= HELD)


def _advise_performance(quantity: str, kind: str, ways: Mapping[str, WayOutcome], _there: list[str]) -> str:
    """Ways are told apart only where they differ by more than two standard errors of the difference."""
    there = _considered(kind, ways)
    alike = [way for way in there if not _worse(ways[way])]
    pick = next((way for way in (FILLED, DRAWN) if way in alike), alike[0])
    found, whole = _mean_of(ways[pick]), _mean_of(ways[NOTHING_MISSING])
    missed = f", {1 - found:.2f} missed" if quantity.startswith("patients found") else ""
    said = f"{quantity}: use {pick} ({found:.2f}{missed}; {whole:.2f} with nothing missing)"
    if len(alike) == len(there) > 1:
        said += "; no other way differs by more than its error"
    if RELEASED in ways and RELEASED not in alike:
        spoken = ways[RELEASED]["spoken_for"]
        said += f"; {RELEASED}: {_mean_of(ways[RELEASED]):.2f}, with a value at {100 * spoken:.0f} % of visits"
    return f"{said}."


def _worse(outcome: WayOutcome) -> bool:
    behind = outcome["behind"]
    return behind is not None and (behind["mean"] or 0.0) > max(SAME, 2 * (behind["se"] or 0.0))


def _mean_of(outcome: WayOutcome) -> float:
    return outcome["estimate"]["mean"] or 0.0


def _off(outcome: WayOutcome) -> float:
    return abs(outcome["off"]["mean"] or 0.0)


def _signed(outcome: WayOutcome) -> str:
    return f"{outcome['off']['mean']:+.2g}"
