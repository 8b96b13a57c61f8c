"""FDR and power over levels and tolerances, and how risk lines up with error: the paper's curves as plain data."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from safeimpute.evaluation.evaluate import ScoredSplit, release_scores
from safeimpute.evaluation.metrics import mean_se
from safeimpute.tolerance import Tolerance

ALPHAS = tuple(round(0.05 * step, 2) for step in range(1, 11))
TOLERANCE_FACTORS = (0.75, 1.0, 1.25, 1.5)
RISK_GROUPS = 10


def fdr_power_curves(
    scored: Sequence[ScoredSplit],
    tolerance: Tolerance,
    alphas: Sequence[float] = ALPHAS,
    factors: Sequence[float] = TOLERANCE_FACTORS,
) -> list[dict[str, Any]]:
    """One curve per tolerance (multiples of the chosen one): achieved FDP, power and acceptance at each level."""
    curves = []
    for factor in factors:
        scaled = Tolerance(tolerance.absolute * factor, tolerance.share * factor)
        points = []
        for alpha in alphas:
            scores = [release_scores(split, scaled, alpha) for split in scored]
            names = ("fdp", "power", "acceptance")
            points.append({"fdr": alpha, **{name: mean_se([s[name] for s in scores]) for name in names}})
        curves.append(
            {"absolute": scaled.absolute, "share": scaled.share, "factor": factor, "points": points}
        )
    return curves


def risk_alignment(
    scored: Sequence[ScoredSplit], tolerance: Tolerance, groups: int = RISK_GROUPS
) -> list[dict[str, Any]]:
    """Mean absolute error and share of risky values in groups of equal size by risk, lowest first."""
    per_split = []
    for split in scored:
        rows = split.tested
        order = rows[np.argsort(split.risk(tolerance)[rows], kind="stable")]
        value, truth = split.value, split.truth
        per_split.append(
            [
                (
                    float(np.mean(np.abs(value[part] - truth[part]))),
                    float(np.mean(tolerance.risky(value[part], truth[part]))),
                )
                for part in np.array_split(order, groups)
                if len(part)
            ]
        )
    return [
        {
            "group": position + 1,
            "mae": mean_se([g[0] for g in group]),
            "risky": mean_se([g[1] for g in group]),
        }
        for position, group in enumerate(zip(*per_split, strict=False))
    ]
