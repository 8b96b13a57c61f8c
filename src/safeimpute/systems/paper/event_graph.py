"""The event graph: visits as nodes, joined along time within a patient and by likeness across patients.

Nothing here reads a target except the input value of training visits: edges, radii and degrees depend on the
other labs and on time alone.
"""

from dataclasses import dataclass

import numpy as np

from safeimpute.neighbours.search import (
    Neighbours,
    Profiles,
    comparable_by_trend,
    nearest_by_value,
    radius_for_degree,
    value_neighbours,
)
from safeimpute.records.arrays import BoolArray, FloatArray, VisitArrays
from safeimpute.settings import GraphSettings
from safeimpute.splits.roles import Task
from safeimpute.systems.paper.edges import NO_EDGES, Edges, default_max_gap, temporal_edges, value_edges
from safeimpute.systems.scaling import Scaler, fit_scaler, standardise_columns
from safeimpute.systems.trends import lab_trends


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


def build_graph(
    task: Task, settings: GraphSettings, rng: np.random.Generator, device: str = "cpu"
) -> EventGraph:
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
