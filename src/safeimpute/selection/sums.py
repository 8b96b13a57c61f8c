"""The ledger as sums of whole numbers: exact in any order, so that any number of machines finds the same cut-off.

What `keep_ledger` and the two rules need of the patients' balances are sums and maxima over patients. Here each
patient's part is rounded to a multiple of 2**-32 before it is added; partitions add up to the numbers of one table.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import FloatArray
from safeimpute.selection.cutoff import LARGEST_STAKE, Cutoff
from safeimpute.selection.ledger import Entries, below, per_patient
from safeimpute.splits.enough import RISKY_PATIENTS, RISKY_VISITS, Worth

UNIT = 2.0**32
Whole = list[int]  # one number per threshold
MOST_AT_ONCE = 4_000  # patients whose balances are held at a time


@dataclass(frozen=True)
class LedgerSums:
    """Per threshold what patients add up to (in units of 2**-32), and the largest of them."""

    balance: Whole
    gain: Whole  # positive balances
    gain_square: Whole
    weight: Whole
    weight_square: Whole  # of visits
    visits: Whole  # in units of 1, like `risky`
    risky: Whole
    doubt: Whole  # what the risks alone predict, for the confident rule: squares summed over visits
    doubt_together: Whole  # the same, summed within patients first
    drift: Whole
    excess: Whole
    noise: Whole
    patient_square: Whole  # of the patients' weights; its last entry stands for all
    largest_balance: Whole  # maxima, not sums
    largest_weight: Whole
    largest_visit: Whole

    def plus(self, other: "LedgerSums") -> "LedgerSums":
        """Both together."""
        joined = {}
        for each in fields(self):
            add = max if each.name.startswith("largest") else int.__add__
            pairs = zip(getattr(self, each.name), getattr(other, each.name), strict=True)
            joined[each.name] = [add(one, two) for one, two in pairs]
        return LedgerSums(**joined)

    def real(self, name: str) -> FloatArray:
        """One column as numbers."""
        return np.array([number / UNIT for number in getattr(self, name)], dtype=np.float64)

    @property
    def worth(self) -> Worth:
        """Of all visits and patients: the last threshold is infinite."""
        total = self.weight[-1] / UNIT
        visits, patients = self.weight_square[-1] / UNIT, self.patient_square[-1] / UNIT
        return Worth(total**2 / visits if visits > 0 else 0.0, total**2 / patients if patients > 0 else 0.0)


def ledger_sums(entries: Entries, thresholds: FloatArray, alpha: float) -> LedgerSums:
    """Sums of some patients' entries; the last threshold must be infinite."""
    total: LedgerSums | None = None
    for start in range(0, max(entries.n_patients, 1), MOST_AT_ONCE):
        there = (entries.patient >= start) & (entries.patient < start + MOST_AT_ONCE)
        count = min(MOST_AT_ONCE, entries.n_patients - start)
        part = Entries(
            entries.patient[there] - start,
            entries.risk[there],
            entries.weight[there],
            entries.risky[there],
            max(count, 0),
        )
        found = _sums(part, thresholds, alpha)
        total = found if total is None else total.plus(found)
    assert total is not None
    return total


def _sums(entries: Entries, thresholds: FloatArray, alpha: float) -> LedgerSums:
    weight, risk, risky = entries.weight, entries.risk, entries.risky
    deviation = np.sqrt(np.maximum(risk * (1.0 - risk), 0.0))
    balance = per_patient(entries, weight * (risky - alpha), thresholds)
    size = per_patient(entries, weight, thresholds)
    doubt = per_patient(entries, weight * deviation, thresholds)
    drift = per_patient(entries, weight * (risk - alpha), thresholds)
    noise = np.square(weight) * (risk * (1.0 - risk) + np.square(risk - alpha))
    gain = np.maximum(balance, 0.0)
    return LedgerSums(
        balance=_summed(balance),
        gain=_summed(gain),
        gain_square=_summed(np.square(gain)),
        weight=_summed(size),
        weight_square=_visit_sums(entries, np.square(weight), thresholds),
        visits=_visit_sums(entries, np.ones(len(risk)), thresholds),
        risky=_visit_sums(entries, risky.astype(np.float64), thresholds),
        doubt=_visit_sums(entries, np.square(weight * deviation), thresholds),
        doubt_together=_summed(np.square(doubt)),
        drift=_summed(np.square(drift)),
        excess=_summed(drift),
        noise=_visit_sums(entries, noise, thresholds),
        patient_square=_summed(np.square(size)),
        largest_balance=_largest(balance),
        largest_weight=_largest(size),
        largest_visit=[_rounded(np.array([weight.max(initial=0.0)]))[0]] * len(thresholds),
    )


def _rounded(amounts: NDArray[np.float64]) -> Whole:
    return [int(each) for each in np.rint(amounts * UNIT).astype(np.int64).tolist()]


def _summed(table: FloatArray) -> Whole:
    """Per threshold the sum over patients, each rounded by itself."""
    return [int(each) for each in np.rint(table * UNIT).astype(np.int64).sum(axis=0).tolist()]


def _largest(table: FloatArray) -> Whole:
    return _rounded(table.max(axis=0, initial=0.0))


def _visit_sums(entries: Entries, amount: FloatArray, thresholds: FloatArray) -> Whole:
    """Per threshold the sum over visits, each rounded by itself: whole numbers below 2**53 add up exactly."""
    whole = np.rint(amount * UNIT)
    high, low = np.divmod(whole, 2.0**20)
    parts = [below(entries.risk, part, thresholds).astype(np.int64).tolist() for part in (high, low)]
    return [int(one) * 2**20 + int(two) for one, two in zip(*parts, strict=True)]


def stakes_of(sums: LedgerSums, alpha: float, confidence: float) -> FloatArray:
    """Per threshold the stake of the confident rule (`cutoff.predicted_stake`)."""
    spread = (sums.real("doubt") + sums.real("doubt_together")) / 2 + sums.real("drift")
    most = (1.0 - alpha) * sums.real("largest_weight")
    with np.errstate(divide="ignore"):
        wanted = np.sqrt(-2.0 * math.log(1.0 - confidence) / spread)
        stake = np.minimum(wanted, LARGEST_STAKE / most)
    return np.where((most > 0) & (spread > 0), stake, 0.0)


def log_wealth_sums(entries: Entries, thresholds: FloatArray, alpha: float, stakes: FloatArray) -> Whole:
    """Per threshold sum(log(1 - stake X_q)) of some patients; ruin is told by the largest balance."""
    total = [0] * len(thresholds)
    for start in range(0, entries.n_patients, MOST_AT_ONCE):
        there = (entries.patient >= start) & (entries.patient < start + MOST_AT_ONCE)
        part = Entries(
            entries.patient[there] - start,
            entries.risk[there],
            entries.weight[there],
            entries.risky[there],
            min(MOST_AT_ONCE, entries.n_patients - start),
        )
        balance = per_patient(part, part.weight * (part.risky - alpha), thresholds)
        logs = np.log1p(-np.minimum(stakes * balance, 0.999_999))
        total = [one + two for one, two in zip(total, _summed(logs), strict=True)]
    return total


def worth_enough(worth: Worth, alpha: float) -> bool:
    """As `cutoff.enough`."""
    return alpha * worth.visits >= RISKY_VISITS and alpha * worth.patients >= RISKY_PATIENTS


def average_from(sums: LedgerSums, thresholds: FloatArray, alpha: float) -> Cutoff:
    """`cutoff.average_cutoff` from sums; the last, infinite threshold is no choice."""
    weight, gain = sums.real("weight"), sums.real("gain")
    cost = np.divide(sums.real("gain_square"), gain, out=np.zeros_like(gain), where=gain > 0)
    visit = np.divide(sums.real("weight_square"), weight, out=np.zeros_like(weight), where=weight > 0)
    safe = (weight > 0.0) & (sums.real("balance") + cost + (1.0 - alpha) * visit <= 0.0)
    places = np.flatnonzero(safe[:-1])
    return _cutoff(sums, thresholds, alpha, int(places[-1]) if len(places) else None)


def confident_from(
    sums: LedgerSums, wealth: Whole, thresholds: FloatArray, alpha: float, confidence: float
) -> Cutoff:
    """`cutoff.confident_cutoff` from sums."""
    stakes = stakes_of(sums, alpha, confidence)
    ruined = stakes * sums.real("largest_balance") >= 1.0
    reached = np.array([number / UNIT for number in wealth]) >= -math.log(1.0 - confidence)
    excess, noise = sums.real("excess")[:-1], sums.real("noise")[:-1]
    chosen = None
    if len(excess):
        start = int(np.argmax(-excess / np.sqrt(np.maximum(noise, 1e-12))))
        for place in range(start, len(excess)):
            if ruined[place] or not reached[place]:
                break
            chosen = place
    return _cutoff(sums, thresholds, alpha, chosen)


def _cutoff(sums: LedgerSums, thresholds: FloatArray, alpha: float, place: int | None) -> Cutoff:
    worth = sums.worth
    if place is None:
        return Cutoff(None, None, worth.visits, worth.patients)
    share = sums.balance[place] / sums.weight[place] + alpha
    return Cutoff(float(thresholds[place]), float(share), worth.visits, worth.patients)
