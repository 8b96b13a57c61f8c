"""Sums of balances over patients: thresholds x a few moments, exact in any order, and all that a rule may ask of them.

Every number is a whole multiple of 2**-36 before it is added, so that any batches, on any number of machines, come to
the same sums to the last bit. `ledger.Ledger` works them out from entries where they are asked for; `Sums` holds them
at every threshold and one level, can be sent, and added to others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from safeimpute.selection.curve import Curve, Steps, fit_curve
from safeimpute.selection.enough import EffectiveSize
from safeimpute.visits.arrays import FloatArray

UNIT = 2.0**36
DIGIT = 2.0**26  # whole numbers are added digit by digit, each sum far below 2**53

Whole = list[int]  # one number per threshold, in units of 2**-36
VisitMoment = Literal[
    "weight", "weight_square", "risky_weight", "risky_square", "expected", "square_risk", "visits", "risky"
]
PatientMoment = Literal[
    "size_square",
    "risky_square",
    "size_risky",
    "size_cube",
    "square_size_risky",
    "size_risky_square",
    "risky_cube",
    "largest_risky",
    "largest_visit",
]
VISIT_MOMENTS: tuple[VisitMoment, ...] = VisitMoment.__args__  # type: ignore[attr-defined]
PATIENT_MOMENTS: tuple[PatientMoment, ...] = PatientMoment.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Level:
    """What a balance is counted against: the share alpha, with odds that may be off by a factor either way."""

    alpha: float
    gamma: float = 1.0

    @property
    def risky(self) -> float:
        """What a risky visit of weight one costs at worst."""
        return self.gamma * (1.0 - self.alpha)

    @property
    def good(self) -> float:
        """What a good one gives at worst."""
        return self.alpha / self.gamma


class Balances(Protocol):
    """What a rule may ask."""

    @property
    def thresholds(self) -> FloatArray:
        """Increasing risks a cut-off is chosen from."""

    @property
    def effective_size(self) -> EffectiveSize:
        """How many equally weighted visits and patients these are worth."""

    def visit(self, name: VisitMoment) -> FloatArray:
        """Per threshold a sum over the visits at or below it."""

    def patient(self, name: PatientMoment) -> FloatArray:
        """Per threshold a sum, or the largest, over patients of what their visits at or below it come to."""

    @property
    def curve(self) -> Curve:
        """How often an imputation of a given risk is risky."""


def kish_size(weights: FloatArray) -> float:
    """(sum w)^2 / sum w^2: how many equally weighted units the weighted ones are worth."""
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def size_biased(amounts: FloatArray) -> FloatArray:
    """Per column the mean of amounts drawn in proportion to themselves; 0 where there are none."""
    return ratio(np.square(amounts).sum(axis=0), amounts.sum(axis=0))


def ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """Quotients; 0 where the divisor is not positive."""
    found: FloatArray = np.divide(above, below, out=np.zeros_like(below), where=below > 0)
    return found


@dataclass(frozen=True)
class Sums:
    """The sums of some patients at every threshold, whatever the level: a few thousand whole numbers."""

    grid: tuple[float, ...]
    totals: tuple[int, int, int]
    asked: Whole  # values asked about at or below each threshold
    of_visits: dict[VisitMoment, Whole]
    of_patients: dict[PatientMoment, Whole]

    def plus(self, other: "Sums") -> "Sums":
        """Both together."""
        if self.grid != other.grid:
            raise ValueError("sums at other thresholds cannot be added")
        return Sums(
            self.grid,
            tuple(added(self.totals, other.totals)),  # type: ignore[arg-type]
            added(self.asked, other.asked),
            {name: added(each, other.of_visits[name]) for name, each in self.of_visits.items()},
            {
                name: [max(pair) for pair in zip(each, other.of_patients[name], strict=True)]
                if name.startswith("largest")
                else added(each, other.of_patients[name])
                for name, each in self.of_patients.items()
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON carries it."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Sums":
        """What `to_dict` gave."""
        read = {"grid": tuple(stored["grid"]), "totals": tuple(stored["totals"])}
        return cls(**stored | read)

    @property
    def thresholds(self) -> FloatArray:
        """Increasing risks a cut-off is chosen from."""
        return np.array(self.grid)

    @property
    def effective_size(self) -> EffectiveSize:
        """How many equally weighted visits and patients these are worth."""
        return effective_size_of(self.totals)

    def visit(self, name: VisitMoment) -> FloatArray:
        """Per threshold a sum over the visits at or below it."""
        return real(self.of_visits[name])

    def patient(self, name: PatientMoment) -> FloatArray:
        """Per threshold a sum, or the largest, over patients."""
        return real(self.of_patients[name])

    @property
    def steps(self) -> Steps:
        """What lies between one threshold and the next."""
        return steps_between(self, real(self.asked))

    @cached_property
    def curve(self) -> Curve:
        """How often an imputation of a given risk is risky."""
        return fit_curve(self)


def steps_between(balances: Balances, asked: FloatArray) -> Steps:
    """Sums at or below each threshold -> sums between one and the next."""
    names: tuple[VisitMoment, ...] = ("weight", "risky_weight", "expected")
    return Steps(*(np.diff(each, prepend=0.0) for each in (*map(balances.visit, names), asked)))


def effective_size_of(totals: Sequence[int]) -> EffectiveSize:
    """Effective sizes from the weight of all visits, its square, and the square of the patients' weights."""
    weight, square, patient_square = (each / UNIT for each in totals)
    return EffectiveSize(
        weight**2 / square if square > 0 else 0.0, weight**2 / patient_square if patient_square > 0 else 0.0
    )


def whole(amounts: FloatArray) -> FloatArray:
    return np.rint(amounts * UNIT)


def products(one: FloatArray, other: FloatArray) -> FloatArray:
    """Of whole numbers, as whole numbers again."""
    return np.rint(one * (other / UNIT))


def digits(whole: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Whole numbers that are not negative, as digits with what each stands for."""
    unit = 1
    while whole.any():
        rest = np.floor(whole / DIGIT)
        yield unit, whole - rest * DIGIT
        whole, unit = rest, unit * int(DIGIT)


def exact(whole: FloatArray) -> Whole:
    """Sums over the first axis of whole numbers."""
    total = [0] * whole.shape[1]
    for unit, digit in digits(whole):
        total = [found + unit * int(more) for found, more in zip(total, digit.sum(axis=0).tolist(), strict=True)]
    return total


def added(one: Sequence[int], other: Sequence[int]) -> Whole:
    return [a + b for a, b in zip(one, other, strict=True)]


def larger(found: Whole, table: FloatArray) -> Whole:
    return [max(a, int(b)) for a, b in zip(found, table.max(axis=0, initial=0.0).tolist(), strict=True)]


def real(whole: Sequence[int]) -> FloatArray:
    return np.array([number / UNIT for number in whole], dtype=np.float64)
