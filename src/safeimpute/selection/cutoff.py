"""From a ledger to a cut-off: the largest risk that may be released, on average or with confidence."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.selection.ledger import Entries, Ledger, below, keep_ledger, per_patient

Promise = Literal["average", "confident"]
FEWEST_RISKY = 3.0  # the level times the effective patients below a threshold must come to this many
STAKES = 24  # shares of the largest admissible stake that the betting test averages over


@dataclass(frozen=True)
class Cutoff:
    """The largest risk that is released; None where no threshold keeps the level."""

    risk: float | None
    share: float | None  # weighted share of risky values at or below it, as the ledger has it
    patients: float  # of equal size, worth those below the cut-off, or below the largest threshold without one
    entries: int  # measured visits that took part


def average_cutoff(entries: Entries, thresholds: FloatArray, alpha: float) -> Cutoff:
    """The largest threshold at which the ledger bears one patient like its worst and one more risky visit.

    The balance is the excess over the level seen; the two corrections pay for the threshold having been chosen by
    it (docs/guarantee.md, Theorem 2). Thresholds with too few patients below them are not tried, which reads no error.
    """
    ledger = keep_ledger(entries, thresholds, alpha)
    correction = np.maximum(ledger.worst, 0.0) + (1.0 - alpha) * ledger.visit_weight
    safe = np.flatnonzero(enough_below(ledger, alpha) & (ledger.balance + correction <= 0.0))
    return _cutoff(ledger, entries, alpha, int(safe[-1]) if len(safe) else None)


def enough_below(ledger: Ledger, alpha: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where a level of alpha means a countable number of risky values."""
    return alpha * ledger.patients >= FEWEST_RISKY


def confident_cutoff(
    entries: Entries, thresholds: FloatArray, alpha: float, confidence: float
) -> Cutoff:
    """The last of a sequence of thresholds, each shown with confidence to have a mean balance of at most zero.

    The sequence starts where the risks themselves predict the clearest proof and goes up; both are fixed before any
    error is read, so testing stops at the first failure and needs no correction for their number.
    """
    ledger = keep_ledger(entries, thresholds, alpha)
    chosen: int | None = None
    for place in _sequence(entries, thresholds, alpha, enough_below(ledger, alpha)):
        balance = per_patient(entries, entries.weight * (entries.risky - alpha), thresholds[[place]])[:, 0]
        size = per_patient(entries, entries.weight, thresholds[[place]])[:, 0]
        if log_e_value(balance, (1.0 - alpha) * float(size.max(initial=0.0))) < -math.log(1.0 - confidence):
            break
        chosen = int(place)
    return _cutoff(ledger, entries, alpha, chosen)


def log_e_value(balance: FloatArray, bound: float) -> float:
    """Logarithm of the evidence against a mean balance above zero, at most `bound` for one patient.

    The wealth of a bettor who stakes a share s of the most that can be lost is prod(1 - s X_q / bound); its mean is at
    most 1 if the mean balance is not below zero. Averaged over shares, so that no order of patients matters.
    """
    if bound <= 0.0:
        return 0.0
    shares = (np.arange(STAKES) + 0.5) / STAKES
    shares = shares**2  # small stakes are the best ones near the boundary
    moved = balance[balance != 0.0] / bound
    wealth = np.array([np.sum(np.log1p(-share * moved)) for share in shares])
    top = float(wealth.max(initial=0.0))
    return top + math.log(float(np.mean(np.exp(wealth - top))))


def _sequence(
    entries: Entries, thresholds: FloatArray, alpha: float, enough: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> IntArray:
    """Thresholds upwards from the one whose proof the risks alone predict to be the clearest."""
    if not enough.any():
        return np.empty(0, np.int64)
    excess = entries.weight * (entries.risk - alpha)
    noise = np.square(entries.weight) * (entries.risk * (1.0 - entries.risk) + np.square(entries.risk - alpha))
    mean, variance = below(entries.risk, excess, thresholds), below(entries.risk, noise, thresholds)
    clarity = np.where(enough, -mean / np.sqrt(np.maximum(variance, 1e-12)), -np.inf)
    return np.arange(int(np.argmax(clarity)), len(thresholds))


def _cutoff(ledger: Ledger, entries: Entries, alpha: float, place: int | None) -> Cutoff:
    if place is None:
        return Cutoff(None, None, float(ledger.patients[-1]) if len(ledger.patients) else 0.0, len(entries.risk))
    share = float(ledger.balance[place] / ledger.weight[place] + alpha)
    return Cutoff(float(ledger.thresholds[place]), share, float(ledger.patients[place]), len(entries.risk))
