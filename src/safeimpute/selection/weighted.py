"""Weighted conformal selection: a release for visits nobody measured, calibrated on visits somebody did.

Follows Jin and Candès (2023). Measured and unmeasured visits differ; weights w(x) proportional to
P(unmeasured | x) / P(measured | x) undo that. Weighted p-values lack the dependence that plain BH relies on,
so each candidate gets its own BH size, and pruning with one shared uniform number keeps the promise exact.

With equal weights the result is BH on the unweighted p-values. Let k be the size of that BH release. A
candidate ranked r <= k has R_j = k: above r, p^(j) equals p. A candidate ranked r > k has R_j <= r, so that
joining S would need p_j <= alpha r / m, against the maximality of k. Hence S is the BH release, all its R_j
equal k, and pruning drops nobody.
"""

import math

import numpy as np

from safeimpute.errors import GuaranteeRefused
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.selection.bh import ROUNDING
from safeimpute.selection.p_values import Scores, bad_weight_below, joint_ranks


def weighted_selection(
    candidate: Scores,
    calibration: Scores,
    bad: BoolArray,
    candidate_weight: FloatArray,
    calibration_weight: FloatArray,
    alpha: float,
    xi: float,
) -> BoolArray:
    """Release j in S = {p_j <= alpha R_j / m} that survives pruning, R_j the size of j's own BH release.

    `xi` is one uniform number for the whole batch. Sorting takes the time; memory is O(n + m).
    """
    candidate_rank, calibration_rank = joint_ranks(candidate, calibration)
    below = bad_weight_below(candidate_rank, calibration_rank, bad, calibration_weight)
    # Tied candidates have equal weight below them, so each may be taken as the last of its ties.
    place = np.searchsorted(np.sort(candidate_rank), candidate_rank, side="right")
    size = _own_bh_sizes(np.sort(below), candidate_weight, float(calibration_weight.sum()), alpha)
    return prune(size, size >= place, xi)


def prune(own_size: FloatArray, selected: BoolArray, xi: float) -> BoolArray:
    """Keep selected j with xi R_j <= r*, r* the largest r such that r of them satisfy xi R_j <= r.

    For a fixed data set, averaging over a uniform xi gives E[1{j kept} / number kept] <= 1 / R_j.
    """
    scaled = xi * own_size[selected]
    count = np.arange(1, len(scaled) + 1)
    enough = np.flatnonzero(np.sort(scaled) <= count * (1.0 + ROUNDING))
    r_star = enough[-1] + 1 if len(enough) else 0
    kept = np.zeros(len(selected), dtype=bool)
    kept[selected] = scaled <= r_star * (1.0 + ROUNDING)
    return kept


def least_release(scaled: FloatArray) -> IntArray:
    """The least number of releases k that keeps a candidate in: scaled <= k, within rounding.

    With it pruning is a matter of counting: #{scaled <= k} = #{least <= k} for every whole k.
    """
    least = np.maximum(np.ceil(scaled) - 1.0, 0.0)
    for _ in range(2):  # the rounding allowance moves the boundary by less than one
        least = np.where(scaled <= least * (1.0 + ROUNDING), least, least + 1.0)
    return least.astype(np.int64)


def largest_release(least: IntArray, how_many: IntArray) -> int:
    """r* of `prune` from counts: the largest r such that at least r candidates have `least` <= r."""
    order = np.argsort(least)
    least, reached = least[order], np.cumsum(how_many[order])
    # Between two values of `least` the count stands still, so r can grow up to the count itself.
    until = np.append(least[1:] - 1, np.iinfo(np.int64).max)
    largest = np.minimum(until, reached)
    return int(np.max(largest[largest >= least], initial=0))


def _own_bh_sizes(below: FloatArray, weight: FloatArray, total: float, alpha: float) -> FloatArray:
    """Per candidate j the largest r with A_r + w_j <= alpha r / m (W + w_j), A = `below`, W = `total`.

    This is R_j wherever it matters. In p^(j) candidate j comes first; one ranked above j keeps its place r and
    passes there under that condition; one ranked below j moves to place r + 1. Let s_j be the largest r and
    r_j the place of j. If s_j > r_j, then R_j = s_j. If s_j = r_j, the candidate just below j passes at place
    r_j, so R_j = r_j. Either way p_j <= alpha s_j / m, and j is in S. If s_j < r_j, then R_j <= r_j, and
    p_j <= alpha R_j / m would make the condition hold at r_j: j is not in S. Hence S = {s_j >= r_j}.
    """
    level = alpha * np.arange(1, len(below) + 1) / max(len(below), 1) * (1.0 + ROUNDING)
    heaviest = (level * total - below) / (1.0 - level)  # the condition solved for w_j
    best_from = np.maximum.accumulate(heaviest[::-1])
    return np.asarray(len(below) - np.searchsorted(best_from, weight, side="left"), dtype=np.float64)


def effective_sample_size(weights: FloatArray) -> float:
    """(sum w)^2 / sum w^2: how many equally weighted visits the weighted ones are worth."""
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def require_effective_sample_size(calibration_weight: FloatArray, alpha: float, unit: str = "visits") -> None:
    """Refuse calibration weights so uneven that fewer than max(30, 3 / alpha) units carry the promise."""
    size, needed = effective_sample_size(calibration_weight), max(30.0, 3.0 / alpha)
    if size < needed:
        raise GuaranteeRefused(
            f"The calibration weights are worth {size:.0f} equally weighted {unit}; an FDR level of "
            f"{alpha:g} needs {math.ceil(needed)}. There are too few of them, or measured and unmeasured visits "
            "overlap too little: give more measured visits, or claim less."
        )
