import gzip
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.errors import VisitsError
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.tables import like, read_visits, to_polars
from safeimpute.visits.visits import prepare_visits

CHOICE = ColumnChoice("hba1c")


def table(**changes: object) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    columns: dict[str, object] = {
        "subject_id": np.repeat(["a", "b", "c"], 20),
        "time": np.tile(np.arange(20.0) * 30, 3),
        "hba1c": np.where(np.arange(60) % 4, rng.normal(7, 1, 60), np.nan),
        "glucose": rng.normal(150, 40, 60),
        "age": np.repeat([50, 60, 70], 20),
        "sex": np.repeat(["f", "m", "f"], 20),
    }
    return pl.DataFrame(columns | changes).with_columns(pl.col("hba1c").fill_nan(None))


def test_columns_are_told_apart() -> None:
    visits = prepare_visits(table(note=[f"free text {i}" for i in range(60)], empty=[None] * 60), CHOICE)
    assert visits.labs == ("glucose", "hba1c")
    assert visits.attributes == ("age", "sex")
    assert visits.arrays.attribute_names == ("age", "sex=f", "sex=m")
    assert visits.ignored["empty"] == "never measured"
    assert "text" in visits.ignored["note"]


def test_named_columns_win_over_the_rule() -> None:
    visits = prepare_visits(table(), ColumnChoice("hba1c", labs=("age",), attributes=("glucose",), exclude=("sex",)))
    assert visits.labs == ("age", "hba1c")
    assert visits.attributes == ("glucose",)
    assert visits.ignored == {"sex": "excluded by name"}


@pytest.mark.parametrize(
    "time",
    [
        [date(2024, 1, 1 + i) for i in range(20)] * 3,
        [datetime(2024, 1, 1 + i, 8, 30) for i in range(20)] * 3,
        [f"2024-01-{i + 1:02}" for i in range(20)] * 3,
        [f"2024-01-{i + 1:02} 08:30:00" for i in range(20)] * 3,
        list(range(20)) * 3,
    ],
    ids=["date", "timestamp", "text date", "text timestamp", "whole days"],
)
def test_time_may_be_a_date_a_timestamp_or_days(time: list[object]) -> None:
    arrays = prepare_visits(table(time=pl.Series(time)), CHOICE).arrays
    same = arrays.patient[1:] == arrays.patient[:-1]
    np.testing.assert_allclose(np.diff(arrays.time)[same], 1.0)


@given(st.randoms(use_true_random=False))
def test_row_and_column_order_change_nothing(random: object) -> None:
    frame = pl.concat([table(), table().head(7).with_columns(pl.col("glucose") + 1.1)])
    rows, columns = list(range(len(frame))), list(frame.columns)
    random.shuffle(rows)  # type: ignore[attr-defined]
    random.shuffle(columns)  # type: ignore[attr-defined]
    one, other = prepare_visits(frame, CHOICE), prepare_visits(frame[rows].select(columns), CHOICE)
    assert one.fingerprint == other.fingerprint
    np.testing.assert_array_equal(one.arrays.visit_key, other.arrays.visit_key)
    np.testing.assert_array_equal(one.arrays.labs, other.arrays.labs)


def test_rows_at_one_time_are_one_visit_and_counted() -> None:
    twin = table().head(1).with_columns(glucose=pl.lit(100.0), hba1c=pl.lit(6.0))
    frame = pl.concat([table(), twin])
    visits = prepare_visits(frame, CHOICE)
    assert (visits.rows, visits.merged_rows, len(visits)) == (61, 1, 60)
    first = visits.row_visit[0]
    assert first == visits.row_visit[60]
    assert visits.arrays.labs[first].tolist() == [(table()["glucose"][0] + 100.0) / 2, 6.0]


def test_any_dataframe_goes_in_and_is_left_alone() -> None:
    frame = table()
    as_pandas, as_arrow = frame.to_pandas(), frame.to_arrow()
    copy = as_pandas.copy(deep=True)
    prints = {prepare_visits(kind, CHOICE).fingerprint for kind in (frame, as_pandas, as_arrow)}
    assert len(prints) == 1
    pd.testing.assert_frame_equal(as_pandas, copy)
    assert isinstance(like(frame, as_pandas), pd.DataFrame)
    assert isinstance(like(frame, as_arrow), pa.Table)


def test_files_are_read_by_suffix(tmp_path: Path) -> None:
    frame = table()
    frame.write_csv(tmp_path / "v.csv")
    frame.write_parquet(tmp_path / "v.parquet")
    with gzip.open(tmp_path / "v.csv.gz", "wb") as file:
        file.write((tmp_path / "v.csv").read_bytes())
    prints = {
        prepare_visits(read_visits(tmp_path / name), CHOICE).fingerprint for name in ("v.csv", "v.parquet", "v.csv.gz")
    }
    assert len(prints) == 1


def test_column_names_can_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    table().rename({"subject_id": "patient", "time": "day"}).write_parquet(path)
    frame = read_visits(path, {"patient": "subject_id", "day": "time"})
    assert prepare_visits(frame, CHOICE).patients == 3
    with pytest.raises(VisitsError, match="'nobody'"):
        read_visits(path, {"nobody": "subject_id"})


def test_a_copy_of_the_target_is_refused_by_name() -> None:
    frame = table().with_columns((pl.col("hba1c") * 28.7 - 46.7).round(1).alias("eag"))
    with pytest.raises(VisitsError, match=r"'eag' nearly copies the target 'hba1c'.*exclude"):
        prepare_visits(frame, CHOICE)
    assert "eag" not in prepare_visits(frame, ColumnChoice("hba1c", exclude=("eag",))).labs


def test_messages_never_quote_a_cell() -> None:
    secret = "SECRET-4711"
    frame = table(glucose=[secret, *["120"] * 59])
    with pytest.raises(VisitsError) as caught:
        prepare_visits(frame, CHOICE)
    assert secret not in str(caught.value)
    assert "1 of 60 rows" in str(caught.value)


def test_to_polars_refuses_what_is_no_table() -> None:
    with pytest.raises(VisitsError, match="a table is needed"):
        to_polars([1, 2, 3])


def test_whole_numbers_name_the_same_patient_however_they_are_stored() -> None:
    ids = [7, 7, 12, 12, 3, 3]
    table = pl.DataFrame({"subject_id": ids, "time": [0, 1] * 3, "hba1c": [5.0, 6, 7, 5, 6, 7]})
    stored = [table, table.cast({"subject_id": pl.Float64}), table.cast({"subject_id": pl.String})]
    keys = [prepare_visits(each, ColumnChoice("hba1c")).arrays.patient_key for each in stored]
    assert keys[0].tobytes() == keys[1].tobytes() == keys[2].tobytes()
