"""Tables as hospitals have them, made from open data or written here: each gets to a first report with one command."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.errors import VisitsError
from safeimpute.machine.options import TableFormat
from safeimpute.visits.checks import Account
from safeimpute.visits.examples import load_pbc, simulate
from safeimpute.visits.files.excel import write_excel
from safeimpute.visits.files.opened import read_file

DAY = date(2000, 1, 1)


def cohort() -> pl.DataFrame:
    """Two hundred diabetic patients, with dates and identifiers as a hospital has them."""
    visits = simulate("mimic4", np.random.default_rng(5), patients=200, labs=2).visits
    day = pl.lit(DAY) + pl.duration(days=pl.col("time").cast(pl.Int64))
    return visits.with_columns(pl.col("subject_id").cast(pl.String).str.zfill(7), time=day.cast(pl.Date))


def melted() -> pl.DataFrame:
    """One row per result, labs called as people call them."""
    units = {"hba1c": ("HbA1c", "%"), "glucose": ("Gluc", "mg/dL"), "cholesterol": ("Cholesterol, total", "mg/dL")}
    rows = cohort().unpivot(list(units), index=["subject_id", "time", "sex"], variable_name="lab", value_name="Result")
    named = {lab: name for lab, (name, _) in units.items()}
    unit = {lab: each for lab, (_, each) in units.items()}
    return rows.drop_nulls("Result").select(
        pl.col("subject_id").alias("MRN"), pl.col("sex").alias("Sex"), pl.col("time").alias("Collection date"),
        pl.col("lab").replace_strict(named).alias("Test"), pl.col("Result").cast(pl.String),
        pl.col("lab").replace_strict(unit).alias("Unit"),
    )  # fmt: skip


def german(folder: Path) -> Path:
    texts = [pl.col(lab).cast(pl.String).str.replace(".", ",", literal=True) for lab in ("glucose", "cholesterol")]
    table = cohort().with_columns(*texts, pl.col("time").dt.strftime("%d.%m.%Y"))
    table = table.with_columns(hba1c=pl.col("hba1c").cast(pl.String).str.replace(".", ",", literal=True))
    table.rename({"subject_id": "Patient", "time": "Datum", "hba1c": "HbA1c (%)"}).write_csv(
        folder / "besuche.csv", separator=";"
    )
    return folder / "besuche.csv"


def long_csv(folder: Path) -> Path:
    limited = pl.when(pl.col("Result").cast(pl.Float64) < 5.2).then(pl.lit("<5.2")).otherwise("Result")
    melted().with_columns(Result=limited).write_csv(folder / "labs.csv.gz", compression="gzip")
    return folder / "labs.csv.gz"


def long_excel(folder: Path) -> Path:
    write_excel(melted(), folder / "labs.xlsx")
    return folder / "labs.xlsx"


def long_folder(folder: Path) -> Path:
    (folder / "labs").mkdir()
    for number, part in enumerate(melted().with_row_index().partition_by("Test")):
        part.drop("index").write_csv(folder / "labs" / f"{number}.csv")
    return folder / "labs"


def wide_excel(folder: Path) -> Path:
    write_excel(cohort(), folder / "visits.xlsx")
    return folder / "visits.xlsx"


def redcap(folder: Path) -> Path:
    table = cohort()
    first = table.select("subject_id", "sex").unique(maintain_order=True)
    base = first.select(record_id="subject_id", redcap_event_name=pl.lit("baseline_arm_1"), sex="sex")
    labs = table.select(
        record_id="subject_id", redcap_event_name=pl.lit("visit_arm_1"), redcap_repeat_instrument=pl.lit("labs"),
        redcap_repeat_instance=pl.int_range(pl.len()).over("subject_id") + 1, lab_date=pl.col("time").cast(pl.String),
        hba1c="hba1c", glucose="glucose", cholesterol="cholesterol", labs_complete=pl.lit(2),
    )  # fmt: skip
    pl.concat([base, labs], how="diagonal").sort("record_id", maintain_order=True).write_csv(folder / "redcap.csv")
    return folder / "redcap.csv"


def words(folder: Path) -> Path:
    said = pl.Series(["not done", "hemolyzed", "see comment", "NA", "<5"])
    text = pl.col("hba1c").cast(pl.String).fill_null(said.gather(pl.Series(np.arange(len(cohort())) % 5)))
    cohort().with_columns(hba1c=text).write_csv(folder / "words.csv")
    return folder / "words.csv"


def pbc(folder: Path) -> Path:
    load_pbc().rename({"subject_id": "id", "time": "day"}).write_parquet(folder / "pbc.parquet")
    return folder / "pbc.parquet"


MADE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "german csv": (german, "hba1c"),
    "long csv with limits": (long_csv, "hba1c"),
    "long excel": (long_excel, "hba1c"),
    "folder of long files": (long_folder, "hba1c"),
    "excel": (wide_excel, "hba1c"),
    "redcap": (redcap, "hba1c"),
    "words": (words, "hba1c"),
    "names of its own": (pbc, "cholesterol"),
}


@pytest.mark.parametrize("name", MADE)
def test_a_first_report_with_one_command(name: str, tmp_path: Path) -> None:
    make, target = MADE[name]
    said = CliRunner().invoke(
        app, ["check", str(make(tmp_path)), "--target", target, "--tolerance", "20%", "--fdr", "0.2"]
    )
    assert said.exit_code == 0, said.output
    assert f"\n{target} (" in said.output
    assert "a run stops at once" not in said.output
    assert "claim unmeasured" in said.output


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "target"),
    [
        ("mimic3_demo/LABEVENTS.csv.gz", "magnesium"),
        ("mimic4_demo/hosp/labevents.csv.gz", "albumin"),
        ("omop_synthea27nj/measurement.csv.gz", "glucose"),
        ("mayo_pbc/pbcseq_visits.csv.gz", "cholesterol"),
    ],
)
def test_open_data_as_published_too(file: str, target: str, clinical_data: Path) -> None:
    said = CliRunner().invoke(app, ["check", str(clinical_data / file), "--target", target])
    assert said.exit_code in (0, 2), said.output  # 2: it says what cannot be promised
    assert " patients in " in said.output
    assert "claim unmeasured" in said.output


def test_a_long_export_is_run_and_scored_as_it_is(tmp_path: Path) -> None:
    source, out = long_csv(tmp_path), tmp_path / "run"
    asked = [
        "--columns",
        "MRN=subject_id,Collection date=time",
        "--target",
        "hba1c",
        "--tolerance",
        "1.5",
        "--fdr",
        "0.3",
    ]
    said = CliRunner().invoke(app, ["run", str(source), *asked, "--quick", "--filled", "all", "-o", str(out)])
    assert said.exit_code == 0, said.output
    assert "results made" in said.output
    filled = pl.read_parquet(out / "filled.parquet")
    assert {"hba1c__measured", "hba1c__promised"} <= set(filled.columns)
    assert set(filled["subject_id"].str.len_chars()) == {7}
    counted = json.loads((out / "run.json").read_text())["input"]
    assert counted["sha256"]
    scored = ["score", str(out / "model"), str(source), *asked[:2], "-o", str(tmp_path / "s.parquet")]
    said = CliRunner().invoke(app, scored)
    assert said.exit_code == 0, said.output
    assert "results made" in said.output
    imputed = pl.read_parquet(out / "imputations.parquet")
    assert len(pl.read_parquet(tmp_path / "s.parquet")) == len(imputed)
    check_long_form(pl.read_csv(source, infer_schema=False), imputed, out)


def test_excel_in_is_excel_out(tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ["--columns", "MRN=subject_id,Collection date=time", "--target", "hba1c", "--tolerance", "1.5"]
    command = ["run", str(long_excel(tmp_path)), *asked, "--fdr", "0.3", "--quick", "--filled", "released"]
    said = CliRunner().invoke(app, [*command, "-o", str(out)])
    assert said.exit_code == 0, said.output
    for name in ("imputations", "filled", "filled_long"):
        plain = pl.read_csv(out / f"{name}.csv", infer_schema=False)
        workbook = read_file(out / f"{name}.xlsx", ["subject_id"], TableFormat(), Account())
        assert workbook.columns == plain.columns
        assert len(workbook) == len(plain)
        patient = plain.columns[0]
        assert workbook[patient].to_list() == plain[patient].to_list(), "leading zeros"
    released = pl.read_parquet(out / "imputations.parquet")["released"].sum()
    back = pl.read_parquet(out / "filled_long.parquet")
    assert len(back) == len(melted()) + released
    assert back["Result__promised"].sum() == released > 0


def check_long_form(came: pl.DataFrame, imputed: pl.DataFrame, out: Path) -> None:
    """Long in, long out: the results as they came, below them one row for each imputed value, never read as results."""
    back = pl.read_csv(out / "filled_long.csv", infer_schema=False)
    assert back.columns == [*came.columns, "Result__measured", "Result__promised"]
    assert back[: len(came)].drop("Result__measured", "Result__promised").equals(came)
    added = back[len(came) :]
    assert added["Test"].unique().to_list() == ["HbA1c"]
    assert added["Unit"].unique().to_list() == ["%"]
    assert added["Result__measured"].unique().to_list() == ["FALSE"]
    key = ["subject_id", "time"]
    expected = imputed.select(pl.col(key).cast(pl.String), pl.col("value").round(1), "released").sort(key)
    found = added.sort("MRN", "Collection date")
    assert found["MRN"].to_list() == expected["subject_id"].to_list()
    assert found["Result"].cast(pl.Float64).to_list() == expected["value"].to_list()
    assert (found["Result__promised"] == "TRUE").to_list() == expected["released"].to_list()
    said = CliRunner().invoke(app, ["check", str(out / "filled_long.csv"), "--columns", "MRN=subject_id"])
    assert isinstance(said.exception, VisitsError)
    assert "holds imputed values" in str(said.exception)
