"""A table whose marks were stripped is known by its values; what is measured is not taken for a known value."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from safeimpute.errors import VisitsError
from safeimpute.visits import imputations
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.imputations import REGISTER, record_released, refuse_known_values
from safeimpute.visits.visits import prepare_visits

CHOICE = ColumnChoice("hba1c")


def visits(patients: int = 20, each: int = 6) -> pl.DataFrame:
    chance = np.random.default_rng(3)
    rows = patients * each
    hba1c = np.round(chance.normal(7, 1, rows), 1)
    return pl.DataFrame(
        {
            "subject_id": [f"p{row // each}" for row in range(rows)],
            "time": [float(row % each) for row in range(rows)],
            "hba1c": pl.Series(np.where(np.arange(rows) % 3 == 0, np.nan, hba1c)).fill_nan(None),
            "glucose": chance.normal(120, 20, rows),
        }
    )


def released(table: pl.DataFrame) -> pl.DataFrame:
    missing = table.filter(pl.col("hba1c").is_null())
    values = np.random.default_rng(4).normal(7, 1, len(missing))
    return missing.select(
        "subject_id",
        "time",
        lab=pl.lit("hba1c"),
        value=pl.Series(values),
        released=pl.Series(np.arange(len(missing)) % 2 == 0),
    )


def filled(table: pl.DataFrame, imputed: pl.DataFrame) -> pl.DataFrame:
    values = imputed.filter("released").select("subject_id", "time", "value")
    joined = table.join(values, on=["subject_id", "time"], how="left")
    return joined.with_columns(pl.col("hba1c").fill_null(pl.col("value"))).drop("value")


def check(table: pl.DataFrame, *beside: Path) -> None:
    refuse_known_values(prepare_visits(table, CHOICE).arrays, *beside)


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    table = visits()
    run = tmp_path / "run"
    assert record_released(run, "ab" * 32, released(table), prepare_visits(table, CHOICE).arrays) == ""
    return run


def test_the_table_itself_is_no_known_table(beside: Path) -> None:
    check(visits(), beside)


def test_filled_in_values_are_refused_without_being_told(beside: Path, tmp_path: Path) -> None:
    table = filled(visits(), released(visits()))
    with pytest.raises(VisitsError, match="column 'hba1c' holds 20 values that an earlier run released") as failure:
        check(table, beside)
    assert "p1" not in str(failure.value)
    check(table, tmp_path / "elsewhere" / "run")  # another place, another register


def test_one_value_is_enough_and_may_have_moved_to_a_later_visit(beside: Path) -> None:
    value = released(visits())["value"][0]
    moved = (pl.col("subject_id") == "p0") & (pl.col("time") == 5)
    with pytest.raises(VisitsError, match="holds 1 values"):
        check(visits().with_columns(hba1c=pl.when(moved).then(pl.lit(value)).otherwise("hba1c")), beside)


def test_of_another_patient_or_withheld_it_is_not_that_value(beside: Path) -> None:
    table = released(visits())
    other = table.with_columns(subject_id=pl.lit("somebody"))
    check(pl.concat([visits(), other.select("subject_id", "time", hba1c="value")], how="diagonal"), beside)
    withheld = table.with_columns(released=~pl.col("released"))
    check(filled(visits(), withheld), beside)


def test_the_32_bits_that_meds_keeps_are_known_too(beside: Path) -> None:
    rounded = released(visits()).with_columns(pl.col("value").cast(pl.Float32).cast(pl.Float64))
    with pytest.raises(VisitsError, match="to the last digit"):
        check(filled(visits(), rounded), beside)


def test_rounded_values_are_known_where_most_agree(beside: Path) -> None:
    """As csv files and exports have them; what is measured later may agree by chance."""
    round_ones = released(visits()).with_columns(pl.col("value").round(1))
    with pytest.raises(VisitsError, match="holds 20 values that an earlier run released, rounded, at 20 visits"):
        check(filled(visits(), round_ones), beside)
    later = round_ones.with_columns(pl.col("value") + pl.when(pl.int_range(pl.len()) < 22).then(0.3).otherwise(0))
    check(filled(visits(), later), beside)


def test_a_round_or_measured_value_tells_nothing(tmp_path: Path) -> None:
    table = visits()
    round_ones = released(table).with_columns(pl.col("value").round(1))
    assert record_released(tmp_path / "run", "cd" * 32, round_ones) == ""
    check(filled(table, round_ones.head(9)), tmp_path / "run")
    own = visits().with_columns(hba1c=pl.col("hba1c") * np.pi)  # digits enough, but the patient's own
    copied = released(table).with_columns(value=pl.lit(own["hba1c"].drop_nulls()[0]), subject_id=pl.lit("p0"))
    assert record_released(tmp_path / "run", "ef" * 32, copied, prepare_visits(own, CHOICE).arrays) == ""
    check(own, tmp_path / "run")


def test_an_export_of_some_values_takes_none_of_the_others_out(beside: Path) -> None:
    assert record_released(beside, "ab" * 32, released(visits()).head(2)) == ""
    with pytest.raises(VisitsError, match="holds 20 values"):
        check(filled(visits(), released(visits())), beside)


def test_the_ledger_tells_nothing_of_a_patient(beside: Path) -> None:
    files = list((beside.parent / REGISTER).iterdir())
    assert len(files) == 2
    for content in (file.read_bytes() for file in files):
        assert b"p0" not in content
        assert released(visits())["value"].to_numpy()[:1].tobytes() not in content


def test_a_damaged_or_missing_ledger_is_passed_over(beside: Path, tmp_path: Path) -> None:
    (beside.parent / REGISTER / "damaged.npy").write_bytes(b"\x93NUMPY nonsense")
    (beside.parent / REGISTER / "objects.npy").write_bytes(b"")
    with pytest.raises(VisitsError):
        check(filled(visits(), released(visits())), beside)
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / REGISTER).write_text("in the way")
    warning = record_released(tmp_path / "file" / "run", "ab" * 32, released(visits()))
    assert "could not be entered" in warning


def test_nothing_released(tmp_path: Path) -> None:
    nothing = released(visits()).with_columns(released=pl.lit(False))
    assert record_released(tmp_path / "run", "ab" * 32, nothing) == ""
    check(visits(), tmp_path / "run")


def test_which_numbers_tell() -> None:
    values = np.array([6.1, 6.12345, 6.1234, 123.45, 123.456, 0.0, np.nan, 1e-9, 1.23456e-9, 7.0])
    told = imputations.telling(values).tolist()
    assert told == [False, True, False, False, True, False, False, False, True, False]


def test_a_flag_of_any_lab_says_that_values_were_filled_in() -> None:
    table = visits().with_columns(glucose_released=pl.lit(False))
    with pytest.raises(VisitsError, match="'glucose_released' says which values of 'glucose' were imputed"):
        prepare_visits(table, CHOICE)
    without = ColumnChoice("hba1c", exclude=("glucose", "glucose_released"))
    assert prepare_visits(table, without).labs == ("hba1c",)
