"""The paper's own release: conformal p-values against held-out visits, and the Benjamini-Hochberg step-up rule."""

from dataclasses import dataclass

import numpy as np

from safeimpute.errors import SafeImputeError
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

# p_(k) <= k alpha / m often holds with equality (all sides are ratios of counts); the comparison must not
# hang on the last bits of either side.
ROUNDING = 1e-12


def benjamini_hochberg(p: FloatArray, alpha: float) -> BoolArray:
    """Release every p up to p_(k*), k* the largest k with p_(k) <= k alpha / m. Equations 34 and 35."""
    if len(p) == 0:
        return np.zeros(0, dtype=bool)
    from scipy.stats import false_discovery_control

    released: BoolArray = false_discovery_control(p) <= alpha * (1.0 + ROUNDING)
    return released


@dataclass(frozen=True)
class Ranked:
    """Risks of some visits, each with the uniform number that breaks its ties."""

    risk: FloatArray
    tie: FloatArray

    def __post_init__(self) -> None:
        if self.risk.shape != self.tie.shape or np.isnan(self.risk).any() or np.isnan(self.tie).any():
            raise SafeImputeError("Every visit that takes part in a release needs a risk and a tie-breaker.")

    def __len__(self) -> int:
        return len(self.risk)


def joint_ranks(first: Ranked, second: Ranked) -> tuple[IntArray, IntArray]:
    """Ranks of both groups in one order by (risk, tie); equal pairs share a rank."""
    risk = np.concatenate([first.risk, second.risk])
    tie = np.concatenate([first.tie, second.tie])
    order = np.lexsort((tie, risk))
    changes = (np.diff(risk[order]) != 0) | (np.diff(tie[order]) != 0)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.concatenate([np.zeros(min(1, len(order)), dtype=np.int64), np.cumsum(changes)])
    return ranks[: len(first)], ranks[len(first) :]


def conformal_p_values(candidate: Ranked, calibration: Ranked, risky: BoolArray) -> FloatArray:
    """p_j = (1 + #{i: V_i < V_j}) / (1 + n), n all calibration visits.

    The denominator holds all calibration visits, good ones included: what is bounded is the chance of being
    risky and below a level at once, P(risky, p_j <= t) <= t.
    """
    candidate_rank, calibration_rank = joint_ranks(candidate, calibration)
    below = np.searchsorted(np.sort(calibration_rank[risky]), candidate_rank, side="left")
    return np.asarray((1.0 + below) / (1.0 + len(calibration)), dtype=np.float64)


def paper_p_values(risk: FloatArray, calibration_risk: FloatArray, risky: BoolArray, uniform: FloatArray) -> FloatArray:
    """The published form: (1 + #risky below + U_j #risky tied) / (n_cal + 1), one uniform per candidate.

    Equations 32 and 33.
    """
    risky_risk = np.sort(calibration_risk[risky])
    below = np.searchsorted(risky_risk, risk, side="left")
    tied = np.searchsorted(risky_risk, risk, side="right") - below
    return np.asarray((1.0 + below + uniform * tied) / (len(calibration_risk) + 1.0), dtype=np.float64)
