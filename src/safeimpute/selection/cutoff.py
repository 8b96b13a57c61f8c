"""From a ledger to a cut-off: the largest risk that may be released, on average or with confidence."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray
from safeimpute.selection.ledger import Entries, Ledger, below, keep_ledger

Promise = Literal["average", "confident"]
LARGEST_STAKE = 0.95  # of what one patient could cost


@dataclass(frozen=True)
class Cutoff:
    """The largest risk that is released; None where no threshold keeps the level."""

    risk: float | None
    share: float | None  # weighted share of risky values at or below it, as the ledger has it
    visits: float  # of equal weight, worth the measured ones within the promise
    patients: float  # likewise


def average_cutoff(entries: Entries, thresholds: FloatArray, alpha: float) -> Cutoff:
    """The largest threshold at which the ledger bears one more costly patient and one more risky visit.

    The balance is the excess over the level seen; the two corrections pay for the threshold having been chosen by
    it (docs/guarantee.md).
    """
    ledger = keep_ledger(entries, thresholds, alpha)
    correction = ledger.patient_cost + (1.0 - alpha) * ledger.visit_weight
    safe = np.flatnonzero((ledger.weight > 0.0) & (ledger.balance + correction <= 0.0))
    return _cutoff(ledger, entries, alpha, int(safe[-1]) if len(safe) else None)


def confident_cutoff(entries: Entries, thresholds: FloatArray, alpha: float, confidence: float) -> Cutoff:
    """The last of a sequence of thresholds, each shown with confidence to have a mean balance of at most zero.

    The sequence starts where the risks themselves predict the clearest proof and goes up; both are fixed before any
    error is read, so testing stops at the first failure and needs no correction for their number.
    """
    ledger = keep_ledger(entries, thresholds, alpha)
    chosen: int | None = None
    for place in _sequence(entries, thresholds, alpha):
        balance = _at(entries, entries.weight * (entries.risky - alpha), thresholds, place)
        stake = predicted_stake(entries, thresholds, place, alpha, confidence)
        if log_wealth(balance, stake) < -math.log(1.0 - confidence):
            break
        chosen = int(place)
    return _cutoff(ledger, entries, alpha, chosen)


def log_wealth(balance: FloatArray, stake: float) -> float:
    """Logarithm of prod(1 - stake X_q): evidence against a mean balance of zero or more.

    Its mean is at most 1 if the mean balance is not below zero, so it exceeds 1 / error with a chance of at most
    `error`. A patient that costs more than 1 / stake ruins the bettor: then nothing is shown.
    """
    if stake * float(balance.max(initial=0.0)) >= 1.0:
        return -math.inf
    return float(np.sum(np.log1p(-stake * balance)))


def predicted_stake(
    entries: Entries, thresholds: FloatArray, place: int, alpha: float, confidence: float
) -> float:
    """The stake that wins soonest at the boundary, from the spread of balances that the risks alone predict.

    Were risks true chances, a patient's balance would vary between what independent and what fully dependent visits
    give; the stake takes the middle, and never more than a patient whose visits were all risky could cost.
    """
    doubt = np.sqrt(np.maximum(entries.risk * (1.0 - entries.risk), 0.0))
    alone = _at(entries, np.square(entries.weight * doubt), thresholds, place).sum()
    together = np.square(_at(entries, entries.weight * doubt, thresholds, place)).sum()
    drift = np.square(_at(entries, entries.weight * (entries.risk - alpha), thresholds, place)).sum()
    spread = (alone + together) / 2 + drift
    most = (1.0 - alpha) * float(_at(entries, entries.weight, thresholds, place).max(initial=0.0))
    if most <= 0.0 or spread <= 0.0:
        return 0.0
    return min(math.sqrt(-2.0 * math.log(1.0 - confidence) / float(spread)), LARGEST_STAKE / most)


def _at(entries: Entries, amount: FloatArray, thresholds: FloatArray, place: int) -> FloatArray:
    """Per patient the sum of `amount` over visits at or below one threshold."""
    there = entries.risk <= thresholds[place]
    sums = np.bincount(entries.patient[there], amount[there], minlength=entries.n_patients)
    return sums.astype(np.float64)


def _sequence(entries: Entries, thresholds: FloatArray, alpha: float) -> IntArray:
    """Thresholds upwards from the one whose proof the risks alone predict to be the clearest."""
    if not len(thresholds):
        return np.empty(0, np.int64)
    excess = entries.weight * (entries.risk - alpha)
    noise = np.square(entries.weight) * (
        entries.risk * (1.0 - entries.risk) + np.square(entries.risk - alpha)
    )
    mean, variance = below(entries.risk, excess, thresholds), below(entries.risk, noise, thresholds)
    return np.arange(int(np.argmax(-mean / np.sqrt(np.maximum(variance, 1e-12)))), len(thresholds))


def _cutoff(ledger: Ledger, entries: Entries, alpha: float, place: int | None) -> Cutoff:
    worth = entries.worth
    if place is None:
        return Cutoff(None, None, worth.visits, worth.patients)
    share = float(ledger.balance[place] / ledger.weight[place] + alpha)
    return Cutoff(float(ledger.thresholds[place]), share, worth.visits, worth.patients)
