"""The features of measuring: the same for a visit whether or not it was measured, and nothing of the future if told."""

import numpy as np
import polars as pl
import pytest

from safeimpute.selection.measuring.features import MeasuringTable, measuring_table
from safeimpute.visits.arrays import BoolArray, VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits


@pytest.fixture(scope="module", params=[False, True], ids=["no clocks", "clocks"])
def arrays(request: pytest.FixtureRequest) -> VisitArrays:
    visits = simulate("mimic4", np.random.default_rng(2), patients=60).visits
    if request.param:
        delay = pl.Series(np.random.default_rng(3).choice([0.0, 2.0, 250.0], len(visits)))
        visits = visits.with_columns(hba1c__known=pl.col("time") + delay)
    return prepare_visits(visits, ColumnChoice("hba1c")).arrays


def hidden(arrays: VisitArrays, rows: BoolArray) -> VisitArrays:
    return arrays.with_target(np.where(rows, np.nan, arrays.target_values))


def column(table: MeasuringTable, name: str) -> np.ndarray:
    return table.matrix[:, table.names.index(name)]


@pytest.mark.parametrize("past_only", [False, True])
def test_no_visit_tells_whether_it_was_measured(arrays: VisitArrays, past_only: bool) -> None:
    """Hidden one visit per patient at a time, every measured visit keeps its row to the byte."""
    whole = measuring_table(arrays, past_only=past_only, calendar=True)
    measured = ~np.isnan(arrays.target_values)
    turn = np.zeros(len(arrays), np.int64)
    turn[measured] = np.concatenate(
        [np.arange(n) for n in np.bincount(arrays.patient[measured]) if n]  # which of the patient's measured ones
    )
    for number in range(int(turn.max()) + 1):
        rows = measured & (turn == number)
        table = measuring_table(hidden(arrays, rows), past_only=past_only, calendar=True)
        assert table.matrix[rows].tobytes() == whole.matrix[rows].tobytes()
    assert whole.names == table.names


def test_what_stands_in_the_columns(arrays: VisitArrays) -> None:
    table = measuring_table(arrays, past_only=False, calendar=True)
    target, patient = arrays.target_values, arrays.patient
    rows = np.arange(len(arrays))
    measured = ~np.isnan(target)
    for row in rows[::23]:
        own = np.flatnonzero((patient == patient[row]) & measured & (rows != row))
        assert column(table, "other hba1c values")[row] == len(own)
        before, after = own[own < row], own[own > row]
        if len(before):
            assert column(table, "previous hba1c")[row] == np.float32(target[before[-1]])
            gap = arrays.time[row] - arrays.time[before[-1]]
            assert column(table, "days to previous hba1c")[row] == np.float32(gap)
        else:
            assert np.isnan(column(table, "previous hba1c")[row])
        assert np.isnan(column(table, "next hba1c")[row]) == (len(after) == 0)
    assert np.array_equal(column(table, "calendar time"), arrays.time.astype(np.float32))
    assert np.array_equal(column(table, "age"), arrays.attributes[:, 0].astype(np.float32))


def test_past_only_looks_back_alone(arrays: VisitArrays) -> None:
    """Rows of the past stay the same when the future is cut off, also where results come in late."""
    table = measuring_table(arrays, past_only=True, calendar=False)
    assert not any("next" in name or "until" in name or "to come" in name for name in table.names)
    assert "calendar time" not in table.names
    early = arrays.time <= np.median(arrays.time)
    cut = measuring_table(arrays.take(early), past_only=True, calendar=False)
    assert cut.matrix.tobytes() == table.matrix[early].tobytes()
    assert np.array_equal(cut.visits, table.visits[early])
    whole = measuring_table(arrays, past_only=False, calendar=False)
    assert np.array_equal(whole.visits, np.bincount(arrays.patient)[arrays.patient])


def test_late_results_count_when_they_arrive() -> None:
    visits = pl.DataFrame(
        {
            "subject_id": [1, 1, 1, 1],
            "time": [0.0, 10.0, 20.0, 30.0],
            "hba1c": [6.0, 7.0, None, 8.0],
            "hba1c__known": [15.0, 10.0, None, 40.0],
            "glucose": [100.0, 110.0, 120.0, 130.0],
        }
    )
    arrays = prepare_visits(visits, ColumnChoice("hba1c", labs=("hba1c", "glucose"))).arrays
    table = measuring_table(arrays, past_only=True, calendar=True)
    assert column(table, "other hba1c values").tolist() == [0, 0, 2, 2]
    np.testing.assert_array_equal(column(table, "previous hba1c"), [np.nan, np.nan, 7, 7])


def test_columns_of_many_levels_stand_last_and_are_marked(arrays: VisitArrays) -> None:
    from dataclasses import replace

    codes = np.arange(len(arrays), dtype=np.float64)[:, None] % 40
    table = measuring_table(
        replace(arrays, high_cardinality=codes, high_cardinality_names=("ward",)), past_only=False, calendar=True
    )
    assert table.high_cardinality == (len(table.names) - 1,)
    assert table.names[-1] == "ward"
    assert np.array_equal(table.matrix[:, -1], codes[:, 0].astype(np.float32))
    assert table.columns == ("time", *arrays.lab_names, "age", "sex", "ward")


def test_the_users_columns_behind_the_features_are_named(arrays: VisitArrays) -> None:
    assert measuring_table(arrays, past_only=False, calendar=True).columns[0] == "time"
    assert measuring_table(arrays, past_only=True, calendar=False).columns[0] == "time between visits"
