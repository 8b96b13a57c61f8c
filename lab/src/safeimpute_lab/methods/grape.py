"""GRAPE (You et al., NeurIPS 2020): visits and columns as two kinds of nodes, values as edges, edges predicted.

The graph is kept as the table it came from: an edge's state stands in its cell, messages are broadcasts and
masked means along rows and columns, and nothing is gathered or scattered.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from safeimpute.learning.roles import Task
from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.methods.neural import (
    UnitInterval,
    draw_seed,
    generator,
    seeded_weights,
    tensor_cores,
    values_and_mask,
)
from safeimpute_lab.methods.rounds import scaled
from safeimpute_lab.methods.table import TARGET, FittedOnTable, Predict, fit_on_table


@dataclass(frozen=True)
class GrapeSettings:
    """As published."""

    layers: int = 3
    width: int = 64
    learning_rate: float = 1e-3
    epochs: int = 20_000
    kept_edges: float = 0.7  # share of edges that carry messages in an epoch; all of them are predicted


class MeanMessage(torch.autograd.Function):
    """mean over kept edges of relu(edge part + node part), along one side of the table.

    Written out because the table of messages is by far the largest thing here: it is made once, turned in
    place into the gradient, and never copied.
    """

    @staticmethod
    def forward(ctx: Any, by_edge: Tensor, by_node: Tensor, kept: Tensor, side: int) -> Tensor:
        weight = (kept / kept.sum(dim=side, keepdim=True).clamp_min(1)).unsqueeze(2)
        messages = (by_edge + by_node).relu_().mul_(weight)
        ctx.save_for_backward(weight)
        ctx.messages, ctx.side = messages, side
        return messages.sum(dim=side)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        by_edge = ctx.messages.sign_().mul_(weight).mul_(gradients[0].unsqueeze(ctx.side))
        del ctx.messages
        return by_edge, by_edge.sum(dim=1 - ctx.side, keepdim=True), None, None


def mean_message(by_edge: Tensor, by_node: Tensor, kept: Tensor, side: int) -> Tensor:
    message: Tensor = MeanMessage.apply(by_edge, by_node, kept, side)  # type: ignore[no-untyped-call]
    return message


class EdgeSage(nn.Module):
    """m_i = mean_j relu(P [h_j, e_ij]); h_i' = normalised relu(Q [m_i, h_i]); e_ij' = relu(W [e_ij, h_i', h_j']).

    Products with concatenations are split into their parts, so that node parts are computed once per node.
    """

    def __init__(self, node_inputs: int, edge_inputs: int, width: int, last: bool) -> None:
        super().__init__()
        self.message_of_node = nn.Linear(node_inputs, width)
        self.message_of_edge = nn.Linear(edge_inputs, width, bias=False)
        self.update = nn.Linear(width + node_inputs, width)
        self.edge_of_nodes = None if last else nn.Linear(2 * width, width)
        self.edge_of_edge = None if last else nn.Linear(edge_inputs, width, bias=False)

    def forward(self, visits: Tensor, columns: Tensor, edges: Tensor, kept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by_edge = self.message_of_edge(edges)
        to_visits = mean_message(by_edge, self.message_of_node(columns).unsqueeze(0), kept, 1)
        to_columns = mean_message(by_edge, self.message_of_node(visits).unsqueeze(1), kept, 0)
        visits = self._updated(to_visits, visits)
        columns = self._updated(to_columns, columns)
        return visits, columns, self._updated_edges(edges, visits, columns)

    def _updated(self, message: Tensor, nodes: Tensor) -> Tensor:
        state = self.update(torch.cat([message, nodes], dim=1)).relu()
        return nn.functional.normalize(state, dim=1)

    def _updated_edges(self, edges: Tensor, visits: Tensor, columns: Tensor) -> Tensor:
        if self.edge_of_nodes is None or self.edge_of_edge is None:
            return edges
        of_visit, of_column = self.edge_of_nodes.weight.chunk(2, dim=1)
        part = nn.functional.linear(columns, of_column, self.edge_of_nodes.bias)
        updated: Tensor = (self.edge_of_edge(edges) + part + (visits @ of_visit.T).unsqueeze(1)).relu_()
        return updated


class BipartiteNetwork(nn.Module):
    """Edge-aware layers, a shared network after them, and an edge's value from its two ends."""

    def __init__(self, columns: int, settings: GrapeSettings) -> None:
        super().__init__()
        width = settings.width
        self.columns = columns
        self.layers = nn.ModuleList(
            EdgeSage(width if at else columns, width if at else 1, width, last=at + 1 == settings.layers)
            for at in range(settings.layers)
        )
        self.after = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.ends = nn.Linear(2 * width, width)
        self.value = nn.Linear(width, 1)

    def nodes(self, values: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """States of visits and columns; visits start as ones, columns as their own unit vector."""
        visits = values.new_ones(len(values), self.columns)
        columns = torch.eye(self.columns, device=values.device)
        edges = values.unsqueeze(2)
        for layer in self.layers:
            visits, columns, edges = layer(visits, columns, edges, kept)
        return self.after(visits), self.after(columns)

    def edge_values(self, visits: Tensor, columns: Tensor) -> Tensor:
        of_visit, of_column = self.ends.weight.chunk(2, dim=1)
        part = nn.functional.linear(columns, of_column, self.ends.bias)
        hidden = (part + (visits @ of_visit.T).unsqueeze(1)).relu_()
        predicted: Tensor = self.value(hidden).squeeze(2)
        return predicted


class Grape:
    """Trains on the whole graph at once; a random part of the edges carries messages in each epoch."""

    def __init__(self, effort: float = 1.0, settings: GrapeSettings | None = None) -> None:
        self.effort, self.settings = effort, settings or GrapeSettings()

    def fit(self, task: Task, rng: np.random.Generator, device: str = "cpu") -> FittedOnTable:
        seed = draw_seed(rng)
        return fit_on_table(task, lambda table: self._learn(table, seed, device))

    def _learn(self, table: FloatArray, seed: int, device: str) -> Predict:
        interval = UnitInterval.of(table)
        with seeded_weights(seed):
            network = BipartiteNetwork(table.shape[1], self.settings).to(device)
        values, seen = values_and_mask(interval.scale(table), device)
        epochs = scaled(self.settings.epochs, self.effort)
        with tensor_cores():
            _train(network, values, seen, epochs, self.settings, generator(seed, device))

        def predict(asked: FloatArray) -> FloatArray:
            with torch.no_grad():
                visits, columns = network.nodes(*values_and_mask(interval.scale(asked), device))
                share = network.edge_values(visits, columns[TARGET : TARGET + 1])
            return interval.target_back(share.squeeze(1))

        return predict


def _train(
    network: BipartiteNetwork,
    values: Tensor,
    seen: Tensor,
    epochs: int,
    settings: GrapeSettings,
    source: torch.Generator,
) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, fused=True)
    per_edge = seen / seen.sum()
    for _ in range(epochs):
        draw = torch.rand(seen.shape, generator=source, device=source.device)
        kept = seen * (draw < settings.kept_edges)
        predicted = network.edge_values(*network.nodes(values * kept, kept))
        loss = ((predicted - values).square() * per_edge).sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
