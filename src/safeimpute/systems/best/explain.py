"""Why a value was imputed: the patient's own visits and other patients' analogous visits that carried it."""

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray, VisitArrays
from safeimpute.records.history import NONE
from safeimpute.systems.best.evidence import Carried, Source, read_carried
from safeimpute.systems.protocol import Support


def explain(source: Source, visits: VisitArrays, rows: IntArray) -> Support:
    """What carried the imputations at some visits of a table.

    Own visits count with the weight the patient's course gives them; what these leave open is carried by the labs,
    and shown by the analogous visits of other patients, closer ones counting more.
    """
    if not len(rows):
        nothing = np.empty(0)
        return Support(np.empty(0, np.int64), np.empty(0, bool), nothing, nothing, nothing, nothing, nothing)
    patients = np.isin(visits.patient, visits.patient[rows])
    there = visits.take(patients)
    place = np.cumsum(patients) - 1
    carried = read_carried(there, source, place[rows])
    own_share, analogue_share = _shares(carried, source)
    own, analogues = carried.own, carried.analogues.panel
    sources = np.hstack([own, analogues])
    kept = sources != NONE
    time, nothing = there.time, np.full(own.shape, np.nan)
    z = source.units.labs.standardise(there.labs)[:, source.target]
    known = np.hstack([z[own], source.panel.target[analogues]])
    columns = (
        np.broadcast_to(rows[:, None], sources.shape),
        np.broadcast_to(np.arange(sources.shape[1]) < own.shape[1], sources.shape),
        np.hstack([own_share, analogue_share]),
        source.units.labs.in_unit(known, source.target),
        np.hstack([time[own] - time[carried.rows, None], np.full(analogues.shape, np.nan)]),
        np.hstack([nothing, carried.analogues.value_distance]),
        np.hstack([nothing, carried.analogues.trend_distance]),
    )
    return Support(*(column[kept] for column in columns))


def _shares(carried: Carried, source: Source) -> tuple[FloatArray, FloatArray]:
    """The course's weights as shares of at most 1, and the rest over the analogous visits by closeness."""
    own = np.abs(carried.predicted.weights) * (carried.own != NONE)
    total = own.sum(axis=1, keepdims=True)
    own = own / np.maximum(total, 1.0)
    near = 1.0 / (carried.analogues.value_distance + source.panel.radius / 4)
    near = np.where(carried.analogues.panel == NONE, 0.0, near)
    nearness = near.sum(axis=1, keepdims=True)
    rest = 1.0 - own.sum(axis=1, keepdims=True)
    return own, rest * np.divide(near, nearness, out=np.zeros_like(near), where=nearness > 0)
