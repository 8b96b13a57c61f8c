"""Columns that would mislead: each refused by name, without a trace and without a value in the message."""

import tempfile
from collections.abc import Callable
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import strategies as st

from helpers.fuzzing import fuzzed
from safeimpute.errors import SafeImputeError, VisitsError
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.new_visits import Reading, read_new_visits, reading_of
from safeimpute.visits.tables import read_visits
from safeimpute.visits.visits import prepare_visits

pytestmark = pytest.mark.surface("tables")
SECRET = "Zyx-Patient-7731"  # stands in cells; must stand in no message


def visits(patients: int = 30) -> pl.DataFrame:
    rng = np.random.default_rng(4)
    rows = patients * 4
    return pl.DataFrame(
        {
            "subject_id": np.repeat([f"P{i}" for i in range(patients)], 4),
            "time": np.tile(np.arange(4.0) * 30, patients),
            "hba1c": rng.normal(7, 1, rows).round(2),
            "glucose": rng.normal(140, 20, rows).round(),
            "sex": np.repeat(rng.choice(["F", "M"], patients), 4),
        }
    )


def refused(table: pl.DataFrame, words: str, choice: ColumnChoice | None = None) -> str:
    with pytest.raises(VisitsError, match=words) as caught:
        prepare_visits(table, choice or ColumnChoice("hba1c"))
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_a_column_called_like_a_level_of_another() -> None:
    refused(visits().with_columns(pl.lit(1.0).alias("sex=F")), "'sex=F' is called like a level of the category 'sex'")


@pytest.mark.parametrize("target", ["hba1c__known", "hba1c__drawn"])
@pytest.mark.parametrize("use", ["target", "labs", "attributes"])
def test_a_clock_is_no_target_lab_or_attribute(target: str, use: str) -> None:
    table = visits().with_columns(pl.col("time").alias(target))
    choice = ColumnChoice(target) if use == "target" else ColumnChoice("hba1c", **{use: (target,)})  # type: ignore[arg-type]
    refused(table, f"'{target}' is named as .* known or drawn", choice)


@pytest.mark.parametrize(
    ("known", "time"),
    [
        (pl.Series([date(2024, 1, 1)] * 120), None),
        (pl.Series(["2024-01-01"] * 120), None),
        (pl.Series([19_000.5] * 120), pl.Series([date(2020, 1, 1)] * 120)),
    ],
)
def test_clocks_and_times_of_two_kinds(known: pl.Series, time: pl.Series | None) -> None:
    table = visits().with_columns(known.alias("hba1c__known"))
    table = table if time is None else table.with_columns(time.alias("time"))
    refused(table, "'hba1c__known' holds .*cannot be compared")


@pytest.mark.parametrize(
    "ids",
    [
        lambda n: pl.Series([1e15 + i for i in range(n)]),
        lambda n: pl.Series([float("inf")] * n),
        lambda n: pl.Series([[i] for i in range(n)]),
        lambda n: pl.Series([f"P{i}".encode() for i in range(n)]),
        lambda n: pl.Series([{"id": i} for i in range(n)]),
        lambda n: pl.Series([date(2000, 1, 1)] * n),
    ],
)
def test_identifiers_that_tell_nobody_apart(ids: Callable[[int], pl.Series]) -> None:
    table = visits().with_columns(ids(120).alias("subject_id"))
    refused(table, r"'subject_id' \(whose visit it is\)")
    reading = reading_of(prepare_visits(visits(), ColumnChoice("hba1c")), ColumnChoice("hba1c"))
    with pytest.raises(VisitsError, match="'subject_id'"):
        read_new_visits(table, reading)


def test_whole_numbers_stored_with_a_point_stay_the_same_patients() -> None:
    numbers = np.repeat(np.arange(30), 4) + 7
    one = prepare_visits(visits().with_columns(subject_id=pl.Series(numbers)), ColumnChoice("hba1c"))
    other = prepare_visits(visits().with_columns(subject_id=pl.Series(numbers * 1.0)), ColumnChoice("hba1c"))
    assert one.fingerprint == other.fingerprint


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        (f"{SECRET},1,7\n{SECRET},2\n{SECRET},3,8\n", "1 of 3"),
        (f"{SECRET},1,7,9\n{SECRET},2,7\n", "1 of 2"),
        (f'{SECRET},1,"7\n{SECRET},2,7"\n{SECRET},3,7\n{SECRET}\n', "1 of 3"),
        (f"{SECRET}\n" * 5, "5 of 5"),
    ],
)
def test_uneven_rows_are_counted_not_filled_up(tmp_path: Path, rows: str, count: str) -> None:
    with pytest.raises(VisitsError, match=f"{count} rows of 'visits.csv' have more or fewer cells") as caught:
        read_visits(csv(tmp_path, "subject_id,time,hba1c\n" + rows))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "first",
    [
        f"{SECRET},2024-01-01,7.2",
        f"{SECRET},f,m",
        f"{SECRET},x,x",
        f"{SECRET},,7",
        "subject-7731,tine,hba1d",  # similar to our names, and yet a patient's
    ],
)
def test_a_first_row_of_data_is_never_shown(tmp_path: Path, first: str) -> None:
    path = csv(tmp_path, f"{first}\nP1,2024-01-01,7\n")
    with pytest.raises(VisitsError) as caught:
        prepare_visits(read_visits(path), ColumnChoice("hba1c"))
    assert not any(cell in str(caught.value) for cell in first.split(",") if len(cell) > 2)


def test_a_header_with_one_known_name_is_shown() -> None:
    refused(visits().rename({"time": "tyme"}), "Did you mean 'tyme'")


@pytest.mark.parametrize("kind", [pl.List(pl.Int8), pl.Struct({"a": pl.Int8}), pl.Enum([SECRET])])
def test_odd_columns_are_named_without_their_content(kind: pl.DataType) -> None:
    cells: dict[Any, list[Any]] = {pl.List: [[1]], pl.Struct: [{"a": 1}], pl.Enum: [SECRET]}
    cell = cells[kind.base_type()]
    table = visits().with_columns(pl.Series("odd", cell * 120, dtype=kind))
    refused(table, "'odd'", ColumnChoice("hba1c", labs=("odd",)))


NAMES = st.sampled_from(
    [
        "subject_id",
        "time",
        "hba1c",
        "glucose",
        "sex",
        "sex=F",
        "hba1c__known",
        "glucose__drawn",
        "=1+1",
        "a b",
        "ß\u200b",
    ]
)
CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.dates(),
    st.datetimes(),
    st.just(SECRET),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.lists(st.integers(0, 3), max_size=2),
)


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    """Any table: columns of any type, under names that matter, with cells of any kind."""
    rows = draw(st.integers(0, 8))
    columns = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=8, unique=True)):
        cell = draw(CELLS)
        mostly = draw(st.lists(st.sampled_from([cell, None, cell]), min_size=rows, max_size=rows))
        columns[name] = pl.Series(name, mostly, strict=False)
    return pl.DataFrame(columns)


def read_or_refused(read: Callable[[], object]) -> None:
    """Only an error made on purpose may leave, and it quotes no cell."""
    try:
        read()
    except SafeImputeError as error:
        said = str(error)
    else:
        return
    assert SECRET not in said


def check_any_table(table: pl.DataFrame) -> None:
    read_or_refused(lambda: prepare_visits(table, ColumnChoice("hba1c")))


def check_odd_columns(odd: pl.DataFrame, keep: int) -> None:
    good = visits(20)
    wide = pl.concat([odd] * (len(good) // len(odd) + 1))[: len(good)] if len(odd) else odd
    table = good.with_columns(wide[name] for name in wide.columns[keep:] if len(wide))
    read_or_refused(lambda: prepare_visits(table, ColumnChoice("hba1c")))
    read_or_refused(lambda: read_new_visits(table, good_reading()))


@cache
def good_reading() -> Reading:
    return reading_of(prepare_visits(visits(20), ColumnChoice("hba1c")), ColumnChoice("hba1c"))


def check_any_bytes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, start in FILES.items():
            path = Path(folder) / name
            path.write_bytes(start + content)
            read_or_refused(lambda path=path: prepare_visits(read_visits(path), ColumnChoice("hba1c")))  # type: ignore[misc]


FILES = {"a.csv": b"", "b.csv": b"subject_id,time,hba1c\n", "c.csv.gz": b"", "d.parquet": b"PAR1"}
test_any_table, test_any_table_at_length = fuzzed(check_any_table, tables(), few=60, many=1500)
test_odd_columns, test_odd_columns_at_length = fuzzed(check_odd_columns, tables(), st.integers(0, 2), few=40, many=1000)
test_any_bytes, test_any_bytes_at_length = fuzzed(check_any_bytes, st.binary(max_size=300), few=40, many=1000)
