"""`reproduce`: protocols of the paper, every table and figure in one folder, killed and gone on with."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import invoke
from safeimpute.errors import OptionError
from safeimpute.tolerance import Tolerance
from safeimpute.visits.examples import load_pbc
from safeimpute_lab.benchmark.protocols import METHODS, PROTOCOLS, tolerance_of
from safeimpute_lab.benchmark.published import ABLATED_IMPUTER, ALONE, RELEASE_SUMMARY, UNDER_SELECTION
from safeimpute_lab.benchmark.reproduction import EVERY_METHOD


def test_protocols_are_the_papers() -> None:
    mayo, mimic = PROTOCOLS["mayo"], PROTOCOLS["mimic"]
    assert (mayo.test_fraction, mayo.alpha, mayo.tolerance, mayo.risk_groups) == (0.1, 0.15, 0.6, 5)
    assert (mimic.test_fraction, mimic.alpha, mimic.tolerance, mimic.risk_groups) == (0.4, 0.35, 1.0, 10)
    curves = mayo.curve_tolerances(Tolerance(0.6))
    assert [each.absolute for each in curves] == [0.5, 0.6, 0.7, 0.8]
    assert mimic.curve_tolerances(Tolerance(1.0)) == (Tolerance(1.0),)
    assert len(EVERY_METHOD) == 15  # thirteen baselines, paper, best
    assert set(EVERY_METHOD) == set(UNDER_SELECTION) | {"best"}


def test_the_papers_tolerance_speaks_of_hba1c_alone() -> None:
    assert tolerance_of(PROTOCOLS["mayo"], "hba1c", None) == 0.6
    assert tolerance_of(PROTOCOLS["mayo"], "ldl", "10%") == "10%"
    with pytest.raises(OptionError, match="percentage points of HbA1c"):
        tolerance_of(PROTOCOLS["mayo"], "ldl", None)


def test_published_figures_agree_with_each_other() -> None:
    """The same figure stands in several tables of the paper."""
    assert ABLATED_IMPUTER["paper's system"] == ALONE["paper"][:2]
    for place, cohort in enumerate(("Mayo Clinic", "MIMIC-III")):
        fdr, _, _, precision = RELEASE_SUMMARY[cohort]
        assert precision == pytest.approx(1 - fdr)
        assert UNDER_SELECTION["paper"][place][2] == pytest.approx(precision)


TOLD = ("--target", "cholesterol", "--unit", "mg/dL", "--tolerance", "20%", "--fdr", "0.35")
QUICK = ("--methods", "mean,mice,paper", "--splits", "1", "--epochs-scale", "0.02", "--repartitions", "3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed outright after its first finished cell, then run again to the end."""
    place = tmp_path_factory.mktemp("reproduce")
    load_pbc().write_parquet(place / "pbc.parquet")
    command = [sys.executable, "-m", "safeimpute", "reproduce", str(place / "pbc.parquet"), *TOLD, *QUICK]
    command += ["-o", str(place / "out"), "--quiet"]
    process = subprocess.Popen(command, start_new_session=True)
    ends = time.monotonic() + 240
    while time.monotonic() < ends and not list((place / "out").glob("work/*/cells/*.json")):
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return place


@pytest.fixture(scope="module")
def finished(folder: Path) -> tuple[Path, str]:
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("work/*/cells/*.json")}
    assert before
    assert not (folder / "out" / "reproduce.json").exists()  # nothing looks finished
    said = invoke("reproduce", folder / "pbc.parquet", *TOLD, *QUICK, "-o", folder / "out")
    assert {path: path.stat().st_mtime_ns for path in before} == before  # kept, not run again
    return folder / "out", said


@pytest.mark.full
def test_one_command_gives_every_table_and_figure(finished: tuple[Path, str]) -> None:
    out, said = finished
    names = {path.name for path in out.iterdir()}
    assert names == {*("work", "figures", "index.html", "tables.md", "tables.tex", "tables.txt", "reproduce.json")}
    for number in range(1, 7):
        for text in (said, *((out / f"tables.{form}").read_text() for form in ("md", "tex", "txt"))):
            assert f"Table {number}:" in text
    drawn = {path.stem for path in (out / "figures").glob("*.png")}
    assert drawn == {
        *("fdr_power", "risk_alignment", "missingness_heat_map", "visits_per_patient"),
        *("gaps_between_visits", "cumulative_missingness"),
    }
    page = (out / "index.html").read_text()
    assert set(re.findall(r'src="figures/(\w+)\.png"', page)) == drawn
    assert "Other risks at the same level" in page
    assert "trained for 0.02 of the published rounds" in page
    assert "0.4311" in page  # the published MAE of the mean, beside ours


@pytest.mark.full
def test_the_json_holds_what_the_tables_show(finished: tuple[Path, str]) -> None:
    result: dict[str, Any] = json.loads((finished[0] / "reproduce.json").read_text())
    found = result["found"]
    assert set(found["alone"]) == {"mean", "mice", "paper"}
    assert found["alone"]["paper"] == found["ablation"]["imputer"]["paper's system"]
    assert found["release"]["paper"] == found["ablation"]["risk"]["proxy risk"]
    curve = next(c for c in found["curves"] if c["share"] == pytest.approx(0.2))
    point = next(p for p in curve["points"] if p["fdr"] == 0.35)
    assert point == found["release"]["paper"]
    assert len(found["alignment"]) == 5
    assert found["missing"] == {}
    assert {name for names in METHODS.values() for name in names} >= set(found["under_selection"])


@pytest.mark.full
def test_a_finished_reproduction_is_not_overwritten_unasked(finished: tuple[Path, str], folder: Path) -> None:
    with pytest.raises(OptionError, match="--force"):
        invoke("reproduce", folder / "pbc.parquet", *TOLD, *QUICK, "-o", finished[0])
    with pytest.raises(OptionError, match="not in the paper's tables"):
        invoke("reproduce", folder / "pbc.parquet", *TOLD, "--methods", "csdi", "-o", folder / "new")
