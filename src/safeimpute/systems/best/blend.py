"""The best imputer: kriged course, boosted trees and attention over one table of evidence, blended.

Each part learns in folds of patients, so that its errors at training visits are out of sample; the convex
weights minimise the absolute error of the blend at training (out of fold) and validation visits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

import numpy as np

from safeimpute.records.arrays import FloatArray, IntArray, VisitArrays
from safeimpute.splits.roles import Task
from safeimpute.systems.best.attention import AttentionSettings, AttentionTarget, fit_attention
from safeimpute.systems.best.boosted import BoostedTarget, fit_boosted
from safeimpute.systems.best.evidence import (
    BLOCK_VISITS,
    Evidence,
    EvidenceSettings,
    EvidenceSource,
    fit_evidence,
    read_evidence,
)
from safeimpute.systems.protocol import Imputation
from safeimpute.systems.state import Arrays, Plain, State, from_state, state_of
from safeimpute.systems.trees import bin_rows, patient_folds

GRID = 20  # weights are multiples of 1 / GRID
ROWS_TO_WEIGH = 20_000


class Part(Protocol):
    """One way to impute from evidence."""

    def predict(self, evidence: Evidence) -> FloatArray:
        """The target at every visit, in standard units."""
        ...

    def state(self) -> State:
        """Arrays and plain settings to store."""
        ...


class Course:
    """The kriged course, already part of the evidence."""

    def predict(self, evidence: Evidence) -> FloatArray:
        return evidence.kriged.mean

    def state(self) -> State:
        return {}, {}

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "Course":  # noqa: ARG003
        return cls()


KINDS: dict[str, type[Course | BoostedTarget | AttentionTarget]] = {
    "course": Course,
    "trees": BoostedTarget,
    "trees beyond course": BoostedTarget,
    "attention": AttentionTarget,
}


@dataclass(frozen=True)
class BlendSettings:
    """What the blend is made of."""

    evidence: EvidenceSettings = field(default_factory=EvidenceSettings)
    folds: int = 5
    attention: AttentionSettings | None = field(default_factory=AttentionSettings)
    block_visits: int = BLOCK_VISITS  # evidence read at once: bounds memory, changes no result


@dataclass(frozen=True)
class FittedBlend:
    """Frozen parts, their weights, and what reading evidence needs."""

    source: EvidenceSource
    target: int
    parts: Mapping[str, Part]
    weights: Mapping[str, float]

    def read(self, visits: VisitArrays, device: str = "cpu") -> Evidence:
        return read_evidence(visits, self.source, device)

    def impute(self, task: Task) -> Imputation:
        return self.impute_from(self.read(task.visits))

    def impute_from(self, evidence: Evidence) -> Imputation:
        """Impute from evidence already read."""
        return self.combine({name: part.predict(evidence) for name, part in self.parts.items()})

    def combine(self, predictions: Mapping[str, FloatArray]) -> Imputation:
        """The blend of the parts' predictions (standard units), and how far each stands from it."""
        z = _blend(predictions, self.weights)
        signals = {"z": z} | {f"{name} apart": each - z for name, each in predictions.items()}
        return Imputation(self.source.units.labs.in_unit(z, self.target), signals)

    def state(self) -> State:
        """Everything `impute` needs, without code: arrays for safetensors, the rest for JSON."""
        arrays, source = state_of(self.source, "source.")
        plain: Plain = {"source": source, "target": self.target, "weights": dict(self.weights), "parts": {}}
        for name, part in self.parts.items():
            tensors, plain["parts"][name] = part.state()
            arrays |= {f"{name}.{key}": tensor for key, tensor in tensors.items()}
        return arrays, plain

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "FittedBlend":
        source = from_state(EvidenceSource, arrays, plain["source"], "source.")
        parts: dict[str, Part] = {}
        for name, settings in plain["parts"].items():
            tensors = {
                key.removeprefix(f"{name}."): each
                for key, each in arrays.items()
                if key.startswith(f"{name}.")
            }
            parts[name] = KINDS[name].from_state(tensors, settings)
        return cls(source, plain["target"], parts, plain["weights"])


@dataclass(frozen=True)
class BlendFit:
    """A fitted blend with what was computed on the way: honest errors for a risk, evidence for reuse."""

    fitted: FittedBlend
    evidence: Evidence
    imputation: Imputation  # of the fitted table, as `fitted.impute` gives it
    out_of_sample: Imputation  # at training visits by the parts that never saw the patient


class BlendImputer:
    """Learns the parts and their weights."""

    def __init__(self, settings: BlendSettings | None = None) -> None:
        self.settings = settings or BlendSettings()

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedBlend:
        return self.fit_whole(task, rng, device).fitted

    def fit_whole(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> BlendFit:
        """Fit, keeping the evidence and the out-of-sample imputations of the fitted table."""
        source = fit_evidence(task, self.settings.evidence, rng)
        evidence = read_evidence(task.visits, source, device, self.settings.block_visits)
        fold = patient_folds(task.visits.patient, self.settings.folds, rng)
        parts, honest = _fit_parts(evidence, fold, self.settings, rng, device)
        everywhere = {name: part.predict(evidence) for name, part in parts.items()}
        # Training visits show the parts that never saw the patient; all other visits show the whole ensemble.
        honest = {name: np.where(task.training, honest[name], everywhere[name]) for name in parts}
        weights = _convex_weights(honest, task, source, rng)
        fitted = FittedBlend(source, task.visits.target, parts, weights)
        return BlendFit(fitted, evidence, fitted.combine(everywhere), fitted.combine(honest))


def _fit_parts(
    evidence: Evidence, fold: IntArray, settings: BlendSettings, rng: np.random.Generator, device: str
) -> tuple[dict[str, Part], dict[str, FloatArray]]:
    seeds = rng.integers(2**31 - 1000, size=3)
    binned = bin_rows(evidence.matrix, np.flatnonzero(~np.isnan(evidence.target)))
    direct, direct_out = fit_boosted(evidence, binned, fold, int(seeds[0]), beyond_course=False)
    beyond, beyond_out = fit_boosted(evidence, binned, fold, int(seeds[1]), beyond_course=True)
    del binned
    parts: dict[str, Part] = {"course": Course(), "trees": direct, "trees beyond course": beyond}
    honest = {"course": evidence.kriged.mean, "trees": direct_out, "trees beyond course": beyond_out}
    if settings.attention is not None:
        parts["attention"], honest["attention"] = fit_attention(
            evidence, fold, settings.attention, int(seeds[2]), device
        )
    return parts, honest


def _blend(predictions: Mapping[str, FloatArray], weights: Mapping[str, float]) -> FloatArray:
    parts = np.stack([weights[name] * predictions[name] for name in weights])
    blended: FloatArray = parts.sum(axis=0)
    return blended


def _convex_weights(
    honest: Mapping[str, FloatArray], task: Task, source: EvidenceSource, rng: np.random.Generator
) -> dict[str, float]:
    """The grid point of the simplex with the least mean absolute error, in the target's unit."""
    truth = np.where(task.training, task.visits.target_values, task.validation_target)
    rows = np.flatnonzero(~np.isnan(truth))
    if len(rows) > ROWS_TO_WEIGH:
        rows = rng.choice(rows, ROWS_TO_WEIGH, replace=False)
    table = np.stack([honest[name][rows] for name in honest])
    grid = _simplex(len(honest)) / GRID

    def error(weights: FloatArray) -> float:
        value = source.units.labs.in_unit(weights @ table, task.visits.target)
        return float(np.mean(np.abs(value - truth[rows])))

    best = min(grid, key=error)
    return {name: float(weight) for name, weight in zip(honest, best, strict=True)}


def _simplex(parts: int) -> IntArray:
    """All ways to share GRID among `parts`."""
    bars = np.array(list(combinations(range(GRID + parts - 1), parts - 1)), dtype=np.int64)
    edges = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), GRID + parts - 1)])
    return np.diff(edges, axis=1) - 1
