"""The ledger: balances per patient of measured visits whose errors are known, summed at the thresholds asked for.

For a rule "release if risk <= T" a patient's balance is X_q(T) = sum over its measured visits of
w_i 1{risk_i <= T} (1{risky_i} - alpha), w_i the odds that a visit like i is unmeasured. Its mean over patients is the
expected excess of risky values among the released unmeasured ones (proofs in docs/guarantee.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from safeimpute.selection.curve import Curve, Steps, fit_curve
from safeimpute.selection.enough import EffectiveSize
from safeimpute.selection.sums import (
    PATIENT_MOMENTS,
    UNIT,
    VISIT_MOMENTS,
    PatientMoment,
    Sums,
    VisitMoment,
    Whole,
    added,
    digits,
    effective_size_of,
    exact,
    larger,
    products,
    real,
    steps_between,
    whole,
)
from safeimpute.tolerance import Risky
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

THRESHOLDS = 200  # tried by a release; quantiles of risk, which read no error
AT_ONCE = 2_000_000  # balances held at a time


@dataclass(frozen=True)
class Entries:
    """Measured visits inside the promise, whose errors are known."""

    patient: IntArray  # any numbers, in any order
    risk: FloatArray
    weight: FloatArray  # odds of being unmeasured
    risky: Risky

    def at(self, rows: BoolArray) -> "Entries":
        """Some of the visits."""
        return Entries(self.patient[rows], self.risk[rows], self.weight[rows], self.risky[rows])


def risk_grid(risk: FloatArray, most: int = THRESHOLDS) -> FloatArray:
    """Up to `most` increasing thresholds: evenly spaced quantiles of the risks in scope, measured or not."""
    if not len(risk):
        return np.empty(0)
    return np.unique(np.quantile(risk, np.arange(1, most + 1) / most, method="inverted_cdf"))


@dataclass(frozen=True)
class Ledger:
    """Entries with the thresholds a rule may choose from; sums are worked out when asked for.

    `asked` are the risks of the values that would be released or withheld; none where they are not known.
    """

    entries: Entries
    thresholds: FloatArray
    asked: FloatArray = field(default_factory=lambda: np.empty(0))

    @cached_property
    def place(self) -> IntArray:
        """Of each visit the first threshold it counts at."""
        return np.searchsorted(self.thresholds, self._sorted.risk, side="left").astype(np.int64)

    @cached_property
    def effective_size(self) -> EffectiveSize:
        """How many equally weighted visits and patients these are worth."""
        return effective_size_of(self.totals)

    @cached_property
    def totals(self) -> tuple[int, int, int]:
        """Of all visits, whatever their risk: weight, its square, and the square of the patients' weights."""
        weight = self._amount("weight")
        sizes = np.bincount(self._patient, weight, minlength=1).astype(np.float64)
        amounts = (weight, self._amount("weight_square"), products(sizes, sizes))
        one, two, three = (exact(each[:, None])[0] for each in amounts)
        return one, two, three

    def visit(self, name: VisitMoment) -> FloatArray:
        """Per threshold a sum over the visits at or below it."""
        return self._visit_sums[name] if name in self._visit_sums else self._keep(name)

    def visit_sums(self, name: VisitMoment) -> Whole:
        """The same as whole numbers."""
        total = [0] * len(self.thresholds)
        for unit, digit in digits(self._amount(name)):
            below = np.cumsum(np.bincount(self.place, digit, minlength=len(total) + 1))[:-1].tolist()
            total = [found + unit * int(more) for found, more in zip(total, below, strict=True)]
        return total

    def patient(self, name: PatientMoment) -> FloatArray:
        """Per threshold a sum, or the largest, over patients."""
        return self._patient_amounts[name]

    @cached_property
    def _patient_amounts(self) -> dict[PatientMoment, FloatArray]:
        return {name: real(each) for name, each in self.patient_sums.items()}

    @cached_property
    def patient_sums(self) -> dict[PatientMoment, Whole]:
        """Of patients: squares, cubes and products of their weight and their risky weight, and the largest."""
        places = np.arange(len(self.thresholds))
        found: dict[PatientMoment, Whole] = {name: [0] * len(places) for name in PATIENT_MOMENTS}
        for size, risky in self._blocks(places, self._amount("weight"), self._amount("risky_weight")):
            size_square, risky_square = products(size, size), products(risky, risky)
            parts: dict[PatientMoment, FloatArray] = {
                "size_square": size_square,
                "risky_square": risky_square,
                "size_risky": products(size, risky),
                "size_cube": products(size_square, size),
                "square_size_risky": products(size_square, risky),
                "size_risky_square": products(risky_square, size),
                "risky_cube": products(risky_square, risky),
            }
            for name, part in parts.items():
                found[name] = added(found[name], exact(part))
            found["largest_risky"] = larger(found["largest_risky"], risky)
        found["largest_visit"] = [int(each) for each in self._largest_visit().tolist()]
        return found

    @property
    def steps(self) -> Steps:
        """What lies between one threshold and the next."""
        return steps_between(self, real(self.asked_sums))

    @cached_property
    def asked_sums(self) -> Whole:
        """Values asked about at or below each threshold, as whole numbers."""
        below = np.searchsorted(np.sort(self.asked), self.thresholds, side="right")
        return [int(each) * int(UNIT) for each in below.tolist()]

    @cached_property
    def curve(self) -> Curve:
        """How often an imputation of a given risk is risky."""
        return fit_curve(self)

    @cached_property
    def _sorted(self) -> Entries:
        """Visits in blocks of patients."""
        return self.entries.at(np.argsort(self.entries.patient, kind="stable"))  # type: ignore[arg-type]

    @cached_property
    def _patient(self) -> IntArray:
        """Patients numbered from 0, in order."""
        patient = self._sorted.patient
        return np.cumsum(np.r_[0, patient[1:] != patient[:-1]]) if len(patient) else patient

    @cached_property
    def _visit_sums(self) -> dict[VisitMoment, FloatArray]:
        return {}

    def _keep(self, name: VisitMoment) -> FloatArray:
        self._visit_sums[name] = real(self.visit_sums(name))
        return self._visit_sums[name]

    def _amount(self, name: VisitMoment) -> FloatArray:
        """What each visit adds to a moment."""
        weight, risk, risky = self._sorted.weight, self._sorted.risk, self._sorted.risky
        amounts: dict[VisitMoment, FloatArray] = {
            "weight": weight,
            "weight_square": np.square(weight),
            "risky_weight": weight * risky,
            "risky_square": np.square(weight) * risky,
            "expected": weight * risk,
            "square_risk": np.square(weight) * risk,
            "visits": np.ones(len(weight)),
            "risky": risky.astype(np.float64),
        }
        return whole(amounts[name])

    def _largest_visit(self) -> FloatArray:
        """Per threshold the largest weight at or below it."""
        largest = np.zeros(len(self.thresholds) + 1)
        np.maximum.at(largest, self.place, self._amount("weight"))
        return np.asarray(np.maximum.accumulate(largest)[:-1])

    def _blocks(self, places: IntArray, *amounts: FloatArray) -> Iterator[tuple[FloatArray, ...]]:
        """Per patient and threshold the sums of some amounts, some patients at a time."""
        patient = self._patient
        column, columns = np.searchsorted(places, self.place, side="left"), len(places) + 1
        count = int(patient[-1]) + 1 if len(patient) else 0
        step = max(1, AT_ONCE // columns)
        for first in range(0, count, step):
            start, stop = np.searchsorted(patient, [first, first + step])
            size = min(step, count - first)
            cell = (patient[start:stop] - first) * columns + column[start:stop]
            yield tuple(
                np.cumsum(
                    np.bincount(cell, amount[start:stop], minlength=size * columns).reshape(size, columns)[:, :-1],
                    axis=1,
                )
                for amount in amounts
            )


def sums_of(ledger: Ledger) -> Sums:
    """All that a decision needs of some patients."""
    return Sums(
        tuple(ledger.thresholds.tolist()),
        ledger.totals,
        ledger.asked_sums,
        {name: ledger.visit_sums(name) for name in VISIT_MOMENTS},
        ledger.patient_sums,
    )
