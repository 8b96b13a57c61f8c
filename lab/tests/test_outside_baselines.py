"""Methods in the baselines environment: what they recover, and how the border to it holds when things go wrong."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from safeimpute.learning.roles import Role, hide, split_visits
from safeimpute.visits.arrays import FloatArray, VisitArrays
from safeimpute_lab.methods import outside
from safeimpute_lab.methods.hyperimpute import Gain, HyperImpute
from safeimpute_lab.methods.outside import OutsideFailed, OutsideMissing, complete_target
from safeimpute_lab.registry import METHODS

needs_environment = pytest.mark.skipif(
    bool(outside.missing()), reason="the baselines environment is not built: run `make baselines`"
)
TABLE = np.array([[1.0, 2.0], [np.nan, 3.0], [0.5, 1.0]])


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """A shell script in place of the environment's interpreter; it gets -P, the worker and the worker's arguments."""
    script = folder / "python"
    script.write_text("\n".join(["#!/bin/sh", *lines]))
    script.chmod(0o755)
    monkeypatch.setenv(outside.PYTHON_VARIABLE, str(script))


def with_pandas(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Our own interpreter in place of the environment's, with a pandas of the test's making."""
    (folder / "pandas.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv(outside.PYTHON_VARIABLE, sys.executable)


def ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to take note."""
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


def wait_until_ended(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while not ended(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return ended(pid)


def test_a_missing_environment_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(outside.PYTHON_VARIABLE, str(tmp_path / "nowhere"))
    assert "make baselines" in outside.missing()[0]
    assert METHODS["gain"].missing() == METHODS["hyperimpute"].missing() == outside.missing()
    assert METHODS["mean"].missing() == []
    with pytest.raises(OutsideMissing, match="make baselines"):
        complete_target("gain", TABLE, {}, seed=0)


def test_the_time_limit_ends_the_whole_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "child"
    stand_in(tmp_path, monkeypatch, "sleep 300 &", f"echo $! > {noted}", "wait")
    with pytest.raises(OutsideFailed, match="time limit"):
        complete_target("gain", TABLE, {}, seed=0, time_limit=2.0)
    assert wait_until_ended(int(noted.read_text()))


def test_a_failure_shows_the_workers_line_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        "echo 'outside_worker: KeyError in fit, line 7' >&2",
        "echo 'row 4711 holds 3.25' >&2",
        "exit 1",
    )
    with pytest.raises(OutsideFailed, match="KeyError in fit, line 7") as raised:
        complete_target("gain", TABLE, {}, seed=0)
    assert "4711" not in str(raised.value)


def test_a_worker_that_was_killed_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "echo 'row 4711 holds 3.25' >&2", "kill -9 $$")
    with pytest.raises(OutsideFailed, match="signal 9") as raised:
        complete_target("gain", TABLE, {}, seed=0)
    assert "4711" not in str(raised.value)


def test_an_empty_answer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(OutsideFailed, match="one finite value per visit"):
        complete_target("gain", TABLE, {}, seed=0)


def test_pandas_3_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_pandas(tmp_path, monkeypatch, '__version__ = "3.0.1"\n')
    with pytest.raises(OutsideFailed, match=r"pandas 3\.0\.1 .* pandas < 3"):
        complete_target("hyperimpute", TABLE, {"iterations": 1}, seed=0)


def test_the_workers_errors_carry_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = '__version__ = "2.3.3"\ndef DataFrame(table):\n    raise ValueError("cannot convert 3.25 of 4711")\n'
    with_pandas(tmp_path, monkeypatch, source)
    with pytest.raises(OutsideFailed, match="ValueError in DataFrame, line 3") as raised:
        complete_target("hyperimpute", TABLE, {"iterations": 1}, seed=0)
    assert "4711" not in str(raised.value)


def test_the_worker_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("import time\ntime.sleep(300)\n")
    worker = subprocess.Popen(
        [sys.executable, "-P", str(outside.WORKER), "gain", "0", "given", "answer"],
        stdin=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        start_new_session=True,
    )
    assert worker.stdin is not None
    time.sleep(0.5)
    assert worker.poll() is None
    worker.stdin.close()
    assert worker.wait(30) == -9


def gaussian_visits(relation: FloatArray, noise: float, rows: int, seed: int) -> VisitArrays:
    """Single visits; the target is a linear function of the other labs plus noise, and a tenth of those is missing."""
    rng = np.random.default_rng(seed)
    others = rng.normal(size=(rows, len(relation)))
    target = others @ relation + noise * rng.normal(size=rows)
    others[rng.random(others.shape) < 0.1] = np.nan
    return VisitArrays(
        patient=np.arange(rows),
        time=np.zeros(rows),
        labs=np.column_stack([target, others]),
        lab_names=("target", *(f"lab{number}" for number in range(len(relation)))),
        target=0,
        attributes=np.zeros((rows, 0)),
        attribute_names=(),
        patient_key=np.arange(rows, dtype=np.uint64),
        visit_key=np.arange(rows, dtype=np.uint64),
    )


def error_against_mean(method: HyperImpute | Gain, arrays: VisitArrays) -> float:
    """Error at hidden targets as a share of the mean's; fitted twice, the answer must be the same to the byte."""
    roles = split_visits(np.ones(len(arrays), bool), np.random.default_rng(0), test_fraction=0.2)
    task, tested = hide(arrays, roles), roles == Role.TEST
    one, two = (method.fit(task, np.random.default_rng(1)).impute(task).value for _ in "ab")
    assert one.tobytes() == two.tobytes()
    assert np.isfinite(one).all()
    visible = task.training
    assert not np.isclose(one[visible], arrays.target_values[visible]).any()  # not simply handed back
    truth = arrays.target_values[tested]
    return float(np.abs(one[tested] - truth).mean() / np.abs(truth - arrays.target_values.mean()).mean())


@needs_environment
@pytest.mark.full
def test_hyperimpute_recovers_a_linear_relation() -> None:
    arrays = gaussian_visits(np.array([1.0, -0.5, 0.0]), 0.1, 400, seed=2)
    assert error_against_mean(HyperImpute(effort=0.05), arrays) < 0.35


@needs_environment
@pytest.mark.full
def test_gain_learns_a_joint_gaussian() -> None:
    arrays = gaussian_visits(np.array([1.0, 1.0, 1.0]), 0.3, 600, seed=3)
    assert error_against_mean(Gain(), arrays) < 0.42  # the optimum is 0.28
