"""Ways to complete visits with missing targets, and what people compute from completed ones, judged over patients."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.draws.pooling import pool
from safeimpute.errors import VisitsError
from safeimpute.evaluation.metrics import auc
from safeimpute.selection.calibrated import Calibrated
from safeimpute.selection.logistic import newton
from safeimpute.selection.measuring.features import measuring_table
from safeimpute.selection.measuring.model import fit_logistic
from safeimpute.settings import Settings
from safeimpute.visits.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    VisitArrays,
    first_row_to_know,
    first_visit,
    last_visit,
    nearest_own_visits,
    take,
)
from safeimpute.visits.checks import numbers, require_columns

NOTHING_MISSING = "nothing missing"
RELEASED, WEIGHTED, DRAWN = "released only", "released, inverse-release weights", "draws, pooled"
MOST_WEIGHT = 20.0  # of one visit: a visit must not stand for more
CONFIDENCE = 0.95
MEAN, LAST, OWN_MEAN = "overall mean", "last value carried forward", "patient's own other values"
COMPLETE, CARRIED, FILLED = "complete cases", "last value carried", "best filled everywhere"
WAYS = (COMPLETE, CARRIED, FILLED, RELEASED, WEIGHTED, DRAWN)
HALF = 1.96
RIDGE = 1.0
FOLDS = 5
RESAMPLED = 200  # times, for standard errors


@dataclass(frozen=True)
class Completed:
    """The target of some visits as a way leaves it: one column, or one per draw; NaN where it stays missing."""

    way: str
    values: FloatArray  # visits x columns
    weight: FloatArray  # how much each visit counts

    @property
    def available(self) -> BoolArray:
        return np.asarray(np.isfinite(self.values[:, 0]))

    def at(self, rows: BoolArray | IntArray) -> "Completed":
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
        return self.upper - self.lower

    def covers(self, truth: float) -> bool:
        return self.lower <= truth <= self.upper


def complete(
    calibrated: Calibrated, released: BoolArray, drawn: FloatArray, settings: Settings, rng: np.random.Generator
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


@dataclass(frozen=True)
class Estimated:
    """An estimate, its variance over patients, and how many patients it rests on."""

    value: float
    variance: float
    patients: int


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


def plain_values(visits: VisitArrays, *, past_only: bool) -> dict[str, FloatArray]:
    """Per way a value for every visit; the target column of `visits` holds visible targets only.

    A patient without another visible value gets the overall mean. With `past_only`, a patient's values count from
    the visit on at which they were known.
    """
    target = visits.target_values
    visible = ~np.isnan(target)
    known = first_row_to_know(visits)[:, visits.target] if past_only else None
    mean = _mean_without_own(target)
    last = take(target, nearest_own_visits(visits.patient, visible, 1, 0, known))[:, 0]
    own = _other_values(visits) if known is None else _values_known_by_then(visits, known)
    return {MEAN: mean, LAST: np.where(np.isnan(last), mean, last), OWN_MEAN: np.where(np.isnan(own), mean, own)}


def _mean_without_own(target: FloatArray) -> FloatArray:
    """The mean of all other visible targets."""
    visible = ~np.isnan(target)
    value = np.where(visible, target, 0.0)
    return _ratio(value.sum() - value, visible.sum() - visible)


def _other_values(visits: VisitArrays) -> FloatArray:
    """The mean of the patient's visible targets at other visits; NaN where there is none."""
    patient, visible = visits.patient, ~np.isnan(visits.target_values)
    value = np.where(visible, visits.target_values, 0.0)
    total, count = np.bincount(patient, value)[patient], np.bincount(patient, visible)[patient]
    return _ratio(np.asarray(total - value, dtype=np.float64), count - visible)


def _values_known_by_then(visits: VisitArrays, known_from: IntArray) -> FloatArray:
    """The mean of the patient's visible targets that were known by each visit; NaN where none was."""
    target = visits.target_values
    ever = ~np.isnan(target) & (known_from <= last_visit(visits.patient))
    total, count = np.zeros(len(visits)), np.zeros(len(visits))
    np.add.at(total, known_from[ever], target[ever])
    np.add.at(count, known_from[ever], 1.0)
    return _ratio(_running(total, visits.patient), _running(count, visits.patient))


def _running(arrived: FloatArray, patient: IntArray) -> FloatArray:
    """Running sums that start anew with every patient."""
    total, first = np.cumsum(arrived), first_visit(patient)
    return np.asarray(total - (total[first] - arrived[first]), dtype=np.float64)


def _ratio(total: FloatArray, count: FloatArray | IntArray) -> FloatArray:
    found = np.full(len(total), np.nan)
    np.divide(total, count, out=found, where=count > 0.5)
    return found


def mean_of(values: FloatArray, patient: IntArray, weight: FloatArray | None = None) -> Estimated:
    """Mean over visits; its variance is that of a ratio of patients' totals."""
    weight = np.ones(len(values)) if weight is None else weight
    total = weight.sum()
    mean = float(weight @ values / total)
    return Estimated(mean, _between_patients(weight * (values - mean) / total, patient), _patients(patient))


def share_above(values: FloatArray, limit: float, patient: IntArray, weight: FloatArray | None = None) -> Estimated:
    return mean_of((values >= limit).astype(np.float64), patient, weight)


def quantile_of(values: FloatArray, chance: float, patient: IntArray, weight: FloatArray | None = None) -> Estimated:
    """A quantile; its standard error by Woodruff's way, from the share of visits below it."""
    weight = np.ones(len(values)) if weight is None else weight
    order = np.argsort(values, kind="stable")
    sorted_, reached = values[order], (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    middle = float(np.interp(chance, reached, sorted_))
    spread = HALF * np.sqrt(mean_of((values <= middle).astype(np.float64), patient, weight).variance)
    low, high = np.interp([chance - spread, chance + spread], reached, sorted_)
    return Estimated(middle, float(((high - low) / (2 * HALF)) ** 2), _patients(patient))


def slope_of(
    values: FloatArray, regressor: FloatArray, patient: IntArray, weight: FloatArray | None = None
) -> Estimated:
    """Coefficient of a regressor in a linear regression of the values on it, with a sandwich over patients."""
    weight = np.ones(len(values)) if weight is None else weight
    design = np.column_stack([np.ones(len(values)), regressor])
    bread = np.linalg.pinv(design.T @ (weight[:, None] * design))
    coefficients = bread @ (design.T @ (weight * values))
    pull = (weight * (values - design @ coefficients))[:, None] * design @ bread
    return Estimated(
        float(coefficients[1]), _between_patients(np.ascontiguousarray(pull[:, 1]), patient), _patients(patient)
    )


def _patients(patient: IntArray) -> int:
    return len(np.unique(patient))


def _between_patients(pull: FloatArray, patient: IntArray) -> float:
    """Variance of a sum of contributions, those of one patient taken together."""
    _, number = np.unique(patient, return_inverse=True)
    totals = np.bincount(number, pull)
    patients = len(totals)
    if patients < 2:
        return float("inf")
    return float(np.sum(np.square(totals)) * patients / (patients - 1))


def regressor_of(visits: VisitArrays, name: str, target: str) -> tuple[str, FloatArray]:
    """A lab or attribute by name, or the first attribute (lab, time) there is; a category's first level."""
    others = {visits.lab_names[lab]: visits.labs[:, lab] for lab in visits.other_labs}
    attributes = dict(zip(visits.attribute_names, visits.attributes.T, strict=True))
    columns = {**attributes, **others, "time": visits.time}
    if not name:
        first = next(key for key, column in columns.items() if np.nanstd(column) > 0)
        return first, columns[first]
    found = [key for key in columns if key == name or key.split("=", 1)[0] == name]
    if not found:
        raise VisitsError(
            f"--covariate {name!r} is no lab or attribute beside the target {target!r}. There are: "
            f"{', '.join(columns)}."
        )
    return found[0], columns[found[0]]


def outcome_of(frame: pl.DataFrame, name: str, row_visit: IntArray, visits: int) -> FloatArray:
    """An outcome of 0 or 1 per visit, NaN where unknown; of merged rows the largest counts."""
    require_columns(frame, [name], "named as --outcome")
    column = frame[name]
    values = column.cast(pl.Float64).to_numpy() if column.dtype == pl.Boolean else numbers(column, "outcome")
    odd = int(np.sum(~np.isin(values[~np.isnan(values)], (0.0, 1.0))))
    if odd:
        raise VisitsError(f"column {name!r} (outcome) holds {odd:,} values other than 0 and 1. Recode it.")
    outcome = np.full(visits, -np.inf)
    there = ~np.isnan(values)
    np.maximum.at(outcome, row_visit[there], values[there])
    return np.where(np.isneginf(outcome), np.nan, outcome)


@dataclass(frozen=True)
class Performance:
    """Discrimination and calibration of predictions, each with a standard error over patients."""

    auc: tuple[float, float]
    slope: tuple[float, float]  # of the outcome's log odds on the predicted ones; 1 is right
    brier: tuple[float, float]


def predict_across(
    design: FloatArray, outcome: BoolArray, patient: IntArray, weight: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """The chance of the outcome at every row, by a model learnt from other patients."""
    fold = (rng.permutation(int(patient.max()) + 1) % FOLDS)[patient]
    chance = np.full(len(outcome), np.nan)
    for number in np.unique(fold):
        learn = fold != number
        centre, scale = design[learn].mean(axis=0), design[learn].std(axis=0)
        z = (design - centre) / np.where(scale > 0, scale, 1.0)
        z = np.column_stack([np.ones(len(z)), np.clip(z, -5.0, 5.0)])
        coefficients = fit_logit(z[learn], outcome[learn].astype(np.float64), weight[learn])
        chance[~learn] = 1.0 / (1.0 + np.exp(-z[~learn] @ coefficients))
    return chance


def fit_logit(design: FloatArray, outcome: FloatArray, weight: FloatArray, ridge: float = RIDGE) -> FloatArray:
    """Coefficients of a logistic regression; the first column, the constant, is not shrunk."""
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-6
    return newton(design, outcome, penalty, weight=weight)


def judge(chance: FloatArray, outcome: BoolArray, patient: IntArray, rng: np.random.Generator) -> Performance | None:
    """How well chances tell; None where only one outcome occurs."""
    if outcome.all() or not outcome.any():
        return None
    whole = np.array(_figures(chance, outcome))
    order = np.argsort(patient, kind="stable")
    _, starts = np.unique(patient[order], return_index=True)
    rows = np.split(order, starts[1:])
    again = []
    for _ in range(RESAMPLED):
        there = np.concatenate([rows[k] for k in rng.integers(len(rows), size=len(rows))])
        if outcome[there].any() and not outcome[there].all():
            again.append(_figures(chance[there], outcome[there]))
    se = np.std(np.array(again), axis=0, ddof=1) if len(again) > 1 else np.full(3, np.nan)
    pairs = [(float(a), float(b)) for a, b in zip(whole, se, strict=True)]
    return Performance(*pairs)


def _figures(chance: FloatArray, outcome: BoolArray) -> tuple[float, float, float]:
    logit = np.log(np.clip(chance, 1e-6, 1 - 1e-6) / np.clip(1 - chance, 1e-6, 1 - 1e-6))
    design = np.column_stack([np.ones(len(logit)), logit])
    slope = fit_logit(design, outcome.astype(np.float64), np.ones(len(logit)), ridge=1e-6)[1]
    return auc(chance, outcome) or 0.5, float(slope), float(np.mean((chance - outcome) ** 2))
