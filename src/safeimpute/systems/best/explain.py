"""Why a value was imputed: the patient's own visits and other patients' visits that carried it."""

from dataclasses import dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.records.history import NONE
from safeimpute.systems.best.attention import AttentionTarget
from safeimpute.systems.best.blend import FittedBlend
from safeimpute.systems.best.evidence import Evidence


@dataclass(frozen=True)
class Support:
    """One row per visit that carried an imputation; grouped by imputed visit, own visits first."""

    visit: IntArray  # row of the imputed visit
    own: BoolArray  # the same patient's visit, else an analogue
    source: IntArray  # row of the own visit, or place in the panel
    weight: FloatArray  # how much it was attended to; at most 1 in all per imputed visit
    target: FloatArray  # its visible target, in the target's unit
    gap_days: FloatArray  # signed, negative before the visit; NaN for analogues
    value_distance: FloatArray  # NaN for own visits
    trend_distance: FloatArray  # NaN for own visits


def explain(fitted: FittedBlend, evidence: Evidence, rows: IntArray) -> Support:
    """What carried the imputations at some visits of the table the evidence was read from."""
    own_weight, analogue_weight = _weights(fitted, evidence, rows)
    own, analogues = evidence.own[rows], evidence.analogues.panel[rows]
    sources = np.hstack([own, analogues])
    kept = sources != NONE
    is_own = np.broadcast_to(np.arange(sources.shape[1]) < own.shape[1], sources.shape)
    time, nothing = evidence.visits.time, np.full(own.shape, np.nan)
    known = np.hstack([evidence.target[own], evidence.source.panel.target[analogues]])
    columns = (
        np.broadcast_to(rows[:, None], sources.shape),
        is_own,
        sources,
        np.hstack([own_weight, analogue_weight]),
        evidence.source.units.labs.in_unit(known, fitted.target),
        np.hstack([time[own] - time[rows, None], np.full(analogues.shape, np.nan)]),
        np.hstack([nothing, evidence.analogues.value_distance[rows]]),
        np.hstack([nothing, evidence.analogues.trend_distance[rows]]),
    )
    return Support(*(column[kept] for column in columns))


def _weights(fitted: FittedBlend, evidence: Evidence, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """The attention's weights; without attention the kriging's, as shares."""
    part = fitted.parts.get("attention")
    if isinstance(part, AttentionTarget):
        return part.weights(evidence, rows)
    size = np.abs(evidence.kriged.weights[rows])
    total = size.sum(axis=1, keepdims=True)
    shares = np.divide(size, total, out=np.zeros_like(size), where=total > 0)
    return shares, np.zeros(evidence.analogues.panel[rows].shape)
