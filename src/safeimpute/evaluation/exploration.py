"""What other levels and tolerances would have done, judged by validation errors alone: to look at, never to promise.

The report's trade-off curve and the review page's sliders are both made here. Validation visits stand in for the
calibration visits: inside the claim's scope, with its weights, ranked by a risk that never saw them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, uniform_per_visit
from safeimpute.selection.bh import ROUNDING
from safeimpute.selection.p_values import Scores, conformal_p_values
from safeimpute.selection.pipeline import TIE_STREAM, Scored
from safeimpute.splits.roles import Role
from safeimpute.tolerance import Tolerance, parse_tolerance

CURVE_LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 11))
SLIDER_LEVELS = tuple(round(0.01 * step, 2) for step in range(1, 51))
TOLERANCE_FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)


@dataclass(frozen=True)
class ExplorationGround:
    """Candidates and validation visits inside the claim's scope, and what was measured at the latter."""

    candidate: Scores
    candidate_weight: FloatArray
    validation: Scores
    validation_weight: FloatArray
    value: FloatArray  # imputed, per validation visit
    truth: FloatArray


def exploration_ground(scored: Scored, truth: FloatArray) -> ExplorationGround:
    """Gather what exploring may see; no calibration error is among it."""
    inside = ~np.any(list(scored.outside.values()), axis=0)
    candidates, rows = scored.candidates(), scored.split.rows(Role.VALIDATION)
    if scored.split.group is not None:
        candidates = candidates[scored.split.group[candidates] == Role.TEST]
    candidates, rows = candidates[inside[candidates]], rows[inside[rows]]
    risk = scored.scores.explored_risk
    tie = uniform_per_visit(scored.arrays.visit_key, scored.plan.seed, TIE_STREAM)
    return ExplorationGround(
        Scores(risk[candidates], tie[candidates]),
        scored.weight[candidates],
        Scores(risk[rows], tie[rows]),
        scored.weight[rows],
        scored.scores.value[rows],
        truth[rows],
    )


def explore(
    ground: ExplorationGround, tolerance: Tolerance, levels: Sequence[float]
) -> list[dict[str, float | None]]:
    """At each level: how many a release would let through, and how wrong the validation values among them are."""
    bad = tolerance.risky(ground.value, ground.truth)
    p_value = conformal_p_values(
        ground.candidate, ground.validation, bad, ground.candidate_weight, ground.validation_weight
    )
    adjusted = _adjusted(p_value)
    return [_at_level(ground, bad, adjusted, level) for level in levels]


def _adjusted(p_value: FloatArray) -> FloatArray:
    """The smallest level at which BH releases each candidate: all levels from one sort."""
    if not len(p_value):
        return p_value
    from scipy.stats import false_discovery_control

    return np.asarray(false_discovery_control(p_value), dtype=np.float64)


def _at_level(
    ground: ExplorationGround, bad: BoolArray, adjusted: FloatArray, level: float
) -> dict[str, float | None]:
    released = adjusted <= level * (1.0 + ROUNDING)
    cutoff = ground.candidate.risk[released].max() if released.any() else -np.inf
    passing = np.where(ground.validation.risk <= cutoff, ground.validation_weight, 0.0)
    through, good = passing.sum(), ground.validation_weight[~bad].sum()
    error = np.abs(ground.value - ground.truth)
    return {
        "fdr": level,
        "released": int(released.sum()),
        "fdp": float(passing[bad].sum() / through) if through else 0.0,
        "power": float(passing[~bad].sum() / good) if good else 0.0,
        "mae": float(passing @ error / through) if through else None,
    }


def slider_grid(scored: Scored, truth: FloatArray, fdr: float, unit: str | None) -> dict[str, Any]:
    """The outcome at every setting of the two sliders.

    Values are ranked by the risk learnt for the run's own tolerance at every setting; a new run learns a ranking
    for its own tolerance, so its outcome will differ.
    """
    ground, fitted = exploration_ground(scored, truth), scored.plan.tolerance
    levels = sorted({*SLIDER_LEVELS, fdr})
    return {
        "levels": levels,
        "chosen_level": levels.index(fdr),
        "chosen_tolerance": TOLERANCE_FACTORS.index(1.0),
        "candidates": len(ground.candidate),
        "validation_visits": len(ground.validation),
        "tolerances": [_settings(ground, _scaled(fitted, f), levels, unit) for f in TOLERANCE_FACTORS],
    }


def _settings(
    ground: ExplorationGround, tolerance: str, levels: Sequence[float], unit: str | None
) -> dict[str, Any]:
    allowed = parse_tolerance(tolerance)
    points = explore(ground, allowed, levels)
    outcome = {
        name: [_rounded(point[name]) for point in points] for name in ("released", "fdp", "power", "mae")
    }
    return {"tolerance": tolerance, "words": allowed.describe(unit), **outcome}


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else float(f"{value:.4g}")


def _scaled(tolerance: Tolerance, factor: float) -> str:
    """A multiple of the tolerance as a user would type it."""
    share, absolute = f"{100 * tolerance.share * factor:.4g}%", f"{tolerance.absolute * factor:.4g}"
    if tolerance.share and tolerance.absolute:
        return f"{share} or {absolute}"
    return share if tolerance.share else absolute
