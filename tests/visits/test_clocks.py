"""Two clocks: a value counts from the time it was known, not from the time it was drawn."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeimpute.learning.best.evidence import EvidenceTable, Source, learn_source, read_evidence
from safeimpute.selection.measuring.features import measuring_table
from safeimpute.settings import BestSettings
from safeimpute.visits.arrays import NONE, VisitArrays, first_row_to_know, known_at_visit, nearest_own_visits
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits


@pytest.fixture(scope="module")
def visits() -> VisitArrays:
    """Simulated visits whose values arrive up to a few visits late, some never."""
    table = simulate("mimic4", np.random.default_rng(1), patients=60).visits
    arrays = prepare_visits(table, ColumnChoice("hba1c")).arrays
    rng = np.random.default_rng(2)
    delay = rng.choice([-1.0, 0.0, 40.0, 400.0, 1e6], arrays.labs.shape, p=[0.2, 0.3, 0.2, 0.2, 0.1])
    known = np.where(rng.random(delay.shape) < 0.1, np.nan, arrays.time[:, None] + delay)
    return replace(arrays, known=np.where(np.isnan(arrays.labs), np.nan, known))


@pytest.fixture(scope="module")
def source(visits: VisitArrays) -> Source:
    return learn_source(partly_hidden(visits), BestSettings(), np.random.default_rng(0), past_only=True)


def partly_hidden(visits: VisitArrays) -> VisitArrays:
    """The visits with a fifth of the targets hidden."""
    hidden = np.random.default_rng(0).random(len(visits)) < 0.2
    return visits.with_target(np.where(hidden, np.nan, visits.target_values))


def matrix(visits: VisitArrays, source: Source) -> EvidenceTable:
    return read_evidence(visits, source, np.ones(len(visits), dtype=bool), 1000).matrix


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
            clock = np.fmax(known[row, lab], time[row])  # its own: an earlier value on its way is no reason to wait
            later = [j for j in range(row + 1, 15) if patient[j] == patient[row] and time[j] >= clock]
            last = max(j for j in range(15) if patient[j] == patient[row])
            assert found[row, lab] == (later[0] if later else last + 1)


def test_values_not_known_by_a_visit_change_nothing_there(visits: VisitArrays, source: Source) -> None:
    shown = partly_hidden(visits)
    before = matrix(shown, source)
    assert visits.known is not None
    seen_late = 0
    for row in range(0, len(visits), 7):
        unknown = (visits.patient[row] == visits.patient)[:, None] & (visits.known > visits.time[row])
        after = matrix(replace(shown, labs=np.where(unknown, shown.labs * 3 + 50, shown.labs)), source)
        assert after[row].tobytes() == before[row].tobytes()
        seen_late += int(np.sum(unknown[: row + 1] & ~np.isnan(shown.labs[: row + 1])))
    assert seen_late > 50  # values drawn by then, yet unknown, were really among those changed


def as_of(visits: VisitArrays, row: int) -> VisitArrays:
    """The table as it stood at a visit's own time: no later visit, and no result still on its way."""
    assert visits.known is not None
    there = visits.time <= visits.time[row]
    late = visits.known > visits.time[row]
    labs, known = (np.where(late, np.nan, each) for each in (visits.labs, visits.known))
    return replace(visits, labs=labs, known=known).take(there)


def test_a_visit_is_seen_at_fit_as_it_was_at_night(visits: VisitArrays, source: Source) -> None:
    """Evidence and measuring features from the whole record equal those from that night's table, to the byte."""
    shown = partly_hidden(visits)
    whole = matrix(shown, source)
    measuring = measuring_table(shown, past_only=True, calendar=False).matrix
    assert shown.known is not None
    overtaken = 0
    for row in range(0, len(visits), 5):
        night = as_of(shown, row)
        here = int(np.flatnonzero(night.visit_key == shown.visit_key[row])[0])
        assert matrix(night, source)[here].tobytes() == whole[row].tobytes()
        found = measuring_table(night, past_only=True, calendar=False).matrix[here]
        assert found.tobytes() == measuring[row].tobytes()
        own = (shown.patient == shown.patient[row]) & (shown.time < shown.time[row])
        clocks = shown.known[own, shown.target]
        overtaken += bool(np.any(np.diff(clocks[~np.isnan(clocks)]) < 0))
    assert overtaken > 5  # results really overtook one another


@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_nearest_known_visits_agree_with_a_search_by_hand(seed: int, before: int) -> None:
    rng = np.random.default_rng(seed)
    patient = np.unique(np.sort(rng.integers(0, 4, 25)), return_inverse=True)[1].astype(np.int64)
    observed, known_from = rng.random(25) < 0.6, np.arange(25) + 1 + rng.integers(0, 5, 25)
    found = nearest_own_visits(patient, observed, before, 0, known_from)
    for i in range(25):
        own = [j for j in range(i) if patient[j] == patient[i] and observed[j] and known_from[j] <= i]
        assert [j for j in found[i].tolist() if j != NONE] == own[::-1][:before]


def test_a_late_value_counts_once_it_is_known(visits: VisitArrays, source: Source) -> None:
    """Mutating a value that was known in time does reach later visits."""
    shown = partly_hidden(visits)
    known_from = first_row_to_know(shown)[:, shown.target]
    visible = ~np.isnan(shown.target_values)
    late = np.flatnonzero(visible & (known_from > np.arange(len(visits)) + 1))
    same_patient = [
        j for j in late if known_from[j] < len(visits) and visits.patient[known_from[j]] == visits.patient[j]
    ]
    assert same_patient
    j = same_patient[0]
    target = shown.target_values.copy()
    target[j] += 3.0
    one, other = matrix(shown, source), matrix(shown.with_target(target), source)
    waiting, used = slice(j, known_from[j]), known_from[j]  # from its own visit on, which never sees it
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


def test_the_clock_of_a_hidden_target_changes_nothing(visits: VisitArrays, source: Source) -> None:
    """Whether somebody measured there must not reach any visit once the target is hidden."""
    shown = partly_hidden(visits)
    assert shown.known is not None
    hidden = np.isnan(shown.target_values) & ~np.isnan(shown.known[:, visits.target])
    assert hidden.sum() > 20
    known = shown.known.copy()
    known[hidden, visits.target] = np.nan
    assert matrix(shown, source).tobytes() == matrix(replace(shown, known=known), source).tobytes()
