"""The reviewers' decisions: an append-only SQLite log beside the run's folder, and where the review stands.

A row is never changed or deleted; undoing a decision is a further row. The log stands outside the run's folder, so
that a run written anew does not take the decisions with it, and names the run each row speaks of.
"""

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import OptionError

Kind = Literal["accept", "reject", "comment", "undo"]
BUSY_SECONDS = 10.0  # how long a write waits for another reviewer's
SCHEMA = """
CREATE TABLE IF NOT EXISTS decision (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL,
  reviewer TEXT NOT NULL,
  run TEXT NOT NULL,
  imputation INTEGER NOT NULL,
  subject_id TEXT NOT NULL,
  time TEXT NOT NULL,
  value REAL NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('accept', 'reject', 'comment', 'undo')),
  comment TEXT NOT NULL DEFAULT '',
  undoes INTEGER REFERENCES decision (number)
);
CREATE INDEX IF NOT EXISTS decision_by_reviewer ON decision (run, reviewer, number);
CREATE UNIQUE INDEX IF NOT EXISTS decision_undone_once ON decision (undoes) WHERE undoes IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS decision_never_changes BEFORE UPDATE ON decision
  BEGIN SELECT RAISE(ABORT, 'decisions are kept as they were made'); END;
CREATE TRIGGER IF NOT EXISTS decision_never_goes BEFORE DELETE ON decision
  BEGIN SELECT RAISE(ABORT, 'decisions are kept as they were made'); END;
"""
UNDECIDED, ACCEPTED, REJECTED = 0, 1, 2
MARKS = ("undecided", "accepted", "rejected")


@dataclass(frozen=True)
class Imputation:
    """The value a decision is about, told so that the log can be read without the run."""

    number: int  # row in imputations.parquet
    subject_id: str
    time: str
    value: float


@dataclass(frozen=True)
class Decision:
    """One row of the log."""

    number: int
    at: str
    reviewer: str
    imputation: int
    kind: Kind
    comment: str
    undoes: int | None


class DecisionLog:
    """The log of one run; every call opens the file anew, so that threads and processes need share nothing."""

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        with self._open() as connection:
            connection.executescript(SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")  # a decision acknowledged survives a power cut
                yield connection
        except sqlite3.DatabaseError as error:
            raise OptionError(
                f"the log of decisions {self.path.name!r} cannot be used ({error}). Nothing was recorded; check the "
                "file, its rights and the space on the disk."
            ) from None

    def add(self, reviewer: str, imputation: Imputation, kind: Kind, comment: str = "") -> int:
        """Record a decision; it is on disk when this returns."""
        with self._open() as connection:
            return self._insert(connection, reviewer, imputation, kind, comment, None)

    def undo(self, reviewer: str) -> int | None:
        """Take back the reviewer's last decision that still stands: its imputation, or None if there is none."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            last = connection.execute(
                "SELECT number, imputation, subject_id, time, value FROM decision AS d "
                "WHERE run = ? AND reviewer = ? AND kind <> 'undo' "
                "AND NOT EXISTS (SELECT 1 FROM decision WHERE undoes = d.number) ORDER BY number DESC LIMIT 1",
                (self.run, reviewer),
            ).fetchone()
            if last is not None:
                self._insert(connection, reviewer, Imputation(*last[1:]), "undo", "", last[0])
            connection.execute("COMMIT")
        return None if last is None else int(last[1])

    def since(self, number: int) -> list[Decision]:
        """Rows about this run after a given one, oldest first."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT number, at, reviewer, imputation, kind, comment, undoes FROM decision "
                "WHERE number > ? AND run = ? ORDER BY number",
                (number, self.run),
            ).fetchall()
        return [Decision(*row) for row in rows]

    def _insert(
        self,
        connection: sqlite3.Connection,
        reviewer: str,
        about: Imputation,
        kind: Kind,
        comment: str,
        undoes: int | None,
    ) -> int:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        told = (about.number, about.subject_id, about.time, about.value)
        cursor = connection.execute(
            "INSERT INTO decision (at, reviewer, run, imputation, subject_id, time, value, kind, comment, undoes) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (at, reviewer, self.run, *told, kind, comment, undoes),
        )
        return int(cursor.lastrowid or 0)


def log_beside(folder: Path) -> Path:
    """Where a run's decisions are kept: next to its folder, so that --force does not take them along."""
    return folder.with_name(f"{folder.name}.decisions.sqlite")


class ReviewState:
    """Follows a log that this and other processes append to."""

    def __init__(self, log: DecisionLog, imputations: int) -> None:
        self._log, self._lock, self._last = log, threading.Lock(), 0
        self._marks: NDArray[np.int8] = np.zeros(imputations, dtype=np.int8)
        self._rows: defaultdict[int, list[Decision]] = defaultdict(list)
        self._undone: set[int] = set()

    def marks(self) -> pl.Series:
        """One mark per imputation, as of now."""
        with self._lock:
            self._catch_up()
            return pl.Series("review", self._marks.copy())

    def in_force(self, imputation: int) -> list[Decision]:
        """Decisions and comments about an imputation that were not taken back, oldest first."""
        with self._lock:
            self._catch_up()
            return self._not_taken_back(imputation)

    def _catch_up(self) -> None:
        for row in self._log.since(self._last):
            self._rows[row.imputation].append(row)
            if row.undoes is not None:
                self._undone.add(row.undoes)
            self._marks[row.imputation] = self._mark(row.imputation)
            self._last = row.number

    def _not_taken_back(self, imputation: int) -> list[Decision]:
        rows = self._rows.get(imputation, [])
        return [row for row in rows if row.kind != "undo" and row.number not in self._undone]

    def _mark(self, imputation: int) -> int:
        """The last word of whoever decided last."""
        for row in reversed(self._not_taken_back(imputation)):
            if row.kind in ("accept", "reject"):
                return ACCEPTED if row.kind == "accept" else REJECTED
        return UNDECIDED
