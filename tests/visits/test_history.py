"""A patient's own visits against a plain search, visit by visit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.visits.arrays import NONE, FloatArray, IntArray, around, first_visit, last_visit, previous_observed

blocks = st.lists(st.integers(1, 5), min_size=1, max_size=6)


def patients(sizes: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


@given(blocks)
def test_first_and_last_visit_bound_each_patients_block(sizes: list[int]) -> None:
    patient = patients(sizes)
    for row in range(len(patient)):
        own = np.flatnonzero(patient == patient[row])
        assert first_visit(patient)[row] == own[0]
        assert last_visit(patient)[row] == own[-1]


@given(blocks, st.data())
def test_the_visit_before_is_what_a_plain_search_finds(sizes: list[int], data: st.DataObject) -> None:
    patient = patients(sizes)
    observed = np.array(data.draw(st.lists(st.booleans(), min_size=len(patient), max_size=len(patient))))
    for row in range(len(patient)):
        own = np.flatnonzero((patient == patient[row]) & observed)
        earlier = own[own < row]
        assert previous_observed(patient, observed)[row] == (earlier[-1] if len(earlier) else NONE)


def looked_up(patient: IntArray, time: FloatArray, column: FloatArray, known_from: IntArray | None) -> FloatArray:
    """The same, visit by visit."""
    found = np.full((len(patient), 4), np.nan)
    for i in range(len(patient)):
        own = [j for j in range(len(patient)) if patient[j] == patient[i] and not np.isnan(column[j])]
        before = [j for j in own if j < i and (known_from is None or known_from[j] <= i)]
        after = [j for j in own if j > i]
        if before:
            found[i, :2] = column[before[-1]], time[i] - time[before[-1]]
        if after:
            found[i, 2:] = column[after[0]], time[after[0]] - time[i]
    return found


@given(st.integers(0, 10_000), st.integers(0, 30), st.booleans())
def test_around_is_what_a_plain_search_finds(seed: int, visits: int, clocks: bool) -> None:
    rng = np.random.default_rng(seed)
    patient = np.sort(rng.integers(0, 4, visits)).astype(np.int64)
    time = np.cumsum(rng.uniform(0.5, 90, visits))
    column = np.where(rng.random(visits) < 0.5, rng.normal(size=visits), np.nan)
    waiting = np.maximum.accumulate(np.arange(1, visits + 1) + rng.integers(0, 3, visits))
    known_from = waiting.astype(np.int64) if clocks and visits else None
    found = around(patient, time, column, known_from)
    np.testing.assert_allclose(np.stack(found, axis=1), looked_up(patient, time, column, known_from), rtol=1e-12)


def test_the_own_value_is_never_among_them() -> None:
    patient, time = np.zeros(3, np.int64), np.array([0.0, 10, 30])
    one = around(patient, time, np.array([1.0, 2.0, 3.0]))
    other = around(patient, time, np.array([1.0, 99.0, 3.0]))
    assert [part[1] for part in one] == [part[1] for part in other] == [1.0, 10.0, 3.0, 20.0]


def test_a_column_nobody_measured_is_empty() -> None:
    found = around(np.zeros(2, np.int64), np.array([0.0, 1.0]), np.array([np.nan, np.nan]))
    assert all(np.isnan(part).all() for part in found)
