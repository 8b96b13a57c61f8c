"""The ledger: per patient and threshold, what a release up to that risk would cost beyond the level.

For a rule "release if risk <= T" a patient's balance is X_q(T) = sum over its measured visits of
w_i 1{risk_i <= T} (1{risky_i} - alpha), w_i the odds that a visit like i is unmeasured. Its mean over patients is the
expected excess of risky values among the released unmeasured ones. The proofs are in docs/guarantee.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.splits.enough import Worth

THRESHOLDS = 200  # tried by a release; quantiles of risk, which read no error
AT_ONCE = 2_000_000  # balances held at a time


@dataclass(frozen=True)
class Entries:
    """Measured visits inside the promise, whose errors are known; patients without any count too."""

    patient: IntArray  # 0 … n_patients - 1, in any order
    risk: FloatArray
    weight: FloatArray  # odds of being unmeasured
    risky: BoolArray
    n_patients: int

    def at(self, rows: BoolArray) -> "Entries":
        """Some of the visits; all patients stay."""
        return Entries(
            self.patient[rows], self.risk[rows], self.weight[rows], self.risky[rows], self.n_patients
        )

    @property
    def worth(self) -> Worth:
        """How many equally weighted visits and patients these are worth."""
        return Worth(
            effective_size(self.weight),
            effective_size(np.bincount(self.patient, self.weight).astype(np.float64)),
        )


@dataclass(frozen=True)
class Ledger:
    """What the patients' balances come to at each threshold."""

    thresholds: FloatArray  # increasing
    balance: FloatArray  # sum over patients
    patient_cost: FloatArray  # balance of one patient beyond the level, counted by that balance
    weight: FloatArray  # of all visits at or below the threshold
    visit_weight: FloatArray  # of one of them, counted by that weight


def effective_size(weights: FloatArray) -> float:
    """(sum w)^2 / sum w^2: how many equally weighted units the weighted ones are worth."""
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def risk_grid(risk: FloatArray, most: int = THRESHOLDS) -> FloatArray:
    """Up to `most` increasing thresholds: evenly spaced quantiles of the risks in scope, measured or not."""
    if not len(risk):
        return np.empty(0)
    return np.unique(np.quantile(risk, np.arange(1, most + 1) / most, method="inverted_cdf"))


def keep_ledger(entries: Entries, thresholds: FloatArray, alpha: float) -> Ledger:
    """Add up the balances at every threshold; memory stays bounded however many patients there are."""
    amount = entries.weight * (entries.risky - alpha)
    columns: list[tuple[FloatArray, ...]] = []
    for part in _spans(len(thresholds), entries.n_patients):
        balance = per_patient(entries, amount, thresholds[part])
        size = per_patient(entries, entries.weight, thresholds[part])
        columns.append((balance.sum(axis=0), size_biased(np.maximum(balance, 0.0)), size.sum(axis=0)))
    joined = [np.concatenate(each) for each in zip(*columns, strict=True)] or [np.empty(0)] * 3
    heavy = below(entries.risk, np.square(entries.weight), thresholds)
    visit_weight = np.divide(heavy, joined[2], out=np.zeros_like(heavy), where=joined[2] > 0)
    return Ledger(thresholds, joined[0], joined[1], joined[2], visit_weight)


def size_biased(amounts: FloatArray) -> FloatArray:
    """Per column the mean of amounts drawn in proportion to themselves; 0 where there are none."""
    total = amounts.sum(axis=0)
    squares = np.square(amounts).sum(axis=0)
    mean: FloatArray = np.divide(squares, total, out=np.zeros_like(total), where=total > 0)
    return mean


def per_patient(entries: Entries, amount: FloatArray, thresholds: FloatArray) -> FloatArray:
    """Per patient and threshold the sum of `amount` over visits with risk <= threshold."""
    columns = len(thresholds) + 1
    cell = entries.patient * columns + np.searchsorted(thresholds, entries.risk, side="left")
    sums = np.bincount(cell, weights=amount, minlength=entries.n_patients * columns)
    return np.cumsum(sums.reshape(entries.n_patients, columns)[:, :-1], axis=1, dtype=np.float64)


def below(risk: FloatArray, amount: FloatArray, thresholds: FloatArray) -> FloatArray:
    """Per threshold the sum of `amount` over visits with risk <= threshold."""
    place = np.searchsorted(thresholds, risk, side="left")
    sums = np.bincount(place, weights=amount, minlength=len(thresholds) + 1)
    return np.asarray(np.cumsum(sums)[:-1], dtype=np.float64)


def _spans(thresholds: int, patients: int) -> Iterator[slice]:
    step = max(1, AT_ONCE // max(patients, 1))
    for start in range(0, thresholds, step):
        yield slice(start, start + step)
