"""Runs a method in the baselines environment, as a process of its own: a table out, its completed target back.

Some packages need versions that cannot stand beside ours. `make baselines` builds their environment; this module
finds it, hands over a table as parquet, waits no longer than allowed, and reads the answer.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from safeimpute.errors import InputError, SafeImputeError
from safeimpute.machine.places import scratch_folder
from safeimpute.visits.arrays import FloatArray

PYTHON_VARIABLE = "SAFEIMPUTE_BASELINES_PYTHON"
ENVIRONMENT = Path(".venv-baselines") / "bin" / "python"
WORKER = Path(__file__).with_name("outside_worker.py")
REPORT = "outside_worker: "  # begins the worker's own lines; what packages print may hold patients' values


class OutsideMissing(InputError):
    """The baselines environment is not there; the message says how to build it."""


class OutsideFailed(SafeImputeError):
    """A method failed, was refused or took too long in the baselines environment."""


def find_python() -> Path | None:
    """The interpreter named by the environment variable, or the one that `make baselines` built."""
    named = os.environ.get(PYTHON_VARIABLE)
    place = Path(named) if named else _project() / ENVIRONMENT
    return place if os.access(place, os.X_OK) and place.is_file() else None


def missing() -> list[str]:
    """What is needed and not there, in words."""
    return [] if find_python() else ["the baselines environment (make baselines)"]


def complete_target(
    method: str, table: FloatArray, settings: Mapping[str, float], seed: int, time_limit: float | None = None
) -> FloatArray:
    """The first column of a table completed by a method, also where it is visible, and never from itself there."""
    import polars as pl

    python = find_python()
    if python is None:
        raise OutsideMissing(
            f"{method} runs in the baselines environment, which is not there. Run `make baselines`, "
            f"or name its interpreter in {PYTHON_VARIABLE}."
        )
    with scratch_folder(method) as folder:
        given, answer, log = (folder / name for name in ("given.parquet", "answer.parquet", "log"))
        columns = {str(number): column for number, column in enumerate(table.T)}
        pl.DataFrame(columns).write_parquet(given)
        options = [f"{name}={value}" for name, value in settings.items()]
        command = [str(python), "-P", str(WORKER), method, str(seed), str(given), str(answer), *options]
        _run(method, command, log, time_limit)
        found = pl.read_parquet(answer)["target"].to_numpy() if answer.is_file() else np.empty(0)
    if found.shape != (len(table),) or not np.isfinite(found).all():
        raise OutsideFailed(f"{method} did not answer with one finite value per visit.")
    return np.asarray(found, dtype=np.float64)


def _run(method: str, command: list[str], log: Path, time_limit: float | None) -> None:
    """Run a command in a process group of its own, which ends with it, with us, or when its time is up."""
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # HyperImpute orders its learners by a set
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,  # held open: when it closes, we are gone and the worker ends itself
            stdout=subprocess.DEVNULL,
            stderr=stream,
            env=environment,
            start_new_session=True,
        )
        try:
            status = process.wait(time_limit)
        except subprocess.TimeoutExpired:
            raise OutsideFailed(f"{method} was stopped after {time_limit:.0f} s, its time limit.") from None
        finally:
            _end(process)
    if status != 0:
        raise OutsideFailed(f"{method} failed in the baselines environment: {_reason(log, status)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _reason(log: Path, status: int) -> str:
    """The worker's last own line; a process that was killed leaves none."""
    lines = log.read_text(errors="replace").splitlines()
    own = [line.removeprefix(REPORT) for line in lines if line.startswith(REPORT)]
    if own:
        return own[-1]
    return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _project() -> Path:
    return Path(__file__).resolve().parents[4]
