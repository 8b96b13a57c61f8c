"""The paper's system: event graph, two-relation network, proxy risk; it knows only the visits of its own graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from safeimpute.learning.paper.gcn import FittedGcn, GcnImputer
from safeimpute.learning.paper.graph import build_graph
from safeimpute.learning.protocol import Arrays, Estimates, Imputation
from safeimpute.learning.roles import Task
from safeimpute.machine.progress import Progress, Stopwatch, silent
from safeimpute.machine.resources import require_room
from safeimpute.settings import PaperSettings
from safeimpute.visits.arrays import FloatArray, IntArray, Stream, generator

BETA = 0.1


def evidence_penalty(temporal_degree: FloatArray, value_degree: FloatArray) -> FloatArray:
    """1 / sqrt(deg_t + 1) + 1 / sqrt(deg_v + 1). Equation 30."""
    penalty: FloatArray = 1.0 / np.sqrt(temporal_degree + 1.0) + 1.0 / np.sqrt(value_degree + 1.0)
    return penalty


def proxy_risk(imputation: Imputation, beta: float = BETA) -> FloatArray:
    """Instability (z-units) plus beta times the evidence penalty; beta 0 is the ablation. Equation 31."""
    signals = imputation.signals
    return signals["instability"] + beta * evidence_penalty(signals["temporal_degree"], signals["value_degree"])


@dataclass(frozen=True)
class FittedPaper:
    """The trained network beside its estimates."""

    network: FittedGcn
    estimates: Estimates
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def frozen(self) -> None:
        """Nothing: the graph is part of the model, so no other table can be estimated."""
        return

    def arrays(self) -> Arrays:
        """The network's weights."""
        return {name: tensor.cpu().numpy() for name, tensor in self.network.network.state_dict().items()}

    def explain(self, rows: IntArray) -> None:  # noqa: ARG002
        """Nothing: every visit within two steps has a part in a value."""
        return


def fit_paper(
    task: Task, settings: PaperSettings, seed: int, device: str = "cpu", progress: Progress = silent
) -> FittedPaper:
    """Build the graph, train the network, and rank by instability and scarce evidence."""
    visits, labs = task.visits.labs.shape
    what = f"the graph and the network of {visits:,} visits (paper.gcn.width {settings.gcn.width})"
    require_room(what, _bytes_needed(visits, labs, settings), "or smaller settings, or the preset 'best'")
    watch, rng = Stopwatch(), generator(seed, Stream.FIT)
    imputer = GcnImputer(
        settings.gcn,
        settings.graph,
        settings.perturbation,
        on_epoch=lambda done, most: progress("training the network", 0.05 + 0.8 * done / most),
    )
    progress("building the graph", 0.0)
    with watch.stage("graph"):
        graph = build_graph(task, settings.graph, rng, device)
    with watch.stage("fit"):
        fitted = imputer.fit_on(graph, task, rng, device)
    progress("ranking by risk", 0.85)
    with watch.stage("risk"):
        imputation = fitted.impute(task)
        risk = proxy_risk(imputation, settings.beta)
    estimates = Estimates(imputation.value, risk, np.ones(len(risk)), graph.without_evidence, None, imputation.signals)
    return FittedPaper(fitted, estimates, watch.seconds)


def _bytes_needed(visits: int, labs: int, settings: PaperSettings) -> float:
    """Roughly: what every layer keeps of a visit to learn backwards, and both directions of every edge."""
    kept = 4 * (14 * settings.gcn.layers * settings.gcn.width + 12 * labs)
    edges = settings.graph.max_neighbors or 4 * settings.graph.median_degree
    return float(visits) * (kept + 80 * edges)
