"""What R reads of a run, and the page that shows how; where R is installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from helpers.scored_cohorts import cohort_of
from safeimpute.visits.tables import write_csv

PAGE = Path(__file__).parents[2] / "docs/r.md"
needs_r = pytest.mark.skipif(shutil.which("Rscript") is None, reason="Rscript is not installed")


def test_yes_and_no_are_written_as_every_program_reads_them(tmp_path: Path) -> None:
    table = pl.DataFrame({"released": [True, False, None], "n": [1, 2, 3]})
    write_csv(table, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "released,n\nTRUE,1\nFALSE,2\n,3\n"
    assert pl.read_csv(tmp_path / "a.csv").equals(table)


@needs_r
def test_r_reads_released_as_a_logical(tmp_path: Path) -> None:
    write_csv(pl.DataFrame({"released": [True, False, None]}), tmp_path / "a.csv")
    code = f'x <- read.csv("{tmp_path}/a.csv"); stopifnot(is.logical(x$released), sum(x$released, na.rm=TRUE) == 1)'
    subprocess.run(["Rscript", "-e", code], check=True, capture_output=True)


@needs_r
@pytest.mark.full
def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```r\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    assert code.count("system2") == 2
    (tmp_path / "page.R").write_text(code)
    cohort_of(60).with_columns(pl.col("time").round(2)).write_csv(tmp_path / "my_visits.csv")
    program = tmp_path / "bin" / "safeimpute"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m safeimpute "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(
        ["Rscript", "page.R"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "FALSE" in run.stdout
    assert "estimate" in run.stdout
