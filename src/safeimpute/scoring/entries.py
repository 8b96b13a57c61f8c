"""Visits since the fit as entries of the ledger, each imputed as if missing by its own fold's model (arrays)."""

import json

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.records.clocks import first_row_to_know, on_its_way
from safeimpute.records.history import NONE
from safeimpute.records.own_visits import nearest_own_visits
from safeimpute.scoring.frozen import FrozenModel, score_visits
from safeimpute.scoring.night_ledger import Entered
from safeimpute.tolerance import Tolerance

MOST_LEVELS = 6  # of a category that is shown by itself
HISTORY = ("none", "1-2", "3 or more")
BANDS = ("low", "middle", "top")


def visits_to_enter(
    visits: VisitArrays,
    model: FrozenModel,
    entered_measured: NDArray[np.uint64],
    entered_unmeasured: NDArray[np.uint64],
) -> BoolArray:
    """Visits since the fit that the ledger lacks: measured ones at once, unmeasured ones when no result can be due."""
    measured = ~np.isnan(visits.target_values)
    since, key = visits.time > model.until, visits.visit_key
    now = float(visits.time.max(initial=-np.inf))
    ripe = visits.time <= now - model.reference.wait
    lacking = np.where(
        measured,
        ~np.isin(key, entered_measured),
        ripe & ~np.isin(key, entered_unmeasured) & ~np.isin(key, entered_measured),
    )
    return np.asarray(since & lacking)


def entries_of_visits(
    visits: VisitArrays,
    rows: BoolArray,
    months: NDArray[np.str_],
    model: FrozenModel,
    tolerance: Tolerance,
) -> Entered:
    """The entries at some rows, oldest first; only their patients are read."""
    wanted = np.isin(visits.patient, np.unique(visits.patient[rows]))
    scored = score_visits(visits.take(wanted), model, measured_too=True)
    here = np.flatnonzero(rows[wanted])
    part = visits.take(wanted)
    truth, value = part.target_values, scored.estimates.value
    measured = ~np.isnan(truth)
    order = here[np.lexsort((part.visit_key[here], part.time[here]))]
    entered = Entered(
        number=np.zeros(len(part), np.int64),
        visit=part.visit_key,
        patient=part.patient_key,
        day=part.time,
        month=months[wanted],
        measured=measured,
        late=on_its_way(part, part.target),
        inside=scored.inside,
        part=scored.group,
        value=value,
        risk=scored.estimates.risk,
        odds=scored.weight,
        cutoff=scored.cutoff,
        risky=measured & tolerance.risky(value, truth),
        strange=measured & model.reference.strange(truth, part.target),
        ratio=np.abs(value - truth) / scored.estimates.spread,
        groups=_groups(part, value, model),
    )
    return entered.at(order)


def nothing_entered() -> Entered:
    """No entries."""
    whole, real, text = np.empty(0, np.uint64), np.empty(0), np.empty(0, np.str_)
    no, number = np.empty(0, dtype=bool), np.empty(0, np.int64)
    return Entered(
        number, whole, whole, real, text, no, no, no, number, real, real, real, real, no, no, real, text
    )


def _groups(visits: VisitArrays, value: FloatArray, model: FrozenModel) -> NDArray[np.str_]:
    """Per visit the groups it is shown in: history, band of the imputed value, and small categories."""
    columns = {"history": _history(visits), "value": _bands(value, model, visits.target)} | _categories(
        visits
    )
    return np.array(
        [json.dumps(dict(zip(columns, each, strict=True))) for each in zip(*columns.values(), strict=True)],
        dtype=np.str_,
    )


def _history(visits: VisitArrays) -> list[str]:
    known = first_row_to_know(visits)[:, visits.target]
    own = nearest_own_visits(visits.patient, ~np.isnan(visits.target_values), 3, 0, known)
    count = (own != NONE).sum(axis=1)
    return [HISTORY[place] for place in np.searchsorted([0, 2], count).tolist()]


def _bands(value: FloatArray, model: FrozenModel, target: int) -> list[str]:
    """Lowest fifth, middle, top fifth of the target's values at the fit."""
    fifths = model.reference.percentiles[target][[19, 79]]
    return [BANDS[place] for place in np.searchsorted(fifths, value).tolist()]


def _categories(visits: VisitArrays) -> dict[str, list[str]]:
    """Attributes that are categories of a few levels; a column per level, as they are encoded."""
    levels: dict[str, list[tuple[str, IntArray]]] = {}
    for place, name in enumerate(visits.attribute_names):
        column, equals, level = name.partition("=")
        if equals:
            levels.setdefault(column, []).append((level, np.asarray(place)))
    found = {}
    for column, each in levels.items():
        if len(each) <= MOST_LEVELS:
            flags = visits.attributes[:, [int(place) for _, place in each]]
            names = np.array([level for level, _ in each] + ["unknown"])
            known = np.nan_to_num(flags).max(axis=1) > 0
            found[column] = names[np.where(known, np.nan_to_num(flags).argmax(axis=1), len(each))].tolist()
    return found
