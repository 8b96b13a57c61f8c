"""How often an imputation of a given risk is risky: a calibration curve with its doubt, from sums alone.

Stands between the sums and the cut-off of the average rule. The errors counted at a threshold that was chosen because
few were counted there are too few; the curve speaks of what to expect, and luck moves it little (docs/guarantee.md).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from safeimpute.selection.enough import EffectiveSize
from safeimpute.selection.logistic import newton
from safeimpute.visits.arrays import FloatArray

LEVEL_PULL, SLOPE_PULL, BEND_PULL = 1.0, 4.0, 1.0  # precisions: towards risks that are true chances
KNOTS = 8
EDGES = (0.02, 0.98)  # shares of the visits between which the knots lie
SURELY = 1e-4  # no risk counts as smaller, nor as nearer to one


@dataclass(frozen=True)
class Steps:
    """Sums over the visits between one threshold and the next."""

    weight: FloatArray
    risky: FloatArray  # weight of the risky ones
    expected: FloatArray  # weight times risk
    asked: FloatArray  # values asked about


class CurveSums(Protocol):
    """What a curve is fitted to."""

    @property
    def thresholds(self) -> FloatArray:
        """Increasing risks."""

    @property
    def effective_size(self) -> EffectiveSize:
        """How many equally weighted visits and patients the measured ones are worth."""

    @property
    def steps(self) -> "Steps":
        """What lies between one threshold and the next."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Log odds of being risky at every threshold as terms x coefficients, and how sure these are."""

    terms: FloatArray  # thresholds x terms
    coefficients: FloatArray
    covariance: FloatArray
    asked: FloatArray  # values asked about between one threshold and the next

    def excess(self, alpha: float, gamma: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """Per threshold how many more risky values than the level allows are expected up to it; and how surely.

        If the odds of measuring are off by gamma either way, risky values may be gamma squared times as frequent.
        """
        expected, doubt = self._expected(gamma)
        return expected - alpha * np.cumsum(self.asked), doubt

    @lru_cache(maxsize=8)  # noqa: B019 (a curve lives as long as its sums)
    def _expected(self, gamma: float) -> tuple[FloatArray, FloatArray]:
        """Risky values expected up to each threshold, and the standard error of their number."""
        logit = self.terms @ self.coefficients + 2.0 * math.log(gamma)
        doubt = np.einsum("ij,jk,ik->i", self.terms, self.covariance, self.terms)
        expected = _chance(logit / np.sqrt(1.0 + math.pi * doubt / 8.0))
        chance = _chance(logit)
        slopes = np.cumsum((self.asked * chance * (1.0 - chance))[:, None] * self.terms, axis=0)
        variance = np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes)
        return np.cumsum(self.asked * expected), np.sqrt(np.maximum(variance, 0.0))


def fit_curve(sums: CurveSums) -> Curve:
    """A line in the log odds of the risk with a few bends, pulled towards the risks themselves.

    Visits count as many as equally weighted ones they are worth. Where nothing is asked about, the measured visits'
    weights stand for it.
    """
    steps = sums.steps
    weight, asked = steps.weight, steps.asked if steps.asked.any() else steps.weight
    total = max(float(weight.sum()), 1e-300)
    logit = _logit(sums.thresholds, steps)
    terms = np.column_stack([np.ones_like(logit), logit, *_bends(logit, weight / total + asked / asked.sum())])
    pull = np.r_[LEVEL_PULL, SLOPE_PULL, np.full(terms.shape[1] - 2, BEND_PULL)]
    start = np.zeros(terms.shape[1])
    start[1] = 1.0
    share = np.divide(steps.risky, weight, out=np.zeros_like(weight), where=weight > 0)
    size = weight * (sums.effective_size.visits / total)
    found = newton(terms, share, pull, start, size)
    chance = _chance(terms @ found)
    information = (terms * (size * chance * (1.0 - chance))[:, None]).T @ terms + np.diag(pull)
    return Curve(terms, found, np.linalg.inv(information), asked)


def _logit(thresholds: FloatArray, steps: Steps) -> FloatArray:
    """Log odds of the mean risk between one threshold and the next; of the middle where nothing was measured."""
    middle = (thresholds + np.r_[thresholds[:1], thresholds[:-1]]) / 2.0
    mean = np.divide(steps.expected, steps.weight, out=middle, where=steps.weight > 0)
    risk = np.clip(mean, SURELY, 1.0 - SURELY)
    return np.asarray(np.log(risk) - np.log1p(-risk))


def _bends(logit: FloatArray, visits: FloatArray) -> FloatArray:
    """Hats between knots that hold about as many visits; none where the risks are too few for three knots."""
    knots = np.unique(np.interp(np.linspace(*EDGES, KNOTS), np.cumsum(visits) / visits.sum(), logit))
    if len(knots) < 3:
        return np.empty((0, len(logit)))
    return np.array([np.interp(logit, knots, peak) for peak in np.eye(len(knots))])


def _chance(logit: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logit, -30.0, 30.0))))
