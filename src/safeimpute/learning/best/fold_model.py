"""One fold's model: source of evidence, values and risk, all learnt from the patients of the other folds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from safeimpute.learning.best.blend import BINS, Blended, BoostedTarget, Predictions, blend, convex_weights, fit_boosted
from safeimpute.learning.best.evidence import Evidence, EvidenceTable, Source, learn_source, read_evidence
from safeimpute.learning.protocol import Estimates
from safeimpute.learning.trees import BLOCK_ROWS, COARSE, BaggedTrees, TreeSettings, bin_rows, fit_bagged_trees
from safeimpute.machine.state import Arrays, Plain, State, from_state, state_of
from safeimpute.settings import BestSettings
from safeimpute.tolerance import Tolerance, chances_of_bands
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays

LARGEST_RATIO = 5.0  # an error five times the tolerance says no more about ranking than a larger one
SMALLEST_RATIO = 1e-3
CAUTIOUS = TreeSettings(leaves=7, feature_share=0.3)
PROBABILITY = replace(CAUTIOUS, objective="binary", metric="binary_logloss")
GRADED = replace(CAUTIOUS, objective="cross_entropy", metric="cross_entropy")
SIZE = replace(CAUTIOUS, objective="regression", metric="l2")
COMPARED = ("course", "target previous", "target next", "own mean", "analogue mean")


@dataclass(frozen=True)
class RiskModel:
    """Ranks imputations by their chance of being unacceptable under one tolerance."""

    probability: BaggedTrees | None  # None where limits alone count
    ratio: BaggedTrees  # expected |error| in units of `scale`
    tolerance: Tolerance
    scale: Tolerance  # what is allowed; where limits alone count, a typical error
    deviation_share: float  # what a typical error is of the joint course's deviation
    course_weight: float  # of what that deviation lets expect, beside the trees
    largest: float  # no error counts as a larger multiple of `scale`
    above: tuple[BaggedTrees, ...] = ()  # per limit, that the truth lies at or above it

    def judge(self, features: EvidenceTable, value: FloatArray, deviation: FloatArray) -> "Judged":
        """Per visit the risk, in (0, 1), larger is riskier, and the expected size of the error in the target's unit.

        The size is a weighted mean of what the trees say and what the joint course's `deviation` (in the target's
        unit) lets expect. The risk is the mean of two estimates of the chance that an error reaches the tolerance:
        were errors Laplace with mean `ratio` times what is allowed, exp(-1 / ratio) of them would. The same two say
        how likely the truth lies above each limit; where limits alone count, the risk is the chance of another band.
        """
        allowed = np.maximum(self.scale.allowed(value), 1e-12)
        by_course = self.deviation_share * np.minimum(deviation / allowed, self.largest)
        by_trees = np.maximum(self.ratio.predict(features), SMALLEST_RATIO)
        ratio = by_trees + self.course_weight * (by_course - by_trees)
        spread = ratio * allowed
        above = self._above(features, value, spread)
        risk = np.zeros(len(value))
        if self.probability is not None:
            reached = ratio * -np.expm1(-1.0 / ratio) if self.tolerance.by_size else np.exp(-1.0 / ratio)
            risk = (self.probability.predict(features) + reached) / 2
        if self.above:
            wrong = chances_of_bands(above) @ self.tolerance.costs
            risk = np.maximum(risk, wrong[np.arange(len(value)), self.tolerance.band(value)])
        return Judged(risk, spread, above)

    def _above(self, features: EvidenceTable, value: FloatArray, spread: FloatArray) -> FloatArray:
        """Per visit and limit the chance that the truth lies at or above it; none rises from a limit to the next."""
        above = np.empty((len(value), len(self.above)))
        for place, (trees, limit) in enumerate(zip(self.above, self.tolerance.limits, strict=True)):
            beyond = np.exp(-np.abs(value - limit) / np.maximum(spread, 1e-12)) / 2
            above[:, place] = (trees.predict(features) + np.where(value >= limit, 1.0 - beyond, beyond)) / 2
        return np.asarray(np.sort(above, axis=1)[:, ::-1])


class Judged(NamedTuple):
    """What is known of some imputed values."""

    risk: FloatArray
    spread: FloatArray
    above: FloatArray  # visits x limits


def fit_risk(
    features: EvidenceTable,
    value: FloatArray,
    deviation: FloatArray,
    truth: FloatArray,
    fold: IntArray,
    tolerance: Tolerance,
    seed: int,
    pace: float = 1.0,
    smallest_bin: int = COARSE,
) -> RiskModel:
    """Learn which errors reach the tolerance, from visits whose `value` was imputed without their patient."""
    risky = tolerance.loss(value, truth).astype(np.float64)
    scale = tolerance.of_error or Tolerance(float(np.median(np.abs(value - truth))) or 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(value - truth) / scale.allowed(truth)
    counted = ratio[np.isfinite(ratio)]  # where no error is allowed, any is the largest
    largest = max(LARGEST_RATIO, float(np.quantile(counted, 0.9)) if len(counted) else 0.0)
    ratio = np.where(np.isfinite(ratio), np.minimum(ratio, largest), largest)
    by_course = np.minimum(deviation / np.maximum(scale.allowed(value), 1e-12), largest)
    share = float(ratio.mean() / max(by_course.mean(), SMALLEST_RATIO))
    binned = bin_rows(features, np.arange(len(features)), smallest_bin)

    def chance_of(event: FloatArray) -> BaggedTrees:
        trees = GRADED if tolerance.by_size else PROBABILITY
        return fit_bagged_trees(binned, features, event, fold, trees.at_pace(pace), seed)[0]

    probability = chance_of(risky) if tolerance.of_error else None
    size, by_trees = fit_bagged_trees(binned, features, ratio, fold, SIZE.at_pace(pace), seed)
    weight = _weight(share * by_course, by_trees, ratio)
    band = tolerance.band(truth)
    above = tuple(chance_of((band > place).astype(np.float64)) for place in range(len(tolerance.limits)))
    return RiskModel(probability, size, tolerance, scale, share, weight, largest, above)


def _weight(one: FloatArray, other: FloatArray, truth: FloatArray) -> float:
    """Of `one` beside `other`, from 0 to 1, with the least squared error."""
    apart = one - other
    found = float(apart @ (truth - other)) / max(float(apart @ apart), SMALLEST_RATIO)
    return min(max(found, 0.0), 1.0)


def deviation_in_unit(source: Source, evidence: Evidence, z: FloatArray) -> FloatArray:
    """The joint course's standard deviation around imputed values (in standard units), in the target's unit."""
    labs, deviation = source.units.labs, evidence.joint[:, 1]
    low, high = (labs.in_unit(z + way * deviation, source.target) for way in (-1.0, 1.0))
    return np.asarray((high - low) / 2)


def risk_features(evidence: Evidence, blended: Blended, *, calendar: bool) -> EvidenceTable:
    """Evidence, the imputed value against each kind of it, how far the parts stand apart, the joint
    course's standard deviation, and absolute time.
    """
    compared = [blended.z - evidence[name] for name in COMPARED if name in evidence.names]
    apart = [blended.apart[name] for name in sorted(blended.apart)]
    columns = [blended.z, *compared, *apart, *(np.abs(each) for each in (*compared, *apart))]
    columns += [evidence.joint[:, 1], *([evidence.time] if calendar else [])]
    wide = evidence.matrix.shape[1]
    table = np.empty((len(evidence), wide + len(columns)), np.float32)
    table[:, :wide] = evidence.matrix
    for place, column in enumerate(columns, start=wide):
        table[:, place] = column
    return table


TREES, BEYOND, JOINT, ALIKE = "trees", "trees beyond course", "joint course", "joint course, all alike"
PARTS = (TREES, BEYOND, JOINT, ALIKE)


@dataclass(frozen=True)
class Lesson:
    """What a fold's model is asked to learn."""

    settings: BestSettings
    tolerance: Tolerance
    past_only: bool
    calendar: bool  # the risk may depend on absolute time


@dataclass(frozen=True)
class FoldModel:
    """Frozen: it estimates any visit from the other visible targets of its patient."""

    source: Source
    trees: BoostedTarget
    beyond: BoostedTarget
    weights: Mapping[str, float]
    risk: RiskModel
    calendar: bool
    block_visits: int

    def estimate(self, visits: VisitArrays, device: str = "cpu", wanted: BoolArray | None = None) -> Estimates:
        """Value and risk of the wanted visits, or all, of a table whose target column holds visible targets only."""
        wanted = np.ones(len(visits), dtype=bool) if wanted is None else wanted
        evidence = read_evidence(visits, self.source, wanted, self.block_visits, device)
        blended = self.blended(evidence)
        value = self.source.units.labs.in_unit(blended.z, self.source.target)
        judged = self._judge(evidence, blended, value)
        signals = {f"{name} apart": each for name, each in blended.apart.items()}
        nothing, tolerance = evidence.nothing_known, self.risk.tolerance
        if tolerance.levels:  # the class that costs least, else the likeliest; the trees' own value lies between them
            wrong = chances_of_bands(judged.above) @ tolerance.costs
            value = np.array(tolerance.levels)[wrong.argmin(axis=1)]
            judged = judged._replace(risk=wrong.min(axis=1))
        return Estimates(value, judged.risk, judged.spread, nothing, tolerance, signals, judged.above)

    def blended(self, evidence: Evidence) -> Blended:
        """The parts' predictions at the visits read, combined."""
        trees, beyond = self.trees.predict(evidence), self.beyond.predict(evidence)
        return blend(_parts(evidence, trees, beyond), self.weights)

    def _judge(self, evidence: Evidence, blended: Blended, value: FloatArray) -> Judged:
        """Block by block: the features of all visits never exist at once."""
        limits = len(self.risk.above)
        found = Judged(np.empty(len(evidence)), np.empty(len(evidence)), np.empty((len(evidence), limits)))
        deviation = deviation_in_unit(self.source, evidence, blended.z)
        for start in range(0, len(evidence), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            features = risk_features(_part_of(evidence, part), _blended_part(blended, part), calendar=self.calendar)
            of_part = self.risk.judge(features, value[part], deviation[part])
            for whole, judged in zip(found, of_part, strict=True):
                whole[part] = judged
        return found

    def state(self) -> State:
        """Everything `estimate` needs, without code: arrays for safetensors, the rest for JSON."""
        arrays, source = state_of(self.source, "source.")
        plain: Plain = {
            "source": source,
            "trees": self.trees.trees.texts(),
            "beyond": self.beyond.trees.texts(),
            "weights": dict(self.weights),
            "probability": [] if self.risk.probability is None else self.risk.probability.texts(),
            "ratio": self.risk.ratio.texts(),
            "deviation_share": self.risk.deviation_share,
            "course_weight": self.risk.course_weight,
            "largest": self.risk.largest,
            "tolerance": self.risk.tolerance.state(),
            "calendar": self.calendar,
            "block_visits": self.block_visits,
        }
        if self.risk.above:
            plain |= {"above": [each.texts() for each in self.risk.above], "scale": self.risk.scale.state()}
        return arrays, plain

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "FoldModel":
        """The model that `state` took apart."""
        trees = {name: BaggedTrees.from_texts(plain[name]) for name in ("trees", "beyond", "ratio")}
        tolerance = Tolerance.from_state(plain["tolerance"])
        risk = RiskModel(
            BaggedTrees.from_texts(plain["probability"]) if plain["probability"] else None,
            trees["ratio"],
            tolerance,
            Tolerance.from_state(plain["scale"] if "scale" in plain else plain["tolerance"]),
            plain["deviation_share"],
            plain["course_weight"],
            plain["largest"],
            tuple(BaggedTrees.from_texts(each) for each in plain.get("above", ())),
        )
        return cls(
            source=from_state(Source, arrays, plain["source"], "source."),
            trees=BoostedTarget(trees["trees"], beyond_course=False),
            beyond=BoostedTarget(trees["beyond"], beyond_course=True),
            weights=plain["weights"],
            risk=risk,
            calendar=plain["calendar"],
            block_visits=plain["block_visits"],
        )


def fit_fold_model(
    visits: VisitArrays, fold: IntArray, lesson: Lesson, rng: np.random.Generator, device: str = "cpu"
) -> FoldModel:
    """Learn from visits of the other folds' patients; `fold` tells these folds apart.

    Within them the folds serve once more: each member of a bag leaves one out, is stopped by it, and imputes it out
    of sample; from those errors the blend is weighed and the risk learnt.
    """
    settings = lesson.settings
    source = learn_source(visits, settings, rng, past_only=lesson.past_only)
    visible = _some(~np.isnan(visits.target_values) | visits.target_bounded, settings.learn_visits, rng)
    evidence = read_evidence(visits, source, visible, settings.block_visits, device)
    fold, seeds = fold[visible], rng.integers(2**31 - 1000, size=3)
    binned = bin_rows(evidence.matrix, np.arange(len(evidence)), most_bins=BINS)
    pace = settings.pace
    trees, trees_out = fit_boosted(evidence, binned, fold, int(seeds[0]), beyond_course=False, pace=pace)
    beyond, beyond_out = fit_boosted(evidence, binned, fold, int(seeds[1]), beyond_course=True, pace=pace)
    del binned
    out_of_sample = _parts(evidence, trees_out, beyond_out)
    weights = convex_weights(out_of_sample, evidence.target, source, rng)
    blended = blend(out_of_sample, weights)
    value = source.units.labs.in_unit(blended.z, source.target)
    features = risk_features(evidence, blended, calendar=lesson.calendar)
    truth = lesson.tolerance.farthest_truth(value, visits.target_values[visible], visits.target_limits[visible])
    deviation = deviation_in_unit(source, evidence, blended.z)
    risk = fit_risk(features, value, deviation, truth, fold, lesson.tolerance, int(seeds[2]), pace)
    return FoldModel(source, trees, beyond, weights, risk, lesson.calendar, settings.block_visits)


def _parts(evidence: Evidence, trees: FloatArray, beyond: FloatArray) -> Predictions:
    return dict(zip(PARTS, (trees, beyond, evidence.joint[:, 0], evidence.joint[:, 2]), strict=True))


def _some(visible: BoolArray, most: int, rng: np.random.Generator) -> BoolArray:
    """At most so many of the visits marked, at random."""
    if visible.sum() <= most:
        return visible
    chosen = np.zeros_like(visible)
    chosen[rng.choice(np.flatnonzero(visible), most, replace=False)] = True
    return chosen


def _part_of(evidence: Evidence, part: slice) -> Evidence:
    return Evidence(
        evidence.matrix[part],
        evidence.names,
        evidence.target[part],
        evidence.course[part],
        evidence.joint[part],
        evidence.time[part],
        evidence.nothing_known[part],
    )


def _blended_part(blended: Blended, part: slice) -> Blended:
    return Blended(blended.z[part], {name: each[part] for name, each in blended.apart.items()})
