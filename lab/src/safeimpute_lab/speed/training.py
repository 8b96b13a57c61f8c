"""Training speed of the two-relation network on a MIMIC-IV-shaped cohort, against the same network on PyG.

Everything is measured in one process on the same graph, so that the ratios hold on a noisy machine.
"""

import argparse
import resource
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from safeimpute.learning.paper.gcn import FittedGcn, NodeInputs
from safeimpute.learning.paper.graph import Edges, build_graph
from safeimpute.learning.roles import hide, split_visits
from safeimpute.settings import GcnSettings, GraphSettings, PerturbationSettings
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits


class PygLayer(nn.Module):
    """The same gated layer on PyG's convolution over an edge index."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.temporal, self.value = (GCNConv(inputs, width, bias=False) for _ in range(2))
        self.gate = nn.Linear(width, 1, bias=False)

    def forward(self, states: Tensor, relations: tuple[Tensor, Tensor]) -> Tensor:
        by_time = torch.relu(self.temporal(states, relations[0]))
        by_value = torch.relu(self.value(states, relations[1]))
        share = torch.sigmoid(self.gate(by_time + by_value))
        return share * by_time + (1 - share) * by_value


class PygNetwork(nn.Module):
    def __init__(self, inputs: int, labs: int, settings: GcnSettings) -> None:
        super().__init__()
        sizes = [inputs] + [settings.width] * settings.layers
        self.layers = nn.ModuleList(PygLayer(a, b) for a, b in pairwise(sizes))
        self.head = nn.Linear(settings.width, labs)

    def forward(self, states: Tensor, relations: tuple[Tensor, Tensor]) -> Tensor:
        for layer in self.layers:
            states = layer(states, relations)
        values: Tensor = self.head(states)
        return values


def edge_index(edges: Edges) -> Tensor:
    both = np.stack([np.r_[edges.first, edges.second], np.r_[edges.second, edges.first]])
    return torch.from_numpy(both)


def epoch(network: nn.Module, inputs: Tensor, relations: object, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    network(inputs, relations).square().mean().backward()
    optimiser.step()


def seconds(work: Callable[[], object], repeats: int) -> float:
    work()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    visits = prepare_visits(
        simulate("mimic4", np.random.default_rng(0), patients=given.patients).visits, ColumnChoice("hba1c")
    )
    task = hide(visits.arrays, split_visits(~np.isnan(visits.arrays.target_values), np.random.default_rng(0)))
    start = time.perf_counter()
    graph = build_graph(task, GraphSettings(), np.random.default_rng(0))
    print(
        f"graph: {len(visits):,} visits, {len(graph.temporal):,} temporal and {len(graph.value):,} value edges, "
        f"{time.perf_counter() - start:.1f} s"
    )
    settings, nodes = GcnSettings(), NodeInputs(graph, "cpu")
    fitted = FittedGcn(graph, nodes, settings, PerturbationSettings(), 1, 1)
    pyg = PygNetwork(nodes.columns, nodes.values.shape[1], settings)
    indices = edge_index(graph.temporal), edge_index(graph.value)
    inputs = nodes.inputs()
    ours = torch.optim.Adam(fitted.network.parameters())
    theirs = torch.optim.Adam(pyg.parameters())
    our_epoch = seconds(lambda: epoch(fitted.network, inputs, nodes.relations, ours), given.repeats)
    their_epoch = seconds(lambda: epoch(pyg, inputs, indices, theirs), given.repeats)
    forward = seconds(lambda: fitted.predict_z(nodes.relations), given.repeats)
    start = time.perf_counter()
    fitted.instability()
    instability = time.perf_counter() - start
    print(
        f"epoch: ours {our_epoch:.2f} s, PyG edge_index {their_epoch:.2f} s: "
        f"{their_epoch / our_epoch:.1f} times faster (goal: 3)"
    )
    passes = fitted.perturbation.passes
    print(
        f"{passes} perturbation passes: {instability:.2f} s = "
        f"{instability / forward:.1f} forward passes (goal: at most 30)"
    )
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
