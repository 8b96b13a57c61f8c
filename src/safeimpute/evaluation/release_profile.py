"""What a release comes to: in the distribution of values, by group of visits, and at other levels and tolerances.

The report's trade-off curve and the review page's sliders are both made here, from what `selection.what_if` says each
level reaches. Looking uses the same errors, so a level chosen after looking carries no promise of its own.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.cutoff import Rule
from safeimpute.selection.groups import Dimension, make_grouping
from safeimpute.selection.release import SelectionData
from safeimpute.selection.result import RunResult
from safeimpute.selection.what_if import AtTolerance, Reach
from safeimpute.tolerance import Risky, Tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray
from safeimpute.visits.visits import Visits

FIFTHS = 5
WARNING = (
    "Released values are no random sample of the missing ones: do not compute cohort statistics, such as a mean or a "
    "share above a limit, from them alone."
)
INSTEAD = (
    "For a mean, a share above a limit or a regression use draws of every missing value, released or not (--draws 20, "
    "or SafeImputer.draws), analyse each completed table and pool (safeimpute.pool); safeimpute downstream shows on "
    "your own table what each way does. Released values serve where single values are looked at: a chart, a list."
)
USUAL_NAMES = ("sex", "gender", "age", "race", "ethnicity")  # shown first
MOST_ATTRIBUTES = 8
FEWEST_ERRORS = 10  # a mean of fewer errors says nothing
VISIT_LABELS = ("1 visit", "2 to 3 visits", "4 to 7 visits", "8 or more visits")
VISITS_PER_PATIENT = Dimension("visits per patient", "history", VISIT_LABELS, (2.0, 4.0, 8.0))
CURVE_LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 11))


class Spread(TypedDict):
    """Some values in three figures."""

    values: int
    mean: float | None
    median: float | None


class CohortMeans(TypedDict):
    """The mean of the target over all visits, by what is counted."""

    measured: float | None  # measured values alone
    with_released: float | None  # released values filled in
    missing_expected: float | None  # of the missing values, by measured ones weighted to stand for them
    expected: float | None  # of all visits, by the same


class Fifth(TypedDict):
    """A fifth of the missing values by imputed value."""

    low: float
    high: float
    missing: int
    released: int


class Distribution(TypedDict):
    """What the release does to the distribution of values."""

    measured: Spread
    released: Spread  # imputed values
    withheld: Spread
    passing: Spread  # what was measured where the rule would release, weighted to stand for missing values
    stopped: Spread  # and where it would withhold
    means: CohortMeans
    fifths: list[Fifth]
    warning: str
    instead: str  # what to use


def distribution_of(result: RunResult, value: FloatArray, released: BoolArray) -> Distribution:
    """Released against withheld, by imputed value and by what was measured; `value` and `released` per candidate."""
    calibrated = result.calibrated
    truth, weight = calibrated.truth, calibrated.weight
    judged = calibrated.question.judged & calibrated.selection_data(result.settings.allowed_error).inside
    through = judged & result.passing
    stopped = judged & ~through
    return {
        "measured": spread_of(truth),
        "released": spread_of(value[released]),
        "withheld": spread_of(value[~released]),
        "passing": spread_of(truth[through], weight[through]),
        "stopped": spread_of(truth[stopped], weight[stopped]),
        "means": _means(truth, value, released, spread_of(truth[judged], weight[judged])["mean"]),
        "fifths": _fifths(value, released),
        "warning": WARNING,
        "instead": INSTEAD,
    }


def _means(truth: FloatArray, value: FloatArray, released: BoolArray, expected: float | None) -> CohortMeans:
    """The cohort's mean from measured values alone, with released ones filled in, and as it is to be expected."""
    measured = truth[np.isfinite(truth)]
    filled = np.concatenate([measured, value[released & np.isfinite(value)]])
    whole = None
    if expected is not None and len(measured) + len(value):
        whole = float((measured.sum() + len(value) * expected) / (len(measured) + len(value)))
    return {
        "measured": float(measured.mean()) if len(measured) else None,
        "with_released": float(filled.mean()) if len(filled) else None,
        "missing_expected": expected,
        "expected": whole,
    }


def _fifths(value: FloatArray, released: BoolArray) -> list[Fifth]:
    """Missing values by imputed value, in five groups of equal size: how many were released."""
    order = np.flatnonzero(np.isfinite(value))
    order = order[np.argsort(value[order], kind="stable")]
    return [
        {
            "low": float(value[part[0]]),
            "high": float(value[part[-1]]),
            "missing": len(part),
            "released": int(released[part].sum()),
        }
        for part in np.array_split(order, FIFTHS)
        if len(part)
    ]


def spread_of(values: FloatArray, weight: FloatArray | None = None) -> Spread:
    """Some values in three figures, each counted by its weight."""
    weight = np.ones(len(values)) if weight is None else weight
    there = np.isfinite(values) & np.isfinite(weight)
    values, weight = values[there], weight[there]
    if not len(values) or not weight.sum() > 0:
        return {"values": 0, "mean": None, "median": None}
    mean = float(values @ weight / weight.sum())
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order]) - weight[order] / 2
    median = float(np.interp(weight.sum() / 2, reached, values[order]))
    return {"values": len(values), "mean": mean if math.isfinite(mean) else None, "median": median}


class GroupOutcome(TypedDict):
    """One group: what was released of its missing values, and how wrong its measured visits were imputed."""

    group: str
    missing: int
    released: int
    judged: int  # measured visits whose error is known
    mae: float | None  # None: too few of them
    risky: float | None  # share of unacceptable errors among them
    risky_passing: float | None  # the same among those the rule would release, weighted as the claim asks


class Subgroup(TypedDict):
    """An attribute and its groups, in order."""

    title: str
    groups: list[GroupOutcome]


@dataclass(frozen=True)
class Judgement:
    """What happened to which visit: decisions on candidates, errors at judged visits."""

    candidates: IntArray
    released: BoolArray  # per candidate
    judged: IntArray
    error: FloatArray  # |imputed - measured| per judged visit
    risky: Risky
    passing: BoolArray  # per judged visit: the rule would release it
    weight: FloatArray


def describe_subgroups(visits: Visits, judgement: Judgement) -> list[Subgroup]:
    """One entry per attribute (and one for visits per patient), each with its groups in order."""
    described: list[Subgroup] = []
    for dimension, code in _shown(visits):
        groups = [_describe(label, code == place, judgement) for place, label in enumerate(dimension.labels)]
        present = [group for group in groups if group["missing"] or group["judged"]]
        if len(present) > 1:
            described.append({"title": dimension.name, "groups": present})
    return described


def group_masks(visits: Visits) -> dict[str, BoolArray]:
    """Every group of every attribute as a mask over the visits."""
    return {
        f"{dimension.name}: {label}": code == place
        for dimension, code in _shown(visits)
        for place, label in enumerate(dimension.labels)
    }


def _describe(label: str, member: BoolArray, judgement: Judgement) -> GroupOutcome:
    asked, checked = member[judgement.candidates], member[judgement.judged]
    passing = checked & judgement.passing
    weight, risky = judgement.weight[passing], judgement.risky[passing]
    return {
        "group": label,
        "missing": int(asked.sum()),
        "released": int(judgement.released[asked].sum()),
        "judged": int(checked.sum()),
        "mae": _mean_or_none(judgement.error[checked]),
        "risky": _mean_or_none(judgement.risky[checked].astype(np.float64)),
        "risky_passing": float(weight @ risky / weight.sum()) if len(weight) >= FEWEST_ERRORS else None,
    }


def _mean_or_none(values: FloatArray) -> float | None:
    return float(values.mean()) if len(values) >= FEWEST_ERRORS else None


def _shown(visits: Visits) -> Iterator[tuple[Dimension, IntArray]]:
    """Attributes and visits per patient, with each visit's place among the labels."""
    ordered = sorted(visits.attributes, key=lambda name: (name.lower() not in USUAL_NAMES, name))
    arrays, nothing = visits.arrays, np.full(len(visits), np.nan)
    yield from make_grouping(ordered[:MOST_ATTRIBUTES], arrays, nothing, past_only=False).codes(arrays, nothing)
    per_patient = np.bincount(arrays.patient)[arrays.patient]
    yield VISITS_PER_PATIENT, VISITS_PER_PATIENT.code(nothing, per_patient, arrays.attributes)


@dataclass(frozen=True)
class _Judged:
    """Judged visits inside the promise, lowest risk first, with running sums of their weights."""

    risk: FloatArray
    weight: FloatArray
    good: FloatArray
    error: FloatArray
    known: FloatArray  # weight of those whose error is a number; of a result beyond a limit it is none


class LevelOutcome(TypedDict):
    """What the average rule would do at a level, judged by the same errors."""

    fdr: float
    cutoff: float | None
    released: int
    risky: float  # share of unacceptable errors among measured visits up to the cut-off, weighted; 0 without one
    power: float  # share of the acceptable ones that lie up to it
    mae: float | None
    bound: int  # with confidence at most so many of the released values are unacceptable, whatever level is picked


def judge(calibrated: Calibrated, tolerance: Tolerance, rule: Rule, reaches: Iterable[Reach]) -> list[LevelOutcome]:
    """For each level how many values it would release, and how wrong measured visits up to there are."""
    judged = _sorted_by_risk(calibrated, calibrated.selection_data(tolerance), rule)
    good = sum(float(each.good[-1]) for each in judged.values())
    return [_outcome(judged, good, reach) for reach in reaches]


def trade_off(result: RunResult) -> list[LevelOutcome]:
    """The report's curve: a few levels, the run's own among them, at the run's tolerance."""
    shown = {*CURVE_LEVELS, result.rule.alpha}
    own = result.elsewhere[_own(result)]
    kept = (reach for reach in own.reaches if reach.level in shown)
    return judge(result.calibrated, own.tolerance, result.rule, kept)


def _own(result: RunResult) -> int:
    """Which of the tolerances looked at is the run's own."""
    return [each.tolerance for each in result.elsewhere].index(result.settings.allowed_error)


class ToleranceOutcomes(TypedDict):
    """The outcome at every level, at one tolerance."""

    tolerance: str  # as a user would type it
    words: str
    released: list[int]
    risky: list[float]
    power: list[float]
    mae: list[float | None]
    bound: list[int]  # at the run's own tolerance; empty at others, which the bound does not cover


class SliderGrid(TypedDict):
    """The outcome at every setting of the page's two sliders."""

    levels: list[float]
    chosen_level: int
    chosen_tolerance: int
    candidates: int  # missing values inside the promise
    judged: int  # measured visits the outcomes are judged by
    confidence: float  # of the bound
    confident: bool  # the run itself asked for confidence; the sliders follow the average rule
    tolerances: list[ToleranceOutcomes]


def slider_grid(result: RunResult) -> SliderGrid:
    """The outcome at every setting of the page's two sliders.

    At the run's own tolerance values are ranked by the risk learnt for it; at others by the expected size of the
    error, so a new run, which learns its own risk, will differ.
    """
    chosen, question = _own(result), result.calibrated.question
    own = result.elsewhere[chosen]
    levels = [reach.level for reach in own.reaches]
    inside = _inside(result.calibrated.selection_data(own.tolerance), result.rule)
    return {
        "levels": levels,
        "chosen_level": levels.index(result.rule.alpha),
        "chosen_tolerance": chosen,
        "candidates": int(np.sum(question.candidate & inside)),
        "judged": int(np.sum(question.judged & inside)),
        "confidence": result.rule.confidence,
        "confident": result.rule.promise == "confident",
        "tolerances": [_at_tolerance(result, each, each is own) for each in result.elsewhere],
    }


def _at_tolerance(result: RunResult, found: AtTolerance, own: bool) -> ToleranceOutcomes:
    points = judge(result.calibrated, found.tolerance, result.rule, found.reaches)
    return {
        "tolerance": found.typed,
        "words": found.tolerance.describe(result.unit),
        "released": [point["released"] for point in points],
        "risky": [_rounded(point["risky"]) for point in points],
        "power": [_rounded(point["power"]) for point in points],
        "mae": [None if point["mae"] is None else _rounded(point["mae"]) for point in points],
        "bound": [point["bound"] for point in points] if own else [],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _inside(data: SelectionData, rule: Rule) -> BoolArray:
    return np.isfinite(data.risk) if rule.published else data.inside


def _sorted_by_risk(calibrated: Calibrated, data: SelectionData, rule: Rule) -> dict[int, _Judged]:
    """By cell of the groups; one cell without any."""
    cell = np.zeros(len(data.risk), dtype=np.int64) if data.cell is None else data.cell
    every = data.judged & _inside(data, rule)
    found = {}
    for number in np.unique(cell[every]).tolist():
        rows = np.flatnonzero(every & (cell == number))
        rows = rows[np.argsort(data.risk[rows], kind="stable")]
        weight, error = data.weight[rows], np.abs(calibrated.estimates.value - calibrated.truth)[rows]
        sums = (weight, weight * (1.0 - data.risky[rows]), weight * np.nan_to_num(error), weight * np.isfinite(error))
        found[number] = _Judged(data.risk[rows], *(np.r_[0.0, np.cumsum(each)] for each in sums))
    return found


def _outcome(judged: dict[int, _Judged], every_good: float, reach: Reach) -> LevelOutcome:
    weight = good = error = known = 0.0
    for cell, cutoff in reach.cutoffs.items():
        if (there := judged.get(cell)) is not None:
            place = int(np.searchsorted(there.risk, cutoff, side="right"))
            weight, good = weight + float(there.weight[place]), good + float(there.good[place])
            error, known = error + float(there.error[place]), known + float(there.known[place])
    return {
        "fdr": reach.level,
        "cutoff": reach.cutoff,
        "released": reach.released,
        "risky": 1.0 - good / weight if weight > 0 else 0.0,
        "power": good / every_good if every_good > 0 else 0.0,
        "mae": error / known if known > 0 else None,
        "bound": reach.bound,
    }
