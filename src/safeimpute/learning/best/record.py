"""A table of visits in units learnt at training, with what stands before and after each lab value."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from safeimpute.learning.neighbours.blocks import Profiles
from safeimpute.learning.neighbours.search import radius_for_degree, value_neighbours
from safeimpute.learning.scaling import Scaler, fit_scaler, lab_trends, rate
from safeimpute.settings import LogLabs
from safeimpute.visits.arrays import (
    NONE,
    BoolArray,
    FloatArray,
    IntArray,
    VisitArrays,
    around,
    first_row_to_know,
    first_visit,
    known_at_visit,
)

Entry = TypeVar("Entry", bound=np.generic)


@dataclass(frozen=True)
class Units:
    """Scales of everything in a record, from training visits; frozen afterwards."""

    labs: Scaler
    trends: Scaler
    attributes: Scaler
    follow_up_days: float

    def values(self, visits: VisitArrays) -> FloatArray:
        """Visits x labs in standard units; of a result known only by a limit, what is to be expected beyond it."""
        values = self.labs.standardise(visits.labs)
        if visits.limits is None:
            return values
        return np.where(visits.censored, self.labs.expected(visits.limits), values)


@dataclass(frozen=True)
class Record:
    """Visits in standard units. Columns of `now` … `filled` are the labs other than the target."""

    visits: VisitArrays
    units: Units
    target: FloatArray  # visible targets; NaN elsewhere
    target_known_from: IntArray | None  # where only the past counts: the first row that may know each target
    attributes: FloatArray  # 0 where missing
    follow_up: FloatArray  # days since the first visit
    now: FloatArray
    trends: FloatArray
    previous: FloatArray  # the patient's last earlier value
    previous_gap: FloatArray  # days
    following: FloatArray  # the patient's next later value; NaN throughout where only the past counts
    following_gap: FloatArray
    filled: FloatArray  # now, else interpolated in time, else carried over

    def __len__(self) -> int:
        return len(self.visits)


def fit_units(visits: VisitArrays, log_labs: LogLabs = "auto") -> Units:
    """Scales from the visits with a visible target, or a limit of it."""
    visible = ~np.isnan(visits.target_values) | visits.target_censored
    labs = fit_scaler(visits.labs, visits.lab_names, visible, log_labs, visits.limits)
    trends = lab_trends(visits.patient, visits.time, _others(visits, labs.standardise(visits.labs)))
    follow_up = _follow_up(visits)[visible]
    return Units(
        labs=labs,
        trends=_plain_scaler(trends, visible),
        attributes=_plain_scaler(visits.attributes, visible),
        follow_up_days=float(follow_up.std()) if len(follow_up) and follow_up.std() > 0 else 1.0,
    )


def read_record(visits: VisitArrays, units: Units, *, past_only: bool) -> Record:
    """Standardise a table and look along each patient's visits; with `past_only`, backwards only."""
    values = units.values(visits)
    drawn = _others(visits, values)
    known_from = first_row_to_know(visits) if past_only else None
    now = np.where(_others(visits, known_at_visit(visits)), drawn, np.nan) if past_only else drawn
    previous, previous_gap, following, following_gap = _around(
        visits, drawn, None if known_from is None else _others(visits, known_from)
    )
    if past_only:
        following, following_gap = np.full_like(now, np.nan), np.full_like(now, np.nan)
    return Record(
        visits=visits,
        units=units,
        target=values[:, visits.target],
        target_known_from=None if known_from is None else known_from[:, visits.target],
        attributes=np.nan_to_num(units.attributes.standardise(visits.attributes)),
        follow_up=_follow_up(visits),
        now=now,
        trends=units.trends.standardise(rate(now, previous, previous_gap)),
        previous=previous,
        previous_gap=previous_gap,
        following=following,
        following_gap=following_gap,
        filled=np.where(np.isnan(now), between(previous, previous_gap, following, following_gap), now),
    )


def between(
    previous: FloatArray, previous_gap: FloatArray, following: FloatArray, following_gap: FloatArray
) -> FloatArray:
    """Linear in time between two values; the one that exists where only one does."""
    share = previous_gap / (previous_gap + following_gap)
    inside = previous + share * (following - previous)
    return np.where(np.isnan(previous), following, np.where(np.isnan(following), previous, inside))


def _around(visits: VisitArrays, drawn: FloatArray, known_from: IntArray | None) -> tuple[FloatArray, ...]:
    found = np.empty((4, *drawn.shape))
    for place, lab in enumerate(drawn.T):
        known = None if known_from is None else known_from[:, place]
        found[:, :, place] = around(visits.patient, visits.time, lab, known)
    return tuple(found)


def _others(visits: VisitArrays, table: NDArray[Entry]) -> NDArray[Entry]:
    """The columns of labs other than the target."""
    return table[:, visits.other_labs]


def _follow_up(visits: VisitArrays) -> FloatArray:
    return visits.time - visits.time[first_visit(visits.patient)]


def _plain_scaler(table: FloatArray, visible: BoolArray) -> Scaler:
    return fit_scaler(table, tuple("" for _ in range(table.shape[1])), visible, log_labs=())


@dataclass(frozen=True)
class Panel:
    """Training visits of many patients: what they look like and what their target was, in standard units."""

    values: FloatArray
    trends: FloatArray
    patient: IntArray  # the patient's key, as a signed integer
    target: FloatArray
    regression: FloatArray  # what the labs alone predict
    radius: float

    @property
    def profiles(self) -> Profiles:
        return Profiles(self.values, self.trends, self.patient)


@dataclass(frozen=True)
class Analogues:
    """Per visit its closest panel visits of other patients, closest first; NONE pads."""

    panel: IntArray  # visits x analogues: place in the panel
    value_distance: FloatArray  # NaN where padded
    trend_distance: FloatArray  # NaN where padded or not comparable


def profiles(record: Record) -> Profiles:
    """What visits are compared by: the other labs' levels and trends, never the target."""
    return Profiles(record.now, record.trends, record.visits.patient_key.view(np.int64))


def fit_panel(record: Record, regression: FloatArray, size: int, degree: int, rng: np.random.Generator) -> Panel:
    """Keep at most `size` training visits, and the radius within which a visit has `degree` analogues."""
    kept = np.flatnonzero(~np.isnan(record.target))
    if len(kept) > size:
        kept = np.sort(rng.choice(kept, size, replace=False))
    known = profiles(record).at(kept)
    radius = radius_for_degree(known, degree, rng)
    return Panel(known.values, known.trends, known.patient, record.target[kept], regression[kept], radius)


def find_analogues(record: Record, panel: Panel, count: int, rows: IntArray, device: str) -> Analogues:
    """The `count` closest panel visits of other patients within the panel's radius, for the visits at `rows`."""
    pairs = value_neighbours(
        profiles(record).at(rows),
        panel.profiles,
        value_radius=panel.radius,
        trend_radius=panel.radius,
        max_neighbors=count,
        device=device,
    )
    places = np.arange(len(pairs)) - np.searchsorted(pairs.query, pairs.query)
    shape = (len(rows), count)
    found, by_value, by_trend = np.full(shape, NONE, np.int64), np.full(shape, np.nan), np.full(shape, np.nan)
    found[pairs.query, places] = pairs.reference
    by_value[pairs.query, places] = pairs.value_distance
    by_trend[pairs.query, places] = pairs.trend_distance
    return Analogues(found, by_value, by_trend)
