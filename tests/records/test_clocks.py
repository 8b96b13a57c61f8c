"""Two clocks: a value counts from the time it was known, not from the time it was drawn."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeimpute.records.arrays import VisitArrays
from safeimpute.records.clocks import first_row_to_know, known_at_visit
from safeimpute.records.simulate import simulate
from safeimpute.records.visits import ColumnChoice, prepare_visits
from safeimpute.splits.roles import hide, split_visits
from safeimpute.systems.best.evidence import EvidenceSettings, fit_evidence, read_evidence


@pytest.fixture(scope="module")
def visits() -> VisitArrays:
    """Simulated visits whose values arrive up to a few visits late, some never."""
    table = simulate("mimic4", np.random.default_rng(1), patients=60).visits
    arrays = prepare_visits(table, ColumnChoice("hba1c")).arrays
    rng = np.random.default_rng(2)
    delay = rng.choice([-1.0, 0.0, 40.0, 400.0, 1e6], arrays.labs.shape, p=[0.2, 0.3, 0.2, 0.2, 0.1])
    known = np.where(rng.random(delay.shape) < 0.1, np.nan, arrays.time[:, None] + delay)
    return replace(arrays, known=np.where(np.isnan(arrays.labs), np.nan, known))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_first_row_to_know_is_the_plain_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    patient = np.sort(rng.integers(0, 4, 15))
    patient = np.unique(patient, return_inverse=True)[1].astype(np.int64)
    time = np.arange(15) + rng.integers(0, 2) * 0.5
    known = np.where(rng.random((15, 2)) < 0.2, np.nan, time[:, None] + rng.integers(-2, 6, (15, 2)))
    empty = np.empty((15, 0))
    keys = np.zeros(15, np.uint64)
    table = VisitArrays(patient, time, np.zeros((15, 2)), ("a", "b"), 0, empty, (), keys, keys, known)
    found = first_row_to_know(table)
    for lab in range(2):
        for row in range(15):
            own = [j for j in range(row + 1) if patient[j] == patient[row]]
            clock = np.fmax(known[own, lab], time[own]).max()  # in turn: not before those drawn earlier
            later = [j for j in range(row + 1, 15) if patient[j] == patient[row] and time[j] >= clock]
            last = max(j for j in range(15) if patient[j] == patient[row])
            assert found[row, lab] == (later[0] if later else last + 1)


def test_values_not_known_by_a_visit_change_nothing_there(visits: VisitArrays) -> None:
    roles = split_visits(~np.isnan(visits.target_values), np.random.default_rng(0), test_fraction=0.2)
    task = hide(visits, roles)
    source = fit_evidence(task, EvidenceSettings(past_only=True), np.random.default_rng(0))
    before = read_evidence(task.visits, source).matrix
    assert visits.known is not None
    seen_late = 0
    for row in range(0, len(visits), 7):
        unknown = (visits.patient[row] == visits.patient)[:, None] & (visits.known > visits.time[row])
        labs = np.where(unknown, task.visits.labs * 3 + 50, task.visits.labs)
        after = read_evidence(replace(task.visits, labs=labs), source).matrix
        assert after[row].tobytes() == before[row].tobytes()
        seen_late += int(np.sum(unknown[: row + 1] & ~np.isnan(task.visits.labs[: row + 1])))
    assert seen_late > 50  # values drawn by then, yet unknown, were really among those changed


def test_a_late_value_counts_once_it_is_known(visits: VisitArrays) -> None:
    """Mutating a value that was known in time does reach later visits."""
    task = hide(visits, split_visits(~np.isnan(visits.target_values), np.random.default_rng(0)))
    source = fit_evidence(task, EvidenceSettings(past_only=True), np.random.default_rng(0))
    known_from = first_row_to_know(task.visits)[:, task.visits.target]
    visible = ~np.isnan(task.visits.target_values)
    late = np.flatnonzero(visible & (known_from > np.arange(len(visits)) + 1))
    same_patient = [
        j for j in late if known_from[j] < len(visits) and visits.patient[known_from[j]] == visits.patient[j]
    ]
    assert same_patient
    j = same_patient[0]
    target = task.visits.target_values.copy()
    target[j] += 3.0
    one = read_evidence(task.visits, source).matrix
    other = read_evidence(task.visits.with_target(target), source).matrix
    waiting, used = slice(j + 1, known_from[j]), known_from[j]
    assert one[waiting].tobytes() == other[waiting].tobytes()
    assert one[used].tobytes() != other[used].tobytes()


def test_clock_columns_are_read_and_never_inputs() -> None:
    day = [0.0, 10.0, 20.0] * 40
    table = pl.DataFrame(
        {
            "subject_id": np.repeat(np.arange(40), 3),
            "time": day,
            "glucose": np.arange(120.0),
            "glucose__known": [value + 1 for value in day],
            "glucose__drawn": day,
            "hba1c": np.arange(120.0) % 7 + 5,
            "hba1c__known": [None if k % 5 == 0 else value + 15.0 for k, value in enumerate(day)],
        }
    )
    arrays = prepare_visits(table, ColumnChoice("hba1c")).arrays
    assert arrays.lab_names == ("glucose", "hba1c")
    assert arrays.attribute_names == ()
    assert arrays.known is not None
    assert not known_at_visit(arrays)[:, 0].any()
    without_clock = np.isnan(arrays.known[:, 1])
    assert without_clock.sum() == 24
    assert np.array_equal(known_at_visit(arrays)[:, 1], without_clock)  # such a value was known at its visit
    plain = prepare_visits(table.drop("glucose__known", "hba1c__known"), ColumnChoice("hba1c"))
    assert plain.arrays.known is None
    assert plain.fingerprint != prepare_visits(table, ColumnChoice("hba1c")).fingerprint


def test_the_clock_of_a_hidden_target_changes_nothing(visits: VisitArrays) -> None:
    """Whether somebody measured there must not reach any visit once the target is hidden."""
    task = hide(visits, split_visits(~np.isnan(visits.target_values), np.random.default_rng(0)))
    source = fit_evidence(task, EvidenceSettings(past_only=True), np.random.default_rng(0))
    assert task.visits.known is not None
    hidden = np.isnan(task.visits.target_values) & ~np.isnan(task.visits.known[:, visits.target])
    assert hidden.sum() > 20
    known = task.visits.known.copy()
    known[hidden, visits.target] = np.nan
    one = read_evidence(task.visits, source).matrix
    assert one.tobytes() == read_evidence(replace(task.visits, known=known), source).matrix.tobytes()
