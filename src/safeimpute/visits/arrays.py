"""Visits as plain arrays (NumPy only): what stands before and after each, who knew what when, and random streams."""

from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class VisitArrays:
    """One row per visit, sorted by patient, then time; NaN marks a value nobody measured.

    The order is canonical (patients by identifier, labs by name), so neither the row order nor the
    column order of the user's table reaches any result.
    """

    patient: IntArray  # 0 … number of patients - 1, in blocks
    time: FloatArray  # days, strictly increasing within a patient
    labs: FloatArray  # visits x labs, in the labs' own units
    lab_names: tuple[str, ...]
    target: int  # column of `labs` that is imputed
    attributes: FloatArray  # visits x attributes; categories as one column per level
    attribute_names: tuple[str, ...]
    patient_key: NDArray[np.uint64]  # hash of the subject: tells patients apart across tables
    visit_key: NDArray[np.uint64]  # hash of subject and time: seeds every per-visit random number
    known: FloatArray | None = None  # visits x labs: when each value became known, where the table says so
    high_cardinality: FloatArray = field(
        default_factory=lambda: np.empty((0, 0))
    )  # visits x high-cardinality columns: codes of text
    high_cardinality_names: tuple[str, ...] = ()
    limits: FloatArray | None = (
        None  # visits x labs x 2: a result known only to lie between; NaN elsewhere; None: nowhere
    )

    def __post_init__(self) -> None:
        if (
            len(self.high_cardinality_names) == 0
        ):  # a table without high-cardinality columns still has one (empty) row per visit
            object.__setattr__(self, "high_cardinality", np.empty((len(self.patient), 0)))
        if self.high_cardinality.shape != (len(self.patient), len(self.high_cardinality_names)):
            raise ValueError(
                f"high-cardinality columns {self.high_cardinality.shape} do not fit {len(self.patient)} visits"
            )

    def __len__(self) -> int:
        return len(self.patient)

    @property
    def target_values(self) -> FloatArray:
        return self.labs[:, self.target]

    @property
    def censored(self) -> BoolArray:
        """Visits x labs: measured, but known only by a limit: neither missing nor an exact value."""
        return np.zeros(self.labs.shape, dtype=bool) if self.limits is None else ~np.isnan(self.limits[:, :, 0])

    @property
    def target_censored(self) -> BoolArray:
        """The same for the target."""
        return np.zeros(len(self), dtype=bool) if self.limits is None else self.censored[:, self.target]

    @property
    def target_bounded(self) -> BoolArray:
        """Those of them whose limit excludes something: a word ("positive") tells only that there is a result."""
        if self.limits is None:
            return np.zeros(len(self), dtype=bool)
        return np.asarray(np.isfinite(self.limits[:, self.target]).any(axis=1), dtype=bool)

    @property
    def target_judges(self) -> BoolArray:
        """Where the target's value, or a limit of it, tells of an imputation's error."""
        return np.asarray(~np.isnan(self.target_values) | self.target_bounded, dtype=bool)

    @property
    def target_limits(self) -> FloatArray:
        """Between what each target known by a limit lies, from 0 up where no value is negative; NaN elsewhere."""
        if self.limits is None:
            return np.full((len(self), 2), np.nan)
        found = self.limits[:, self.target].copy()
        if np.nanmin(self.target_values, initial=np.inf) >= 0:
            found[found[:, 0] == -np.inf, 0] = 0.0
        return found

    @property
    def other_labs(self) -> IntArray:
        """Columns of `labs` other than the target."""
        return np.delete(np.arange(self.labs.shape[1]), self.target)

    def take(self, rows: BoolArray) -> "VisitArrays":
        """The visits at `rows`, patients numbered anew."""
        patient = self.patient[rows]
        return replace(
            self,
            patient=np.cumsum(np.r_[0, patient[1:] != patient[:-1]]) if len(patient) else patient,
            time=self.time[rows],
            labs=self.labs[rows],
            attributes=self.attributes[rows],
            patient_key=self.patient_key[rows],
            visit_key=self.visit_key[rows],
            known=None if self.known is None else self.known[rows],
            high_cardinality=self.high_cardinality[rows],
            limits=None if self.limits is None else self.limits[rows],
        )

    def with_target(self, values: FloatArray) -> "VisitArrays":
        """The same visits with another target column; where it is the same, nothing is copied."""
        if np.array_equal(values, self.target_values, equal_nan=True):
            return self
        labs = self.labs.copy()
        labs[:, self.target] = values
        return replace(self, labs=labs)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: spreads 64 bits over 64 bits, one to one."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def uniform_per_visit(visit_key: NDArray[np.uint64], seed: int, stream: int = 0) -> FloatArray:
    """One uniform number per visit that depends on nothing but the visit, the seed and the stream.

    Neither row order nor partitioning changes a draw.
    """
    salt = mix(np.array([seed], dtype=np.uint64)) + np.uint64(stream)
    return (mix(visit_key ^ mix(salt)) >> np.uint64(11)).astype(np.float64) / float(2**53)


class Stream(IntEnum):
    """Numbers of generators; each belongs to one use."""

    SPLIT = 11
    FIT = 12
    MEASURING = 13
    REPARTITION = 14
    RISK = 15
    TEST = 16
    DRAWS = 21
    ROUGH = 22


class Hashed(IntEnum):
    """Numbers of hashed draws, which depend on a visit or patient and the seed alone."""

    TIE = 0
    FOLD = 3


def generator(seed: int, stream: Stream, *part: int) -> np.random.Generator:
    """The generator of one stream; `part` tells folds or members apart."""
    return np.random.default_rng([seed, int(stream), *part])


def ties(visit_key: NDArray[np.uint64], seed: int) -> FloatArray:
    """One uniform number per visit that orders equal risks."""
    return uniform_per_visit(visit_key, seed, Hashed.TIE)


def hashed_number(key: NDArray[np.uint64], seed: int, stream: Hashed) -> NDArray[np.uint64]:
    """A 64-bit number per key that depends on nothing but the key, the seed and the stream."""
    salt = mix(np.array([seed], dtype=np.uint64)) + np.uint64(stream)
    return mix(key ^ mix(salt))


NONE = -1  # "there is no such visit"


def first_visit(patient: IntArray) -> IntArray:
    """Row of the first visit of each row's patient; patients lie in blocks."""
    starts = np.flatnonzero(np.r_[True, patient[1:] != patient[:-1]]) if len(patient) else np.empty(0, np.int64)
    return np.repeat(starts, np.diff(np.r_[starts, len(patient)]))


def last_visit(patient: IntArray) -> IntArray:
    """Row of the last visit of each row's patient."""
    ends = np.flatnonzero(np.r_[patient[1:] != patient[:-1], True]) if len(patient) else np.empty(0, np.int64)
    return np.repeat(ends, np.diff(np.r_[-1, ends]))


def previous_observed(patient: IntArray, observed: BoolArray) -> IntArray:
    """Row of the same patient's last earlier visit where `observed` holds, or NONE."""
    rows = np.arange(len(patient))
    latest = np.maximum.accumulate(np.where(observed, rows, NONE)) if len(rows) else rows
    previous = np.r_[NONE, latest[:-1]] if len(rows) else rows
    return np.where(previous >= first_visit(patient), previous, NONE)


def known_at_visit(visits: VisitArrays) -> BoolArray:
    """Per value whether it was known by the time of its own visit; a value without a clock was."""
    if visits.known is None:
        return np.ones(visits.labs.shape, dtype=bool)
    late: BoolArray = visits.known > visits.time[:, None]
    return ~late


def first_row_to_know(visits: VisitArrays) -> IntArray:
    """Per value the first later row of the patient that may use it, or one past the patient's last row.

    Each value by its own clock alone: one that overtakes an earlier value still on its way is used at once, as it is
    at night, when nobody can tell that the earlier one will come.
    """
    rows = np.arange(len(visits))
    next_row = np.repeat(rows[:, None] + 1, visits.labs.shape[1], axis=1)
    if visits.known is None:
        return next_row
    hidden = np.isnan(visits.labs) & ~visits.censored
    known_times = np.where(hidden, np.nan, visits.known)  # a hidden value's clock is hidden too
    reported = [_first_row_at_or_after(visits, known) for known in known_times.T]
    waiting: IntArray = np.maximum(next_row, np.stack(reported, axis=1))
    return waiting


def on_its_way(visits: VisitArrays, lab: int) -> BoolArray:
    """Visits whose value of a lab was drawn, and not yet known by the visit's own time: missing, as of then."""
    late: BoolArray = ~np.isnan(visits.labs[:, lab]) & ~known_at_visit(visits)[:, lab]
    return late


def _first_row_at_or_after(visits: VisitArrays, moment: FloatArray) -> IntArray:
    """Row of the patient's first visit at or after each row's moment, or one past the patient's last."""
    n = len(visits)
    moment = np.where(np.isnan(moment), visits.time, moment)
    is_visit = np.r_[np.zeros(n, np.int64), np.ones(n, np.int64)]
    order = np.lexsort((is_visit, np.r_[moment, visits.time], np.tile(visits.patient, 2)))
    visits_before = np.cumsum(is_visit[order]) - is_visit[order]
    found = np.empty(2 * n, np.int64)
    found[order] = visits_before
    return np.minimum(found[:n], last_visit(visits.patient) + 1)


def nearest_own_visits(
    patient: IntArray, observed: BoolArray, before: int, after: int, known_from: IntArray | None = None
) -> IntArray:
    """Rows of the last `before` and the next `after` observed visits, nearest first on each side.

    NONE pads what does not exist; a visit is never among its own. With `known_from`, an earlier visit counts only
    from that row on (see `first_row_to_know`).
    """
    rows = np.flatnonzero(observed)
    here = np.arange(len(patient))
    if known_from is not None and np.any(np.diff(known_from[rows]) < 0):
        return _known_out_of_turn(patient, observed, before, after, known_from)
    earlier = np.searchsorted(rows if known_from is None else known_from[rows] - 1, here)
    later = np.searchsorted(rows, here) + observed
    positions = [earlier - 1 - step for step in range(before)] + [later + step for step in range(after)]
    found = [_row_of_same_patient(rows, position, patient) for position in positions]
    return np.stack(found, axis=1) if found else np.empty((len(patient), 0), np.int64)


def _known_out_of_turn(
    patient: IntArray, observed: BoolArray, before: int, after: int, known_from: IntArray
) -> IntArray:
    """The same where some values became known before earlier ones: looks back visit by visit, never ahead."""
    here = np.arange(len(patient))
    found, filled = np.full((len(here), before + after), NONE, np.int64), np.zeros(len(here), np.int64)
    looking, back = here[1:], 1
    while len(looking):
        looking = looking[(looking >= back) & (filled[looking] < before)]
        looking = looking[patient[looking - back] == patient[looking]]
        row = looking - back
        known = observed[row] & (known_from[row] <= looking)
        found[looking[known], filled[looking[known]]] = row[known]
        filled[looking[known]] += 1
        back += 1
    return found


def take(values: FloatArray, rows: IntArray) -> FloatArray:
    """`values[rows]`, NaN where the row is NONE."""
    if len(values) == 0:
        return np.full(rows.shape, np.nan)
    return np.where(rows == NONE, np.nan, values[rows])


def _row_of_same_patient(rows: IntArray, position: IntArray, patient: IntArray) -> IntArray:
    exists = (position >= 0) & (position < len(rows))
    row = np.full(len(position), NONE, dtype=np.int64)
    row[exists] = rows[position[exists]]
    return np.where((row != NONE) & (patient[row] == patient), row, NONE)


def around(
    patient: IntArray, time: FloatArray, column: FloatArray, known_from: IntArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """A lab's previous value, the days since it, its next value, the days until it; NaN where there is none.

    A visit's own value is never among them. `known_from` delays earlier values as in `nearest_own_visits`; who may
    use the past only drops the next value.
    """
    rows = nearest_own_visits(patient, ~np.isnan(column), before=1, after=1, known_from=known_from)
    values, gaps = take(column, rows), np.abs(take(time, rows) - time[:, None])
    return values[:, 0], gaps[:, 0], values[:, 1], gaps[:, 1]
