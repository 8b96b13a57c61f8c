"""Ways to go on with missing targets: what each makes of a table of visits (arrays only)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safeimpute.evaluation.plain_ways import LAST, plain_values
from safeimpute.evaluation.pooling import pool
from safeimpute.evaluation.quantities import Estimated
from safeimpute.measuring.features import measuring_table
from safeimpute.measuring.logistic import fit_logistic
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.selection.calibrate import Calibrated
from safeimpute.settings import Settings

NOTHING_MISSING = "nothing missing"
COMPLETE, CARRIED, FILLED = "complete cases", "last value carried", "best filled everywhere"
RELEASED, WEIGHTED, DRAWN = "released only", "released, inverse-release weights", "draws, pooled"
WAYS = (COMPLETE, CARRIED, FILLED, RELEASED, WEIGHTED, DRAWN)
MOST_WEIGHT = 20.0  # of one visit: a visit must not stand for more
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Completed:
    """The target of some visits as a way leaves it: one column, or one per draw; NaN where it stays missing."""

    way: str
    values: FloatArray  # visits x columns
    weight: FloatArray  # how much each visit counts

    @property
    def available(self) -> BoolArray:
        """Visits with a value."""
        return np.asarray(np.isfinite(self.values[:, 0]))

    def at(self, rows: BoolArray | IntArray) -> "Completed":
        """The same for some visits."""
        return Completed(self.way, self.values[rows], self.weight[rows])


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; `missing_information` where draws were pooled."""

    estimate: float
    se: float
    lower: float
    upper: float
    missing_information: float | None = None

    @property
    def width(self) -> float:
        """From end to end."""
        return self.upper - self.lower

    def covers(self, truth: float) -> bool:
        """Whether the interval holds a value."""
        return self.lower <= truth <= self.upper


def complete(
    calibrated: Calibrated,
    released: BoolArray,
    drawn: FloatArray,
    settings: Settings,
    rng: np.random.Generator,
) -> list[Completed]:
    """Every way on one fitted table; `released` and `drawn` have one row per candidate."""
    rows = calibrated.candidates
    target = np.where(calibrated.question.candidate, np.nan, calibrated.truth)
    visits, even = calibrated.question.visits.with_target(target), np.ones(len(target))
    let_through = rows[released]
    passed = target.copy()
    passed[let_through] = calibrated.estimates.value[let_through]
    filled = _with(target, rows, calibrated.estimates.value[rows])
    carried = _with(target, rows, plain_values(visits, past_only=settings.past_only)[LAST][rows])
    several = np.repeat(target[:, None], drawn.shape[1], axis=1)
    several[rows] = drawn
    return [
        Completed(COMPLETE, target[:, None], even),
        Completed(CARRIED, carried[:, None], even),
        Completed(FILLED, filled[:, None], even),
        Completed(RELEASED, passed[:, None], even),
        Completed(WEIGHTED, passed[:, None], release_weights(visits, np.isfinite(passed), settings, rng)),
        Completed(DRAWN, several, even),
    ]


def nothing_missing(truth: FloatArray) -> Completed:
    """The table had everything been measured."""
    return Completed(NOTHING_MISSING, truth[:, None], np.ones(len(truth)))


def release_weights(
    visits: VisitArrays, available: BoolArray, settings: Settings, rng: np.random.Generator
) -> FloatArray:
    """One over the chance of having a value, measured or released, by what the table shows; capped.

    Kinds of visits of which nothing is ever released stay unrepresented whatever the weights.
    """
    if available.all() or not available.any():
        return np.ones(len(visits))
    table = measuring_table(visits, past_only=settings.past_only, calendar=settings.uses_calendar)
    label = (~available).astype(np.float64)
    model = fit_logistic(table, label, np.arange(len(visits)), rng)
    return np.minimum(1.0 + np.exp(np.clip(model.logit(table.matrix), -20.0, 20.0)), MOST_WEIGHT)


def interval_of(estimates: list[Estimated], confidence: float = CONFIDENCE) -> Interval:
    """The interval of one analysis, or of the analyses of several draws pooled by Rubin's rules."""
    from scipy.stats import t  # slow to load

    freedom = max(estimates[0].patients - 1.0, 1.0)
    if len(estimates) > 1:
        values, variances = [each.value for each in estimates], [each.variance for each in estimates]
        pooled = pool(values, variances, df=freedom, confidence=confidence)
        return Interval(pooled.estimate, pooled.se, pooled.lower, pooled.upper, pooled.fmi)
    only = estimates[0]
    se = float(np.sqrt(only.variance))
    half = float(t.ppf(0.5 + confidence / 2, freedom)) * se
    return Interval(only.value, se, only.value - half, only.value + half)


def _with(target: FloatArray, rows: IntArray, values: FloatArray) -> FloatArray:
    filled: NDArray[np.float64] = target.copy()
    filled[rows] = values
    return filled
