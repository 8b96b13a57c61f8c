"""Draws of a run as typed data: how well they are calibrated, and tipping points; what draws.json holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from safeimpute.estimator import LabImputer
from safeimpute.evaluation.downstream_columns import regressor_of
from safeimpute.evaluation.tipping import Drawn, TippingQuantity, tipping_points
from safeimpute.records.arrays import FloatArray
from safeimpute.records.units import target_unit
from safeimpute.splits.folds import fold_of

FittedImputer = LabImputer  # for those who only hand it on
DELTAS = 9  # shifts tried where none is named


@dataclass(frozen=True)
class DrawsAsked:
    """What `run` was asked for beside the release."""

    draws: int
    deltas: tuple[float, ...] = ()
    limit: float | None = None
    covariate: str = ""
    mice: bool = False  # also write the visits completed by every draw


class DrawsSummary(TypedDict):
    """What the draws rest on, and what they say."""

    draws: int
    seed: int
    missing: int
    outside: int  # missing values unlike any measured visit: their draws extrapolate
    coverage: dict[
        str, float
    ]  # share of measured values inside central intervals made from other folds' errors
    correlation: dict[str, float]  # of two errors of a patient: steady, drifting, memory in days
    tipping: list[TippingQuantity]


def summarise_draws(imputer: LabImputer, table: Any, asked: DrawsAsked) -> tuple[FloatArray, DrawsSummary]:
    """The draws of a fitted imputer, and their summary."""
    drawn = imputer.draw_values(table, asked.draws)
    predictive, settings = imputer.predictive_, imputer.settings_
    arrays, rows = imputer.visits_.arrays, imputer.calibrated_.candidates
    key = arrays.patient_key[np.searchsorted(arrays.patient, predictive.errors.patient)]
    fold = fold_of(key, settings.random_state, settings.best.folds)
    outside = np.zeros(len(rows), dtype=bool)
    for visits in imputer.calibrated_.outside.values():
        outside |= visits[rows]
    dependence = predictive.dependence
    return drawn, {
        "draws": asked.draws,
        "seed": settings.random_state,
        "missing": len(rows),
        "outside": int(outside.sum()),
        "coverage": predictive.coverage(fold),
        "correlation": {name: float(value) for name, value in vars(dependence).items()},
        "tipping": _tipping(imputer, drawn, asked) if asked.deltas and len(rows) else [],
    }


def _tipping(imputer: LabImputer, drawn: FloatArray, asked: DrawsAsked) -> list[TippingQuantity]:
    calibrated, settings = imputer.calibrated_, imputer.settings_
    arrays = imputer.visits_.arrays
    known = np.where(calibrated.question.candidate, np.nan, calibrated.truth)
    values = np.repeat(known[:, None], drawn.shape[1], axis=1)
    values[calibrated.candidates] = drawn
    name, regressor = "", None
    if asked.covariate:
        name, regressor = regressor_of(arrays, asked.covariate, settings.target)
    standard, unit = imputer.predictive_.standard, target_unit(settings)
    completed = Drawn(values, calibrated.candidates, arrays.patient, standard.low, standard.high)
    suffix = {"%": " percentage points", None: ""}.get(unit, f" {unit}")
    return tipping_points(completed, asked.deltas, suffix, asked.limit, regressor, name)


def shifts_around(values: FloatArray, count: int = DELTAS) -> Sequence[float]:
    """Shifts from one standard deviation below to one above, rounded."""
    step = 2 * float(np.nanstd(values)) / (count - 1)
    digits = 1 - int(np.floor(np.log10(step))) if step > 0 else 0
    return [round(float(each), digits) for each in step * (np.arange(count) - count // 2)]
