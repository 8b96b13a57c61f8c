"""The predictive distribution of missing values, from the errors of measured visits imputed as if they were missing.

Errors are taken in standard units (of the logarithm for a skewed lab), weighted to stand for unmeasured visits. Per
draw the patients are weighed anew (Bayesian bootstrap): what a regression finds left in the errors, and their
quantiles by band of spread, are estimated under those weights, so that draws carry the doubt about both.

How errors of one patient's missing values hang together is learnt from values hidden at the same time. The error of a
visit imputed without its own value alone says nothing about this: neighbouring visits then see each other's values, and
their errors are pulled apart.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit, logit, ndtr

from safeimpute.learning.scaling import Scaler
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays, first_visit

RIDGE = 1.0  # pulls what is left in the errors towards nothing, as so many visits would
VISITS_PER_BAND = 150  # of equal weight
MOST_BANDS = 5
MOST_LEVERAGE = 0.5
COVERAGES = (0.5, 0.8, 0.9, 0.95)
MOST_LAGS = 12  # pairs further apart along a patient's hidden visits add little
MEMORIES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])  # tried, times the median gap
MOST_SHARED = 0.98
FEWEST_PAIRS = 30
ALL_HIDDEN = 0.3  # share of patients of whom everything is hidden, as of patients never measured
HALF = 0.5  # of the others' values, each is hidden with this chance
RARE, MOST_MOVED = 1e-4, 2.0  # no chance of a class is nearer to none; log odds that the doubt may move it by
MOST_VISITS = 20_000  # estimated once more to learn three numbers


@dataclass(frozen=True)
class Dependence:
    """Correlation of two errors of a patient on the scale of normal scores: steady + drifting exp(-gap / memory)."""

    steady: float
    drifting: float
    memory_days: float

    def normals(self, patient: IntArray, time: FloatArray, rng: np.random.Generator) -> FloatArray:
        """A standard normal number per visit, correlated within each patient; patients lie in blocks."""
        own = rng.standard_normal(len(patient)) * np.sqrt(1.0 - self.steady - self.drifting)
        if not len(patient):
            return np.asarray(own)
        level = rng.standard_normal(int(patient.max()) + 1)[patient]
        course = self._course(patient, time, rng)
        return np.asarray(own + np.sqrt(self.steady) * level + np.sqrt(self.drifting) * course)

    def _course(self, patient: IntArray, time: FloatArray, rng: np.random.Generator) -> FloatArray:
        """A standard Ornstein-Uhlenbeck path per patient, advanced for all patients together."""
        course = rng.standard_normal(len(patient))
        place = np.arange(len(patient)) - first_visit(patient)
        kept = np.exp(-np.abs(np.diff(time, prepend=time[0])) / self.memory_days)
        order = np.argsort(place, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(place[order])) + 1)[1:]:
            course[rows] = kept[rows] * course[rows - 1] + np.sqrt(1.0 - kept[rows] ** 2) * course[rows]
        return course


INDEPENDENT = Dependence(0.0, 0.0, 1.0)


def hide_together(visits: VisitArrays, rng: np.random.Generator) -> tuple[VisitArrays, BoolArray, FloatArray]:
    """Some patients, several of whose visible targets are hidden at once; which, and all that were visible."""
    visible = ~np.isnan(visits.target_values)
    patients = int(visits.patient.max()) + 1
    several = np.bincount(visits.patient[visible], minlength=patients) >= 2
    size = int(several[visits.patient].sum())
    drawn = several & (rng.random(patients) < MOST_VISITS / max(size, 1))
    some = visits.take(drawn[visits.patient])
    everything = rng.random(int(some.patient.max(initial=-1)) + 1) < ALL_HIDDEN
    there = ~np.isnan(some.target_values)
    hidden = there & (everything[some.patient] | (rng.random(len(some)) < HALF))
    return some.with_target(np.where(hidden, np.nan, some.target_values)), hidden, some.target_values


def fit_dependence(score: FloatArray, patient: IntArray, time: FloatArray) -> Dependence:
    """Fit to normal scores of errors hidden together; visits sorted by patient and time. Too few pairs: independent."""
    product, gap = _pairs(score, patient, time)
    if len(product) < FEWEST_PAIRS:
        return INDEPENDENT
    unit = max(float(np.median(gap)), 1e-9)
    best, least = INDEPENDENT, float(product @ product)
    for memory in MEMORIES * unit:
        design = np.column_stack([np.ones(len(gap)), np.exp(-gap / memory)])
        (steady, drifting), left = nnls(design, product)
        if left**2 < least - 1e-9:
            most = min(1.0, MOST_SHARED / max(steady + drifting, 1e-9))
            best = Dependence(float(steady * most), float(drifting * most), float(memory))
            least = left**2
    return best


def _pairs(score: FloatArray, patient: IntArray, time: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Products of two scores of a patient and the days between them."""
    products, gaps = [np.empty(0)], [np.empty(0)]
    for lag in range(1, min(MOST_LAGS, len(score) - 1) + 1):
        same = patient[lag:] == patient[:-lag]
        products.append((score[lag:] * score[:-lag])[same])
        gaps.append((time[lag:] - time[:-lag])[same])
    return np.concatenate(products), np.concatenate(gaps)


@dataclass(frozen=True)
class Standard:
    """Values and spreads in standard units of the target, and what the target can be."""

    scaler: Scaler
    low: float  # in the target's unit
    high: float

    def of(self, value: FloatArray) -> FloatArray:
        return self.scaler.standard(value, 0)

    def spread(self, value: FloatArray, spread: FloatArray) -> FloatArray:
        """The spread of an imputation in standard units."""
        scale = self.scaler.scale[0]
        if self.scaler.log[0]:
            scale = scale * np.maximum(value, self.scaler.floor[0])
        return np.asarray(spread / scale)

    def back(self, z: FloatArray) -> FloatArray:
        return np.clip(self.scaler.in_unit(z, 0), self.low, self.high)

    @property
    def limits(self) -> tuple[float, float]:
        """What the target can be, in standard units."""
        ends = np.array([self.low, self.high])
        low, high = np.where(np.isfinite(ends), self.of(np.where(np.isfinite(ends), ends, 1.0)), ends)
        return (-np.inf if self.scaler.log[0] and self.low <= 0 else float(low)), float(high)


@dataclass(frozen=True)
class Said:
    """What is said about some visits in standard units; `known` is what the table shows about them."""

    z: FloatArray
    spread: FloatArray
    known: FloatArray  # visits x columns, the first all ones

    def at(self, rows: BoolArray | IntArray) -> "Said":
        return Said(self.z[rows], self.spread[rows], self.known[rows])


@dataclass(frozen=True)
class Errors:
    """Measured visits: what was said, what was measured, and how much each counts."""

    said: Said
    truth: FloatArray  # in standard units
    weight: FloatArray
    patient: IntArray

    def at(self, rows: BoolArray) -> "Errors":
        return Errors(self.said.at(rows), self.truth[rows], self.weight[rows], self.patient[rows])


@dataclass(frozen=True)
class Law:
    """One draw of the predictive distribution's parameters."""

    left: FloatArray  # coefficients of what the errors still hold of `known`
    edges: FloatArray  # of the bands of spread
    ratio: tuple[FloatArray, ...]  # per band, errors in units of their spread, smallest first
    reached: tuple[FloatArray, ...]  # per band, the share of weight up to the middle of each

    def values(
        self, said: Said, normal: FloatArray, limits: tuple[float, float], rng: np.random.Generator
    ) -> FloatArray:
        """A value per visit, in standard units and within limits, from a standard normal number each."""
        band = np.searchsorted(self.edges, said.spread)
        middle = said.z + said.known @ self.left
        chance, drawn = ndtr(normal), np.empty(len(normal))
        for number in range(len(self.ratio)):
            rows = band == number
            drawn[rows] = middle[rows] + said.spread[rows] * self._quantile(number, chance[rows])
            out = np.flatnonzero(rows & ((drawn < limits[0]) | (drawn > limits[1])))
            if len(out):  # drawn again from the part of the distribution that lies within
                ends = [(limit - middle[out]) / said.spread[out] for limit in limits]
                low, high = (np.interp(end, self.ratio[number], self.reached[number]) for end in ends)
                again = self._quantile(number, low + rng.random(len(out)) * (high - low))
                drawn[out] = np.clip(middle[out] + said.spread[out] * again, *limits)
        return drawn

    def _quantile(self, band: int, chance: FloatArray) -> FloatArray:
        return np.interp(chance, self.reached[band], self.ratio[band])


def learn_law(errors: Errors, edges: FloatArray) -> Law:
    """What is left in the errors, and their quantiles, under the errors' weights."""
    said, weight = errors.said, errors.weight
    error = errors.truth - said.z
    weighted = said.known * (weight * (_effective(weight) / weight.sum()))[:, None]
    penalty = RIDGE * np.eye(said.known.shape[1])
    penalty[0, 0] = 0.0
    inverse = np.linalg.inv(weighted.T @ said.known + penalty)
    left = inverse @ (weighted.T @ error)
    # Each error as if its own visit had not been in the regression, or they would be too small.
    leverage = np.minimum(((weighted @ inverse) * said.known).sum(axis=1), MOST_LEVERAGE)
    error = (error - said.known @ left) / (1.0 - leverage)
    band = np.searchsorted(edges, said.spread)
    ratios, reached = [], []
    for number in range(len(edges) + 1):
        rows = band == number
        ratio, share = _quantiles(error[rows], said.spread[rows], weight[rows])
        ratios.append(ratio)
        reached.append(share)
    return Law(left, edges, tuple(ratios), tuple(reached))


def _quantiles(error: FloatArray, spread: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Errors over spread, shifted so that errors average nothing, and the share of weight up to each."""
    ratio = (error - spread * float(weight @ error) / max(float(weight @ spread), 1e-300)) / spread
    order = np.argsort(ratio, kind="stable")
    heavy = weight[order]
    return ratio[order], (np.cumsum(heavy) - heavy / 2) / max(float(heavy.sum()), 1e-300)


def band_edges(errors: Errors) -> FloatArray:
    """Bands of spread of like weight, each with errors enough for quantiles."""
    bands = int(np.clip(_effective(errors.weight) // VISITS_PER_BAND, 1, MOST_BANDS))
    order = np.argsort(errors.said.spread, kind="stable")
    reached = np.cumsum(errors.weight[order]) / errors.weight.sum()
    places = np.searchsorted(reached, np.arange(1, bands) / bands)
    edges = np.unique(errors.said.spread[order][np.minimum(places, len(order) - 1)])
    return np.asarray(edges[edges < errors.said.spread.max()])  # the last band holds the rest, and must not be empty


def _effective(weight: FloatArray) -> float:
    """How many visits of equal weight these are worth."""
    return float(weight.sum() ** 2 / max(np.square(weight).sum(), 1e-300))


@dataclass(frozen=True)
class Classes:
    """What classes are drawn from: chances learnt out of fold, held to what was measured."""

    levels: FloatArray
    above: FloatArray  # of the candidates, by limit between levels: chance of lying above it
    measured: FloatArray  # the same of the measured visits
    happened: FloatArray  # whether each of these lay above

    def drawn(self, weight: FloatArray, uniform: FloatArray) -> FloatArray:
        """A class for every candidate; `weight` of the measured visits, bootstrapped, carries the doubt.

        The odds are moved so that, by one step, as many measured values lie above a limit as did.
        """
        chance = np.clip(self.measured, RARE, 1.0 - RARE)
        moved = weight @ (self.happened - chance) / (weight @ (chance * (1.0 - chance)))
        above = expit(logit(np.clip(self.above, RARE, 1.0 - RARE)) + np.clip(moved, -MOST_MOVED, MOST_MOVED))
        above = np.sort(above, axis=1)[:, ::-1]
        return np.asarray(self.levels[np.sum(uniform[:, None] > 1.0 - above, axis=1)])


@dataclass(frozen=True)
class Predictive:
    """The predictive distribution of every missing value of a table."""

    standard: Standard
    errors: Errors
    said: Said  # of the candidates
    patient: IntArray
    time: FloatArray
    alone: BoolArray  # of the candidates: the patient has no visible target
    dependence: Dependence  # of patients with visible targets
    dependence_alone: Dependence
    classes: "Classes | None" = None  # where the target is one

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """One value for every candidate, in the target's unit."""
        errors = self.errors
        again = rng.exponential(size=int(errors.patient.max()) + 1)[errors.patient]
        bootstrapped = Errors(errors.said, errors.truth, errors.weight * again, errors.patient)
        law = learn_law(bootstrapped, band_edges(errors)) if self.classes is None else None
        normal = np.empty(len(self.patient))
        for rows, dependence in ((self.alone, self.dependence_alone), (~self.alone, self.dependence)):
            normal[rows] = dependence.normals(_blocks(self.patient[rows]), self.time[rows], rng)
        if law is None:
            assert self.classes is not None
            return self.classes.drawn(bootstrapped.weight, ndtr(normal))
        return self.standard.back(law.values(self.said, normal, self.standard.limits, rng))

    def coverage(self, fold: IntArray) -> dict[str, float]:
        """Share of measured values inside central intervals made from other folds' errors, weighted like them."""
        errors, chance = self.errors, np.full(len(self.errors.truth), np.nan)
        for number in np.unique(fold):
            there = fold == number
            law = learn_law(errors.at(~there), band_edges(errors.at(~there)))
            chance[there] = chances(law, errors.at(there))
        inside = {each: np.abs(chance - 0.5) <= each / 2 for each in COVERAGES}
        return {f"{each:g}": float(np.average(hit, weights=errors.weight)) for each, hit in inside.items()}


def chances(law: Law, errors: Errors) -> FloatArray:
    """Where each measured value lies in its predictive distribution, from 0 to 1."""
    said, chance = errors.said, np.empty(len(errors.truth))
    ratio = (errors.truth - said.z - said.known @ law.left) / said.spread
    band = np.searchsorted(law.edges, said.spread)
    for number in range(len(law.ratio)):
        rows = band == number
        chance[rows] = np.interp(ratio[rows], law.ratio[number], law.reached[number])
    return chance


def _blocks(patient: IntArray) -> IntArray:
    """Patients numbered anew without gaps."""
    return np.cumsum(np.r_[0, patient[1:] != patient[:-1]]) if len(patient) else patient
