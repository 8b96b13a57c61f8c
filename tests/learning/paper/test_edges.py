import numpy as np
import pytest

from safeimpute.learning.neighbours.blocks import Neighbours
from safeimpute.learning.paper.graph import (
    Edges,
    default_max_gap,
    draw_kept,
    keep_probability,
    temporal_edges,
    value_edges,
)
from safeimpute.settings import PerturbationSettings


def test_temporal_edges_join_consecutive_visits_within_the_gap() -> None:
    patient = np.array([0, 0, 0, 1, 1])
    time = np.array([0.0, 10.0, 50.0, 0.0, 20.0])
    edges = temporal_edges(patient, time, max_gap=20.0)
    assert list(zip(edges.first, edges.second, strict=True)) == [(0, 1), (3, 4)]
    np.testing.assert_allclose(edges.margin, [0.5, 0.0])
    assert edges.degrees(5).tolist() == [1, 1, 0, 1, 1]


def test_default_gap_ignores_jumps_between_patients() -> None:
    patient = np.repeat([0, 1], 50)
    time = np.concatenate([np.arange(50.0), 1000 + np.arange(50.0)])
    assert default_max_gap(patient, time) == 1.0
    assert default_max_gap(np.array([0, 1]), np.array([0.0, 5.0])) == np.inf


def test_value_edges_are_the_undirected_union_with_the_papers_margin() -> None:
    pairs = Neighbours(
        query=np.array([0, 1, 2, 3]),
        reference=np.array([1, 0, 0, 2]),
        value_distance=np.array([0.1, 0.1, 0.2, 5.0]),
        trend_distance=np.array([0.3, 0.3, 0.0, np.nan]),
    )
    edges = value_edges(pairs, value_radius=0.4, trend_radius=0.6)
    assert list(zip(edges.first, edges.second, strict=True)) == [(0, 1), (0, 2), (2, 3)]
    np.testing.assert_allclose(edges.margin, [0.5, 0.5, 0.0])


def test_keep_probability_runs_from_least_to_most_with_the_margin() -> None:
    edges = Edges(np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(keep_probability(edges, PerturbationSettings()), [0.5, 0.725, 0.95])
    sharper = keep_probability(edges, PerturbationSettings(sharpness=2.0))
    np.testing.assert_allclose(sharper, [0.5, 0.6125, 0.95])


@pytest.mark.parametrize("margin", [0.0, 0.4, 1.0])
def test_edges_are_kept_as_often_as_their_probability_says(margin: float) -> None:
    count = 40_000
    edges = Edges(np.zeros(count, np.int64), np.arange(1, count + 1), np.full(count, margin))
    kept = draw_kept(keep_probability(edges, PerturbationSettings()), np.random.default_rng(5))
    expected = 0.5 + 0.45 * margin
    assert abs(kept.mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / count)
