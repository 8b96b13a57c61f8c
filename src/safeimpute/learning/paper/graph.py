"""The paper's graph of visits: temporal and value edges, their margins, adjacency, thinning."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from torch import Tensor

from safeimpute.learning.neighbours.blocks import Neighbours, Profiles
from safeimpute.learning.neighbours.search import (
    comparable_by_trend,
    nearest_by_value,
    radius_for_degree,
    value_neighbours,
)
from safeimpute.learning.roles import Task
from safeimpute.learning.scaling import Scaler, fit_scaler, lab_trends, standardise_columns
from safeimpute.settings import GraphSettings, PerturbationSettings
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays


@dataclass(frozen=True)
class Edges:
    """Undirected edges, each listed once with `first` < `second`; margin 1 is the firmest support."""

    first: IntArray
    second: IntArray
    margin: FloatArray

    def __len__(self) -> int:
        return len(self.first)

    def degrees(self, visits: int) -> IntArray:
        ends = np.concatenate([self.first, self.second])
        return np.bincount(ends, minlength=visits).astype(np.int64)


NO_EDGES = Edges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def default_max_gap(patient: IntArray, time: FloatArray) -> float:
    """95th percentile of the gaps between consecutive visits; infinite where nobody came twice."""
    gaps = np.diff(time)[patient[1:] == patient[:-1]]
    return float(np.quantile(gaps, 0.95)) if len(gaps) else np.inf


def temporal_edges(patient: IntArray, time: FloatArray, max_gap: float) -> Edges:
    """Consecutive visits of a patient at most `max_gap` days apart; margin 1 - gap / max_gap. Equations 7 and 27."""
    gap = np.diff(time)
    first = np.flatnonzero((patient[1:] == patient[:-1]) & (gap > 0) & (gap <= max_gap))
    margin = np.ones(len(first)) if np.isinf(max_gap) else 1.0 - gap[first] / max_gap
    return Edges(first, first + 1, margin)


def value_edges(pairs: Neighbours, value_radius: float, trend_radius: float) -> Edges:
    """Undirected union of directed neighbour pairs; margin 1 - max(d_v / tau_v, d_delta / tau_delta), at least 0.

    Equations 13 and 28.
    """
    by_value = pairs.value_distance / value_radius
    by_trend = np.nan_to_num(pairs.trend_distance, nan=0.0) / trend_radius
    margin = 1.0 - np.minimum(np.maximum(by_value, by_trend), 1.0)
    low, high = np.minimum(pairs.query, pairs.reference), np.maximum(pairs.query, pairs.reference)
    order = np.lexsort((high, low))
    low, high, margin = low[order], high[order], margin[order]
    new = np.r_[True, (low[1:] != low[:-1]) | (high[1:] != high[:-1])] if len(low) else np.empty(0, bool)
    return Edges(low[new], high[new], margin[new])


class Adjacency:
    """Fixed sparsity pattern (edges both ways and self-loops); which edges are kept may change."""

    def __init__(self, edges: Edges, visits: int, device: str = "cpu") -> None:
        loops, ids = np.arange(visits), np.arange(len(edges))
        row = np.concatenate([edges.first, edges.second, loops])
        column = np.concatenate([edges.second, edges.first, loops])
        edge = np.concatenate([ids, ids, np.full(visits, len(edges))])  # the last id stands for every self-loop
        pattern = coo_matrix((edge, (row, column)), shape=(visits, visits)).tocsr()
        pattern.sort_indices()
        self.visits = visits
        self._starts = torch.from_numpy(pattern.indptr.astype(np.int32)).to(device)
        self._columns = torch.from_numpy(pattern.indices.astype(np.int32)).to(device)
        self._rows = torch.repeat_interleave(torch.diff(self._starts))
        self._edge = torch.from_numpy(pattern.data).to(device)
        self._ones = torch.ones(visits, 1, device=device)

    def relation(self, kept: BoolArray | None = None) -> Tensor:
        """The normalised matrix over the kept edges (all by default); degrees count kept edges only. Equation 16."""
        if kept is None:
            weight = torch.ones(len(self._edge), device=self._edge.device)
        else:
            keep = torch.from_numpy(np.append(kept, True)).to(self._edge.device).float()
            weight = torch.index_select(keep, 0, self._edge)
        degree = (self._matrix(weight) @ self._ones).squeeze(1)
        scale = degree.rsqrt()  # a self-loop makes every degree at least 1
        weight *= torch.index_select(scale, 0, self._rows)
        weight *= torch.index_select(scale, 0, self._columns)
        return self._matrix(weight)

    def _matrix(self, weight: Tensor) -> Tensor:
        size = (self.visits, self.visits)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(self._starts, self._columns, weight, size, check_invariants=False)


class _SymmetricProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradients[0].contiguous()


def propagate(relation: Tensor, states: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 H, differentiable in H."""
    summed: Tensor = _SymmetricProduct.apply(relation, states)  # type: ignore[no-untyped-call]
    return summed


def keep_probability(edges: Edges, settings: PerturbationSettings) -> FloatArray:
    """pi = least + (most - least) * margin ** sharpness, per edge. Equation 26."""
    return settings.least + (settings.most - settings.least) * edges.margin**settings.sharpness


def draw_kept(probability: NDArray[np.floating[Any]], rng: np.random.Generator) -> BoolArray:
    """One draw per undirected edge, so both directions live or die together."""
    return rng.random(len(probability), dtype=np.float32) < probability


@dataclass(frozen=True)
class EventGraph:
    """Node inputs in standard units and the two relations."""

    values: FloatArray  # visits x labs, z-scores, NaN where not visible
    attributes: FloatArray  # visits x attributes, z-scores, NaN where missing
    scaler: Scaler
    target: int
    temporal: Edges
    value: Edges
    max_gap: float
    value_radius: float
    trend_radius: float

    def __len__(self) -> int:
        return len(self.values)

    @property
    def without_evidence(self) -> BoolArray:
        """Visits no edge reaches: nothing supports an imputation there."""
        degree = self.temporal.degrees(len(self)) + self.value.degrees(len(self))
        return np.asarray(degree == 0)


def build_graph(task: Task, settings: GraphSettings, rng: np.random.Generator, device: str = "cpu") -> EventGraph:
    """Standardise what the task shows and join its visits."""
    visits = task.visits
    scaler = fit_scaler(visits.labs, visits.lab_names, task.training, settings.log_labs)
    values = scaler.standardise(visits.labs)
    profiles = visit_profiles(visits, values, task.training, settings.trend_epsilon)
    value_radius, trend_radius = _radii(profiles, settings, rng)
    max_gap = settings.max_gap_days or default_max_gap(visits.patient, visits.time)
    return EventGraph(
        values=values,
        attributes=standardise_columns(visits.attributes, task.training),
        scaler=scaler,
        target=visits.target,
        temporal=temporal_edges(visits.patient, visits.time, max_gap) if settings.use_temporal else NO_EDGES,
        value=_join_by_value(profiles, settings, value_radius, trend_radius, device),
        max_gap=max_gap,
        value_radius=value_radius,
        trend_radius=trend_radius,
    )


def visit_profiles(visits: VisitArrays, values: FloatArray, training: BoolArray, epsilon: float) -> Profiles:
    """What visits are compared by: the other labs' levels and trends, never the target."""
    levels = values[:, visits.other_labs]
    trends = standardise_columns(lab_trends(visits.patient, visits.time, levels, epsilon), training)
    return Profiles(values=levels, trends=trends, patient=visits.patient)


def _radii(profiles: Profiles, settings: GraphSettings, rng: np.random.Generator) -> tuple[float, float]:
    given = settings.value_radius, settings.trend_radius
    if not settings.use_value or None not in given:
        return given[0] or 1.0, given[1] or 1.0
    automatic = radius_for_degree(profiles, settings.median_degree, rng)
    return given[0] or automatic, given[1] or automatic


def _join_by_value(
    profiles: Profiles, settings: GraphSettings, value_radius: float, trend_radius: float, device: str
) -> Edges:
    if not settings.use_value:
        return NO_EDGES
    pairs = value_neighbours(
        profiles,
        profiles,
        value_radius=value_radius,
        trend_radius=trend_radius,
        max_neighbors=settings.max_neighbors,
        device=device,
    )
    if settings.fallback:
        pairs = _join(pairs, _fallback_pairs(profiles))
    return value_edges(pairs, value_radius, trend_radius)


def _fallback_pairs(profiles: Profiles) -> Neighbours:
    """The nearest visit by value for each visit whose trend nothing can be compared with."""
    lonely = np.flatnonzero(~comparable_by_trend(profiles, profiles))
    alone = Profiles(profiles.values[lonely], profiles.trends[lonely], profiles.patient[lonely])
    pairs = nearest_by_value(alone, profiles)
    return Neighbours(lonely[pairs.query], pairs.reference, pairs.value_distance, pairs.trend_distance)


def _join(one: Neighbours, other: Neighbours) -> Neighbours:
    return Neighbours(
        np.concatenate([one.query, other.query]),
        np.concatenate([one.reference, other.reference]),
        np.concatenate([one.value_distance, other.value_distance]),
        np.concatenate([one.trend_distance, other.trend_distance]),
    )
