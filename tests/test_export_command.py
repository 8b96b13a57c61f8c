"""`safeimpute export` from the command line, on a real run: review, export, and the way back is closed."""

import gzip
import json
import shutil
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from helpers.review_run import QUICK
from safeimpute.cli import app
from safeimpute.errors import InputError
from safeimpute.machine.files import sha256_of
from safeimpute.visits.examples import load_pbc
from safeimpute.web.decisions import DecisionLog, Imputation, log_beside

RUN = ["--target", "cholesterol", "--tolerance", "20%", "--fdr", "0.25", "--unit", "mg/dL", "--quiet"]


def done(*told: str | Path) -> str:
    """What a command prints, in this process: libraries are loaded once."""
    result = CliRunner().invoke(app, [str(each) for each in told])
    assert result.exception is None, result.exception
    return result.stdout


def refused(*told: str | Path) -> str:
    result = CliRunner().invoke(app, [str(each) for each in told])
    assert isinstance(result.exception, InputError), result.exception
    return str(result.exception)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on dated visits; the first three released values were accepted, the fourth rejected."""
    folder = tmp_path_factory.mktemp("export")
    days = pl.duration(days=pl.col("time").round(0)) + pl.lit(datetime(1990, 1, 1, 8, 30))
    dated = load_pbc().filter(pl.col("subject_id") <= 110).with_columns(time=days)
    dated.write_parquet(folder / "visits.parquet")
    (folder / "quick.toml").write_text(QUICK)
    done("run", folder / "visits.parquet", *RUN, "--config", folder / "quick.toml", "--out", folder / "run")
    path = folder / "run" / "imputations.parquet"
    log = DecisionLog(log_beside(folder / "run"), sha256_of(path))
    rows = pl.read_parquet(path).with_row_index().filter("released").head(4)
    for position, row in enumerate(rows.iter_rows(named=True)):
        about = Imputation(row["index"], str(row["subject_id"]), str(row["time"]), row["value"])
        log.add("Dr. A", about, "accept" if position < 3 else "reject")
    return folder


def test_accepted_values_reach_every_format(place: Path) -> None:
    said = done("export", place / "run", "--to", "fhir", "-o", place / "fhir", "--accepted")
    assert "values written           3" in said
    assert "not this accepted subset" in said
    with gzip.open(place / "fhir" / "imputations.ndjson.gz", "rt") as file:
        (bundle,) = [json.loads(line) for line in file]
    found = [e["resource"] for e in bundle["entry"] if e["resource"]["resourceType"] == "Observation"]
    assert [each["meta"]["security"][0]["code"] for each in found] == ["CLINAST_AIRPT"] * 3
    table = pl.read_parquet(place / "run" / "imputations.parquet").filter("released")
    assert [each["valueQuantity"]["value"] for each in found] == table["value"].head(3).round(0).to_list()
    model = json.loads((place / "run" / "model" / "model.json").read_text())
    device = bundle["entry"][0]["resource"]
    assert device["identifier"][0]["value"] == model["checksum"]
    done("export", place / "run", "--to", "omop", "-o", place / "omop", "--accepted", "--first-id", "50")
    measurement = pl.read_parquet(place / "omop" / "measurement.parquet")
    assert measurement["measurement_id"].to_list() == [50, 51, 52]
    assert measurement["person_id"].to_list() == table["subject_id"].head(3).to_list()
    done("export", place / "run", "--to", "meds", "-o", place / "meds", "--accepted")
    assert len(pl.read_parquet(place / "meds" / "data" / "0.parquet")) == 3
    record = json.loads((place / "meds" / "export.jsonl").read_text())
    assert record["run_sha256"] == sha256_of(place / "run" / "imputations.parquet")
    assert "would be overwritten" in refused("export", place / "run", "--to", "meds", "-o", place / "meds")
    done("export", place / "run", "--to", "meds", "-o", place / "meds", "--force", "--quiet")


def test_without_a_word_of_reviewers_all_but_the_rejected_go_out(place: Path) -> None:
    done("export", place / "run", "--to", "omop", "-o", place / "all", "--form", "csv")
    told = pl.read_csv(place / "all" / "safeimpute_provenance.csv")
    table = pl.read_parquet(place / "run" / "imputations.parquet")
    assert told["released"].sum() == table["released"].sum() - 1
    assert told.filter(pl.col("review") == "rejected")["reason"].to_list() == ["rejected by a reviewer"]


@pytest.mark.full
def test_stripped_of_its_marks_a_filled_table_is_refused(place: Path) -> None:
    visits = pl.read_parquet(place / "visits.parquet")
    given = pl.read_parquet(place / "run" / "imputations.parquet").filter("released")
    filled = visits.join(given.select("subject_id", "time", "value"), on=["subject_id", "time"], how="left")
    (place / "again").mkdir()
    filled = filled.with_columns(pl.col("cholesterol").fill_null(pl.col("value"))).drop("value")
    filled.write_parquet(place / "filled.parquet")
    message = refused("run", place / "filled.parquet", *RUN, "--out", place / "again" / "run")
    assert f"holds {len(given):,} values that an earlier run released" in message
    assert not (place / "again" / "run").exists()
    evaluated: list[str | Path] = ["evaluate", place / "filled.parquet", *RUN[:6], "--splits", "1"]
    assert "earlier run released" in refused(*evaluated)
    scored: list[str | Path] = [
        "score",
        place / "run" / "model",
        place / "filled.parquet",
        "-o",
        place / "again" / "s.parquet",
    ]
    assert "earlier run released" in refused(*scored)


@pytest.mark.full
def test_a_scored_table_with_its_model(place: Path) -> None:
    table, model = place / "scored.parquet", place / "run" / "model"
    done("score", model, place / "visits.parquet", "-o", table, "--quiet")
    done("export", table, "--model", model, "--to", "meds", "-o", place / "scored_meds")
    given = pl.read_parquet(table).filter("released")
    assert len(given) > 10
    assert len(pl.read_parquet(place / "scored_meds" / "data" / "0.parquet")) == len(given)
    assert "--model" in refused("export", table, "--to", "meds", "-o", place / "x")
    told = refused("export", table, "--model", model, "--to", "meds", "-o", place / "x", "--accepted")
    assert "only a run can be reviewed" in told
    pl.read_parquet(table).with_columns(pl.col("cutoff") + 0.01).write_parquet(place / "foreign.parquet")
    told = refused("export", place / "foreign.parquet", "--model", model, "--to", "meds", "-o", place / "x")
    assert "not scored by this model" in told


def test_no_guarantee_stands_in_every_resource(place: Path) -> None:
    shutil.copytree(place / "run", place / "doubtful")
    summary = json.loads((place / "doubtful" / "summary.json").read_text())
    summary |= {"promise": "", "no_promise": "the levels were chosen after looking."}
    (place / "doubtful" / "summary.json").write_text(json.dumps(summary))
    done("export", place / "doubtful", "--to", "fhir", "-o", place / "doubtful_fhir")
    with gzip.open(place / "doubtful_fhir" / "imputations.ndjson.gz", "rt") as file:
        entries = [entry["resource"] for line in file for entry in json.loads(line)["entry"]]
    found = [each for each in entries if each["resourceType"] == "Observation"]
    assert all(each["meta"]["tag"][-1]["code"] == "no-guarantee" for each in found)
    assert {each["note"][0]["text"] for each in found} == {"No guarantee: the levels were chosen after looking."}


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (["--to", "fhir", "--zone", "Mars/Base"], "is no time zone"),
        (["--to", "meds", "--database", "postgresql://x"], "--database goes with --to omop"),
        (["--to", "omop", "--into", "cdm"], "--into needs the database"),
        (["--to", "fhir", "--source", "."], "run with --why"),
        (["--to", "omop", "--labs", "cholesterol=cholestrol"], "Did you mean 'cholesterol'"),
        (["--to", "omop", "--database", "postgresql://nobody@127.0.0.1:1/none"], "cannot be reached"),
    ],
)
def test_what_cannot_be_done_leaves_nothing(told: list[str], message: str, place: Path) -> None:
    before = {path.name for path in place.iterdir()}
    assert message in refused("export", place / "run", "-o", place / "nothing", *told)
    assert {path.name for path in place.iterdir()} == before


def test_no_run(place: Path, tmp_path: Path) -> None:
    assert "no folder of a finished run" in refused("export", tmp_path, "--to", "fhir", "-o", tmp_path / "x")
