"""Where the review stands: the log's rows read once each and kept as one mark per imputation."""

import threading
from collections import defaultdict

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.web.decisions import Decision, DecisionLog

UNDECIDED, ACCEPTED, REJECTED = 0, 1, 2
MARKS = ("undecided", "accepted", "rejected")


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

    def standing(self, imputation: int) -> list[Decision]:
        """Decisions and comments about an imputation that were not taken back, oldest first."""
        with self._lock:
            self._catch_up()
            return self._standing(imputation)

    def _catch_up(self) -> None:
        for row in self._log.since(self._last):
            self._rows[row.imputation].append(row)
            if row.undoes is not None:
                self._undone.add(row.undoes)
            self._marks[row.imputation] = self._mark(row.imputation)
            self._last = row.number

    def _standing(self, imputation: int) -> list[Decision]:
        rows = self._rows.get(imputation, [])
        return [row for row in rows if row.kind != "undo" and row.number not in self._undone]

    def _mark(self, imputation: int) -> int:
        """The last word of whoever decided last."""
        for row in reversed(self._standing(imputation)):
            if row.kind in ("accept", "reject"):
                return ACCEPTED if row.kind == "accept" else REJECTED
        return UNDECIDED
