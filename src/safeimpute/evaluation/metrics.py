"""Accuracy of imputations and quality of a release, each with a standard error over splits."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from safeimpute.selection.measuring.diagnosis import area_under_curve
from safeimpute.tolerance import Risky
from safeimpute.visits.arrays import BoolArray, FloatArray

auc = area_under_curve  # of a risk: chance that a risky value has the higher one


class MeanSe(TypedDict):
    """A mean over splits and its standard error (null for one split, both null for none)."""

    mean: float | None
    se: float | None


def mean_se(values: Sequence[float]) -> MeanSe:
    if not len(values):
        return {"mean": None, "se": None}
    se = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "se": se}


def mean_absolute_error(value: FloatArray, truth: FloatArray) -> float:
    """Mean of |value - truth|. Equation 53."""
    return float(np.mean(np.abs(value - truth)))


def root_mean_squared_error(value: FloatArray, truth: FloatArray) -> float:
    """Root of the mean of (value - truth)^2. Equation 54."""
    return float(np.sqrt(np.mean((value - truth) ** 2)))


def false_discovery_proportion(risky: Risky, released: BoolArray) -> float:
    """Share of risky values among the released; 0 for an empty release. Equation 36."""
    return float(np.sum(risky * released) / max(int(released.sum()), 1))


def precision(risky: Risky, released: BoolArray) -> float:
    """Share of the released values that are not risky; 0 for an empty release, as the paper defines it. Equation 55.

    It is one minus the proportion of equation 36 only where something is released: of an empty release both are 0.
    """
    return float(np.sum((1.0 - risky) * released) / max(int(released.sum()), 1))


def power(risky: Risky, released: BoolArray) -> float:
    """Share of the values that are not risky that are released; 0 if all are risky."""
    return float(np.sum((1.0 - risky) * released) / max(float(np.sum(1.0 - risky)), 1.0))
