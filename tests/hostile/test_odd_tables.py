"""Odd but real input: headerless files, doubtful dates, leading zeros, misspelt options, foreign folders."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import OptionError, VisitsError
from safeimpute.machine.files import finished_file, finished_folder
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.tables import like, read_visits, to_polars
from safeimpute.visits.visits import prepare_visits

pytestmark = pytest.mark.surface("tables")

ROWS = "1,2024-01-01,7.1,120\n1,2024-04-01,7.3,130\n2,2024-01-01,6.5,110\n"


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(text)
    return path


def test_a_file_without_header_is_refused_without_quoting_it(tmp_path: Path) -> None:
    with pytest.raises(VisitsError, match="header row") as caught:
        read_visits(csv(tmp_path, "SECRET9,2024-01-01,7.1,120\n" + ROWS))
    assert "SECRET9" not in str(caught.value)


def test_identifiers_keep_their_zeros(tmp_path: Path) -> None:
    frame = read_visits(csv(tmp_path, "patient,time,hba1c\n007,1,7.0\n7,1,8.0\n"), {"patient": "subject_id"})
    assert frame["subject_id"].to_list() == ["007", "7"]


@pytest.mark.parametrize("times", [("03/01/2024", "03/02/2024"), ("01.02.2024", "02.02.2024")])
def test_doubtful_dates_are_refused(times: tuple[str, str]) -> None:
    table = pl.DataFrame({"subject_id": ["a", "b"], "time": list(times), "hba1c": [7.0, 8.0]})
    with pytest.raises(VisitsError, match="year first"):
        prepare_visits(table, ColumnChoice("hba1c"))


def test_days_written_as_text_are_read() -> None:
    table = pl.DataFrame({"subject_id": ["a", "a"], "time": ["0", "90.5"], "hba1c": [7.0, 8.0]})
    assert prepare_visits(table, ColumnChoice("hba1c")).arrays.time.tolist() == [0.0, 90.5]


@pytest.mark.parametrize("text", ["subject_id;time;hba1c\n1;2;3\n", "subject_id\ttime\thba1c\n1\t2\t3\n"])
def test_other_separators_are_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(VisitsError, match="comma"):
        read_visits(csv(tmp_path, text))


def test_a_column_name_that_stands_twice(tmp_path: Path) -> None:
    with pytest.raises(VisitsError, match=r"columns 3 and 4 of 'visits.csv' have the same name"):
        read_visits(csv(tmp_path, "subject_id,time,glucose,glucose\n1,2,3,4\n"))
    doubled = pd.DataFrame([[1, 2, 3]], columns=["subject_id", "time", "time"])
    with pytest.raises(VisitsError, match="stands twice"):
        to_polars(doubled)


@pytest.mark.parametrize(
    "choice",
    [
        ColumnChoice("hba1c", exclude=("hba1c",)),
        ColumnChoice("time"),
        ColumnChoice("hba1c", attributes=("hba1c",)),
        ColumnChoice("hba1c", labs=("glucose",), exclude=("glucose",)),
    ],
)
def test_one_column_named_for_two_uses(choice: ColumnChoice) -> None:
    table = pl.DataFrame({"subject_id": [1], "time": [1.0], "hba1c": [7.0], "glucose": [100.0]})
    with pytest.raises(VisitsError, match="two uses"):
        prepare_visits(table, choice)


def test_blank_cells_are_empty_not_text() -> None:
    rng = np.random.default_rng(0)
    glucose = [f"{value:.0f}" if i % 3 else " " for i, value in enumerate(rng.normal(150, 30, 60))]
    table = pl.DataFrame(
        {"subject_id": np.repeat(["a", "b"], 30), "time": np.tile(np.arange(30.0), 2), "hba1c": rng.normal(7, 1, 60)}
    ).with_columns(glucose=pl.Series(glucose))
    visits = prepare_visits(table, ColumnChoice("hba1c"))
    assert "glucose" in visits.labs
    blank = table.with_columns(subject_id=pl.when(pl.col("time") == 3).then(pl.lit(" ")).otherwise("subject_id"))
    with pytest.raises(VisitsError, match="2 of 60 rows"):
        prepare_visits(blank, ColumnChoice("hba1c"))


def test_a_pandas_index_survives() -> None:
    given = pd.DataFrame({"x": [1.0, 2.0]}, index=[7, 3])
    assert like(pl.DataFrame({"x": [1.0, 2.0]}), given).index.tolist() == [7, 3]


def test_a_foreign_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(OptionError, match="did not write"), finished_folder(tmp_path, force=True):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_our_own_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for content in ("first", "second"):
        with finished_folder(out, force=True) as folder:
            (folder / "run.json").write_text(content)
    with pytest.raises(RuntimeError):
        _fail_while_writing(out)
    assert (out / "run.json").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def _fail_while_writing(out: Path) -> None:
    with finished_folder(out, force=True) as folder:
        (folder / "run.json").write_text("third")
        raise RuntimeError


def test_new_files_follow_the_users_mask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with finished_file(tmp_path / "result.json") as partial:
            partial.write_text("{}")
        with finished_folder(tmp_path / "run", force=False):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "result.json").stat().st_mode & 0o077 == 0
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0


def test_a_misspelt_option_in_a_configuration_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("tollerance = 5\n")
    table = csv(tmp_path, "subject_id,time,hba1c,glucose\n" + ROWS)
    arguments = ["run", str(table), "--target", "hba1c", "--tolerance", "1", "--fdr", "0.2"]
    with pytest.raises(OptionError, match="'tollerance'"):
        CliRunner().invoke(app, [*arguments, "--config", str(tmp_path / "c.toml")], catch_exceptions=False)
