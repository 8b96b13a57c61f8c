"""Scoring in a process of its own: a model folder that nobody vouches for can end that process, and nothing else.

The parent owns the place of the result; the child loads, reads, scores and writes under a passing name. Only JSON
goes back and forth.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safeimpute import errors
from safeimpute.errors import ModelFolderError, SafeImputeError
from safeimpute.runtime.files import finished_file
from safeimpute.runtime.progress import Progress, part_of, silent
from safeimpute.runtime.signals import heed_signals, shielded
from safeimpute.runtime.traces import our_fault
from safeimpute.scoring.account import Account
from safeimpute.scoring.score_job import ScoreJob as ScoreJob

STANDS = "stands"  # what a line on where the child stands begins with
PATIENCE = 10.0  # seconds that a child which was told to stop has to clear away


class WorkerFailed(SafeImputeError):
    """The process that scored met a fault of ours; its message names the trace."""


def score_apart(job: ScoreJob, progress: Progress = silent) -> tuple[Account, ...]:
    """Score in a child, and what each lab came to; the result stands at `job.out` only when the child ended well.

    Raises ModelFolderError where the child died, and otherwise what the child refused.
    """
    if job.engine == "spark":  # writes its folder itself, whole or not at all
        return _accounts(_answer(job.as_json(job.out), job.model, progress))
    with finished_file(job.out, force=job.force) as partial:
        return _accounts(_answer(job.as_json(partial), job.model, progress))


def _answer(told: str, model: Path, progress: Progress) -> dict[str, Any]:
    command = [sys.executable, "-m", "safeimpute.scoring.apart"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        try:
            said = _heard(child, told, progress)
        finally:
            with shielded():
                _end(child)
    if child.returncode != 0:
        raise ModelFolderError(
            f"the process that loaded the model {model.name!r} and scored ended by itself ({_how(child.returncode)}); "
            "nothing was written. The folder is not what safeimpute writes, or memory did not suffice: fit again, or "
            "score the table in parts."
        )
    answer: dict[str, Any] = json.loads(said)
    if "error" in answer:
        raise _error(answer)
    return answer


def _heard(child: "subprocess.Popen[str]", told: str, progress: Progress) -> str:
    """Tell the child its job; the last line it says, after lines on where it stands."""
    assert child.stdin is not None
    assert child.stdout is not None
    said = ""
    with suppress(BrokenPipeError):  # it died before it listened; its exit code says so
        child.stdin.write(told)
        child.stdin.close()
    for said in child.stdout:
        if said.startswith(f'{{"{STANDS}"'):
            progress(*json.loads(said)[STANDS])
    child.wait()
    return said


def _end(child: "subprocess.Popen[str]") -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _how(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def _error(answer: dict[str, Any]) -> SafeImputeError:
    kind = getattr(errors, str(answer["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, SafeImputeError)):
        kind = WorkerFailed
    error = kind.__new__(kind)  # some kinds word their message themselves
    Exception.__init__(error, str(answer["message"]))
    return error


def _accounts(answer: dict[str, Any]) -> tuple[Account, ...]:
    return tuple(Account(**told | {"ignored": tuple(told["ignored"])}) for told in answer["accounts"])


# ---- what the child does


def main() -> None:
    """Read a job from standard input, do it, answer on standard output."""
    heed_signals()
    told, out = sys.stdin.read(), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer

    def stands(stage: str, share: float) -> None:
        out.write(json.dumps({STANDS: (stage, share)}) + "\n")
        out.flush()

    try:
        found = _score(ScoreJob.from_json(told), stands)
        said: dict[str, Any] = {"accounts": [asdict(each) for each in found]}
    except SafeImputeError as error:
        said = {"error": type(error).__name__, "message": str(error)}
    except OSError as error:
        place = f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}"
        said = {"error": "InputError", "message": f"{place}. Check the path, rights and space."}
    except MemoryError:
        said = {
            "error": "InputError",
            "message": "the memory of this machine did not suffice. Score in parts.",
        }
    except Exception as error:
        said = {"error": "", "message": our_fault(error)}
    with out:
        out.write(json.dumps(said))


def _score(job: ScoreJob, progress: Progress) -> list[Account]:
    if job.engine == "spark":
        from safeimpute.scoring.spark import score_files

        account = score_files(
            job.model,
            job.visits,
            job.out,
            columns=job.columns,
            without=job.without,
            force=job.force,
            public_key=job.public_key,
        )
        return [account]
    from safeimpute.records.writers.guarded_csv import write_csv
    from safeimpute.records.writers.released_ledger import record_released
    from safeimpute.runtime.files import disk_faults, sha256_of
    from safeimpute.scoring.several import scored_labs

    tables, accounts, new = scored_labs(job, part_of(progress, 0.0, 0.95))
    progress("writing the table", 0.95)
    with disk_faults(job.out):
        if job.out.suffix == ".csv":
            write_csv(tables, job.out)
        else:
            tables.write_parquet(job.out)
    if warning := record_released(job.out, sha256_of(job.out), tables, new):
        sys.stderr.write(f"safeimpute: {warning}\n")
    return accounts


if __name__ == "__main__":
    main()
