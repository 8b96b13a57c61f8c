"""What a release does to the distribution of values: released against withheld, and what a cohort's mean becomes."""

import math

import numpy as np

from safeimpute.estimator import LabImputer
from safeimpute.evaluation.run_summary import CohortMeans, Distribution, Fifth, Spread
from safeimpute.records.arrays import BoolArray, FloatArray
from safeimpute.selection.release import passing

FIFTHS = 5
WARNING = (
    "Released values are no random sample of the missing ones: do not compute cohort statistics, such as a mean or a "
    "share above a limit, from them alone."
)
INSTEAD = (
    "For a mean, a share above a limit or a regression use draws of every missing value, released or not (--draws 20, "
    "or SafeImputer.draws), analyse each completed table and pool (safeimpute.pool); safeimpute downstream shows on "
    "your own table what each way does. Released values serve where single values are looked at: a chart, a list."
)


def distribution_of(imputer: LabImputer, value: FloatArray, released: BoolArray) -> Distribution:
    """Released against withheld, by imputed value and by what was measured; `value` and `released` per candidate."""
    calibrated = imputer.calibrated_
    truth, weight = calibrated.truth, calibrated.weight
    ground = calibrated.ground(imputer.current_settings().allowed_error)
    judged = calibrated.question.judged & ground.inside
    through = judged & passing(ground, imputer.decision_)
    stopped = judged & ~through
    return {
        "measured": spread_of(truth),
        "released": spread_of(value[released]),
        "withheld": spread_of(value[~released]),
        "passing": spread_of(truth[through], weight[through]),
        "stopped": spread_of(truth[stopped], weight[stopped]),
        "means": _means(truth, value, released, spread_of(truth[judged], weight[judged])["mean"]),
        "fifths": _fifths(value, released),
        "warning": WARNING,
        "instead": INSTEAD,
    }


def _means(truth: FloatArray, value: FloatArray, released: BoolArray, expected: float | None) -> CohortMeans:
    """The cohort's mean from measured values alone, with released ones filled in, and as it is to be expected."""
    measured = truth[np.isfinite(truth)]
    filled = np.concatenate([measured, value[released & np.isfinite(value)]])
    whole = None
    if expected is not None and len(measured) + len(value):
        whole = float((measured.sum() + len(value) * expected) / (len(measured) + len(value)))
    return {
        "measured": float(measured.mean()) if len(measured) else None,
        "with_released": float(filled.mean()) if len(filled) else None,
        "missing_expected": expected,
        "expected": whole,
    }


def _fifths(value: FloatArray, released: BoolArray) -> list[Fifth]:
    """Missing values by imputed value, in five groups of equal size: how many were released."""
    order = np.flatnonzero(np.isfinite(value))
    order = order[np.argsort(value[order], kind="stable")]
    return [
        {
            "low": float(value[part[0]]),
            "high": float(value[part[-1]]),
            "missing": len(part),
            "released": int(released[part].sum()),
        }
        for part in np.array_split(order, FIFTHS)
        if len(part)
    ]


def spread_of(values: FloatArray, weight: FloatArray | None = None) -> Spread:
    """Some values in three figures, each counted by its weight."""
    weight = np.ones(len(values)) if weight is None else weight
    there = np.isfinite(values) & np.isfinite(weight)
    values, weight = values[there], weight[there]
    if not len(values) or not weight.sum() > 0:
        return {"values": 0, "mean": None, "median": None}
    mean = float(values @ weight / weight.sum())
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order]) - weight[order] / 2
    median = float(np.interp(weight.sum() / 2, reached, values[order]))
    return {"values": len(values), "mean": mean if math.isfinite(mean) else None, "median": median}
