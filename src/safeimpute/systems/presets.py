"""The two systems over one architecture: each turns a task into a value and a risk for every visit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays, uniform_per_visit
from safeimpute.runtime.memory import within_ceiling
from safeimpute.runtime.progress import Progress, Stopwatch, silent
from safeimpute.splits.roles import HIDDEN_SHARE, Task
from safeimpute.systems.best.blend import BlendImputer, BlendSettings, FittedBlend
from safeimpute.systems.best.evidence import Evidence, EvidenceSettings, fit_evidence, read_evidence
from safeimpute.systems.best.explain import Support, explain
from safeimpute.systems.best.risk import FittedRisk, SpreadModel, fit_risk, prepare_risk, risk_features
from safeimpute.systems.paper.event_graph import GraphSettings, build_graph
from safeimpute.systems.paper.gcn import GcnImputer, GcnSettings
from safeimpute.systems.paper.perturbation import PerturbationSettings
from safeimpute.systems.paper.proxy import BETA, proxy_risk
from safeimpute.systems.protocol import Imputation
from safeimpute.systems.state import Arrays, Plain, State
from safeimpute.tolerance import Tolerance

PresetName = Literal["best", "paper"]
FIT_STREAM = 12  # random numbers of the fit share none with the split
HIDING_STREAM = 2  # of hashed uniforms


@dataclass(frozen=True)
class PaperSettings:
    """The paper's system; each switch of its ablations is a field."""

    graph: GraphSettings = field(default_factory=GraphSettings)
    gcn: GcnSettings = field(default_factory=GcnSettings)
    perturbation: PerturbationSettings = field(default_factory=PerturbationSettings)
    beta: float = BETA


@dataclass(frozen=True)
class BestSettings:
    """Blend of course, boosted trees and attention, ranked by a learned risk."""

    blend: BlendSettings = field(default_factory=BlendSettings)


@dataclass(frozen=True)
class Plan:
    """Which preset to fit, for which tolerance, from which seed, where."""

    preset: PresetName
    tolerance: Tolerance
    seed: int
    device: str = "cpu"
    paper: PaperSettings = field(default_factory=PaperSettings)
    best: BestSettings = field(default_factory=BestSettings)


@dataclass(frozen=True)
class VisitScores:
    """What a preset says about every visit, before anything is calibrated. Depends on no hidden target."""

    value: FloatArray  # imputation, in the target's unit
    risk: FloatArray  # larger is riskier
    explored_risk: FloatArray  # the same, at visits a risk learnt from by models that never saw them
    spread: FloatArray  # relative width of an interval around the value
    no_evidence: BoolArray  # nothing supports the value: outside every promise
    features: NDArray[Any]  # visits x what the risk could see, for the measuring model
    seconds: Mapping[str, float]
    signals: Mapping[str, FloatArray] = field(default_factory=dict)  # what the risk was made of
    rerank: Callable[[Tolerance], FloatArray] | None = (
        None  # the risk at another tolerance, if it depends on it
    )
    arrays: Mapping[str, Any] = field(default_factory=dict)  # a network's weights, to keep with the model
    frozen_at: "Callable[[Tolerance], FittedBest] | None" = None  # what scores visits not in the table
    support: Callable[[IntArray], Support] | None = None  # the visits that carried the values at some rows

    def risk_at(self, tolerance: Tolerance) -> FloatArray:
        return self.risk if self.rerank is None else self.rerank(tolerance)


class BestReading(NamedTuple):
    """What the frozen functions of `best` say about some visits."""

    evidence: Evidence
    imputation: Imputation
    risk: FloatArray
    spread: FloatArray


@dataclass(frozen=True)
class FittedBest:
    """The frozen functions of `best`: a visit's reading depends on its own patient's visits and on these alone."""

    blend: FittedBlend
    risk: FittedRisk
    spread: SpreadModel

    def read(self, visits: VisitArrays, device: str = "cpu") -> BestReading:
        """Impute and judge every visit of a table whose target column holds visible targets only."""
        evidence = self.blend.read(visits, device)
        imputation = self.blend.impute_from(evidence)
        risk, spread = self.risk.score(evidence, imputation), self.spread.spread(evidence, imputation)
        return BestReading(evidence, imputation, risk, spread)

    def state(self) -> State:
        arrays: Arrays = {}
        plain: Plain = {}
        for name, part in (("blend", self.blend), ("risk", self.risk), ("spread", self.spread)):
            tensors, plain[name] = part.state()
            arrays |= {f"{name}.{key}": tensor for key, tensor in tensors.items()}
        return arrays, plain

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Plain) -> "FittedBest":
        def part(name: str) -> tuple[Arrays, Plain]:
            start = f"{name}."
            named = {key.removeprefix(start): each for key, each in arrays.items() if key.startswith(start)}
            return named, plain[name]

        return cls(
            FittedBlend.from_state(*part("blend")),
            FittedRisk.from_state(*part("risk")),
            SpreadModel.from_state(*part("spread")),
        )


def hidden_by_lot(visits: VisitArrays, seed: int) -> BoolArray:
    """The share of visits whose target, if measured, is hidden outside training: one lot for everybody.

    It hangs on seed, subject and time alone, so a patient scored later is treated as a calibration patient was,
    whatever else is in the table.
    """
    return uniform_per_visit(visits.visit_key, seed, HIDING_STREAM) < HIDDEN_SHARE


@dataclass(frozen=True)
class Lesson:
    """Where whole patients are split: the visits of patients that may train, and those with nothing hidden yet."""

    learn: BoolArray
    unhidden: BoolArray


def score_visits(
    task: Task, plan: Plan, lesson: Lesson | None = None, progress: Progress = silent
) -> VisitScores:
    """Fit the plan's preset, on the lesson's patients alone where one is given, and score every visit."""
    if plan.preset == "paper":
        return _score_with_paper(task, plan, progress)
    return _score_with_best(task, plan, lesson, progress)


def _score_with_paper(task: Task, plan: Plan, progress: Progress) -> VisitScores:
    """Event graph, two-relation network, proxy risk."""
    watch, settings = Stopwatch(), plan.paper
    rng = np.random.default_rng([plan.seed, FIT_STREAM])
    imputer = GcnImputer(
        settings.gcn,
        settings.graph,
        settings.perturbation,
        on_epoch=lambda done, most: progress("training the network", done / most),
    )
    progress("building the graph", 0.0)
    with watch.stage("graph"):
        graph = build_graph(task, settings.graph, rng, plan.device)
    with watch.stage("fit"):
        fitted = imputer.fit_on(graph, task, rng, plan.device)
    progress("scoring risk", 0.0)
    with watch.stage("risk"):
        imputation = fitted.impute(task)
        risk = proxy_risk(imputation, settings.beta)
        source = fit_evidence(task, EvidenceSettings(), rng)
        evidence = read_evidence(task.visits, source, plan.device)
    return VisitScores(
        value=imputation.value,
        risk=risk,
        explored_risk=risk,
        spread=np.ones(len(risk)),
        no_evidence=graph.without_evidence,
        features=evidence.matrix,
        seconds=watch.seconds,
        signals=imputation.signals,
        arrays={name: tensor.cpu().numpy() for name, tensor in fitted.network.state_dict().items()},
    )


def _score_with_best(task: Task, plan: Plan, lesson: Lesson | None, progress: Progress) -> VisitScores:
    """Evidence, blended imputers, learned risk."""
    watch = Stopwatch()
    rng = np.random.default_rng([plan.seed, FIT_STREAM])
    taught = task if lesson is None else task.of_patients(lesson.learn)
    progress("learning to impute", 0.0)
    with watch.stage("fit"):
        settings = within_ceiling(plan.best.blend, task, by_patient=lesson is not None)
        fit = BlendImputer(settings).fit_whole(taught, rng, plan.device)
    progress("learning the risk", 0.4)
    with watch.stage("risk"):
        ground = prepare_risk(taught, fit.evidence, fit.out_of_sample, rng)
        fitted_risk = fit_risk(ground, plan.tolerance, plan.seed)
    progress("imputing", 0.8)
    fitted = FittedBest(fit.fitted, fitted_risk, ground.spread)
    with watch.stage("risk"):
        if lesson is None:
            evidence, imputation = fit.evidence, fit.imputation
            risk = fitted_risk.score(evidence, imputation)
            spread = ground.spread.spread(evidence, imputation)
        else:
            evidence, imputation, risk, spread = fitted.read(
                _thinned(task, lesson.unhidden, plan.seed), plan.device
            )
    explored = risk.copy()
    learnt_from = ground.rows if lesson is None else np.flatnonzero(lesson.learn)[ground.rows]
    explored[learnt_from] = fitted_risk.out_of_fold

    def frozen_at(tolerance: Tolerance) -> FittedBest:
        if tolerance == plan.tolerance:
            return fitted
        return FittedBest(fit.fitted, fit_risk(ground, tolerance, plan.seed), ground.spread)

    return VisitScores(
        value=imputation.value,
        risk=risk,
        explored_risk=explored,
        spread=spread,
        no_evidence=evidence.nothing_known,
        features=risk_features(evidence, fit.out_of_sample) if lesson is None else evidence.matrix,
        seconds=watch.seconds,
        signals=imputation.signals,
        rerank=lambda tolerance: (
            risk if tolerance == plan.tolerance else frozen_at(tolerance).risk.score(evidence, imputation)
        ),
        frozen_at=frozen_at,
        support=lambda rows: explain(fit.fitted, evidence, rows),
    )


def _thinned(task: Task, unhidden: BoolArray, seed: int) -> VisitArrays:
    """Training patients with as many targets hidden as everybody else, so that their evidence compares."""
    drawn = unhidden & hidden_by_lot(task.visits, seed)
    return task.visits.with_target(np.where(drawn, np.nan, task.visits.target_values))
