"""Releases for patients the training never saw: whole patients are exchangeable, their visits are not.

Notation: K calibration and Q new patients; at threshold t, B_k(t) bad visits of calibration patient k, B
their sum, C_q(t) candidates of new patient q, R_-q(t) candidates of the other new patients. Each candidate i
gets a size R_i such that E[sum 1{i selected} / R_i] <= alpha / Q, summed over the bad candidates of one new
patient; pruning then keeps the FDR over all visits at alpha. The proofs are in docs/guarantee.md.
"""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.selection.bh import ROUNDING
from safeimpute.selection.thresholds import LabelledVisits, ScoredVisits, counts_at_thresholds
from safeimpute.selection.weighted import prune

# Thresholds are sought at this share of alpha and the pruning number is drawn from U(0, share): the same FDR,
# and a shortfall of up to 5 % between R_i and the number released no longer costs the whole release.
RESERVE = 0.95


def release_new_patients(
    candidates: ScoredVisits, calibration: LabelledVisits, thresholds: FloatArray, alpha: float, xi: float
) -> BoolArray:
    """Claim `patients`: no error of a new patient is known, so any labelling of its candidates must be safe.

    Were the bad candidates D_q(t) of patient q known, its threshold would be the largest t with
    B(t) + D_q(t) <= alpha (K + 1) / Q (R_-q(t) + c(t)), c the mean number of visits over q and the
    calibration patients: symmetric in those K + 1 patients. `room` is the largest D_q(t) it would bear. The
    candidates up to the threshold for D_q = C_q are selected, because it is the smallest; R_q is the largest
    size that any labelling with a bad selected candidate leads to.
    """
    own = counts_at_thresholds(candidates, np.ones(len(candidates.risk)), thresholds)
    bad = counts_at_thresholds(calibration, calibration.bad.astype(np.float64), thresholds).sum(axis=0)
    visits = counts_at_thresholds(calibration, np.ones(len(calibration.risk)), thresholds).sum(axis=0)
    n_peers = calibration.n_patients + 1
    per_release = RESERVE * alpha * n_peers / max(candidates.n_patients, 1)

    releases = own.sum(axis=0) - own + (visits + own) / n_peers
    room = np.floor(per_release * releases * (1.0 + ROUNDING) - bad)
    last = _last_true(own <= room)
    reachable = (np.arange(len(thresholds)) >= last[:, None]) & (room >= 1)
    size = np.where(reachable, (bad + np.minimum(own, room)) / per_release, 0.0).max(axis=1, initial=0.0)

    position = np.searchsorted(thresholds, candidates.risk, side="left")
    return prune(size[candidates.patient], position <= last[candidates.patient], RESERVE * xi)


def release_unmeasured_of_new_patients(
    candidates: ScoredVisits,
    own_scored: LabelledVisits,
    calibration: LabelledVisits,
    thresholds: FloatArray,
    alpha: float,
    xi: float,
) -> BoolArray:
    """Claim `patients,unmeasured`: a new patient's own hidden measured visits join the calibration.

    `own_scored` numbers patients as `candidates` does. Had candidate i been measured and found bad, it would
    have added w_i to the weighted bad count; its threshold is the largest t with
    B(t) + B_q(t) + w_i <= alpha (K + 1) / Q (R_-q(t) + c(t)), c the mean weighted number of scored visits
    over q, i included, and the calibration patients. Nothing unknown enters.
    """
    pooled = pool_calibration(calibration, thresholds)
    everyone = Everyone(candidate_counts(candidates, thresholds).sum(axis=0), candidates.n_patients)
    size = unmeasured_sizes(candidates, own_scored, pooled, everyone, thresholds, alpha)
    return prune(np.nan_to_num(size), ~np.isnan(size), RESERVE * xi)


@dataclass(frozen=True)
class PooledCalibration:
    """What the calibration patients add up to at each threshold."""

    bad: FloatArray  # weighted
    visits: FloatArray  # weighted
    n_patients: int


@dataclass(frozen=True)
class Everyone:
    """All that one new patient's decision needs to know of the others: a count per threshold, and how many."""

    candidates: FloatArray  # of all new patients, at or below each threshold
    n_patients: int


def pool_calibration(calibration: LabelledVisits, thresholds: FloatArray) -> PooledCalibration:
    visits = counts_at_thresholds(calibration, calibration.weight, thresholds).sum(axis=0)
    return PooledCalibration(
        _weighted_bad(calibration, thresholds).sum(axis=0), visits, calibration.n_patients
    )


def candidate_counts(candidates: ScoredVisits, thresholds: FloatArray) -> FloatArray:
    """Per patient and threshold the candidates at or below it; whole numbers, so sums are exact in any order."""
    return counts_at_thresholds(candidates, np.ones(len(candidates.risk)), thresholds)


def unmeasured_sizes(
    candidates: ScoredVisits,
    own_scored: LabelledVisits,
    calibration: PooledCalibration,
    everyone: Everyone,
    thresholds: FloatArray,
    alpha: float,
) -> FloatArray:
    """R_i of every selected candidate of some of the new patients, NaN where one is not selected.

    Patients may be taken in any portions: the others enter through `everyone` alone.
    """
    n_peers = calibration.n_patients + 1
    per_release = RESERVE * alpha * n_peers / max(everyone.n_patients, 1)
    bad = _weighted_bad(own_scored, thresholds) + calibration.bad
    visits = counts_at_thresholds(own_scored, own_scored.weight, thresholds) + calibration.visits
    releases = everyone.candidates - candidate_counts(candidates, thresholds) + visits / n_peers

    # B + B_q + w <= a (R + c + w / (K + 1)), solved for w: a threshold bears candidates up to this weight.
    bearable = (per_release * releases * (1.0 + ROUNDING) - bad) / (1.0 - per_release / n_peers)
    position = np.searchsorted(thresholds, candidates.risk, side="left")
    last = np.full(len(candidates.risk), -1)
    for t in range(len(thresholds)):
        last[(position <= t) & (candidates.weight <= bearable[candidates.patient, t])] = t
    size = (bad[candidates.patient, last] + candidates.weight) / per_release
    return np.where(last >= 0, size, np.nan)


def _weighted_bad(visits: LabelledVisits, thresholds: FloatArray) -> FloatArray:
    return counts_at_thresholds(visits, visits.weight * visits.bad, thresholds)


def _last_true(rows: BoolArray) -> IntArray:
    """Per row the position of its last True, -1 where there is none."""
    last: IntArray = np.where(rows, np.arange(rows.shape[1]), -1).max(axis=1, initial=-1)
    return last
