"""The night log: an append-only SQLite file of decisions, of values measured since, and of alarms.

A row is never changed or deleted. A visit is decided once per lab and model: the first decision stands, whoever else
writes at the same time. Every write is one transaction, so that a process killed half-way has written all or nothing.
Patients and visits are kept as hashes; no identifier stands here.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import OptionError
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

EventKind = Literal["alarm", "recalibrated"]
BUSY_SECONDS = 120.0  # how long a write waits for another process
TRIES = 20  # events are rare: one or two is what it takes
OURS, FORMAT = 0x5AFE1, 2  # SQLite's application_id and user_version
Rows = list[tuple[Any, ...]]
Kind = TypeVar("Kind")

TABLES = """
CREATE TABLE decision (
  number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, model TEXT NOT NULL, lab TEXT NOT NULL,
  visit INTEGER NOT NULL, patient INTEGER NOT NULL, day REAL NOT NULL, value REAL, half_width REAL, risk REAL,
  cutoff REAL, released INTEGER NOT NULL, reason TEXT NOT NULL, UNIQUE (model, lab, visit));
CREATE TABLE entry (
  number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, model TEXT NOT NULL, lab TEXT NOT NULL,
  visit INTEGER NOT NULL, patient INTEGER NOT NULL, day REAL NOT NULL, month TEXT NOT NULL,
  measured INTEGER NOT NULL, late INTEGER NOT NULL, inside INTEGER NOT NULL, part INTEGER NOT NULL,
  value REAL, risk REAL, odds REAL, cutoff REAL, risky INTEGER NOT NULL, strange INTEGER NOT NULL, ratio REAL,
  groups TEXT NOT NULL, censored INTEGER NOT NULL DEFAULT 0, UNIQUE (model, lab, visit, measured));
CREATE TABLE event (
  number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, model TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('alarm', 'recalibrated')), told TEXT NOT NULL);
"""
APPEND_ONLY = "".join(
    f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'rows are kept as they were written'); END;\n"
    for table in ("decision", "entry", "event")
    for verb in ("UPDATE", "DELETE")
)
FROM_FORMAT_1 = "ALTER TABLE entry ADD COLUMN censored INTEGER NOT NULL DEFAULT 0"


@dataclass(frozen=True)
class Decided:
    """Decisions, one per visit; keys are 64-bit hashes."""

    visit: NDArray[np.uint64]
    patient: NDArray[np.uint64]
    day: FloatArray
    value: FloatArray
    half_width: FloatArray
    risk: FloatArray
    cutoff: FloatArray
    released: BoolArray
    reason: NDArray[np.str_]

    def at(self, rows: BoolArray | IntArray) -> "Decided":
        """Some of them."""
        return Decided(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


@dataclass(frozen=True)
class Entered:
    """Visits since the fit, imputed as if missing; the error is known where a value was measured."""

    number: IntArray  # of the night log; 0 until entered
    visit: NDArray[np.uint64]
    patient: NDArray[np.uint64]
    day: FloatArray
    month: NDArray[np.str_]
    measured: BoolArray  # a result came in: a value, or a limit that it lies beyond
    late: BoolArray  # measured, and not yet known by the visit's own time
    inside: BoolArray  # the promise
    part: IntArray  # group within which the level holds; 0 where there are none
    value: FloatArray  # imputed
    risk: FloatArray
    odds: FloatArray  # of being unmeasured
    cutoff: FloatArray  # in force when it was entered; NaN where none was
    risky: BoolArray
    strange: BoolArray  # a measured value far from all that the fit saw
    ratio: FloatArray  # |error| in units of its spread; NaN where not measured exactly
    groups: NDArray[np.str_]  # name -> level, as JSON
    censored: BoolArray  # measured, and its result tells of no error: who is measured shows it

    def __len__(self) -> int:
        return len(self.visit)

    @property
    def judged(self) -> BoolArray:
        """Visits whose error is known."""
        return self.measured & ~self.censored

    def at(self, rows: BoolArray | IntArray) -> "Entered":
        """Some of them."""
        return Entered(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


@dataclass(frozen=True)
class Event:
    """An alarm, or a recalibration that ended one."""

    number: int
    at: str
    kind: EventKind
    told: Mapping[str, Any]


class LogMoved(Exception):
    """Somebody else recorded an event since it was read: read again."""


def no_entries() -> Entered:
    """Of a night on which nothing came in."""
    return _columns(Entered, [])


class NightLog:
    """The file; every call opens it anew, so that threads and processes need share nothing.

    Parameters
    ----------
    path : Path
        Made where it does not exist. A disk of this machine: SQLite's write-ahead log needs one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as connection:
            if not _is_ours(connection):  # a log that is only read waits for nobody who writes
                with _at_once(connection):
                    self._set_up(connection)

    def settled(self, work: Callable[[], Kind]) -> Kind:
        """What `work` comes to once nobody records an event in between; it is done again where somebody did."""
        for _ in range(TRIES):
            with suppress(LogMoved):
                return work()
        raise OptionError(f"the night log {self.path.name!r} kept changing while it was used. Try again.")

    def events(self, model: str) -> list[Event]:
        """Alarms and recalibrations of a model, oldest first."""
        with self._open() as connection:
            return _events(connection, model)

    def knows(self, model: str) -> bool:
        """Whether anything of a model stands here."""
        with self._open() as connection:
            return any(
                connection.execute(f"SELECT 1 FROM {table} WHERE model = ? LIMIT 1", (model,)).fetchone()  # noqa: S608
                for table in ("decision", "entry", "event")
            )

    def decide(
        self, model: str, lab: str, fresh: Decided, wanted: NDArray[np.uint64], last_event: int
    ) -> tuple[Decided, int]:
        """Record fresh decisions; all decisions that stand for the wanted visits, and how many stood before.

        Raises LogMoved where an event was recorded since the one numbered `last_event`: what holds has changed.
        """
        with self._open() as connection, _at_once(connection):
            _require_unmoved(connection, model, last_event)
            new = _insert(connection, "decision", model, lab, fresh)
            found = _decided(connection, model, lab, wanted)
        return found, len(found.visit) - new

    def enter(
        self, model: str, lab: str, fresh: Entered, judge: Callable[[Entered, list[Event]], Mapping[str, Any] | None]
    ) -> int:
        """Enter visits and record the alarm that `judge` finds in all entries, in one transaction; new rows."""
        with self._open() as connection, _at_once(connection):
            new = _insert(connection, "entry", model, lab, fresh)
            events = _events(connection, model)
            alarm = judge(_entered(connection, model, lab), events)
            if alarm is not None:
                _record(connection, model, "alarm", alarm)
        return new

    def entries(self, model: str, lab: str) -> Entered:
        """All entries of a model, in the order they were made; a visit measured after all counts as measured."""
        with self._open() as connection:
            return _entered(connection, model, lab)

    def entered(self, model: str, lab: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Keys of the visits that need not be entered again: those measured, and those not."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT visit, measured FROM entry WHERE model = ? AND lab = ?", (model, lab)
            ).fetchall()
        table = np.array(rows, dtype=np.int64).reshape(-1, 2)
        keys, measured = table[:, 0].view(np.uint64), table[:, 1] == 1
        return keys[measured], keys[~measured]

    def record(self, model: str, kind: EventKind, told: Mapping[str, Any], last_event: int) -> None:
        """Record an event; raises LogMoved where another one came in between."""
        with self._open() as connection, _at_once(connection):
            _require_unmoved(connection, model, last_event)
            _record(connection, model, kind, told)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
                _write_ahead(connection)
                connection.execute("PRAGMA synchronous = FULL")  # what is acknowledged survives a power cut
                yield connection
        except sqlite3.Error as error:
            raise OptionError(
                f"the night log {self.path.name!r} cannot be used ({error}). Nothing was recorded; check the file, its "
                "rights and the space on the disk."
            ) from None

    def _set_up(self, connection: sqlite3.Connection) -> None:
        if _is_ours(connection):  # somebody else was first
            return
        if _is_ours(connection, 1):
            connection.execute(FROM_FORMAT_1)
        elif connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise OptionError(
                f"{self.path.name!r} is a database, but no night log of this version of safeimpute. Give another file."
            )
        else:
            for statement in filter(str.strip, (TABLES + APPEND_ONLY).split(";\n")):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {OURS}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")


def _is_ours(connection: sqlite3.Connection, format_: int = FORMAT) -> bool:
    whose = connection.execute("PRAGMA application_id").fetchone()[0]
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    return bool((whose, found) == (OURS, format_))


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Readers and a writer side by side; the change, made once per file, does not wait for others by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def _at_once(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that nobody else writes during; all of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _plain(column: NDArray[Any]) -> list[Any]:
    """As SQLite takes it: hashes signed, NaN as nothing."""
    if column.dtype == np.uint64:
        return list(column.view(np.int64).tolist())
    if column.dtype.kind == "f":
        return [None if each != each else each for each in column.tolist()]
    return [int(each) for each in column] if column.dtype == bool else list(column.tolist())


def _insert(connection: sqlite3.Connection, table: str, model: str, lab: str, fresh: Decided | Entered) -> int:
    """Write the rows that are not there yet, and say how many."""
    before, at = _count(connection, table, model, lab), _now()
    named = [each.name for each in fields(fresh) if each.name != "number"]
    rows = zip(*(_plain(getattr(fresh, name)) for name in named), strict=True)
    connection.executemany(
        f"INSERT OR IGNORE INTO {table} (at, model, lab, {', '.join(named)}) "  # noqa: S608 - our own names
        f"VALUES ({', '.join('?' * (3 + len(named)))})",
        ((at, model, lab, *row) for row in rows),
    )
    return _count(connection, table, model, lab) - before


def _count(connection: sqlite3.Connection, table: str, model: str, lab: str) -> int:
    query = f"SELECT COUNT(*) FROM {table} WHERE model = ? AND lab = ?"  # noqa: S608 - our own names
    return int(connection.execute(query, (model, lab)).fetchone()[0])


def _events(connection: sqlite3.Connection, model: str) -> list[Event]:
    rows = connection.execute(
        "SELECT number, at, kind, told FROM event WHERE model = ? ORDER BY number", (model,)
    ).fetchall()
    return [Event(number, at, kind, json.loads(told)) for number, at, kind, told in rows]


def _require_unmoved(connection: sqlite3.Connection, model: str, last_event: int) -> None:
    events = _events(connection, model)
    if (events[-1].number if events else 0) != last_event:
        raise LogMoved


def _record(connection: sqlite3.Connection, model: str, kind: EventKind, told: Mapping[str, Any]) -> None:
    connection.execute(
        "INSERT INTO event (at, model, kind, told) VALUES (?, ?, ?, ?)", (_now(), model, kind, json.dumps(told))
    )


def _decided(connection: sqlite3.Connection, model: str, lab: str, visit: NDArray[np.uint64]) -> Decided:
    """The decisions of some visits, in their order."""
    names = ", ".join(f"d.{each.name}" for each in fields(Decided))
    connection.execute("CREATE TEMP TABLE wanted (place INTEGER PRIMARY KEY, visit INTEGER)")
    connection.executemany("INSERT INTO wanted (visit) VALUES (?)", ((key,) for key in _plain(visit)))
    rows = connection.execute(
        f"SELECT {names} FROM wanted w JOIN decision d ON d.visit = w.visit "  # noqa: S608 - our own names
        "WHERE d.model = ? AND d.lab = ? ORDER BY w.place",
        (model, lab),
    ).fetchall()
    return _columns(Decided, rows)


def _entered(connection: sqlite3.Connection, model: str, lab: str) -> Entered:
    """One entry per visit: where it was first seen unmeasured and measured later, the measured one."""
    names = ", ".join(each.name for each in fields(Entered))
    rows = connection.execute(
        f"SELECT {names} FROM entry e WHERE model = ? AND lab = ? AND (measured = 1 OR NOT EXISTS "  # noqa: S608
        "(SELECT 1 FROM entry o WHERE o.model = e.model AND o.lab = e.lab AND o.visit = e.visit AND o.measured = 1)) "
        "ORDER BY number",
        (model, lab),
    ).fetchall()
    return _columns(Entered, rows)


def _columns(kind: type[Kind], rows: Rows) -> Kind:
    """Rows as the arrays of a dataclass, each of the type its annotation names."""
    named: Any = fields(kind)  # type: ignore[arg-type]
    columns = list(zip(*rows, strict=True)) or [() for _ in named]
    return kind(**{each.name: _typed(column, str(each.type)) for each, column in zip(named, columns, strict=True)})


def _typed(column: tuple[Any, ...], kind: str) -> NDArray[Any]:
    if "uint64" in kind:
        return np.array(column, dtype=np.int64).view(np.uint64)
    if "int64" in kind:
        return np.array(column, dtype=np.int64)
    if "bool" in kind:
        return np.array(column, dtype=bool)
    if "str" in kind:
        return np.array(column, dtype=np.str_)
    return np.array([np.nan if each is None else each for each in column], dtype=np.float64)
