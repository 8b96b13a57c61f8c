"""A site's part of one promise: a small file of sums in which nobody's values can be told.

Made where the patients are, by `safeimpute site`; `network.py` adds the files of several sites. A cell is what lies
between one threshold that a file shows and the next. It is shown only if at least so many patients are among its
risky, its other measured and its unmeasured visits; else it is merged with the cells above it.

**What is withheld never makes a promise easier to keep.** Inside a cell only its two ends are known, and every sum
grows with the risk. At a threshold inside, all of the cell's risky weight is taken to lie below and all of its other
weight above, and every moment is taken from the end that makes a proof harder. So the balance counted there is at
least the true one, whatever the level; the curve, which reads shares between thresholds, sees the cell as one. Who
has fewer patients than one cell needs writes no file: a site left out would be a site not promised for.

**Noise** (a budget epsilon, differential privacy of a whole patient): risky and other weight in a few cells fixed by
the model, each patient's clipped to what the model's fit counts at most, with two-sided geometric noise from the
operating system. Of all patients with these sums and this cap, those vary most who bring the cap at once: so the
moments are taken, and two standard errors of the noise are added to the risky weight and taken from the other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import GuaranteeRefused
from safeimpute.model.frozen import FrozenModel, Scored, score_visits
from safeimpute.model.whole_table import BINS, RATIOS, TableSums, batches, late_visits, summed, sums_of_scored
from safeimpute.selection.sums import PATIENT_MOMENTS, UNIT, PatientMoment, Sums, VisitMoment, Whole, whole
from safeimpute.settings import Settings
from safeimpute.visits.arrays import FloatArray, IntArray, VisitArrays, mix

NOISY_CELLS = 16
SURE = 2.0  # standard errors of the noise that a decision allows for
STEP = 2.0**26  # weights are told in steps of 2**-10 where noise is added
FROM_ABOVE: tuple[PatientMoment, ...] = ("size_square", "risky_square", "square_size_risky", "risky_cube")
GOOD, RISKY, ASKED, LATE_GOOD, LATE_RISKY = range(5)


@dataclass(frozen=True)
class Cells:
    """Where each visit counts, while it is known whose it is; never leaves the site."""

    patient: NDArray[np.uint64]
    group: IntArray
    place: IntArray  # first threshold it counts at; their number where it lies beyond all
    kind: IntArray
    weight: FloatArray
    ratio: IntArray  # bin of the error's size; -1 where none is known

    def of(self, group: int) -> "Cells":
        """Those of one group."""
        return self.at(self.group == group)

    def at(self, rows: NDArray[np.bool_]) -> "Cells":
        """Some of them."""
        return Cells(**{name: each[rows] for name, each in vars(self).items()})


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


@dataclass(frozen=True)
class SiteSums:
    """What leaves a site."""

    table: TableSums | None  # none where noise is added
    shown: dict[int, tuple[int, ...]]  # per group the thresholds whose sums are as counted
    noisy: dict[int, Noisy]


def site_sums(
    visits: VisitArrays, model: FrozenModel, settings: Settings, least: int, epsilon: float | None
) -> tuple[SiteSums, NDArray[np.uint64]]:
    """The sums of a site; and each patient's hash with that of its part, by which a later file is held against this.

    Raises
    ------
    GuaranteeRefused
        The site has fewer patients than a cell needs, or noise is not offered for the model's claim.
    """
    if epsilon is not None and settings.claim == "later":
        raise GuaranteeRefused(
            "noise is not offered under the claim 'later'. Leave --epsilon out, or fit another claim."
        )
    tables, cells, chances, hashes = [], [], [], []
    for part in batches(visits):
        scored = score_visits(part, model, measured_too=True)
        tables.append(sums_of_scored(part, scored, model, settings))
        cells.append(_cells(part, scored, model, settings))
        chances.append(_chances(part, scored))
        hashes.append(_patient_parts(part, scored))
    every, found = _together(cells), np.concatenate(hashes)
    if epsilon is not None:
        return SiteSums(None, {}, add_noise(every, model, epsilon)), found
    table = summed(tables)
    if least <= 1:
        shown = {group: tuple(range(len(several[0].grid))) for group, several in table.groups.items()}
        return SiteSums(table, shown, {}), found
    return SiteSums(*withhold(table, every, _together(chances), least), {}), found


def _cells(visits: VisitArrays, scored: Scored, model: FrozenModel, settings: Settings) -> Cells:
    measured = ~scored.candidate & ~visits.target_censored & scored.inside
    risky = settings.allowed_error.risky(scored.estimates.value, visits.target_values)
    late, rows = late_visits(visits, settings) & measured, scored.inside & (measured | scored.candidate)
    place = np.zeros(len(visits), np.int64)
    for number in model.cutoffs:
        here = scored.group == number
        place[here] = np.searchsorted(model.reference.grid(number), scored.estimates.risk[here], side="left")
    error = np.abs(scored.estimates.value - visits.target_values) / scored.estimates.spread
    known = Cells(
        visits.patient_key,
        scored.group,
        place,
        np.where(measured, np.where(risky, RISKY, GOOD), ASKED),
        scored.weight + late,
        np.where(measured, np.searchsorted(RATIOS, error), -1),
    )
    again = replace(known, kind=np.where(risky, LATE_RISKY, LATE_GOOD), ratio=np.full(len(visits), -1)).at(late)
    return _together([known.at(rows), again])


def _patient_parts(visits: VisitArrays, scored: Scored) -> NDArray[np.uint64]:
    """Each patient's hash, and one of all that its visits add to the sums."""
    part = visits.visit_key.copy()
    for each in (scored.estimates.risk, scored.weight, visits.target_values):
        part = mix(part ^ np.ascontiguousarray(each).view(np.uint64))
    patients, where = np.unique(visits.patient_key, return_inverse=True)
    total = np.zeros(len(patients), np.uint64)
    np.add.at(total, where, part)
    return np.column_stack([patients, total])


def _chances(visits: VisitArrays, scored: Scored) -> Cells:
    """Every visit by its chance of being unmeasured, for the diagnosis."""
    chance, nothing = scored.weight / (1.0 + scored.weight), np.zeros(len(visits), np.int64)
    place = np.minimum((chance * BINS).astype(np.int64), BINS - 1)
    every = Cells(visits.patient_key, nothing, place, scored.candidate.astype(np.int64), chance, nothing)
    return every.at(scored.candidate | ~visits.target_censored)


def _together(parts: Sequence[Cells]) -> Cells:
    return Cells(*(np.concatenate([getattr(each, name) for each in parts]) for name in Cells.__annotations__))


def shown_places(cells: Cells, count: int, least: int, kinds: Sequence[int]) -> tuple[int, ...]:
    """The last place of every cell in which each kind is that of at least so many patients; none where too few are."""
    order = np.argsort(cells.place, kind="stable")
    starts = np.searchsorted(cells.place[order], np.arange(count + 1))
    seen: dict[int, set[int]] = {kind: set() for kind in kinds}
    ends: list[int] = []
    for place in range(count):
        rows = order[starts[place] : starts[place + 1]]
        for kind, patients in seen.items():
            patients.update(cells.patient[rows][cells.kind[rows] == kind].tolist())
        if all(len(patients) >= least for patients in seen.values()):
            ends.append(place)
            seen = {kind: set() for kind in kinds}
    if ends and any(seen.values()):
        ends[-1] = count - 1  # what is left over joins the last cell
    elif ends and ends[-1] < count - 1:
        ends.append(count - 1)  # nobody lies beyond
    return tuple(ends)


def withhold(
    table: TableSums, cells: Cells, chances: Cells, least: int
) -> tuple[TableSums, dict[int, tuple[int, ...]]]:
    """The sums with every cell of fewer patients merged."""
    groups, shown, few = {}, {}, np.zeros(len(cells.place), dtype=bool)
    for number, several in table.groups.items():
        here, count = cells.of(number), len(several[0].grid)
        kinds = [GOOD, RISKY, *(kind for kind in (ASKED, LATE_GOOD, LATE_RISKY) if (here.kind == kind).any())]
        shown[number] = shown_places(here, count, least, kinds)
        if not shown[number]:
            raise GuaranteeRefused(
                f"fewer than {least} patients have unacceptable errors, other measured values, or unmeasured visits "
                "(in one of the model's groups, if it has some): sums would tell of single patients. Send them "
                "together with another site's, or when more values are there."
            )
        beyond = here.place == count
        trimmed = 0 < len(np.unique(here.patient[beyond & (here.kind <= RISKY)])) < least
        few |= trimmed & (cells.group == number) & (cells.place == count)
        groups[number] = tuple(filled(_trimmed(each) if trimmed else each, shown[number]) for each in several)
    totals = table.totals
    if few.any():
        totals = [sum(several[-1].totals[place] for several in groups.values()) for place in range(3)]
    measured, unmeasured, chance = _rounded_chances(chances, least)
    return replace(
        table,
        groups=groups,
        totals=totals,
        visits=_up(table.visits, least),
        patients=_up(table.patients, least),
        outside=_up(table.outside, least),
        measured=measured,
        unmeasured=unmeasured,
        chance=chance,
        ratios=_merged_ratios(cells.at(~few & (cells.ratio >= 0)), least),
    ), shown


def _trimmed(sums: Sums) -> Sums:
    """Totals without the few who lie beyond every threshold, which no cut-off releases."""
    of_patients = sums.of_patients["size_square"][-1]
    return replace(sums, totals=(sums.of_visits["weight"][-1], sums.of_visits["weight_square"][-1], of_patients))


def _up(count: int, least: int) -> int:
    return -(-count // least) * least


def filled(sums: Sums, ends: Sequence[int]) -> Sums:
    """The sums as shown at the ends of the cells, and inside them what makes a promise hardest to keep."""
    count = len(sums.grid)
    above = [int(ends[each]) for each in np.searchsorted(ends, np.arange(count))]
    below = [-1 if each == 0 else int(ends[each - 1]) for each in np.searchsorted(ends, np.arange(count))]

    def low(each: Whole) -> Whole:
        return [
            each[place] if place == a else (each[b] if b >= 0 else 0)
            for place, (a, b) in enumerate(zip(above, below, strict=True))
        ]

    def high(each: Whole) -> Whole:
        return [each[a] for a in above]

    def with_risky(each: Whole, risky: Whole) -> Whole:
        return [one + most - least for one, most, least in zip(low(each), high(risky), low(risky), strict=True)]

    visit, patient = sums.of_visits, sums.of_patients
    of_visits: dict[VisitMoment, Whole] = {name: low(each) for name, each in visit.items()}
    of_visits["risky_weight"], of_visits["risky"] = high(visit["risky_weight"]), high(visit["risky"])
    of_visits["weight"] = with_risky(visit["weight"], visit["risky_weight"])
    of_visits["visits"] = with_risky(visit["visits"], visit["risky"])
    # the cell's mean risk for whatever part of its weight: so the curve sees the cell as one
    parts = zip(
        low(visit["expected"]),
        high(visit["expected"]),
        of_visits["weight"],
        low(visit["weight"]),
        high(visit["weight"]),
        strict=True,
    )
    of_visits["expected"] = [e + (most - e) * (w - least) // max(all_ - least, 1) for e, most, w, least, all_ in parts]
    largest = {
        name: 1 << max(each[-1] - 1, 0).bit_length() for name, each in patient.items() if name.startswith("largest")
    }
    of_patients: dict[PatientMoment, Whole] = {
        name: [largest[name]] * count if name in largest else (high if name in FROM_ABOVE else low)(each)
        for name, each in patient.items()
    }
    return replace(sums, asked=_evenly(sums.asked, above, below), of_visits=of_visits, of_patients=of_patients)


def _evenly(asked: Whole, above: Sequence[int], below: Sequence[int]) -> Whole:
    """Values asked about, spread over the thresholds of a cell: these are quantiles of the fit's risks."""
    found = []
    for place, (a, b) in enumerate(zip(above, below, strict=True)):
        start = asked[b] if b >= 0 else 0
        found.append(start + (asked[a] - start) // int(UNIT) * (place - b) // (a - b) * int(UNIT))
    return found


def _rounded_chances(chances: Cells, least: int) -> tuple[Whole, Whole, Whole]:
    """Visits by chance in merged bins, counted in steps of `least`."""
    found = [[0] * BINS for _ in range(3)]
    start = 0
    for end in shown_places(chances, BINS, least, (0, 1)):
        rows = (chances.place >= start) & (chances.place <= end)
        counts = [round(int(np.sum(rows & (chances.kind == kind))) / least) * least for kind in (0, 1)]
        found[0][end], found[1][end] = counts
        if rows.any():
            found[2][end] = round(float(chances.weight[rows].mean()) * sum(counts) * UNIT)
        start = end + 1
    return found[0], found[1], found[2]


def _merged_ratios(cells: Cells, least: int) -> Whole:
    """Weight by size of error: where bins are merged it counts at the largest of them, so that intervals are wider."""
    size, found, start = len(RATIOS) + 1, [0] * (len(RATIOS) + 1), 0
    by_ratio = replace(cells, place=cells.ratio, kind=np.zeros(len(cells.ratio), np.int64))
    for end in shown_places(by_ratio, size, least, (0,)):
        rows = (cells.ratio >= start) & (cells.ratio <= end)
        found[end] = sum(int(each) for each in whole(cells.weight[rows]).tolist())
        start = end + 1
    return found


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
