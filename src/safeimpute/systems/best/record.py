"""A table of visits in units learnt at training, with what stands before and after each lab value."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.records.clocks import first_row_to_know, known_at_visit
from safeimpute.records.history import first_visit
from safeimpute.records.own_visits import around
from safeimpute.settings import LogLabs
from safeimpute.systems.scaling import Scaler, fit_scaler
from safeimpute.systems.trends import lab_trends, rate

Entry = TypeVar("Entry", bound=np.generic)


@dataclass(frozen=True)
class Units:
    """Scales of everything in a record, from training visits; frozen afterwards."""

    labs: Scaler
    trends: Scaler
    attributes: Scaler
    follow_up_days: float


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
    """Scales from the visits with a visible target."""
    visible = ~np.isnan(visits.target_values)
    labs = fit_scaler(visits.labs, visits.lab_names, visible, log_labs)
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
    values = units.labs.standardise(visits.labs)
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
