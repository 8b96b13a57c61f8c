"""Ten tables as hospitals have them, made from open data: `check` reads them, its command line runs them, in one try.

`pytest -m full -s tests/cli/test_open_tables.py` prints the table of docs/your_table.md.
"""

import json
import shlex
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from typer.testing import CliRunner

from safeimpute.cli import app
from safeimpute.visits.files.excel import write_excel

DAY_ONE = date(2004, 1, 1)


class Made(NamedTuple):
    """A table in the form it is found in, and what its owner types."""

    path: Path
    rows: int
    patients: set[str]  # identifiers as they stand in the file
    said: list[str]  # the target, and what only the owner knows


def text(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String)


def with_comma(column: str) -> pl.Expr:
    return text(column).str.replace(".", ",", literal=True)


def dated(day: str, style: str) -> pl.Expr:
    return (pl.lit(DAY_ONE) + pl.duration(days=pl.col(day).cast(pl.Int64))).dt.strftime(style)


def made(path: Path, table: pl.DataFrame, patient: str, *said: str) -> Made:
    return Made(path, len(table), set(table[patient].cast(pl.String)), list(said))


def written(path: Path, table: pl.DataFrame, patient: str, *said: str, separator: str = ",") -> Made:
    if path.suffix == ".xlsx":
        write_excel(table, path)
    else:
        table.write_csv(path, separator=separator, compression="gzip" if path.suffix == ".gz" else "uncompressed")
    return made(path, table, patient, *said)


def raw(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema=False)


def nafld(data: Path) -> pl.DataFrame:
    """The first 400 patients with HDL at a visit, identifiers of six digits with leading zeros."""
    table = pl.read_parquet(data / "mayo_nafld" / "nafld_visits.parquet").filter(pl.col("days") >= 0)
    some = table.drop_nulls("hdl")["id"].unique(maintain_order=True)[:400].to_list()
    return table.filter(pl.col("id").is_in(some)).with_columns(text("id").str.zfill(6))


def pbc(data: Path) -> pl.DataFrame:
    return raw(data / "mayo_pbc" / "pbcseq_visits.csv.gz").with_columns(text("id").str.zfill(4))


def mimic4(data: Path, *labs: str) -> pl.DataFrame:
    """Results of some labs, called by MIMIC's own names."""
    folder = data / "mimic4_demo" / "hosp"
    table = raw(folder / "labevents.csv.gz").join(raw(folder / "d_labitems.csv.gz"), on="itemid")
    table = table.filter(pl.col("label").is_in(labs) & (pl.col("fluid") == "Blood"))
    return table.select(
        pl.col("subject_id").str.zfill(10).alias("MRN"),
        pl.col("charttime").alias("Collection date"),
        pl.col("label").alias("Test"),
        pl.col("value").alias("Result"),
        pl.col("valueuom").alias("Unit"),
    )


PANEL = ("Albumin", "Glucose", "Creatinine", "Bilirubin, Total", "Urea Nitrogen", "Hemoglobin", "Platelet Count")


def mimic3_as_published(data: Path, _folder: Path) -> Made:
    path = data / "mimic3_demo" / "LABEVENTS.csv.gz"
    return made(path, raw(path), "SUBJECT_ID", "--target", "magnesium", "--tolerance", "0.5")


def mimic4_as_published(data: Path, _folder: Path) -> Made:
    path = data / "mimic4_demo" / "hosp" / "labevents.csv.gz"
    return made(path, raw(path), "subject_id", "--target", "albumin", "--tolerance", "0.6")


def export_with_limits(data: Path, folder: Path) -> Made:
    table = mimic4(data, *PANEL).with_columns(
        Result=pl.when((pl.col("Test") == "Bilirubin, Total") & (pl.col("Result").cast(pl.Float64, strict=False) < 0.4))
        .then(pl.lit("<0.4"))
        .otherwise("Result")
    )
    return written(folder / "labs.csv.gz", table, "MRN", "--target", "bilirubin", "--tolerance", "40%")


def export_in_excel(data: Path, folder: Path) -> Made:
    table = mimic4(data, *PANEL[:4])
    return written(folder / "labs.xlsx", table, "MRN", "--target", "albumin", "--tolerance", "0.6")


def folder_of_files(data: Path, folder: Path) -> Made:
    table = mimic4(data, *PANEL).with_columns(with_comma("Result"))
    (folder / "labs").mkdir()
    for number, part in enumerate(table.partition_by("Test", maintain_order=True)):
        part.write_csv(folder / "labs" / f"{number}.csv", separator=";")
    said = ("--separator", ";", "--decimal", ",", "--target", "albumin", "--tolerance", "0.6")
    return made(folder / "labs", table, "MRN", *said)


def icu_stays(data: Path, folder: Path) -> Made:
    table = raw(data / "physionet2012" / "set-a_long.csv.gz")
    stays = table["RecordID"].unique(maintain_order=True)[:300].to_list()
    table = table.filter(pl.col("RecordID").is_in(stays))
    said = ("--window", "6h", "--target", "creatinine", "--tolerance", "30%")
    return written(folder / "set-a.csv", table, "RecordID", *said)


def omop_as_published(data: Path, _folder: Path) -> Made:
    path = data / "omop_synthea27nj" / "measurement.csv.gz"
    return made(path, raw(path), "person_id", "--target", "glucose", "--tolerance", "40%")


def german(data: Path, folder: Path) -> Made:
    table = nafld(data).select(
        pl.col("id").alias("Patient"), dated("days", "%d.%m.%Y").alias("Datum"), with_comma("hdl").alias("HDL (mg/dL)"),
        with_comma("sbp").alias("RR syst"), with_comma("age_at_visit").alias("Alter"),
        pl.col("visit_no").alias("Visit_No"),
    )  # fmt: skip
    said = ("--target", "hdl", "--tolerance", "10")
    return written(folder / "besuche.csv", table, "Patient", *said, separator=";")


def redcap(data: Path, folder: Path) -> Made:
    table = nafld(data)
    first = table.unique("id", keep="first", maintain_order=True)
    event = "redcap_event_name"
    base = first.select(record_id="id", **{event: pl.lit("baseline_arm_1")}, sex=text("male"))
    labs = table.select(
        record_id="id", **{event: pl.lit("visit_arm_1")}, redcap_repeat_instrument=pl.lit("labs"),
        redcap_repeat_instance=pl.int_range(pl.len()).over("id") + 1, lab_date=dated("days", "%Y-%m-%d"),
        hdl="hdl", sbp="sbp", age="age_at_visit", labs_complete=pl.lit(2),
    )  # fmt: skip
    export = pl.concat([base, labs], how="diagonal").sort("record_id", maintain_order=True)
    return written(folder / "redcap.csv", export, "record_id", "--target", "hdl", "--tolerance", "10")


def trial_with_words(data: Path, folder: Path) -> Made:
    """The trial as an American sheet: month first, `<` and words among numbers, outcomes and counters beside them."""
    place = pl.int_range(pl.len())
    said = pl.when(place % 3 == 0).then(pl.lit("not done")).when(place % 3 == 1).then(pl.lit("hemolyzed"))
    low = pl.col("bili").cast(pl.Float64) < 0.5
    table = pbc(data).with_columns(
        pl.when(pl.col("chol").is_null()).then(said).otherwise("chol").alias("chol"),
        pl.when(low).then(pl.lit("<0.5")).otherwise("bili").alias("bili"),
        dated("day", "%m/%d/%Y").alias("day"),
    )
    path = folder / "trial.xlsx"
    return written(path, table, "id", "--columns", "chol=cholesterol", "--target", "cholesterol", "--tolerance", "20%")


TABLES: dict[str, Callable[[Path, Path], Made]] = {
    "MIMIC-III `LABEVENTS.csv.gz` as published, one row per result": mimic3_as_published,
    "MIMIC-IV `labevents.csv.gz` as published": mimic4_as_published,
    "a laboratory's export, names of its own, `<0.4`, numbers with leading zeros": export_with_limits,
    "the same in Excel": export_in_excel,
    "the same, a folder with a file per test, semicolons, decimal commas": folder_of_files,
    "PhysioNet 2012, hours since admission, by windows of six hours": icu_stays,
    "OMOP `measurement.csv.gz`": omop_as_published,
    "Mayo NAFLD, one row per visit, the German way": german,
    "Mayo NAFLD as REDCap exports it": redcap,
    "Mayo PBC in Excel, month first, words and `<0.5` among numbers, outcomes": trial_with_words,
}


@pytest.mark.full
@pytest.mark.data
@pytest.mark.parametrize("name", TABLES)
def test_one_try_to_a_first_report(name: str, clinical_data: Path, tmp_path: Path) -> None:
    table = TABLES[name](clinical_data, tmp_path)
    page, out = tmp_path / "check.json", tmp_path / "run"
    looked = CliRunner().invoke(app, ["check", str(table.path), *table.said, "--fdr", "0.3", "--json", str(page)])
    assert looked.exit_code == 0, looked.output
    typed = shlex.split(json.loads(page.read_text())["command"])[1:]
    start = time.process_time()
    ran = CliRunner().invoke(app, [*typed, "--quick", "--filled", "all", "-o", str(out)])
    seconds = time.process_time() - start
    assert ran.exit_code == 0, ran.output
    assert (out / "report.html").stat().st_size > 10_000
    summary, imputed = json.loads((out / "summary.json").read_text()), pl.read_parquet(out / "imputations.parquet")
    assert summary["measured"] > 0
    assert summary["released"] + summary["withheld"] == summary["missing"] == len(imputed)
    assert summary["released"] == imputed["released"].sum()
    filled = pl.read_csv(out / "filled.csv", infer_schema=False)
    for ids in (imputed["subject_id"].cast(pl.String), filled["subject_id"]):
        assert set(ids) <= table.patients
    assert filled["subject_id"].n_unique() > 20
    if "results made" in ran.output:  # long in, long out
        back = pl.read_csv(out / "filled_long.csv", infer_schema=False)
        assert len(back) == table.rows + len(imputed)
        assert (back[:, -2] == "TRUE").sum() == table.rows
        assert (back[:, -1] == "TRUE").sum() == summary["released"]
    rows = f"{table.rows:,} | {summary['released']:,} of {summary['missing']:,}"
    sys.stdout.write(f"\n| {name} | {rows} | 1 | {seconds:.0f} |\n")
