"""A site's part of one promise: a small file of sums in which nobody's values can be told.

Made where the patients are, by `safeimpute site`; `network.py` adds the files of several sites. A cell is what lies
between one threshold that a file shows and the next. It is shown only if at least so many patients are among its
risky, its other measured and its unmeasured visits; else it is merged with the cells above it.

**What is withheld never makes a promise easier to keep.** Inside a cell only its two ends are known, and every sum
grows with the risk. At a threshold inside, all of the cell's risky weight is taken to lie below and all of its other
weight above, and every moment is taken from the end that makes a proof harder. So the balance counted there is at
least the true one, whatever the level; the curve, which reads shares between thresholds, sees the cell as one. Who
has fewer patients than one cell needs writes no file: a site left out would be a site not promised for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import GuaranteeRefused
from safeimpute.model.frozen import FrozenModel, Scored
from safeimpute.model.whole_table import BINS, RATIOS, TableSums, late_visits
from safeimpute.selection.sums import UNIT, PatientMoment, Sums, VisitMoment, Whole, whole
from safeimpute.settings import Settings
from safeimpute.visits.arrays import FloatArray, IntArray, VisitArrays, mix

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


def cells_of(visits: VisitArrays, scored: Scored, model: FrozenModel, settings: Settings) -> Cells:
    judged, value, truth = visits.target_judges & scored.inside, scored.estimates.value, visits.target_values
    risky = settings.allowed_error.largest_loss(value, truth, visits.target_limits).astype(bool)
    late, rows = late_visits(visits, settings) & judged, scored.inside & (judged | scored.candidate)
    place = np.zeros(len(visits), np.int64)
    for number in model.cutoffs:
        here = scored.group == number
        place[here] = np.searchsorted(model.reference.grid(number), scored.estimates.risk[here], side="left")
    error = np.abs(value - truth) / scored.estimates.spread
    known = Cells(
        visits.patient_key,
        scored.group,
        place,
        np.where(judged, np.where(risky, RISKY, GOOD), ASKED),
        scored.weight + late,
        np.where(judged & ~np.isnan(truth), np.searchsorted(RATIOS, error), -1),
    )
    again = replace(known, kind=np.where(risky, LATE_RISKY, LATE_GOOD), ratio=np.full(len(visits), -1)).at(late)
    return together([known.at(rows), again])


def patient_parts(visits: VisitArrays, scored: Scored) -> NDArray[np.uint64]:
    """Each patient's hash, and one of all that its visits add to the sums."""
    part = visits.visit_key.copy()
    for each in (scored.estimates.risk, scored.weight, visits.target_values, *visits.target_limits.T):
        part = mix(part ^ np.ascontiguousarray(each).view(np.uint64))
    patients, where = np.unique(visits.patient_key, return_inverse=True)
    total = np.zeros(len(patients), np.uint64)
    np.add.at(total, where, part)
    return np.column_stack([patients, total])


def chances_of(visits: VisitArrays, scored: Scored) -> Cells:
    """Every visit by its chance of being unmeasured, for the diagnosis."""
    chance, nothing = scored.weight / (1.0 + scored.weight), np.zeros(len(visits), np.int64)
    place = np.minimum((chance * BINS).astype(np.int64), BINS - 1)
    return Cells(visits.patient_key, nothing, place, scored.candidate.astype(np.int64), chance, nothing)


def together(parts: Sequence[Cells]) -> Cells:
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
