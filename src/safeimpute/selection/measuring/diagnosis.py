"""How good the model of measuring is, in figures and words; it goes into every summary and report."""

from dataclasses import dataclass

import numpy as np

from safeimpute.selection.measuring.features import MeasuringTable
from safeimpute.selection.measuring.model import MeasuringModel
from safeimpute.selection.sums import kish_size
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

GROUPS = 10
MOST_REASONS = 5


@dataclass(frozen=True)
class CalibrationGroup:
    """Visits with a like chance of being unmeasured: the mean chance, and the share that is."""

    visits: int
    predicted: float
    observed: float


@dataclass(frozen=True)
class Reason:
    """A column that tells measured from unmeasured visits, its share of what the model learnt, and the direction."""

    column: str
    share: float
    direction: str  # in words


@dataclass(frozen=True)
class MeasuringDiagnosis:
    """Discrimination, calibration, what the weights leave of the sample, and the strongest reasons."""

    auc: float | None  # 0.5: measuring looks random; near 1: hardly any overlap
    calibration: tuple[CalibrationGroup, ...]
    measured: int  # visits within the promise
    effective_visits: float  # equally weighted visits the weighted ones are worth
    effective_patients: float
    outside: int  # unmeasured visits that no promise covers
    reasons: tuple[Reason, ...]
    columns: tuple[str, ...]  # used by the model


def diagnose(
    model: MeasuringModel,
    table: MeasuringTable,
    odds: FloatArray,
    outside: BoolArray,
    measured: BoolArray,
    seen: BoolArray,
    candidate: BoolArray,
    patient: IntArray,
) -> MeasuringDiagnosis:
    """Judge the odds, each given by the model of a fold that never saw the patient.

    The model tells `seen` visits from candidates; `measured` are those of them with a value, which the weights are for.
    """
    known = seen | candidate
    probability = odds / (1.0 + odds)
    inside = measured & ~outside
    per_patient = np.bincount(patient[inside], odds[inside]).astype(np.float64)
    return MeasuringDiagnosis(
        auc=area_under_curve(probability[known], candidate[known]),
        calibration=_calibration(probability[known], candidate[known]),
        measured=int(inside.sum()),
        effective_visits=kish_size(odds[inside]),
        effective_patients=kish_size(per_patient),
        outside=int(np.sum(candidate & outside)),
        reasons=_reasons(model, table, seen, candidate),
        columns=model.columns,
    )


def area_under_curve(score: FloatArray, positive: BoolArray) -> float | None:
    """Chance that a positive has the larger number; ties count half. None where one class is absent."""
    high, low = np.sort(score[positive]), score[~positive]
    if not len(high) or not len(low):
        return None
    right = np.searchsorted(high, low, side="right")
    ties = right - np.searchsorted(high, low)
    return float(np.sum(len(high) - right + 0.5 * ties) / (len(high) * len(low)))


def _calibration(probability: FloatArray, unmeasured: BoolArray) -> tuple[CalibrationGroup, ...]:
    order = np.argsort(probability, kind="stable")
    return tuple(
        CalibrationGroup(len(rows), float(probability[rows].mean()), float(unmeasured[rows].mean()))
        for rows in np.array_split(order, GROUPS)
        if len(rows)
    )


def _reasons(
    model: MeasuringModel, table: MeasuringTable, measured: BoolArray, candidate: BoolArray
) -> tuple[Reason, ...]:
    """Columns by how far they move the odds: the spread of what the main effects say, and the trees' share of gain."""
    gain = np.zeros(len(table.names))
    for fold in model.folds:
        for member in fold.members:
            gain += member.plain.importance(len(table.names)) + _shares(member.trees.feature_importance("gain"))
    total = gain.sum()
    if total <= 0:
        return ()
    strongest = np.argsort(-gain, kind="stable")[:MOST_REASONS]
    return tuple(
        Reason(table.names[k], float(gain[k] / total), _direction(table, k, measured, candidate))
        for k in strongest
        if gain[k] > 0
    )


def _shares(gain: FloatArray) -> FloatArray:
    total = float(gain.sum())
    return np.asarray(gain / total if total > 0 else gain, dtype=np.float64)


def _direction(table: MeasuringTable, column: int, measured: BoolArray, candidate: BoolArray) -> str:
    """Where unmeasured visits lie on this column, compared with measured ones."""
    if column in table.high_cardinality:
        return "differs by level"
    values = table.matrix[:, column]
    here, there = values[candidate], values[measured]
    absent = float(np.isnan(here).mean() - np.isnan(there).mean()) if len(here) and len(there) else 0.0
    if abs(absent) > 0.2:
        return f"more often {'absent' if absent > 0 else 'present'} at unmeasured visits"
    here, there = here[~np.isnan(here)], there[~np.isnan(there)]
    if not len(here) or not len(there) or np.median(here) == np.median(there):
        return "differs in its spread or together with other columns"
    return f"{'higher' if np.median(here) > np.median(there) else 'lower'} at unmeasured visits"
