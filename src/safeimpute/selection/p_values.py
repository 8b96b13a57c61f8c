"""Conformal p-values of candidates against calibration visits: the first step from a risk to a release.

A bad calibration visit counts with its risk V_i, a good one with V_i = +inf, a candidate with its risk V_j.
Equal risks are ordered by a uniform number of the visit's own, for calibration and candidates alike.
"""

import math
from dataclasses import dataclass

import numpy as np

from safeimpute.errors import GuaranteeRefused, SafeImputeError
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Scores:
    """Risks of some visits, each with the uniform number that breaks its ties."""

    risk: FloatArray
    tie: FloatArray

    def __post_init__(self) -> None:
        if self.risk.shape != self.tie.shape or np.isnan(self.risk).any() or np.isnan(self.tie).any():
            raise SafeImputeError("Every visit that takes part in a release needs a risk and a tie-breaker.")

    def __len__(self) -> int:
        return len(self.risk)


def joint_ranks(first: Scores, second: Scores) -> tuple[IntArray, IntArray]:
    """Ranks of both groups in one order by (risk, tie); equal pairs share a rank."""
    risk = np.concatenate([first.risk, second.risk])
    tie = np.concatenate([first.tie, second.tie])
    order = np.lexsort((tie, risk))
    changes = (np.diff(risk[order]) != 0) | (np.diff(tie[order]) != 0)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.concatenate([np.zeros(min(1, len(order)), dtype=np.int64), np.cumsum(changes)])
    return ranks[: len(first)], ranks[len(first) :]


def bad_weight_below(
    candidate_rank: IntArray, calibration_rank: IntArray, bad: BoolArray, calibration_weight: FloatArray
) -> FloatArray:
    """Calibration weight of bad visits ranked strictly below each candidate: sum_i w_i 1{V_i < V_j}."""
    order = np.argsort(calibration_rank[bad], kind="stable")
    total = np.concatenate([[0.0], np.cumsum(calibration_weight[bad][order])])
    below: FloatArray = total[np.searchsorted(calibration_rank[bad][order], candidate_rank, side="left")]
    return below


def conformal_p_values(
    candidate: Scores,
    calibration: Scores,
    bad: BoolArray,
    candidate_weight: FloatArray | None = None,
    calibration_weight: FloatArray | None = None,
) -> FloatArray:
    """p_j = (w_j + sum_i w_i 1{V_i < V_j}) / (w_j + sum_i w_i); without weights every w is 1.

    The denominator holds all calibration visits, good ones included: what is bounded is the chance of being
    bad and below a level at once, P(bad, p_j <= t) <= t.
    """
    own = np.ones(len(candidate)) if candidate_weight is None else candidate_weight
    weight = np.ones(len(calibration)) if calibration_weight is None else calibration_weight
    candidate_rank, calibration_rank = joint_ranks(candidate, calibration)
    below = bad_weight_below(candidate_rank, calibration_rank, bad, weight)
    p: FloatArray = (own + below) / (own + weight.sum())
    return p


def paper_p_values(
    risk: FloatArray, calibration_risk: FloatArray, bad: BoolArray, uniform: FloatArray
) -> FloatArray:
    """The published form: (1 + #bad below + U_j #bad tied) / (n_cal + 1), one uniform per candidate."""
    bad_risk = np.sort(calibration_risk[bad])
    below = np.searchsorted(bad_risk, risk, side="left")
    tied = np.searchsorted(bad_risk, risk, side="right") - below
    return np.asarray((1.0 + below + uniform * tied) / (len(calibration_risk) + 1.0), dtype=np.float64)


def require_calibration_size(n_calibration: int, alpha: float, unit: str = "calibration visits") -> None:
    """Refuse when even a candidate safer than every bad calibration visit has p = 1 / (n + 1) > alpha."""
    needed = math.ceil(1.0 / alpha - 1.0 - 1e-9)
    if n_calibration < needed:
        raise GuaranteeRefused(
            f"An FDR level of {alpha:g} needs at least {needed} {unit}; there are {n_calibration}. "
            "Give more measured visits or a higher level."
        )


def require_attainable_level(
    candidate_weight: FloatArray, calibration_weight: FloatArray, alpha: float
) -> None:
    """Refuse when the smallest possible weighted p-value, min_j w_j / (w_j + sum_i w_i), exceeds alpha."""
    lightest = float(candidate_weight.min(initial=math.inf))
    total = float(calibration_weight.sum())
    if lightest > alpha * (lightest + total):
        raise GuaranteeRefused(
            f"No visit could be released at an FDR level of {alpha:g}: the calibration visits carry too "
            "little weight beside the unmeasured ones. Give more measured visits or a higher level."
        )
