"""What other levels and tolerances would have done, by the errors the run was decided by: to look at, not to promise.

The report's trade-off curve and the review page's sliders are both made here. Looking uses the same errors, so a level
chosen after looking carries no promise of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.estimator import LabImputer
from safeimpute.evaluation.run_summary import LevelOutcome, SliderGrid, ToleranceOutcomes
from safeimpute.records.arrays import BoolArray, FloatArray
from safeimpute.records.units import target_unit
from safeimpute.selection.bh import ROUNDING
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.cutoff import average_cutoff, enough
from safeimpute.selection.ledger import Entries, below, risk_grid
from safeimpute.selection.release import Ground, Rule, bound_at, decide, entries_of, rule_of
from safeimpute.tolerance import Tolerance, parse_tolerance

CURVE_LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 11))
SLIDER_LEVELS = tuple(round(0.01 * step, 2) for step in range(1, 51))
TOLERANCE_FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
FIRST_STEP = 8  # thresholds tried at once


@dataclass(frozen=True)
class _Judged:
    """Judged visits inside the promise, lowest risk first, with running sums of their weights."""

    risk: FloatArray
    weight: FloatArray
    good: FloatArray
    error: FloatArray


@dataclass(frozen=True)
class _Release:
    """How far up the risk a level reaches (NaN: nowhere), and how many candidates that lets through."""

    cutoff: float
    released: int


def explore(
    calibrated: Calibrated, tolerance: Tolerance, rule: Rule, levels: Sequence[float]
) -> list[LevelOutcome]:
    """At each level: how many values the average rule would release, and how wrong measured visits up to there are.

    Under claim `visits` the paper's p-values decide instead.
    """
    ground = replace(calibrated.ground(tolerance), cell=None)  # one rule for all groups
    judged = _sorted_by_risk(calibrated, ground, rule)
    paper = rule.claim == "visits"
    releases = _by_p_values(ground, rule, levels) if paper else _by_ledger(ground, levels)
    return [
        _outcome(judged, level, each, _bound(ground, rule, each))
        for level, each in zip(levels, releases, strict=True)
    ]


def _bound(ground: Ground, rule: Rule, release: _Release) -> int:
    """With confidence at most so many of the released values are risky, whichever level is picked."""
    if not release.released:
        return 0
    return bound_at(ground, rule, release.cutoff, rule.confidence).risky


def _inside(ground: Ground, rule: Rule) -> BoolArray:
    return np.isfinite(ground.risk) if rule.published else ground.inside


def _sorted_by_risk(calibrated: Calibrated, ground: Ground, rule: Rule) -> _Judged:
    rows = np.flatnonzero(ground.judged & _inside(ground, rule))
    rows = rows[np.argsort(ground.risk[rows], kind="stable")]
    weight, error = ground.weight[rows], np.abs(calibrated.estimates.value - calibrated.truth)[rows]
    sums = (weight, weight * ~ground.risky[rows], weight * error)
    return _Judged(ground.risk[rows], *(np.r_[0.0, np.cumsum(each)] for each in sums))


def _outcome(judged: _Judged, level: float, release: _Release, bound: int) -> LevelOutcome:
    place = 0 if np.isnan(release.cutoff) else int(np.searchsorted(judged.risk, release.cutoff, side="right"))
    weight, good, every_good = judged.weight[place], judged.good[place], judged.good[-1]
    return {
        "fdr": level,
        "cutoff": None if np.isnan(release.cutoff) else release.cutoff,
        "released": release.released,
        "risky": float(1.0 - good / weight) if weight > 0 else 0.0,
        "power": float(good / every_good) if every_good > 0 else 0.0,
        "mae": float(judged.error[place] / weight) if weight > 0 else None,
        "bound": bound,
    }


def _by_ledger(ground: Ground, levels: Sequence[float]) -> list[_Release]:
    inside = ground.inside
    grid = risk_grid(ground.risk[inside & (ground.judged | ground.candidate)])
    candidates = np.sort(ground.risk[inside & ground.candidate])
    return [
        _Release(cutoff, 0 if np.isnan(cutoff) else int(np.searchsorted(candidates, cutoff, side="right")))
        for cutoff in average_cutoffs(entries_of(ground), grid, levels).tolist()
    ]


def _by_p_values(ground: Ground, rule: Rule, levels: Sequence[float]) -> list[_Release]:
    """All levels from one sort: Benjamini-Hochberg releases a candidate from its adjusted p-value on."""
    from scipy.stats import false_discovery_control

    tested = decide(ground, replace(rule, alpha=max(levels), promise="average")).p_value
    there = np.isfinite(tested)
    risk = ground.risk[ground.candidate][there]
    adjusted = false_discovery_control(tested[there]) if there.any() else tested[there]
    found = []
    for level in levels:
        through = risk[adjusted <= level * (1.0 + ROUNDING)]
        found.append(_Release(float(through.max()) if len(through) else np.nan, len(through)))
    return found


def average_cutoffs(entries: Entries, thresholds: FloatArray, levels: Sequence[float]) -> FloatArray:
    """What the average rule gives at each level, at a small part of its cost; NaN where no threshold keeps the level.

    A threshold can be safe only where the risky weight below it is at most the level's share, and a lower level never
    reaches further than a higher one: so only thresholds just below those two bounds are tried.
    """
    present, patient = np.unique(entries.patient, return_inverse=True)
    there = replace(entries, patient=patient, n_patients=len(present))
    weight = below(there.risk, there.weight, thresholds)
    risky = below(there.risk, there.weight * there.risky, thresholds)
    found, reach = np.full(len(levels), np.nan), len(thresholds)
    worth = there.worth
    for place in np.argsort(levels)[::-1]:
        if not enough(worth, levels[place]):
            break
        possible = np.flatnonzero(risky[:reach] - levels[place] * weight[:reach] <= ROUNDING * weight[:reach])
        end = int(possible[-1]) + 1 if len(possible) else 0
        found[place] = _last_safe(there, thresholds[:end], levels[place])
        if np.isnan(found[place]):
            break
        reach = int(np.searchsorted(thresholds, found[place], side="right"))
    return found


def _last_safe(entries: Entries, thresholds: FloatArray, alpha: float) -> float:
    """The cut-off, looked for from the largest threshold down in growing steps."""
    end, step = len(thresholds), FIRST_STEP
    while end > 0:
        start = max(0, end - step)
        cutoff = average_cutoff(entries, thresholds[start:end], alpha)
        if cutoff.risk is not None:
            return cutoff.risk
        end, step = start, 2 * step
    return np.nan


def explore_run(imputer: LabImputer) -> SliderGrid:
    """The page's sliders for a fitted run."""
    settings = imputer.current_settings()
    return slider_grid(imputer.calibrated_, settings.allowed_error, rule_of(settings), target_unit(settings))


def slider_grid(calibrated: Calibrated, tolerance: Tolerance, rule: Rule, unit: str | None) -> SliderGrid:
    """The outcome at every setting of the two sliders.

    At the run's own tolerance values are ranked by the risk learnt for it; at others by the expected size of the
    error, so a new run, which learns its own risk, will differ.
    """
    levels = sorted({*SLIDER_LEVELS, rule.alpha})
    inside = _inside(calibrated.ground(tolerance), rule)
    question = calibrated.question
    return {
        "levels": levels,
        "chosen_level": levels.index(rule.alpha),
        "chosen_tolerance": TOLERANCE_FACTORS.index(1.0),
        "candidates": int(np.sum(question.candidate & inside)),
        "judged": int(np.sum(question.judged & inside)),
        "confidence": rule.confidence,
        "confident": rule.promise == "confident",
        "tolerances": [
            _at_tolerance(calibrated, tolerance, factor, rule, levels, unit) for factor in TOLERANCE_FACTORS
        ],
    }


def _at_tolerance(
    calibrated: Calibrated,
    own: Tolerance,
    factor: float,
    rule: Rule,
    levels: Sequence[float],
    unit: str | None,
) -> ToleranceOutcomes:
    tolerance = _scaled(own, factor)
    allowed = own if factor == 1.0 else parse_tolerance(tolerance)
    points = explore(calibrated, allowed, rule, levels)
    return {
        "tolerance": tolerance,
        "words": allowed.describe(unit),
        "released": [point["released"] for point in points],
        "risky": [_rounded(point["risky"]) for point in points],
        "power": [_rounded(point["power"]) for point in points],
        "mae": [None if point["mae"] is None else _rounded(point["mae"]) for point in points],
        "bound": [point["bound"] for point in points] if factor == 1.0 else [],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _scaled(tolerance: Tolerance, factor: float) -> str:
    """A multiple of the tolerance as a user would type it."""
    share, absolute = f"{100 * tolerance.share * factor:.4g}%", f"{tolerance.absolute * factor:.4g}"
    if tolerance.share and tolerance.absolute:
        return f"{share} or {absolute}"
    return share if tolerance.share else absolute
