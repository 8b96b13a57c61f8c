"""FDR and power over levels and tolerances, and how risk lines up with error: the paper's curves as plain data."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from safeimpute.evaluation.evaluate import ReleaseSummary, release_at
from safeimpute.evaluation.metrics import MeanSe, mean_se
from safeimpute.evaluation.trials import Trial
from safeimpute.tolerance import Tolerance

ALPHAS = tuple(round(0.05 * step, 2) for step in range(1, 11))
TOLERANCE_FACTORS = (0.75, 1.0, 1.25, 1.5)
RISK_GROUPS = 10


class Curve(TypedDict):
    """The release at every level, at one tolerance."""

    absolute: float
    share: float
    factor: float
    points: list[ReleaseSummary]


class RiskGroup(TypedDict):
    """Tested visits of like risk: how wrong they are."""

    group: int
    mae: MeanSe
    risky: MeanSe


def fdr_power_curves(
    trials: Sequence[Trial],
    tolerance: Tolerance,
    alphas: Sequence[float] = ALPHAS,
    factors: Sequence[float] = TOLERANCE_FACTORS,
) -> list[Curve]:
    """One curve per tolerance (multiples of the chosen one): achieved FDP, power and acceptance at each level."""
    curves: list[Curve] = []
    for factor in factors:
        scaled = Tolerance(tolerance.absolute * factor, tolerance.share * factor)
        points = [release_at(trials, scaled, alpha) for alpha in alphas]
        curves.append(
            {"absolute": scaled.absolute, "share": scaled.share, "factor": factor, "points": points}
        )
    return curves


def risk_alignment(
    trials: Sequence[Trial], tolerance: Tolerance, groups: int = RISK_GROUPS
) -> list[RiskGroup]:
    """Mean absolute error and share of risky values in groups of equal size by risk, lowest first."""
    per_split = [_by_risk(trial, tolerance, groups) for trial in trials]
    return [
        {
            "group": position + 1,
            "mae": mean_se([g[0] for g in group]),
            "risky": mean_se([g[1] for g in group]),
        }
        for position, group in enumerate(zip(*per_split, strict=False))
    ]


def _by_risk(trial: Trial, tolerance: Tolerance, groups: int) -> list[tuple[float, float]]:
    value, truth = trial.errors()
    order = np.argsort(trial.estimates.risk_at(tolerance)[trial.tested], kind="stable")
    error, risky = np.abs(value - truth), trial.risky(tolerance)
    parts = [part for part in np.array_split(order, groups) if len(part)]
    return [(float(error[part].mean()), float(risky[part].mean())) for part in parts]
