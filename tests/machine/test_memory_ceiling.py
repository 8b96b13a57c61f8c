"""`--memory` is a ceiling: planned for, kept by a real process, refused where it cannot be."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from safeimpute.errors import OptionError
from safeimpute.learning.paper.system import fit_paper
from safeimpute.learning.roles import Task
from safeimpute.machine import resources
from safeimpute.machine.resources import BLOCKS, GIB, PORTIONS, VARIABLE, Size, block_within_ceiling, scored_at_once
from safeimpute.settings import GcnSettings, PaperSettings
from safeimpute.visits.examples import simulate

SMALL = Size(visits=1_000, measured=500, labs=2, attributes=2, own=12, analogues=16)
MILLION = Size(visits=1_000_000, measured=550_000, labs=10, attributes=2, own=12, analogues=16)


def test_without_a_ceiling_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert block_within_ceiling(SMALL, 10_000) == 10_000
    assert scored_at_once(SMALL, 123) == 123


def test_a_tighter_ceiling_means_smaller_blocks_then_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, refusal = [], ""
    for gib in np.arange(20.0, 0.0, -0.01):
        monkeypatch.setenv(VARIABLE, f"{gib:g}")
        try:
            chosen.append(block_within_ceiling(SMALL, BLOCKS[0]))
        except OptionError as error:
            refusal = str(error)
            break
    assert "cannot be kept: 1,000 visits with 2 other labs" in refusal
    assert chosen[0] == BLOCKS[0]
    assert chosen[-1] == BLOCKS[-1]
    assert chosen == sorted(chosen, reverse=True)


def test_what_is_asked_for_in_a_refusal_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0.1")
    with pytest.raises(OptionError) as refusal:
        block_within_ceiling(SMALL, BLOCKS[0])
    enough = str(refusal.value).partition("Give --memory ")[2].split()[0]
    monkeypatch.setenv(VARIABLE, enough)
    block_within_ceiling(SMALL, BLOCKS[0])


def test_scoring_takes_smaller_portions_under_a_tighter_ceiling_then_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    chosen, refusal = [scored_at_once(SMALL, PORTIONS[0])], ""
    for gib in np.arange(4.0, 0.0, -0.001):
        monkeypatch.setenv(VARIABLE, f"{gib:g}")
        try:
            chosen.append(scored_at_once(SMALL, PORTIONS[0]))
        except OptionError as error:
            refusal = str(error)
            break
    assert "scoring 1,000 visits with 2 other labs need" in refusal
    assert set(chosen) == set(PORTIONS)
    assert chosen == sorted(chosen, reverse=True)


def test_an_unreadable_ceiling_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "plenty")
    with pytest.raises(OptionError, match="number of GiB"):
        block_within_ceiling(SMALL, BLOCKS[0])


def test_a_million_visits_with_ten_labs_are_planned_below_four_gib() -> None:
    assert MILLION.held() + MILLION.working(BLOCKS[0]) < 4 * GIB
    assert MILLION.held() > 1 * GIB
    assert SMALL.held() < 0.01 * MILLION.held()


def command(visits: Path, out: Path, memory: str) -> list[str]:
    given = f"run {visits} --target hba1c --tolerance 0.8 --fdr 0.3 --quiet --threads 1 --memory {memory} --out {out}"
    return [sys.executable, "-m", "safeimpute", *given.split()]


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs the peak memory of a child process")
def test_a_real_run_keeps_the_ceiling(tmp_path: Path) -> None:
    visits = tmp_path / "visits.parquet"
    simulate("mimic4", np.random.default_rng(3), patients=500, labs=6).visits.write_parquet(visits)
    refused = subprocess.run(command(visits, tmp_path / "refused", "0.3"), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--memory 0.3 GiB cannot be kept" in refused.stderr
    assert not (tmp_path / "refused").exists()
    least = float(refused.stderr.partition("Give --memory ")[2].split()[0])
    peak = peak_bytes_of_run(visits, tmp_path / "kept", f"{least:g}")
    assert peak <= least * GIB
    assert peak > 0.4 * least * GIB  # a plan that asks for twice the need keeps nothing worth keeping


def peak_bytes_of_run(visits: Path, out: Path, memory: str) -> int:
    """Started by a small process in between: a child's peak counts from what its parent held."""
    between = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr); "
    between += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    told = [sys.executable, "-c", between, *command(visits, out, memory)]
    done = subprocess.run(told, capture_output=True, text=True, check=True)
    assert (out / "imputations.parquet").is_file()
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)


def test_the_paper_preset_plans_no_memory_and_says_so(tmp_path: Path) -> None:
    told = [*command(tmp_path / "none.csv", tmp_path / "out", "4"), "--preset", "paper"]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "preset 'best' only" in done.stderr


READ = """
import sys
import polars, pyarrow.csv, pyarrow.parquet
from pathlib import Path
from safeimpute.errors import OptionError
from safeimpute.visits.tables import read_visits
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.visits import prepare_visits
from safeimpute.machine.resources import peak_mib, set_ceiling
set_ceiling(float(sys.argv[2]))
before = peak_mib()
try:
    prepare_visits(read_visits(Path(sys.argv[1])), ColumnChoice("hba1c"))
    print(peak_mib())
except OptionError as error:
    assert peak_mib() < before + 100, "it was read first"
    print(error)
"""


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak memory of a process")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_ceiling_holds_while_a_table_is_read(tmp_path: Path, kind: str) -> None:
    """A run told --memory 1 once held 1.52 GiB, because reading was not planned for."""
    path, rng, rows = tmp_path / f"visits.{kind}", np.random.default_rng(0), 240_000
    columns = {f"lab{k}": rng.normal(100, 20, rows).round(2) for k in range(10)}
    table = pl.DataFrame(
        {"subject_id": np.repeat(np.arange(rows // 6), 6), "time": np.tile(np.arange(6.0), rows // 6)}
        | columns
        | {"hba1c": rng.normal(7, 1, rows).round(1)}
    )
    (table.write_csv if kind == "csv" else table.write_parquet)(path)

    def read(gib: str) -> str:
        told = [sys.executable, "-c", READ, str(path), gib]
        return subprocess.run(told, capture_output=True, text=True, check=True).stdout

    refusal = read("0.2")
    assert f"--memory 0.2 GiB cannot be kept: reading '{path.name}' need about" in refusal
    planned = float(refusal.partition("need about ")[2].split()[0]) * 1024
    assert float(read("4")) <= planned + 51  # what is planned is shown in tenths of a GiB


def test_without_a_ceiling_the_machine_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(resources, "_left_bytes", lambda: 2.0 * GIB)
    huge = replace(MILLION, visits=50_000_000, measured=20_000_000)
    with pytest.raises(OptionError, match=r"this machine has about 2\.0 GiB left.*larger machine"):
        block_within_ceiling(huge, BLOCKS[0])
    with pytest.raises(OptionError, match="this machine has about"):
        resources.require_room_to_read("visits.csv", 3 * GIB)
    wide = GcnSettings(width=1024, layers=8)
    assert resources.limit_bytes() > 0
    with pytest.raises(OptionError, match=r"paper\.gcn\.width 1024"):
        fit_paper(large_task(), PaperSettings(gcn=wide), seed=0)


def large_task() -> Task:
    """A task of many visits, made of views that take no room."""
    visits = cast("Any", SimpleNamespace(labs=np.broadcast_to(0.0, (1_000_000, 4))))
    return cast("Task", SimpleNamespace(visits=visits))
