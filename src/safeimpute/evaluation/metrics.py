"""Accuracy of imputations and quality of a release, each with a standard error over splits."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray


class MeanSe(TypedDict):
    """A mean over splits and its standard error (null for one split, both null for none)."""

    mean: float | None
    se: float | None


def mean_se(values: Sequence[float]) -> MeanSe:
    """Mean and sd / sqrt(n)."""
    if not len(values):
        return {"mean": None, "se": None}
    se = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "se": se}


def mean_absolute_error(value: FloatArray, truth: FloatArray) -> float:
    return float(np.mean(np.abs(value - truth)))


def root_mean_squared_error(value: FloatArray, truth: FloatArray) -> float:
    return float(np.sqrt(np.mean((value - truth) ** 2)))


def false_discovery_proportion(bad: BoolArray, released: BoolArray) -> float:
    """Share of risky values among the released; 0 for an empty release."""
    return float(np.sum(bad & released) / max(int(released.sum()), 1))


def power(bad: BoolArray, released: BoolArray) -> float:
    """Share of good values that are released; 0 if none is good."""
    return float(np.sum(~bad & released) / max(int(np.sum(~bad)), 1))


def auc(risk: FloatArray, bad: BoolArray) -> float | None:
    """Probability that a risky value has the higher risk; ties count half. None where one class is absent."""
    positives, negatives = np.sort(risk[bad]), risk[~bad]
    if not len(positives) or not len(negatives):
        return None
    above = len(positives) - np.searchsorted(positives, negatives, side="right")
    ties = np.searchsorted(positives, negatives, side="right") - np.searchsorted(positives, negatives)
    return float(np.sum(above + 0.5 * ties) / (len(positives) * len(negatives)))
