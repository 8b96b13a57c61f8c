"""Scoring in a process of its own: a model folder that nobody vouches for can end that process, and nothing else.

The parent owns the place of the result; the child loads, reads, scores and writes under a passing name. Only JSON
goes back and forth.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from safeimpute import errors
from safeimpute.errors import ModelFolderError, OptionError, SafeImputeError
from safeimpute.machine.endings import heed_signals, our_fault, shielded
from safeimpute.machine.files import finished_file
from safeimpute.machine.options import TableFormat, make_table_format
from safeimpute.machine.progress import Progress, part_of, silent
from safeimpute.model.account import Account

if TYPE_CHECKING:
    import polars as pl

    from safeimpute.visits.arrays import VisitArrays

STANDS = "stands"  # what a line on where the child stands begins with
PLACES = ("model", "visits", "out", "public_key", "log")
PATIENCE = 10.0  # seconds that a child which was told to stop has to clear away


@dataclass(frozen=True)
class ScoreJob:
    """What a child is told."""

    model: Path
    visits: Path | None  # None: in a database
    out: Path
    database: str = ""  # LOCATION#TABLE
    columns: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    read_as: TableFormat = field(default_factory=TableFormat)
    engine: str = "local"
    public_key: Path | None = None
    log: Path | None = None  # of nights
    force: bool = False

    def as_json(self, out: Path) -> str:
        """What the child reads; it writes to `out`."""
        told = asdict(self)
        places = {name: str(told[name].absolute()) for name in PLACES if told[name] is not None}
        return json.dumps(told | places | {"out": str(out.absolute())})

    @classmethod
    def from_json(cls, text: str) -> "ScoreJob":
        """What `as_json` wrote."""
        told = json.loads(text)
        places = {name: Path(told[name]) for name in PLACES if told[name] is not None}
        read_as = make_table_format(**told["read_as"])
        return cls(**told | places | {"read_as": read_as, "without": tuple(told["without"])})


class Answer(TypedDict, total=False):
    """What the child says at its end: what every lab came to, or what it refused."""

    accounts: list[dict[str, Any]]
    error: str  # kind; empty for a fault of ours
    message: str


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


def _answer(told: str, model: Path, progress: Progress) -> Answer:
    command = [sys.executable, "-m", "safeimpute.cli.score_process"]
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
    answer: Answer = json.loads(said)
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


def _error(answer: Answer) -> SafeImputeError:
    kind = getattr(errors, str(answer["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, SafeImputeError)):
        kind = WorkerFailed
    error = kind.__new__(kind)  # some kinds word their message themselves
    Exception.__init__(error, str(answer["message"]))
    return error


def _accounts(answer: Answer) -> tuple[Account, ...]:
    return tuple(
        Account(**told | {"ignored": tuple(told["ignored"]), "read": tuple(told["read"])})
        for told in answer["accounts"]
    )


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
        said: Answer = {"accounts": [asdict(each) for each in found]}
    except SafeImputeError as error:
        said = {"error": type(error).__name__, "message": str(error)}
    except OSError as error:
        place = f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}"
        said = {"error": "InputError", "message": f"{place}. Check the path, rights and space."}
    except MemoryError:
        said = {"error": "InputError", "message": "the memory of this machine did not suffice. Score in parts."}
    except Exception as error:
        said = {"error": "", "message": our_fault(error)}
    with out:
        out.write(json.dumps(said))


def _score(job: ScoreJob, progress: Progress) -> list[Account]:
    if job.engine == "spark":
        from safeimpute.spark.scoring import score_files

        assert job.visits is not None
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
    if job.database:
        return _score_database(job, progress)
    from safeimpute.machine.files import disk_faults, sha256_of
    from safeimpute.visits.imputations import at_usual_precision, record_released
    from safeimpute.visits.tables import write_table

    table, accounts, new = _scored(job, part_of(progress, 0.0, 0.95))
    progress("writing the table", 0.95)
    with disk_faults(job.out):
        plain = job.out.suffix == ".parquet"
        write_table(table if plain else at_usual_precision(table), job.out)
    if warning := record_released(job.out, sha256_of(job.out), table, new):
        sys.stderr.write(f"safeimpute: {warning}\n")
    return accounts


def _score_database(job: ScoreJob, progress: Progress) -> list[Account]:
    """A database's table, lab by lab and batch by batch; one lab's model in memory at a time."""
    from safeimpute.machine.files import disk_faults, sha256_of
    from safeimpute.model.batches import DatabaseScoring, ParquetParts, merged_hashes
    from safeimpute.model.open_model import open_labs
    from safeimpute.model.scorer import LabScorer
    from safeimpute.visits.imputations import KnownValues, record_hashes

    accounts, released = [], []
    with disk_faults(job.out), closing(ParquetParts(job.out)) as parts:
        for opened in open_labs(job.model, job.public_key):
            progress(f"scoring {opened.saved.settings.target}", 0.0)
            known = KnownValues(job.out, job.model.resolve().parent)
            scoring = DatabaseScoring(LabScorer.of(opened), known, job.without)
            accounts.append(scoring.run(job.database, job.columns, parts.write))
            released += scoring.released
    if warning := record_hashes(job.out, sha256_of(job.out), *merged_hashes(released)):
        sys.stderr.write(f"safeimpute: {warning}\n")
    return accounts


def _scored(job: ScoreJob, progress: Progress) -> "tuple[pl.DataFrame, list[Account], VisitArrays]":
    """The table of all labs, what each came to, and the visits read; one lab's model in memory at a time."""
    import polars as pl

    from safeimpute.model.night_log import NightLog
    from safeimpute.model.open_model import Status, model_folders, open_labs
    from safeimpute.model.scorer import LabScorer
    from safeimpute.report.run_folder import Origin
    from safeimpute.visits.imputations import refuse_known_values
    from safeimpute.visits.new_visits import read_new_visits

    assert job.visits is not None
    count, log = len(model_folders(job.model)), None
    if job.log is not None:
        log = NightLog(job.log)
        if count > 1:
            raise OptionError("a night log is of one lab: score each lab with its own model and log.")
    named = None if log is None else Status()  # the night log named says what stands
    origin = Origin(job.visits, job.columns, job.read_as)
    labs, table, scored = open_labs(job.model, job.public_key, named), None, []
    for number in range(count):
        heard = part_of(progress, number / count, (number + 1) / count)
        heard("reading the model and the visits", 0.0)
        lab = LabScorer.of(next(labs))
        table = origin.read(lab.reading.time, lab.reading.subject) if table is None else table
        new = read_new_visits(table, lab.reading, job.without).arrays
        refuse_known_values(new, job.out, job.visits, Path(job.model).resolve().parent)
        scored.append(lab.score(table, job.without, log, part_of(heard, 0.1, 1.0)))
    accounts = [account for _, account in scored]
    accounts[0] = replace(accounts[0], read=tuple(origin.account.lines()))
    return pl.concat([part for part, _ in scored]), accounts, new


if __name__ == "__main__":
    main()
