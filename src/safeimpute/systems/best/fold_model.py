"""One fold's model: source of evidence, values and risk, all learnt from the patients of the other folds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.runtime.state import Arrays, Plain, State, from_state, state_of
from safeimpute.settings import BestSettings
from safeimpute.systems.best.blend import Blended, Predictions, blend, convex_weights
from safeimpute.systems.best.boosted import BINS, BoostedTarget, fit_boosted
from safeimpute.systems.best.evidence import Evidence, Source, learn_source, read_evidence
from safeimpute.systems.best.risk import RiskModel, fit_risk, risk_features
from safeimpute.systems.protocol import Estimates
from safeimpute.systems.trees import BLOCK_ROWS, BaggedTrees, bin_rows
from safeimpute.tolerance import Tolerance

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

    def estimate(
        self, visits: VisitArrays, device: str = "cpu", wanted: BoolArray | None = None
    ) -> Estimates:
        """Value and risk of the wanted visits, or all, of a table whose target column holds visible targets only."""
        wanted = np.ones(len(visits), dtype=bool) if wanted is None else wanted
        evidence = read_evidence(visits, self.source, wanted, self.block_visits, device)
        blended = self.blended(evidence)
        value = self.source.units.labs.in_unit(blended.z, self.source.target)
        risk, spread = self._judge(evidence, blended, value)
        signals = {f"{name} apart": each for name, each in blended.apart.items()}
        return Estimates(value, risk, spread, evidence.nothing_known, self.risk.tolerance, signals)

    def blended(self, evidence: Evidence) -> Blended:
        """The parts' predictions at the visits read, combined."""
        trees, beyond = self.trees.predict(evidence), self.beyond.predict(evidence)
        return blend(_parts(evidence, trees, beyond), self.weights)

    def _judge(
        self, evidence: Evidence, blended: Blended, value: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Block by block: the features of all visits never exist at once."""
        risk, spread = np.empty(len(evidence)), np.empty(len(evidence))
        for start in range(0, len(evidence), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            features = risk_features(
                _part_of(evidence, part), _blended_part(blended, part), calendar=self.calendar
            )
            risk[part], spread[part] = self.risk.judge(features, value[part])
        return risk, spread

    def state(self) -> State:
        """Everything `estimate` needs, without code: arrays for safetensors, the rest for JSON."""
        arrays, source = state_of(self.source, "source.")
        plain: Plain = {
            "source": source,
            "trees": self.trees.trees.texts(),
            "beyond": self.beyond.trees.texts(),
            "weights": dict(self.weights),
            "probability": self.risk.probability.texts(),
            "ratio": self.risk.ratio.texts(),
            "tolerance": asdict(self.risk.tolerance),
            "calendar": self.calendar,
            "block_visits": self.block_visits,
        }
        return arrays, plain

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "FoldModel":
        """The model that `state` took apart."""
        trees = {
            name: BaggedTrees.from_texts(plain[name]) for name in ("trees", "beyond", "probability", "ratio")
        }
        return cls(
            source=from_state(Source, arrays, plain["source"], "source."),
            trees=BoostedTarget(trees["trees"], beyond_course=False),
            beyond=BoostedTarget(trees["beyond"], beyond_course=True),
            weights=plain["weights"],
            risk=RiskModel(trees["probability"], trees["ratio"], Tolerance(**plain["tolerance"])),
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
    visible = _some(~np.isnan(visits.target_values), settings.learn_visits, rng)
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
    truth, seed = visits.target_values[visible], int(seeds[2])
    risk = fit_risk(features, value, truth, fold, lesson.tolerance, seed, pace)
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
