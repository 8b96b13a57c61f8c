"""Noise with a privacy budget epsilon (differential privacy of a whole patient) on a site's sums.

Risky and other weight in a few cells fixed by the model, each patient's clipped to a cap that the model fixes, with
two-sided geometric noise from the operating system. Of all patients with these sums and this cap, those vary most who
bring the cap at once: so a decision takes the moments, and two standard errors of the noise are added to the risky
weight and taken from the other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.model.frozen import FrozenModel
from safeimpute.model.site_sums import GOOD, RISKY, Cells, filled
from safeimpute.selection.sums import PATIENT_MOMENTS, UNIT, Sums, VisitMoment, Whole, whole
from safeimpute.visits.arrays import FloatArray

NOISY_CELLS = 16
SURE = 2.0  # standard errors of the noise that a decision allows for
STEP = 2.0**26  # weights are told in steps of 2**-10


@dataclass(frozen=True)
class Noisy:
    """Risky and other weight in a few cells, noise added; whole multiples of `STEP`."""

    places: tuple[int, ...]  # the last threshold of each cell
    good: Whole
    risky: Whole
    variance: float  # of the noise of one cell, in weight
    cap: float  # most that a patient weighs

    def plus(self, other: "Noisy") -> "Noisy":
        """Both together."""
        good, risky = (
            [a + b for a, b in zip(*each, strict=True)] for each in ((self.good, other.good), (self.risky, other.risky))
        )
        return replace(self, good=good, risky=risky, variance=self.variance + other.variance)


def noisy_places(count: int) -> tuple[int, ...]:
    """The last threshold of each of a few cells, whatever the patients."""
    return tuple(sorted({round(count * (k + 1) / NOISY_CELLS) - 1 for k in range(NOISY_CELLS)} - {-1}))


def noise_cap(model: FrozenModel) -> float:
    """Most that a patient weighs where noise is added: what the fit's own tests let a patient count in a year."""
    return max(model.reference.bet_calibration.most, 1.0)


def add_noise(
    cells: Cells, model: FrozenModel, epsilon: float, rng: np.random.Generator | None = None
) -> dict[int, Noisy]:
    """Risky and other weight of every group in a few cells, so that one patient more or less hardly shows."""
    grids = {number: len(model.reference.grid(number)) for number in model.cutoffs}
    return noisy_cells(cells.at(cells.kind <= RISKY), grids, noise_cap(model), epsilon, rng or np.random.default_rng())


def _chance_of_end(cap: float, epsilon: float) -> float:
    """Of the geometric noise, which one patient shifts by at most the cap."""
    return 1.0 - math.exp(-epsilon / max(int(cap * UNIT // STEP), 1))


def noise_variance(cap: float, epsilon: float) -> float:
    """Of one cell, in weight."""
    spent = _chance_of_end(cap, epsilon)
    return 2.0 * (1.0 - spent) / spent**2 * (STEP / UNIT) ** 2


def noisy_cells(
    cells: Cells, grids: Mapping[int, int], cap: float, epsilon: float, rng: np.random.Generator
) -> dict[int, Noisy]:
    """The same with the cap and the number of thresholds told."""
    most = int(cap * UNIT // STEP)
    weight = _clipped(cells, most)
    spent, variance = _chance_of_end(cap, epsilon), noise_variance(cap, epsilon)
    found = {}
    for number, count in grids.items():
        places = noisy_places(count)
        cell = np.searchsorted(places, cells.place)
        sums: dict[int, Whole] = {}
        for kind in (GOOD, RISKY):
            rows = (cells.group == number) & (cells.kind == kind) & (cells.place < count)
            total = np.bincount(cell[rows], weight[rows], minlength=len(places)).astype(np.int64)
            total += rng.geometric(spent, len(places)) - rng.geometric(spent, len(places))
            sums[kind] = [int(each) * int(STEP) for each in total.tolist()]
        found[number] = Noisy(places, sums[GOOD], sums[RISKY], variance, cap)
    return found


def _clipped(cells: Cells, most: int) -> FloatArray:
    """Weights in steps, together at most so many for a patient: of what is too much, good ones go first."""
    order = np.lexsort((-cells.kind, cells.patient))
    steps = np.ceil(cells.weight[order] * UNIT / STEP)
    patient = cells.patient[order]
    until = np.cumsum(steps)
    first = np.r_[True, patient[1:] != patient[:-1]] if len(patient) else np.empty(0, bool)
    before = (until - steps)[np.maximum.accumulate(np.where(first, np.arange(len(steps)), 0))] if len(steps) else until
    left = np.clip(most - (until - steps - before), 0.0, steps)
    found = np.empty(len(steps))
    found[order] = left
    return found


def sums_of_noisy(noisy: Noisy, grid: Sequence[float], sure: float = SURE) -> Sums:
    """What a decision reads: the noise allowed for, and patients who each bring the cap at once."""
    number = np.arange(1, len(noisy.places) + 1)
    doubt = sure * np.sqrt(noisy.variance * number)
    risky = np.maximum.accumulate(np.maximum(np.cumsum(np.array(noisy.risky) / UNIT) + doubt, 0.0))
    good = np.cumsum(np.array(noisy.good) / UNIT) - doubt
    good = np.maximum(np.minimum.accumulate(good[::-1])[::-1], 0.0)
    weight, cap = good + risky, noisy.cap
    edges = np.r_[0.0, np.array(grid)[list(noisy.places)]]
    middle = (edges[1:] + edges[:-1]) / 2.0
    expected = np.cumsum(np.diff(weight, prepend=0.0) * middle)
    visits: dict[VisitMoment, FloatArray] = {
        "weight": weight,
        "weight_square": cap * weight,
        "risky_weight": risky,
        "risky_square": cap * risky,
        "expected": expected,
        "square_risk": cap * expected,
        "visits": np.floor(weight / cap),
        "risky": np.floor(risky / cap),
    }
    patients = dict.fromkeys(PATIENT_MOMENTS, np.full(len(weight), cap))
    patients |= {"size_square": cap * weight, "size_cube": cap**2 * weight}
    patients |= dict.fromkeys(("risky_square", "size_risky"), cap * risky)
    patients |= dict.fromkeys(("square_size_risky", "size_risky_square", "risky_cube"), cap**2 * risky)
    where = np.minimum(np.searchsorted(noisy.places, np.arange(len(grid))), len(noisy.places) - 1)

    def wide(each: FloatArray) -> Whole:
        return [int(one) for one in whole(each)[where].tolist()]

    totals = (wide(weight)[-1], wide(cap * weight)[-1], wide(cap * weight)[-1])
    asked = [int(each) * int(UNIT) for each in np.rint(weight)[where].tolist()]  # the identity: as many go unmeasured
    sums = Sums(
        tuple(grid),
        totals,
        asked,
        {name: wide(each) for name, each in visits.items()},
        {name: wide(each) for name, each in patients.items()},
    )
    return filled(sums, noisy.places)
