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
    points: list[ReleaseSummary]


class RiskGroup(TypedDict):
    """Tested visits of like risk: how wrong they are."""

    group: int
    score: MeanSe  # mean risk
    mae: MeanSe
    risky: MeanSe


def tolerances_around(tolerance: Tolerance) -> list[Tolerance]:
    """Multiples of a tolerance, for curves where none are given."""
    return [Tolerance(tolerance.absolute * factor, tolerance.share * factor) for factor in TOLERANCE_FACTORS]


def fdr_power_curves(
    trials: Sequence[Trial],
    tolerances: Sequence[Tolerance],
    alphas: Sequence[float] = ALPHAS,
    repartitions: int = 1,
) -> list[Curve]:
    """One curve per tolerance: achieved FDP, power, acceptance and errors at each level."""
    return [
        {
            "absolute": tolerance.absolute,
            "share": tolerance.share,
            "points": [release_at(trials, tolerance, alpha, repartitions) for alpha in alphas],
        }
        for tolerance in tolerances
    ]


def risk_alignment(
    trials: Sequence[Trial], tolerance: Tolerance, groups: int = RISK_GROUPS
) -> list[RiskGroup]:
    """Mean risk, mean absolute error and share of risky values in groups of equal size by risk, lowest first."""
    per_split = [_by_risk(trial, tolerance, groups) for trial in trials]
    return [
        {
            "group": position + 1,
            "score": mean_se([g[0] for g in group]),
            "mae": mean_se([g[1] for g in group]),
            "risky": mean_se([g[2] for g in group]),
        }
        for position, group in enumerate(zip(*per_split, strict=False))
    ]


def _by_risk(trial: Trial, tolerance: Tolerance, groups: int) -> list[tuple[float, float, float]]:
    value, truth = trial.errors()
    score = trial.estimates.risk_at(tolerance)[trial.tested]
    order = np.argsort(score, kind="stable")
    order = order[np.isfinite(score[order])]
    error, risky = np.abs(value - truth), trial.risky(tolerance)
    parts = [part for part in np.array_split(order, groups) if len(part)]
    return [(float(score[p].mean()), float(error[p].mean()), float(risky[p].mean())) for p in parts]
