"""How right the releases at other levels and tolerances would have been, by the errors the run was decided by.

The report's trade-off curve and the review page's sliders are both made here, from what `selection.what_if` says each
level reaches. Looking uses the same errors, so a level chosen after looking carries no promise of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from safeimpute.evaluation.run_summary import LevelOutcome, SliderGrid, ToleranceOutcomes
from safeimpute.records.arrays import BoolArray, FloatArray
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.release import Ground, Rule
from safeimpute.selection.result import RunResult
from safeimpute.selection.what_if import TOLERANCE_FACTORS, AtTolerance, Reach
from safeimpute.tolerance import Tolerance

CURVE_LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 11))
OWN = TOLERANCE_FACTORS.index(1.0)  # the run's own tolerance among those looked at


@dataclass(frozen=True)
class _Judged:
    """Judged visits inside the promise, lowest risk first, with running sums of their weights."""

    risk: FloatArray
    weight: FloatArray
    good: FloatArray
    error: FloatArray


def judge(
    calibrated: Calibrated, tolerance: Tolerance, rule: Rule, reaches: Iterable[Reach]
) -> list[LevelOutcome]:
    """For each level how many values it would release, and how wrong measured visits up to there are."""
    judged = _sorted_by_risk(calibrated, calibrated.ground(tolerance), rule)
    return [_outcome(judged, reach) for reach in reaches]


def trade_off(result: RunResult) -> list[LevelOutcome]:
    """The report's curve: a few levels, the run's own among them, at the run's tolerance."""
    shown = {*CURVE_LEVELS, result.rule.alpha}
    own = result.elsewhere[OWN]
    kept = (reach for reach in own.reaches if reach.level in shown)
    return judge(result.calibrated, own.tolerance, result.rule, kept)


def slider_grid(result: RunResult) -> SliderGrid:
    """The outcome at every setting of the page's two sliders.

    At the run's own tolerance values are ranked by the risk learnt for it; at others by the expected size of the
    error, so a new run, which learns its own risk, will differ.
    """
    own, question = result.elsewhere[OWN], result.calibrated.question
    levels = [reach.level for reach in own.reaches]
    inside = _inside(result.calibrated.ground(own.tolerance), result.rule)
    return {
        "levels": levels,
        "chosen_level": levels.index(result.rule.alpha),
        "chosen_tolerance": OWN,
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


def _inside(ground: Ground, rule: Rule) -> BoolArray:
    return np.isfinite(ground.risk) if rule.published else ground.inside


def _sorted_by_risk(calibrated: Calibrated, ground: Ground, rule: Rule) -> _Judged:
    rows = np.flatnonzero(ground.judged & _inside(ground, rule))
    rows = rows[np.argsort(ground.risk[rows], kind="stable")]
    weight, error = ground.weight[rows], np.abs(calibrated.estimates.value - calibrated.truth)[rows]
    sums = (weight, weight * ~ground.risky[rows], weight * error)
    return _Judged(ground.risk[rows], *(np.r_[0.0, np.cumsum(each)] for each in sums))


def _outcome(judged: _Judged, reach: Reach) -> LevelOutcome:
    place = 0 if reach.cutoff is None else int(np.searchsorted(judged.risk, reach.cutoff, side="right"))
    weight, good, every_good = judged.weight[place], judged.good[place], judged.good[-1]
    return {
        "fdr": reach.level,
        "cutoff": reach.cutoff,
        "released": reach.released,
        "risky": float(1.0 - good / weight) if weight > 0 else 0.0,
        "power": float(good / every_good) if every_good > 0 else 0.0,
        "mae": float(judged.error[place] / weight) if weight > 0 else None,
        "bound": reach.bound,
    }
