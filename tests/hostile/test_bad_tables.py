"""Bad tables and options end in one clear line and exit code 2; nothing half-written stays behind."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import SafeImputeError, VisitsError
from safeimpute.visits.checks import numbers
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.dates import days
from safeimpute.visits.new_visits import read_new_visits, reading_of
from safeimpute.visits.visits import prepare_visits

pytestmark = pytest.mark.surface("tables")


def good_table(measured: int = 240, patients: int = 60) -> pl.DataFrame:
    rng = np.random.default_rng(2)
    rows = patients * 6
    level = np.repeat(rng.normal(7, 1, patients), 6)
    hba1c = (level + rng.normal(0, 0.3, rows)).round(1)
    hba1c[rng.permutation(rows)[measured:]] = np.nan
    return pl.DataFrame(
        {
            "subject_id": np.repeat([f"P{i:03}" for i in range(patients)], 6),
            "time": np.tile(np.arange(6.0) * 90, patients),
            "hba1c": hba1c,
            "glucose": (level * 20 + rng.normal(0, 15, rows)).round(),
            "sex": np.repeat(rng.choice(["f", "m"], patients), 6),
        }
    ).with_columns(pl.col("hba1c").fill_nan(None))


def run(tmp_path: Path, table: pl.DataFrame, *changes: str) -> tuple[int, str]:
    """Exit code and message of a run on this table, as the entry point would give them."""
    path = tmp_path / "visits.csv"
    table.write_csv(path)
    arguments = ["run", str(path), "--target", "hba1c", "--tolerance", "0.8", "--fdr", "0.3", "--quiet"]
    arguments += ["--preset", "paper", "--claim", "visits", "--out", str(tmp_path / "out"), *changes]
    try:
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    except SafeImputeError as error:
        return error.exit_code, str(error)
    return result.exit_code, result.output


def refused(tmp_path: Path, table: pl.DataFrame, *changes: str) -> str:
    code, message = run(tmp_path, table, *changes)
    assert code == 2, message
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["visits.csv"]
    return message


def test_missing_column(tmp_path: Path) -> None:
    message = refused(tmp_path, good_table().rename({"subject_id": "subject"}))
    assert "'subject_id'" in message
    assert "Did you mean 'subject'" in message


def test_unparsable_time(tmp_path: Path) -> None:
    dates = [f"2024-01-{1 + i % 6:02}" for i in range(360)]
    dates[7] = "around Easter"
    message = refused(tmp_path, good_table().with_columns(time=pl.Series(dates)))
    assert "1 of 360 rows" in message
    assert "Easter" not in message


def test_infinite_lab(tmp_path: Path) -> None:
    table = good_table().with_columns(glucose=pl.Series([np.inf, *[100.0] * 358, -np.inf]))
    assert "'glucose'" in (message := refused(tmp_path, table))
    assert "2 of 360 rows" in message


@pytest.mark.parametrize("column", ["hba1c", "glucose", "age"])
@pytest.mark.parametrize("absurd", [1e200, -1e13, np.inf, np.float64(np.finfo(np.float64).max)])
def test_numbers_no_measurement_can_be(tmp_path: Path, column: str, absurd: float) -> None:
    """One target of 1e200 once ended in hundreds of released values that were no numbers."""
    table = good_table().with_columns(age=pl.Series(np.repeat(np.arange(60.0) + 20, 6)))
    table[5, column] = absurd
    message = refused(tmp_path, table)
    assert f"'{column}'" in message
    assert "1 of 360 rows" in message
    assert "leave the cell empty" in message
    assert ("--exclude" in message) == (column != "hba1c")
    assert "200" not in message


@given(st.floats(-1e12, 1e12))
def test_every_smaller_number_is_read(value: float) -> None:
    table = good_table()
    table[5, "glucose"] = value
    assert np.isin(value, prepare_visits(table, ColumnChoice("hba1c")).arrays.labs[:, 0])


@given(st.floats(min_value=1e12, exclude_min=True), st.booleans())
def test_every_larger_number_is_refused_by_name(value: float, negative: bool) -> None:
    column = pl.Series("glucose", [100.0, None, -value if negative else value])
    with pytest.raises(VisitsError, match=r"'glucose' \(lab\) is infinite or beyond 1e12 in 1 of 3 rows"):
        numbers(column, "lab")


def test_absurd_numbers_at_scoring_are_refused_too() -> None:
    table = good_table()
    reading = reading_of(prepare_visits(table, ColumnChoice("hba1c")), ColumnChoice("hba1c"))
    table[5, "glucose"] = 1e200
    with pytest.raises(VisitsError, match=r"'glucose'.*1 of 360 rows"):
        read_new_visits(table, reading)


def test_an_absurd_number_in_a_column_left_out_is_nobodys_business() -> None:
    table = good_table().with_columns(key=pl.lit(1e18))
    assert prepare_visits(table, ColumnChoice("hba1c", exclude=("key",))).patients == 60


def test_infinite_times(tmp_path: Path) -> None:
    table = good_table()
    table[5, "time"] = np.inf
    message = refused(tmp_path, table)
    assert "'time' (time) is infinite in 1 of 360 rows" in message


def test_text_in_a_lab_column(tmp_path: Path) -> None:
    table = good_table().with_columns(pl.col("glucose").cast(pl.String))
    table[3, "glucose"] = "cloudy"
    message = refused(tmp_path, table)
    assert "'glucose'" in message
    assert "1 of 360 rows" in message
    assert "cloudy" not in message


def test_target_absent(tmp_path: Path) -> None:
    message = refused(tmp_path, good_table(), "--target", "hba1")
    assert "'hba1'" in message
    assert "Did you mean 'hba1c'" in message


def test_constant_target(tmp_path: Path) -> None:
    table = good_table().with_columns(pl.when(pl.col("hba1c").is_not_null()).then(7.0).alias("hba1c"))
    assert "same value" in refused(tmp_path, table)


def test_target_never_measured(tmp_path: Path) -> None:
    assert "never measured" in refused(tmp_path, good_table().with_columns(hba1c=pl.lit(None, pl.Float64)))


def test_empty_table(tmp_path: Path) -> None:
    assert "no rows" in refused(tmp_path, good_table().head(0))


def test_ten_measured_targets(tmp_path: Path) -> None:
    message = refused(tmp_path, good_table(measured=10))
    assert "needs at least 3 calibration visits" in message
    assert "17 measured visits would do, or a level of 0.34 or higher" in message


def test_too_few_calibration_visits_for_the_level(tmp_path: Path) -> None:
    message = refused(tmp_path, good_table(), "--fdr", "0.02")
    assert "calibration visits" in message
    assert "49" in message


def test_copy_of_the_target(tmp_path: Path) -> None:
    table = good_table().with_columns(hba1c_ifcc=((pl.col("hba1c") - 2.15) / 0.0915).round(0))
    assert "'hba1c_ifcc' nearly copies" in refused(tmp_path, table)


def classes(edges: tuple[float, ...]) -> pl.Expr:
    """The target in classes, empty where it is."""
    level = pl.sum_horizontal(pl.col("hba1c") > edge for edge in edges)
    return pl.when(pl.col("hba1c").is_not_null()).then(level)


def test_the_target_in_another_shape(tmp_path: Path) -> None:
    ranked = good_table().with_columns(percentile=pl.col("hba1c").rank())
    assert "'percentile' nearly copies" in refused(tmp_path, ranked)
    numbered = good_table().with_columns(stage=classes((6.0, 7.0, 8.0)))
    assert "'stage' nearly fixes the target 'hba1c'" in refused(tmp_path, numbered)
    named = numbered.with_columns(pl.format("class {}", "stage").alias("stage"))
    assert "Leave it out: --exclude stage" in refused(tmp_path, named)


def test_columns_that_may_look_like_the_target_in_classes() -> None:
    """A patient's own group may tell much of the level; so may a coarse column, short of telling the value."""
    table = good_table(measured=360).with_columns(
        group=pl.col("hba1c").mean().over("subject_id").round(0).cast(pl.String),
        high=(pl.col("hba1c") > 7).cast(pl.Int64),
    )
    assert prepare_visits(table, ColumnChoice("hba1c")).patients == 60


def test_values_that_transform_filled_in(tmp_path: Path) -> None:
    flagged = good_table().with_columns(hba1c_released=pl.col("hba1c").is_null())
    assert "they would count as measured" in refused(tmp_path, flagged)


def test_another_unit_than_the_catalogue_says(tmp_path: Path) -> None:
    other = good_table().with_columns(((pl.col("hba1c") - 2.15) / 0.0915).round(0))
    message = refused(tmp_path, other)
    assert "240 of 240 measured rows" in message
    assert "--unit" in message


def test_numbers_that_are_no_days(tmp_path: Path) -> None:
    written = pl.Series([20240101 + 100 * (i % 6) for i in range(360)])
    assert "dates written as numbers" in refused(tmp_path, good_table().with_columns(time=written))
    seconds = good_table().with_columns(pl.col("time") * 86_400 + 1.7e9)
    assert "turn it into days" in refused(tmp_path, seconds)


def test_times_with_a_zone() -> None:
    zoned = pl.Series(["2024-03-31T02:15:00+02:00", "2024-03-31T00:15:00Z", "2024-03-31 00:15:00.5+0000"])
    assert np.ptp(days(zoned)) * 86_400 == pytest.approx(0.5, abs=1e-3)
    with pytest.raises(VisitsError, match="in every row or in none"):
        days(pl.Series(["2024-03-31T02:15:00+02:00", "2024-03-31T00:15:00"]))


def test_a_column_without_a_name(tmp_path: Path) -> None:
    message = refused(tmp_path, good_table().with_row_index("").select("", *good_table().columns))
    assert "column 1 of 'visits.csv' has no name" in message
    assert "index=False" in message


def test_a_file_is_never_replaced_by_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    message = refused(tmp_path, good_table(), "--force", "--out", str(path))
    assert "is a file; a folder is to be written there" in message
    assert pl.read_csv(path).height == 360
    for command in (["demo", "-o", str(path)], ["demo", "-o", str(path / "below")]):
        with pytest.raises(SafeImputeError):
            CliRunner().invoke(app, command, catch_exceptions=False)
    assert pl.read_csv(path).height == 360


def test_the_demo_replaces_nothing_but_its_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "run.json").write_text("{}")
    with pytest.raises(SafeImputeError, match="did not write"):
        CliRunner().invoke(app, ["demo", "-o", str(mine)], catch_exceptions=False)
    assert (mine / "run.json").read_text() == "{}"


def test_a_table_of_the_configuration_file_nobody_knows(tmp_path: Path) -> None:
    file = tmp_path.with_name(f"{tmp_path.name}.toml")
    file.write_text("[bset]\nfolds = 3\n")
    assert "[bset] is no table it may have" in refused(tmp_path, good_table(), "--config", str(file))


@pytest.mark.parametrize("level", ["0", "1", "-0.1", "nan"])
def test_level_outside_zero_and_one(tmp_path: Path, level: str) -> None:
    assert "fdr" in refused(tmp_path, good_table(), "--fdr", level)


@pytest.mark.parametrize("tolerance", ["0", "0%", "lots"])
def test_unusable_tolerance(tmp_path: Path, tolerance: str) -> None:
    assert "tolerance" in refused(tmp_path, good_table(), "--tolerance", tolerance)


def test_empty_identifiers(tmp_path: Path) -> None:
    table = good_table().with_columns(
        pl.when(pl.int_range(pl.len()) < 4).then(None).otherwise(pl.col("subject_id")).alias("subject_id")
    )
    assert "4 of 360 rows" in refused(tmp_path, table)


def test_file_that_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(SafeImputeError) as caught:
        CliRunner().invoke(
            app, ["run", str(path), "--target", "a", "--tolerance", "1", "--fdr", "0.1"], catch_exceptions=False
        )
    assert caught.value.exit_code == 2


@pytest.mark.full
def test_one_patient_gives_a_result(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "subject_id": ["only"] * 90,
            "time": np.arange(90.0) * 7,
            "hba1c": np.where(np.arange(90) % 3, 7 + rng.normal(0, 0.2, 90).cumsum(), np.nan),
            "glucose": rng.normal(150, 20, 90),
        }
    ).with_columns(pl.col("hba1c").fill_nan(None))
    code, message = run(tmp_path, table, "--labs", "glucose")
    assert code == 0, message
    assert len(pl.read_parquet(tmp_path / "out" / "imputations.parquet")) == 30


def test_a_table_without_holes_is_refused_before_any_work(tmp_path: Path) -> None:
    message = refused(tmp_path, good_table(measured=360))
    assert "measured at every visit" in message
    assert "evaluate" in message


def test_existing_results_are_not_overwritten_silently(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.txt").write_text("keep me")
    code, message = run(tmp_path, good_table())
    assert code == 2
    assert "did not write" in message
    assert (tmp_path / "out" / "precious.txt").read_text() == "keep me"


def test_unknown_claims_are_refused(tmp_path: Path) -> None:
    assert "everyone" in refused(tmp_path, good_table(), "--claim", "everyone")
