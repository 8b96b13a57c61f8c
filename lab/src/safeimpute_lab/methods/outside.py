"""Runs another's package as a process of its own: a table out, its completed target back.

Some packages need versions that cannot stand beside ours. `make baselines` builds their environment; this module
finds it, hands over arrays, waits no longer than allowed, and reads the answer. R's packages are run likewise, by a
worker in our own environment that calls Rscript.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import InputError, SafeImputeError
from safeimpute.machine.places import scratch_folder
from safeimpute.visits.arrays import FloatArray

PYTHON_VARIABLE = "SAFEIMPUTE_BASELINES_PYTHON"
ENVIRONMENT = Path(".venv-baselines") / "bin" / "python"
WORKER = Path(__file__).with_name("outside_worker.py")
R_PACKAGES = {  # how each of R's packages is had; missForest is in CRAN alone
    "mice": "apt-get install r-base-core r-cran-mice",
    "pan": "apt-get install r-cran-pan",
    "missForest": "apt-get install r-base-core r-cran-randomforest; R -e 'install.packages(\"missForest\")'",
}
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


def missing_in_r(*packages: str) -> list[str]:
    """R's packages that are not there, each with the line that installs it."""
    there = _installed_in_r()
    return [f"R's {name} ({R_PACKAGES[name]})" for name in packages if name not in there]


def complete_target(
    method: str,
    table: FloatArray,
    settings: Mapping[str, float],
    seed: int,
    time_limit: float | None = None,
    packages: tuple[str, ...] = (),
    **more: NDArray[Any],
) -> FloatArray:
    """The first column of a table completed by a method, also where it is visible, and never from itself there.

    `packages` are R's that the method needs; without any it runs in the baselines environment. `more` goes along.
    """
    arrays = {"table": table, **more}
    found = ask(method, arrays, settings, seed, time_limit, packages).get("target", np.empty(0))
    if found.shape != (len(table),) or not np.isfinite(found).all():
        raise OutsideFailed(f"{method} did not answer with one finite value per visit.")
    return np.asarray(found, dtype=np.float64)


def ask(
    method: str,
    arrays: Mapping[str, NDArray[Any]],
    settings: Mapping[str, float],
    seed: int,
    time_limit: float | None = None,
    packages: tuple[str, ...] = (),
) -> dict[str, NDArray[Any]]:
    """What a method's worker answers to some arrays; nothing where it left no answer."""
    python = _interpreter(method, packages)
    with scratch_folder(method) as folder:
        given, answer, log = (folder / name for name in ("given.npz", "answer.npz", "log"))
        np.savez(given, **arrays)  # type: ignore[arg-type]
        options = [f"{name}={value}" for name, value in settings.items()]
        command = [str(python), "-P", str(WORKER), method, str(seed), str(given), str(answer), *options]
        _run(method, command, log, time_limit)
        if not answer.is_file():
            return {}
        with np.load(answer, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def _interpreter(method: str, packages: tuple[str, ...]) -> Path:
    """Ours for R's packages, else the baselines environment's; an error says what is missing."""
    if absent := missing_in_r(*packages):
        raise OutsideMissing(f"{method} needs {' and '.join(absent)}.")
    python = Path(sys.executable) if packages else find_python()
    if python is None:
        raise OutsideMissing(
            f"{method} runs in the baselines environment, which is not there. Run `make baselines`, "
            f"or name its interpreter in {PYTHON_VARIABLE}."
        )
    return python


@cache
def _installed_in_r() -> frozenset[str]:
    """Of the packages in question, those that R has."""
    rscript = shutil.which("Rscript")
    if rscript is None:
        return frozenset()
    asked = ",".join(f"'{name}'" for name in R_PACKAGES)
    code = f"cat(intersect(c({asked}), rownames(installed.packages())))"
    listed = subprocess.run([rscript, "-e", code], capture_output=True, text=True, check=False)  # noqa: S603
    return frozenset(listed.stdout.split())


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
            cwd=log.parent,  # what the worker writes on the way goes with the folder
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
