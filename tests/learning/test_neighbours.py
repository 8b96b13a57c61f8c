"""Both searches must give exactly the pairs, distances and order of a double loop over visits."""

import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from safeimpute.errors import OptionError
from safeimpute.learning.neighbours import blocks, kd_trees, search
from safeimpute.learning.neighbours.blocks import Limits, Neighbours, Profiles
from safeimpute.learning.neighbours.search import (
    comparable_by_trend,
    nearest_by_value,
    radius_for_degree,
    value_neighbours,
)

Pair = tuple[int, int, float, float]
Sides = tuple[Profiles, Profiles]
TREES_OR_BLOCKS = pytest.mark.parametrize("trees", [True, False], ids=["trees", "blocks"])


@pytest.fixture
def small_batches() -> Iterator[None]:
    """Batches so small that a few dozen visits cross every boundary between them."""
    in_trees: dict[str, Any] = {"_QUERIES_AT_ONCE": 5, "_FIRST_UNCAPPED": 2, "_BYTES_PER_CANDIDATE": 2**15}
    in_blocks: dict[str, Any] = {"_ROWS_AT_ONCE": 7, "_FIRST_SPAN": 3, "_BYTES_PER_PAIR": 2**14}
    with mock.patch.multiple(kd_trees, **in_trees), mock.patch.multiple(blocks, **in_blocks):
        yield


def forced(trees: bool) -> "mock._patch[mock.MagicMock]":
    return mock.patch.object(search, "_trees_are_cheaper", return_value=trees)


def visits(
    seed: int, n: int, labs: int, patients: int, missing: float, decimals: int | None, offset: float = 0.0
) -> Profiles:
    rng = np.random.default_rng(seed)
    values, trends = rng.normal(size=(2, n, labs)) + offset
    if decimals is not None:
        values, trends = values.round(decimals), trends.round(decimals)
    values[rng.random((n, labs)) < missing] = np.nan
    trends[np.isnan(values) | (rng.random((n, labs)) < missing / 2)] = np.nan
    return Profiles(values, trends, rng.integers(0, patients, n))


@st.composite
def two_sides(draw: st.DrawFn) -> Sides:
    labs, patients = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    missing = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    decimals = draw(st.sampled_from([None, 0, 1]))
    offset = draw(st.sampled_from([0.0, 1e6]))
    sizes = st.sampled_from([0, 1, 8, 25, 60])
    shape = labs, patients, missing, decimals, offset
    query, reference = (visits(draw(st.integers(0, 10**6)), draw(sizes), *shape) for _ in range(2))
    return (reference, reference) if draw(st.booleans()) else (query, reference)


def distance(ours: np.ndarray, theirs: np.ndarray) -> float | None:
    total, count = 0.0, 0
    for a, b in zip(ours.tolist(), theirs.tolist(), strict=True):
        if not (math.isnan(a) or math.isnan(b)):
            total += (a - b) * (a - b)
            count += 1
    return math.sqrt(total / count) if count else None


def all_pairs(query: Profiles, reference: Profiles) -> Iterator[tuple[int, int, float | None, float | None]]:
    """Every pair of different patients with its two distances."""
    for i in range(len(query)):
        for j in range(len(reference)):
            if query.patient[i] != reference.patient[j]:
                by_value = distance(query.values[i], reference.values[j])
                yield i, j, by_value, distance(query.trends[i], reference.trends[j])


def by_double_loop(
    query: Profiles, reference: Profiles, value_radius: float, trend_radius: float, cap: int | None
) -> list[Pair]:
    found: dict[int, list[tuple[float, Pair]]] = {}
    for i, j, by_value, by_trend in all_pairs(query, reference):
        if by_value is None or by_trend is None or by_value > value_radius or by_trend > trend_radius:
            continue
        strength = max(by_value / value_radius, by_trend / trend_radius)
        found.setdefault(i, []).append((strength, (i, j, by_value, by_trend)))
    return [pair for i in sorted(found) for _, pair in sorted(found[i])[:cap]]


def as_pairs(found: Neighbours) -> list[Pair]:
    columns = found.query, found.reference, found.value_distance, found.trend_distance
    return list(zip(*(column.tolist() for column in columns), strict=True))


@TREES_OR_BLOCKS
@pytest.mark.usefixtures("small_batches")
class TestAgainstDoubleLoop:
    @settings(max_examples=150, deadline=None)
    @given(
        sides=two_sides(),
        value_radius=st.floats(0.05, 6.0),
        trend_radius=st.floats(0.05, 6.0),
        cap=st.sampled_from([None, 1, 2, 5, 9, 100]),
    )
    def test_value_neighbours(
        self, trees: bool, sides: Sides, value_radius: float, trend_radius: float, cap: int | None
    ) -> None:
        with forced(trees):
            found = value_neighbours(
                *sides, value_radius=value_radius, trend_radius=trend_radius, max_neighbors=cap, memory_mib=1
            )
        assert as_pairs(found) == by_double_loop(*sides, value_radius, trend_radius, cap)

    @settings(max_examples=60, deadline=None)
    @given(sides=two_sides(), chosen=st.integers(0, 10**6), cap=st.sampled_from([None, 3]))
    def test_a_pair_exactly_at_both_radii_is_kept(
        self, trees: bool, sides: Sides, chosen: int, cap: int | None
    ) -> None:
        comparable = [(v, t) for _, _, v, t in all_pairs(*sides) if v and t]
        if not comparable:
            return
        value_radius, trend_radius = comparable[chosen % len(comparable)]
        with forced(trees):
            found = value_neighbours(
                *sides, value_radius=value_radius, trend_radius=trend_radius, max_neighbors=cap, memory_mib=1
            )
        assert as_pairs(found) == by_double_loop(*sides, value_radius, trend_radius, cap)

    @settings(max_examples=100, deadline=None)
    @given(sides=two_sides())
    def test_nearest_by_value(self, trees: bool, sides: Sides) -> None:
        with forced(trees):
            found = nearest_by_value(*sides, memory_mib=1)
        nearest: dict[int, tuple[float, int]] = {}
        for i, j, by_value, _ in all_pairs(*sides):
            if by_value is not None:
                nearest[i] = min(nearest.get(i, (math.inf, -1)), (by_value, j))
        assert [(i, (d, j)) for i, j, d, _ in as_pairs(found)] == sorted(nearest.items())
        assert np.isnan(found.trend_distance).all()


@given(sides=two_sides())
def test_comparable_by_trend(sides: Sides) -> None:
    expected = np.zeros(len(sides[0]), dtype=bool)
    for i, _, _, by_trend in all_pairs(*sides):
        expected[i] |= by_trend is not None
    np.testing.assert_array_equal(comparable_by_trend(*sides), expected)


@pytest.mark.parametrize(("labs", "decimals"), [(2, None), (2, 1), (3, None), (3, 1)])
@pytest.mark.parametrize("radius", [0.1, 5.0])
def test_the_two_searches_agree_at_full_batch_size(labs: int, decimals: int | None, radius: float) -> None:
    profiles = visits(0, 5000, labs, 1200, 0.3, decimals)
    found = []
    for trees in (True, False):
        with forced(trees):
            found.append(
                value_neighbours(profiles, profiles, value_radius=radius, trend_radius=radius, max_neighbors=16)
            )
    assert as_pairs(found[0]) == as_pairs(found[1])
    assert len(found[0]) > (50_000 if radius == 5.0 else 500)


@TREES_OR_BLOCKS
def test_a_crowd_on_one_point_costs_no_quadratic_search(trees: bool) -> None:
    """Rounded values put thousands of visits on one point; each gets the first visits of other patients."""
    n = 20_000 if trees else 1_000
    crowd = Profiles(np.zeros((n, 2)), np.zeros((n, 2)), np.arange(n) // 4)
    with forced(trees):
        found = value_neighbours(crowd, crowd, value_radius=1.0, trend_radius=1.0, max_neighbors=6)
    assert len(found) == 6 * n
    np.testing.assert_array_equal(found.reference[-6:], np.arange(6))
    np.testing.assert_array_equal(found.reference[:6], np.arange(4, 10))


@TREES_OR_BLOCKS
def test_own_visits_take_no_places(trees: bool) -> None:
    """A patient seen 300 times almost on one spot still finds the farther visits of others."""
    rng = np.random.default_rng(0)
    own, others = rng.normal(0, 0.01, (300, 2)), rng.normal(1, 0.01, (5, 2))
    point = np.vstack([own, others])
    profiles = Profiles(point, point, np.array([0] * 300 + [1, 2, 3, 4, 5]))
    with forced(trees):
        found = value_neighbours(profiles, profiles, value_radius=3.0, trend_radius=3.0, max_neighbors=4)
    assert as_pairs(found) == by_double_loop(profiles, profiles, 3.0, 3.0, 4)
    np.testing.assert_array_equal(np.bincount(found.query)[:300], 4)


def test_one_patient_has_no_neighbours() -> None:
    profiles = visits(0, 3000, 2, 1, 0.2, None)
    found = value_neighbours(profiles, profiles, value_radius=1.0, trend_radius=1.0, max_neighbors=8)
    assert len(found) == 0
    assert len(nearest_by_value(profiles, profiles)) == 0
    assert not comparable_by_trend(profiles, profiles).any()


def test_the_result_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = visits(0, 6000, 2, 1500, 0.4, 1)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(value_neighbours(profiles, profiles, value_radius=1, trend_radius=1, max_neighbors=8))
    assert as_pairs(found[0]) == as_pairs(found[1])


def test_trees_serve_few_labs_and_products_serve_many() -> None:
    limits = Limits(1.0, 1.0, 1.0, 32)
    few, many = visits(0, 20_000, 2, 4000, 0.4, None), visits(0, 20_000, 10, 4000, 0.4, None)
    assert search._trees_are_cheaper(few, few, limits, "cpu")
    assert not search._trees_are_cheaper(many, many, limits, "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("decimals", [None, 1])
def test_a_gpu_gives_the_same_pairs(decimals: int | None) -> None:
    profiles = visits(0, 5000, 8, 1000, 0.5, decimals)
    found = []
    for device in ("cpu", "cuda"):
        with forced(trees=False):
            found.append(
                value_neighbours(
                    profiles, profiles, value_radius=0.8, trend_radius=0.8, max_neighbors=16, device=device
                )
            )
    assert as_pairs(found[0]) == as_pairs(found[1])
    assert len(found[0]) > 1000


class TestRadiusForDegree:
    @pytest.mark.parametrize("labs", [2, 10])
    def test_median_degree_is_the_one_asked_for(self, labs: int) -> None:
        profiles = visits(3, 1501, labs, 400, 0.2, None)
        comparable = np.flatnonzero(comparable_by_trend(profiles, profiles))
        sample = profiles.at(comparable[len(comparable) % 2 == 0 :])  # an odd number: the median is met
        radius = radius_for_degree(sample, 16, np.random.default_rng(0), sample=len(sample))
        found = value_neighbours(sample, sample, value_radius=radius, trend_radius=radius, max_neighbors=None)
        assert np.median(np.bincount(found.query, minlength=len(sample))) == 16

    def test_a_sample_comes_close_and_the_seed_decides(self) -> None:
        profiles = visits(3, 20_000, 2, 5000, 0.2, None)
        radii = [radius_for_degree(profiles, 16, np.random.default_rng(seed)) for seed in (0, 0, 1)]
        assert radii[0] == radii[1] != radii[2]
        found = value_neighbours(profiles, profiles, value_radius=radii[0], trend_radius=radii[0], max_neighbors=None)
        degrees = np.bincount(found.query, minlength=len(profiles))[comparable_by_trend(profiles, profiles)]
        assert 14 <= np.median(degrees) <= 18

    def test_too_few_partners_gives_the_radius_that_joins_all(self) -> None:
        profiles = visits(0, 12, 2, 4, 0.0, None)
        radius = radius_for_degree(profiles, 50, np.random.default_rng(0))
        assert radius == max(
            max(v, t) for _, _, v, t in all_pairs(profiles, profiles) if v is not None and t is not None
        )

    def test_nothing_comparable_gives_one_standard_deviation(self) -> None:
        lonely = visits(0, 30, 2, 1, 0.0, None)
        assert radius_for_degree(lonely, 4, np.random.default_rng(0)) == 1.0
        assert radius_for_degree(lonely.at(np.empty(0, np.int64)), 4, np.random.default_rng(0)) == 1.0

    def test_identical_visits_give_a_radius_above_zero(self) -> None:
        still = Profiles(np.zeros((40, 1)), np.zeros((40, 1)), np.arange(40))
        assert radius_for_degree(still, 4, np.random.default_rng(0)) == 1.0
        mixed = Profiles(np.r_[np.zeros(39), 0.25][:, None], np.zeros((40, 1)), np.arange(40))
        assert radius_for_degree(mixed, 4, np.random.default_rng(0)) == 0.25


@pytest.mark.parametrize(
    "wrong",
    [
        {"value_radius": 0.0},
        {"value_radius": math.inf},
        {"trend_radius": -1.0},
        {"trend_radius": math.nan},
        {"max_neighbors": 0},
    ],
    ids=str,
)
def test_unusable_options_are_refused_by_name(wrong: dict[str, Any]) -> None:
    profiles = visits(0, 5, 2, 3, 0.0, None)
    usable: dict[str, Any] = {"value_radius": 1.0, "trend_radius": 1.0, "max_neighbors": 4}
    with pytest.raises(OptionError, match=next(iter(wrong))):
        value_neighbours(profiles, profiles, **(usable | wrong))


def test_a_degree_below_one_is_refused() -> None:
    with pytest.raises(OptionError, match="degree"):
        radius_for_degree(visits(0, 5, 2, 3, 0.0, None), 0, np.random.default_rng(0))
