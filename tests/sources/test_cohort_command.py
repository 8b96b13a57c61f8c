"""`safeimpute cohort`: what it prints and writes, and what it never overwrites or leaves half-done."""

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
from typer.testing import CliRunner, Result

import helpers.clinical_sources as sources
from helpers.clinical_sources import Person, Records
from safeimpute.cli.cohort import cohort
from safeimpute.errors import OptionError
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.visits import prepare_visits

NOON = datetime(2150, 6, 1, 12)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    results = [
        sources.Result(1, "hba1c", 7.0, NOON, "%", NOON + timedelta(hours=4)),
        sources.Result(1, "hba1c", 6.0, NOON + timedelta(days=90), "%"),
        sources.Result(1, "glucose", 150, NOON, "mg/dL"),
        sources.Result(1, "glucose", 3000, NOON, "mg/dL"),
        sources.Result(1, "glucose", 30, NOON + timedelta(days=90), "mg/dL"),
        sources.Result(2, "hba1c", 9.0, NOON, "%"),
    ]
    people = [Person(1, "F", 2100, True), Person(2, "M", 2090, True)]
    return sources.write_mimic4(Records(people, results, []), tmp_path / "source")


def run(*arguments: Any) -> Result:
    app = typer.Typer()
    app.command()(cohort)
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_it_prints_what_it_writes(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "visits.parquet"
    result = run("mimic4", source, "--target", "hba1c", "-o", out)
    assert result.exit_code == 0, result.output
    for line in (
        "rows in                       6",
        "    out of range                             1",
        "patients                      2   published, full MIMIC-IV, HbA1c anchors: 28,880",
        "visits per patient         1.50   published: 4.95",
        "  glucose at 66.7 % of visits",
        "outside the usual range, kept: glucose 1",
        f"written: {out} and visits.cohort.json",
    ):
        assert line in result.output
    record = json.loads((tmp_path / "visits.cohort.json").read_text())
    assert record["summary"]["visits"] == 3
    assert record["definition"]["labs"]["glucose"]["codes"] == [50931, 52569, 50809, 52027]
    assert record["source"] == {"kind": "mimic4", "title": "MIMIC-IV", "place": str(source)}
    assert set(record["versions"]) == {"safeimpute", "ibis", "engine", "python"}


def test_the_visits_fit_the_rest_of_the_program(source: Path, tmp_path: Path) -> None:
    run("mimic4", source, "--target", "hba1c", "-o", tmp_path / "visits.parquet")
    choice = ColumnChoice("hba1c", labs=("glucose", "cholesterol"), attributes=("sex", "age"))
    visits = prepare_visits(pl.read_parquet(tmp_path / "visits.parquet"), choice)
    assert len(visits) == 3
    assert visits.merged_rows == 0
    assert visits.attributes == ("age", "sex")


def test_quiet_prints_nothing(source: Path, tmp_path: Path) -> None:
    result = run("mimic4", source, "--target", "hba1c", "-o", tmp_path / "visits.parquet", "--quiet")
    assert result.exit_code == 0
    assert result.output == ""


def test_it_overwrites_only_when_told_to(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "visits.parquet"
    out.write_text("mine")
    result = run("mimic4", source, "--target", "hba1c", "-o", out)
    assert isinstance(result.exception, OptionError)
    assert "--force" in str(result.exception)
    assert out.read_text() == "mine"
    assert run("mimic4", source, "--target", "hba1c", "-o", out, "--force").exit_code == 0
    assert len(pl.read_parquet(out)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "visits.csv"), "must end in .parquet"),
        (("-o", "absent/visits.parquet"), "Create it first"),
        (("--anchors", "all"), "target, any"),
    ],
)
def test_options_not_understood(arguments: tuple[str, str], message: str, source: Path, tmp_path: Path) -> None:
    options = {"-o": str(tmp_path / "visits.parquet")} | dict([arguments])
    result = run("mimic4", source, "--target", "hba1c", *[part for pair in options.items() for part in pair])
    assert isinstance(result.exception, OptionError)
    assert message in str(result.exception)


def test_an_unknown_kind_names_the_known_ones(source: Path, tmp_path: Path) -> None:
    result = run("mimic5", source, "--target", "hba1c", "-o", tmp_path / "visits.parquet")
    assert "mimic3, mimic4, omop, meds, fhir" in str(result.exception)


@pytest.mark.full
@pytest.mark.parametrize(("stage", "earlier"), [("reading the results, one pass", False), ("writing the visits", True)])
def test_a_killed_build_leaves_nothing_that_looks_finished(
    stage: str, earlier: bool, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "visits.parquet"
    if earlier:
        out.write_text("an earlier build")
    script = f"""
import os, signal
from pathlib import Path
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.sources.cohort.build import build_cohort
from safeimpute.sources.cohort.definition import define_cohort

def progress(stage, share):
    if stage == {stage!r}:
        os.kill(os.getpid(), signal.SIGKILL)

catalogue = load_catalogue()
definition = define_cohort(catalogue, target="hba1c")
out = Path({str(out)!r})
build_cohort("mimic4", {str(source)!r}, definition, out, catalogue=catalogue, force=True, progress=progress)
"""
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, env=os.environ)
    assert killed.returncode == -9, killed.stderr.decode()
    visible = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    assert visible == (["visits.parquet"] if earlier else [])
    if earlier:
        assert out.read_text() == "an earlier build"
