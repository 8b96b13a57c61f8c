"""The paper's imputer: a two-relation graph convolution with a gate per visit and layer.

Training hides a random half of the training targets each epoch and learns to predict those from the rest, so
that at inference, where every training target is visible, no visit ever depends on its own target's value
during learning. A small share of other labs is hidden too and reconstructed under a Huber loss.
"""

import copy
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from safeimpute.learning.paper.graph import Adjacency, EventGraph, build_graph, draw_kept, keep_probability, propagate
from safeimpute.learning.protocol import Imputation
from safeimpute.learning.roles import Task
from safeimpute.settings import GcnSettings, GraphSettings, PerturbationSettings
from safeimpute.visits.arrays import BoolArray, FloatArray

Relations = tuple[Tensor, Tensor]  # normalised matrices: temporal, value


class GatedLayer(nn.Module):
    """h_i = a_i m_t,i + (1 - a_i) m_v,i with m_r = relu(A_r H W_r), a_i = sigmoid(w · (m_t,i + m_v,i))."""

    def __init__(self, inputs: int, width: int, gate: bool) -> None:
        super().__init__()
        self.temporal = nn.Linear(inputs, width, bias=False)
        self.value = nn.Linear(inputs, width, bias=False)
        self.gate = nn.Linear(width, 1, bias=False) if gate else None
        self.narrow = inputs < width  # propagate whichever side of the product has fewer columns

    def forward(self, states: Tensor, relations: Relations) -> Tensor:
        """Equations 14, 15, 17 and 18."""
        by_time = self._convolve(states, relations[0], self.temporal).relu_()
        by_value = self._convolve(states, relations[1], self.value).relu_()
        if self.gate is None:
            return (by_time + by_value) / 2
        share = torch.sigmoid(self.gate(by_time) + self.gate(by_value))
        return torch.lerp(by_value, by_time, share)

    def _convolve(self, states: Tensor, relation: Tensor, linear: nn.Linear) -> Tensor:
        if self.narrow:
            return nn.functional.linear(propagate(relation, states), linear.weight)
        return propagate(relation, states @ linear.weight.T)


class TwoRelationGcn(nn.Module):
    """Gated layers and a linear head with one output per lab."""

    def __init__(self, inputs: int, labs: int, settings: GcnSettings) -> None:
        super().__init__()
        sizes = [inputs] + [settings.width] * settings.layers
        self.layers = nn.ModuleList(GatedLayer(before, after, settings.gate) for before, after in pairwise(sizes))
        self.head = nn.Linear(settings.width, labs)
        self.dropout = settings.dropout

    def forward(self, inputs: Tensor, relations: Relations) -> Tensor:
        """Equation 19."""
        states = inputs
        for layer in self.layers:
            states = layer(states, relations)
            if self.dropout:
                states = nn.functional.dropout(states, self.dropout, self.training)
        output: Tensor = self.head(states)
        return output


class GcnImputer:
    """Builds the event graph of a task and trains the network on it."""

    def __init__(
        self,
        settings: GcnSettings | None = None,
        graph: GraphSettings | None = None,
        perturbation: PerturbationSettings | None = None,
        on_epoch: Callable[[int, int], None] | None = None,
    ) -> None:
        self.settings = settings or GcnSettings()
        self.graph = graph or GraphSettings()
        self.perturbation = perturbation or PerturbationSettings()
        self.on_epoch = on_epoch

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> "FittedGcn":
        return self.fit_on(build_graph(task, self.graph, rng, device), task, rng, device)

    def fit_on(self, graph: EventGraph, task: Task, rng: np.random.Generator, device: str = "cpu") -> "FittedGcn":
        """Train on a graph already built from this task."""
        nodes = NodeInputs(graph, device)
        torch_seed, perturbation_seed = (int(seed) for seed in rng.integers(2**62, size=2))
        fitted = FittedGcn(graph, nodes, self.settings, self.perturbation, perturbation_seed, torch_seed)
        _train(fitted, task, self.settings, rng, self.on_epoch)
        return fitted


class NodeInputs:
    """The network's inputs, values and indicators of labs and attributes, and relations on a device."""

    def __init__(self, graph: EventGraph, device: str) -> None:
        self.observed = torch.from_numpy(~np.isnan(graph.values)).to(device)
        self.values = torch.from_numpy(np.nan_to_num(graph.values)).float().to(device)
        known = ~np.isnan(graph.attributes)
        attributes = np.concatenate([np.nan_to_num(graph.attributes), known], axis=1)
        self.attributes = torch.from_numpy(attributes).float().to(device)  # values, then indicators
        self.temporal = Adjacency(graph.temporal, len(graph), device)
        self.value = Adjacency(graph.value, len(graph), device)
        self.relations = self.temporal.relation(), self.value.relation()
        self.device = device

    @property
    def columns(self) -> int:
        return 2 * self.values.shape[1] + self.attributes.shape[1]

    def inputs(self, hidden: Tensor | None = None) -> Tensor:
        """Inputs with some visible entries hidden: value and indicator both become 0. Equations 5 and 6."""
        shown = self.observed if hidden is None else self.observed & ~hidden
        mask = shown.float()
        return torch.cat([self.values * mask, mask, self.attributes], dim=1)


class FittedGcn:
    """The trained network on its graph. The graph is part of the model: it imputes the visits it was fitted on."""

    def __init__(
        self,
        graph: EventGraph,
        nodes: NodeInputs,
        settings: GcnSettings,
        perturbation: PerturbationSettings,
        perturbation_seed: int,
        torch_seed: int,
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        self.perturbation = perturbation
        self.perturbation_seed = perturbation_seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed)
            self.network = TwoRelationGcn(nodes.columns, nodes.values.shape[1], settings)
        self.network.to(nodes.device)
        self.history: list[float] = []  # validation error at each look

    def impute(self, task: Task) -> Imputation:
        """Impute the visits of the task it was fitted on."""
        if len(task.visits) != len(self.graph):
            raise ValueError("the graph network imputes only the visits it was fitted on")
        z = self.predict_z(self.nodes.relations)
        return Imputation(
            value=self.graph.scaler.in_unit(z, self.graph.target),
            signals={
                "instability": self.instability(),
                "temporal_degree": self.graph.temporal.degrees(len(self.graph)).astype(np.float64),
                "value_degree": self.graph.value.degrees(len(self.graph)).astype(np.float64),
            },
        )

    def predict_z(self, relations: Relations) -> FloatArray:
        """Target predictions in z-units over the given relations, all training targets visible."""
        self.network.eval()
        with torch.no_grad():
            z = self.network(self.nodes.inputs(), relations)[:, self.graph.target]
        return np.asarray(z.cpu().numpy(), dtype=np.float64)

    def instability(self) -> FloatArray:
        """Standard deviation of the prediction (z-units) over K thinned graphs, the same K for every visit.

        Equation 29.
        """
        rng = np.random.default_rng(self.perturbation_seed)
        total, squares = np.zeros(len(self.graph)), np.zeros(len(self.graph))
        base = self.predict_z(self.nodes.relations)  # deviations from it keep the sums well conditioned
        keep_time = keep_probability(self.graph.temporal, self.perturbation).astype(np.float32)
        keep_value = keep_probability(self.graph.value, self.perturbation).astype(np.float32)
        for _ in range(self.perturbation.passes):
            thinned = (
                self.nodes.temporal.relation(draw_kept(keep_time, rng)),
                self.nodes.value.relation(draw_kept(keep_value, rng)),
            )
            deviation = self.predict_z(thinned) - base
            total += deviation
            squares += deviation**2
        mean = total / self.perturbation.passes
        return np.sqrt(np.maximum(squares / self.perturbation.passes - mean**2, 0.0))


def _train(
    fitted: FittedGcn,
    task: Task,
    settings: GcnSettings,
    rng: np.random.Generator,
    on_epoch: Callable[[int, int], None] | None,
) -> None:
    network, nodes = fitted.network, fitted.nodes
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    best_error, best_state, looks_without_gain = np.inf, copy.deepcopy(network.state_dict()), 0
    for epoch in range(settings.epochs):
        network.train()
        hidden = _draw_hidden(fitted.graph, task.training, settings, rng).to(nodes.device)
        if not bool((hidden & nodes.observed)[:, fitted.graph.target].any()):
            continue  # by chance no target was hidden: nothing to learn from
        optimiser.zero_grad()
        loss = _loss(network(nodes.inputs(hidden), nodes.relations), hidden, fitted, settings)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if on_epoch is not None:
            on_epoch(epoch + 1, settings.epochs)
        if (epoch + 1) % settings.check_every and epoch + 1 < settings.epochs:
            continue
        error = _validation_error(fitted, task)
        fitted.history.append(error)
        looks_without_gain += 1
        if error < best_error:
            best_error, best_state, looks_without_gain = error, copy.deepcopy(network.state_dict()), 0
        if looks_without_gain >= settings.patience:
            break
    network.load_state_dict(best_state)


def _draw_hidden(graph: EventGraph, training: BoolArray, settings: GcnSettings, rng: np.random.Generator) -> Tensor:
    """This epoch's hidden entries: a random half of the training targets and a few other labs."""
    masked = settings.masked_labs if settings.reconstruction_weight > 0 else 0.0
    hidden = rng.random(graph.values.shape, dtype=np.float32) < masked
    hidden[:, graph.target] = training & (rng.random(len(graph), dtype=np.float32) < settings.hidden_targets)
    return torch.from_numpy(hidden)


def _loss(output: Tensor, hidden: Tensor, fitted: FittedGcn, settings: GcnSettings) -> Tensor:
    """Mean squared error on hidden targets plus lambda times Huber on hidden other labs. Equations 20 to 23."""
    nodes, target = fitted.nodes, fitted.graph.target
    asked = hidden & nodes.observed
    loss = nn.functional.mse_loss(output[asked[:, target], target], nodes.values[asked[:, target], target])
    if settings.reconstruction_weight > 0:
        others = asked.clone()
        others[:, target] = False
        if bool(others.any()):
            huber = nn.functional.huber_loss(output[others], nodes.values[others], delta=settings.huber)
            loss = loss + settings.reconstruction_weight * huber
    return loss


def _validation_error(fitted: FittedGcn, task: Task) -> float:
    """Mean absolute error on validation visits in the target's unit."""
    rows = task.validation
    z = fitted.predict_z(fitted.nodes.relations)[rows]
    value = fitted.graph.scaler.in_unit(z, fitted.graph.target)
    return float(np.mean(np.abs(value - task.validation_target[rows])))
