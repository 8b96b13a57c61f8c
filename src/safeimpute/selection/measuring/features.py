"""What decides who gets measured, read off the record: the same columns for every visit, measured or not.

Nothing here is learnt, and a visit's own target is in no column: whether it was measured cannot be told from its
features except through what happened at other visits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safeimpute.visits.arrays import (
    FloatArray,
    IntArray,
    VisitArrays,
    around,
    first_row_to_know,
    first_visit,
    known_at_visit,
    last_visit,
    nearest_own_visits,
    take,
)

Columns = dict[str, FloatArray]


@dataclass(frozen=True)
class MeasuringTable:
    """One row per visit; NaN where there is nothing to say."""

    matrix: NDArray[np.float32]
    names: tuple[str, ...]  # in plain words
    high_cardinality: tuple[int, ...]  # columns whose numbers are codes of levels
    columns: tuple[str, ...]  # of the user's table that they are made from
    visits: IntArray  # of the patient; those so far where only the past counts


def measuring_table(visits: VisitArrays, *, past_only: bool, calendar: bool) -> MeasuringTable:
    """Time, visits, the patient's other measured targets, the other labs, attributes and high-cardinality columns."""
    known_from = first_row_to_know(visits) if past_only else None
    columns = (
        _visit_columns(visits, past_only=past_only, calendar=calendar)
        | _target_columns(visits, known_from)
        | _lab_columns(visits, known_from)
        | dict(zip(visits.attribute_names, visits.attributes.T, strict=True))
    )
    high_cardinality = dict(zip(visits.high_cardinality_names, visits.high_cardinality.T, strict=True))
    matrix = np.empty((len(visits), len(columns) + len(high_cardinality)), np.float32)
    for place, column in enumerate((*columns.values(), *high_cardinality.values())):
        matrix[:, place] = column
    codes = tuple(range(len(columns), len(columns) + len(high_cardinality)))
    made_from = _made_from(visits, calendar=calendar)
    return MeasuringTable(matrix, (*columns, *high_cardinality), codes, made_from, _length(visits, past_only=past_only))


def _length(visits: VisitArrays, *, past_only: bool) -> IntArray:
    """How long the record is: in all, or by the time of each visit."""
    until = np.arange(len(visits)) if past_only else last_visit(visits.patient)
    return until - first_visit(visits.patient) + 1


def _made_from(visits: VisitArrays, *, calendar: bool) -> tuple[str, ...]:
    """The user's columns behind the features; a category's levels are one column."""
    categories = [name.split("=", 1)[0] for name in visits.attribute_names]
    when = "time" if calendar else "time between visits"
    names = (when, *visits.lab_names, *categories, *visits.high_cardinality_names)
    return tuple(dict.fromkeys(names))


def _visit_columns(visits: VisitArrays, *, past_only: bool, calendar: bool) -> Columns:
    rows, time = np.arange(len(visits)), visits.time
    first, last = first_visit(visits.patient), last_visit(visits.patient)
    columns = {
        "days since first visit": time - time[first],
        "days since last visit": np.where(rows > first, time - time[np.maximum(rows - 1, 0)], np.nan),
        "visit number": (rows - first).astype(np.float64),
    }
    if not past_only:
        following = np.minimum(rows + 1, max(len(rows) - 1, 0))
        columns["days until next visit"] = np.where(rows < last, time[following] - time, np.nan)
        columns["visits to come"] = (last - rows).astype(np.float64)
    return columns | ({"calendar time": time} if calendar else {})


def _target_columns(visits: VisitArrays, known_from: IntArray | None) -> Columns:
    """The patient's nearest measured targets at other visits, how long ago, and how many there are."""
    name, target = visits.lab_names[visits.target], visits.target_values
    known = None if known_from is None else known_from[:, visits.target]
    rows = nearest_own_visits(visits.patient, ~np.isnan(target), 2, 0 if known is not None else 2, known)
    values, gaps = take(target, rows), np.abs(take(visits.time, rows) - visits.time[:, None])
    places = ("previous", "second previous", "next", "second next")[: rows.shape[1]]
    columns = {f"{place} {name}": values[:, k] for k, place in enumerate(places)}
    columns |= {f"days to {place} {name}": gaps[:, k] for k, place in enumerate(places)}
    return columns | {f"other {name} values": _others_measured(visits, target, known)}


def _others_measured(visits: VisitArrays, target: FloatArray, known: IntArray | None) -> FloatArray:
    """How many of the patient's other visits have a measured target, or had one by then."""
    measured = ~np.isnan(target)
    if known is None:
        per_patient = np.bincount(visits.patient, measured, minlength=int(visits.patient.max(initial=-1)) + 1)
        return np.asarray(per_patient[visits.patient] - measured, dtype=np.float64)
    arrived = np.zeros(len(visits))
    ever = measured & (known <= last_visit(visits.patient))
    np.add.at(arrived, known[ever], 1.0)
    running = np.cumsum(arrived)
    first = first_visit(visits.patient)
    return np.asarray(running - (running[first] - arrived[first]), dtype=np.float64)


def _lab_columns(visits: VisitArrays, known_from: IntArray | None) -> Columns:
    """Every other lab now, before and after, with how long ago and how long until."""
    at_visit = known_at_visit(visits) if known_from is not None else None
    columns: Columns = {}
    for lab in visits.other_labs:
        name, values = visits.lab_names[lab], visits.labs[:, lab]
        known = None if known_from is None else known_from[:, lab]
        now = values if at_visit is None else np.where(at_visit[:, lab], values, np.nan)
        before, since, after, until = around(visits.patient, visits.time, values, known)
        columns |= {f"{name} now": now, f"{name} before": before, f"days since {name}": since}
        if known is None:
            columns |= {f"{name} after": after, f"days until {name}": until}
    return columns
