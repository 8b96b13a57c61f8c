"""Cells as processes: failures become rows, limits hold, a killed benchmark goes on, foreign cells are not used."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safeimpute.errors import OptionError
from safeimpute.learning.roles import Role
from safeimpute.selection.questions import draw_roles
from safeimpute.tolerance import Tolerance, parse_tolerance
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits
from safeimpute_lab.benchmark import cell as one_cell
from safeimpute_lab.benchmark.cell import run_cell
from safeimpute_lab.benchmark.cells import (
    CellName,
    Study,
    open_study,
    read_cell,
    read_study,
    save_cell,
    save_failure,
    spelled,
)
from safeimpute_lab.benchmark.gather import Field, gather
from safeimpute_lab.benchmark.processes import Limits, Status, is_finished, run_cells
from safeimpute_lab.benchmark.result import BenchmarkResult
from safeimpute_lab.commands.benchmark import shown_cells
from safeimpute_lab.registry import METHODS, Method
from safeimpute_lab.report.benchmark_folder import write_benchmark

FAKES = """
import os, subprocess, sys, time


class Fake:
    def fit(self, task, rng, device="cpu"):
        return self


class Fails(Fake):
    def impute(self, task):
        raise ValueError(f"patient value {task.visits.labs[0, 0]}")


class Hangs(Fake):
    def impute(self, task):
        sleep = [sys.executable, "-c", "import time; time.sleep(600)", os.environ["TMPDIR"]]  # tells whose it is
        subprocess.run(sleep, start_new_session=True)


class Hungry(Fake):
    def impute(self, task):
        held = bytearray(4 * 2**30)
        for start in range(0, len(held), 4096):
            held[start] = 1
        time.sleep(600)


class Dies(Fake):
    def impute(self, task):
        import os, signal
        os.kill(os.getpid(), signal.SIGSEGV)
"""
REGISTER = """
from safeimpute_lab.registry import METHODS, Method
for name in ("fails", "hangs", "hungry", "dies"):
    METHODS[name] = Method("fake_methods", name.capitalize(), "a fake")
METHODS["lacking"] = Method("fake_methods", "Fails", "a fake", needs=("no_such_module",))
"""
FAKE_NAMES = ("fails", "hangs", "hungry", "dies")


@pytest.fixture(scope="module")
def visits() -> VisitArrays:
    table = simulate("mimic4", np.random.default_rng(2), patients=90).visits
    return prepare_visits(table, ColumnChoice("hba1c")).arrays


@pytest.fixture
def study() -> Study:
    return Study("f" * 64, Tolerance(1.2), (0.3,), 0.2, effort=1.0, repartitions=2)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that misbehave, in this process and in every one it starts."""
    folder = tmp_path / "fakes"
    folder.mkdir()
    (folder / "fake_methods.py").write_text(FAKES)
    (folder / "sitecustomize.py").write_text(REGISTER)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    for name in FAKE_NAMES:
        monkeypatch.setitem(METHODS, name, Method("fake_methods", name.capitalize(), "a fake"))
    lacking = Method("fake_methods", "Fails", "a fake", needs=("no_such_module",))
    monkeypatch.setitem(METHODS, "lacking", lacking)


def why(folder: Path, method: str) -> dict[str, Any]:
    cell = read_cell(folder, CellName(0, method))
    assert cell is not None
    error: dict[str, Any] = cell.content["error"]
    return error


@pytest.mark.full
@pytest.mark.usefixtures("fakes")
def test_misbehaviour_becomes_a_row(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder = open_study(tmp_path, study, visits)
    names = ("mean", "fails", "hungry", "dies", "lacking")
    field = Field(names, (0,))
    run_cells(folder, field.cells(), Limits(seconds=200, memory_gib=1.5), jobs=2)
    rows = gather(folder, study, visits, field)["methods"]
    why = {name: row["error"] or "" for name, row in rows.items()}
    assert why["mean"] == ""
    assert (rows["mean"]["imputation"]["mae"]["mean"] or 0.0) > 0
    assert why["fails"].startswith("ValueError at fake_methods.py:")
    assert "patient value" not in json.dumps(rows)
    assert why["hungry"] == "stopped: needed more than 1.5 GiB"
    assert why["dies"] == "the process ended with signal SIGSEGV"
    assert why["lacking"].startswith("needs no_such_module")
    for name in names[1:]:
        assert rows[name]["imputation"]["mae"] == {"mean": None, "se": None}
        assert rows[name]["splits_done"] == 0
        assert rows[name]["mean_rank"] is None


@pytest.mark.full
@pytest.mark.usefixtures("fakes")
def test_a_hanging_method_is_ended_with_all_it_started(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder = open_study(tmp_path, study, visits)
    name = CellName(0, "hangs")
    run_cells(folder, [name], Limits(seconds=12, memory_gib=8))
    assert why(folder, "hangs") == {"kind": "time", "text": "stopped after 12 s", "limit": 12}
    assert not _sleepers(folder)
    assert is_finished(folder, name, Limits(12, 8))
    assert is_finished(folder, name, Limits(5, 8))
    assert not is_finished(folder, name, Limits(60, 8))  # with more time it is worth another try


@pytest.mark.full
@pytest.mark.usefixtures("fakes")
def test_a_spent_budget_ends_the_run(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder = open_study(tmp_path, study, visits)
    cells = [CellName(seed, "hangs") for seed in (0, 1)]
    began, limits = time.monotonic(), Limits(seconds=600, memory_gib=8, budget=6.0)
    run_cells(folder, cells, limits)
    assert time.monotonic() - began < 60
    out = {"kind": "budget", "text": "out of its budget of 6 s for all splits", "limit": 6.0}
    assert [read_cell(folder, name).content["error"] for name in cells] == [out, out]  # type: ignore[union-attr]
    assert not (folder / "logs" / "hangs-1.log").exists()  # the second was never started
    assert is_finished(folder, cells[0], limits)
    assert not is_finished(folder, cells[0], Limits(600, 8, budget=60.0))
    assert not is_finished(folder, cells[0], Limits(600, 8))


def test_seconds_of_an_earlier_run_count_towards_the_budget(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder = open_study(tmp_path, study, visits)
    save_cell(folder, CellName(0, "mean"), {"error": None, "wall": 7.0}, {})
    run_cells(folder, [CellName(0, "mean"), CellName(1, "mean")], Limits(60, 8, budget=5.0))
    later = read_cell(folder, CellName(1, "mean"))
    assert later is not None
    assert later.failure["kind"] == "budget"


def _sleepers(folder: Path) -> set[str]:
    """What hanging methods of this study started."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
            if b"time.sleep(600)" in line and str(folder).encode() in line:
                found.add(entry.parent.name)
        except OSError:
            continue
    return found


def test_other_failures_are_tried_again(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder, name = open_study(tmp_path, study, visits), CellName(0, "mean")
    save_cell(folder, name, {"error": {"kind": "error", "text": "ValueError at x.py:1", "limit": None}})
    assert not is_finished(folder, name, Limits(10, 1))


def test_a_benchmark_in_which_nothing_worked_still_reports(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder, field = open_study(tmp_path, study, visits), Field(("mean", "best"), (0, 1))
    out_of_memory = {"kind": "memory", "text": "out of memory", "limit": 1.0}
    for name in field.cells()[:3]:
        save_cell(folder, name, {"error": out_of_memory})
    result: BenchmarkResult = {
        "target": "hba1c",
        "unit": "%",
        "tolerance": 1.2,
        "splits": 2,
        "split": "visits",
        "test_fraction": 0.2,
        "n_visits": 1,
        "n_patients": 1,
        "limits": None,
        **gather(folder, study, visits, field),
    }
    write_benchmark(tmp_path / "out", result)
    assert result["methods"]["mean"]["error"] == "out of memory"
    assert result["methods"]["best"]["error"] == "split 1: out of memory; split 2: not run yet"
    page = (tmp_path / "out" / "benchmark.md").read_text()
    assert "| best | 0 of 2 | split 1: out of memory; split 2: not run yet |" in page
    assert "Without a complete result: mean, best." in page


@pytest.mark.full
def test_a_killed_benchmark_goes_on(tmp_path: Path) -> None:
    file, out = tmp_path / "visits.parquet", tmp_path / "out"
    simulate("mimic4", np.random.default_rng(2), patients=90).visits.write_parquet(file)
    command = [sys.executable, "-m", "safeimpute", "benchmark", str(file), "--target", "hba1c"]
    command += ["--tolerance", "1.2", "--fdr", "0.3", "--methods", "mean,locf", "--splits", "1"]
    command += ["--repartitions", "2", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    first = _wait_for(out, "work/*/cells/mean-0.json")
    process.send_signal(signal.SIGKILL)
    process.wait()
    written = first.stat().st_mtime_ns
    assert not (out / "benchmark.json").exists()
    _wait_until(lambda: not _cells_of(out))
    assert not list(out.glob("work/*/cells/locf-0.json"))
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "locf on split 1 of 1: 1 of 2 done" in again.stderr
    assert "mean on split" not in again.stderr
    assert first.stat().st_mtime_ns == written
    rows = json.loads((out / "benchmark.json").read_text())["methods"]
    assert {name: row["error"] for name, row in rows.items()} == {"mean": None, "locf": None}


@pytest.mark.full
@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("begun", [False, True], ids=["still starting", "at work"])
def test_a_cell_in_progress_ends_with_a_killed_benchmark(
    begun: bool, tmp_path: Path, study: Study, visits: VisitArrays
) -> None:
    folder = open_study(tmp_path, study, visits)
    run = "import sys; from pathlib import Path; from safeimpute_lab.benchmark.cells import CellName; "
    run += "from safeimpute_lab.benchmark.processes import Limits, run_cells; "
    run += "run_cells(Path(sys.argv[1]), [CellName(0, 'hangs')], Limits(600, 8))"
    benchmark = subprocess.Popen([sys.executable, "-c", run, str(folder)])
    try:
        _wait_until(lambda: bool(_cells_of(folder)) and (not begun or bool(_sleepers(folder))))
        benchmark.send_signal(signal.SIGKILL)
        benchmark.wait()
        _wait_until(lambda: not _cells_of(folder), seconds=60)
    finally:
        benchmark.kill()
        for pid in _sleepers(folder):  # in a session of its own: nobody's but this test's to end
            os.kill(int(pid), signal.SIGKILL)
    assert read_cell(folder, CellName(0, "hangs")) is None
    assert list((folder / "scratch").iterdir())
    run_cells(folder, [CellName(0, "mean")], Limits(200, 8))
    assert not list((folder / "scratch").iterdir())


def test_a_failure_never_replaces_a_result(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder, name = open_study(tmp_path, study, visits), CellName(0, "mean")
    save_failure(folder, name, "error", "ValueError at x.py:1")
    assert why(folder, "mean")["kind"] == "error"
    save_cell(folder, name, {"error": None, "mae": 1.0}, {"value": np.zeros(3)})
    save_failure(folder, name, "time", "stopped after 1 s", 1.0)
    assert why(folder, "mean") is None


def _wait_for(out: Path, pattern: str) -> Path:
    _wait_until(lambda: bool(list(out.glob(pattern))))
    return next(out.glob(pattern))


def _wait_until(holds: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _cells_of(out: Path) -> list[str]:
    """Running worker processes of this benchmark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if b"safeimpute_lab.benchmark.cell\0" in line and str(out).encode() in line:
            found.append(entry.parent.name)
    return found


def test_foreign_stale_and_half_written_cells_are_not_used(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder, name = open_study(tmp_path, study, visits), CellName(0, "mean")
    save_cell(folder, name, {"error": None, "mae": 1.0}, {"value": np.zeros(3)})
    assert read_cell(folder, name) is not None
    other = open_study(tmp_path, replace(study, levels=(0.25,)), visits)
    assert other != folder
    for file in (folder / "cells").iterdir():
        (other / "cells" / file.name).write_bytes(file.read_bytes())
    assert read_cell(other, name) is None
    (folder / "cells" / "mean-0.npz").unlink()
    assert read_cell(folder, name) is None
    (folder / "cells" / "mean-0.json").write_text('{"study": ')
    assert read_cell(folder, name) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"fingerprint": "0" * 64},
        {"tolerance": Tolerance(1.3)},
        {"levels": (0.3, 0.4)},
        {"effort": 0.5},
        {"test_fraction": 0.1},
        {"repartitions": 3},
        {"plausible": (2.0, 20.0)},
        {"version": "other"},
        {"protocol": 1},
    ],
)
def test_whatever_decides_a_result_decides_the_folder(study: Study, changed: dict[str, Any]) -> None:
    assert replace(study, **changed).key != study.key
    assert replace(study).key == study.key


def test_a_study_comes_back_from_its_folder(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    kept, arrays = read_study(open_study(tmp_path, replace(study, plausible=(3.0, 20.0)), visits))
    assert kept.key == replace(study, plausible=(3.0, 20.0)).key
    assert arrays.labs.tobytes() == visits.labs.tobytes()
    assert (arrays.lab_names, arrays.target) == (visits.lab_names, visits.target)
    assert arrays.visit_key.tobytes() == visits.visit_key.tobytes()


@pytest.mark.parametrize("method", ["lightgbm", "patient_mean", pytest.param("best", marks=pytest.mark.full)])
def test_hidden_targets_reach_no_value(method: str, study: Study, visits: VisitArrays) -> None:
    """The test's reach neither fit; calibration's reach the first alone, which has all values but the test's."""
    name, roles = CellName(0, method), draw_roles(visits, 0, 0.2)
    figures, kept = run_cell(study, visits, name, "cpu")
    changed = np.where(roles == Role.TEST, visits.target_values + 50.0, visits.target_values)
    other_figures, other = run_cell(study, visits.with_target(changed), name, "cpu")
    for array in ("value", "held_out_value"):
        assert kept[array].tobytes() == other[array].tobytes()
    assert other_figures["mae"] > figures["mae"] + 40
    changed = np.where(roles == Role.CALIBRATION, visits.target_values + 50.0, visits.target_values)
    _, other = run_cell(study, visits.with_target(changed), name, "cpu")
    assert kept["held_out_value"].tobytes() == other["held_out_value"].tobytes()
    assert kept["value"].tobytes() != other["value"].tobytes()


@pytest.mark.parametrize("text", ["20%", "0.29", "10% or 6", "12.5% or 0.1", "1e-05"])
def test_a_tolerance_is_spelled_as_it_was_read(text: str) -> None:
    assert parse_tolerance(spelled(parse_tolerance(text))) == parse_tolerance(text)


def test_a_study_of_an_older_protocol_is_refused(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    folder = open_study(tmp_path, study, visits)
    stored = json.loads((folder / "study.json").read_text())
    del stored["protocol"]
    (folder / "study.json").write_text(json.dumps(stored))
    with pytest.raises(OptionError, match="protocol 1"):
        read_study(folder)


@pytest.mark.full
def test_cells_run_without_any_dataframe_library(tmp_path: Path, study: Study, visits: VisitArrays) -> None:
    """As on a bare GPU machine: the script beside the work folder, nothing but the array libraries."""
    open_study(tmp_path / "work", study, visits)
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    absent = ("polars", "pandas", "pyarrow", "pydantic", "typer", "rich", "matplotlib")
    lines = [f"sys.modules[{name!r}] = None" for name in absent]
    (blocked / "sitecustomize.py").write_text("\n".join(["import sys", *lines]))
    command = [sys.executable, "-m", "safeimpute_lab", "evidence", "cells", str(tmp_path / "work")]
    places = [str(blocked), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [*command, "--methods", "locf", "--splits", "0"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    cell = read_cell(tmp_path / "work" / study.key, CellName(0, "locf"))
    assert cell is not None
    assert cell.content["error"] is None
    assert cell.content["device"].endswith("CPU")


def test_where_the_paper_is_reproduced_a_method_is_fitted_once(
    study: Study, cohort_arrays: VisitArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[str] = []

    def heard(way: str) -> Callable[..., Any]:
        made: Callable[..., Any] = getattr(one_cell, way)

        def fit(*told: Any, **named: Any) -> Any:
            fits.append(way)
            return made(*told, **named)

        return fit

    for way in ("impute_openly", "impute_held_out"):
        monkeypatch.setattr(one_cell, way, heard(way))
    _, both = run_cell(study, cohort_arrays, CellName(0, "mean"), "cpu")
    assert fits == ["impute_openly", "impute_held_out"]
    fits.clear()
    _, once = run_cell(replace(study, curve_levels=(0.3,)), cohort_arrays, CellName(0, "mean"), "cpu")
    assert fits == ["impute_held_out"]
    assert np.array_equal(once["held_out_value"], both["held_out_value"])


def test_the_share_done_is_one_of_time() -> None:
    """One clock, not two: what is left is told by the share alone, and an hour's method counts as an hour."""
    said: list[tuple[str, float]] = []
    show = shown_cells(lambda stage, share: said.append((stage, share)), (7, 8))
    show(Status((CellName(8, "grape"),), done=30, total=40, elapsed=60.0, remaining=540.0))
    show(Status((), done=0, total=40, elapsed=0.0, remaining=None))
    assert said == [("grape on split 2 of 2: 30 of 40 done", 0.1), ("0 of 40 done", 0.0)]
