"""Visits that came in after a fit, read column by column as the fitted table was; what scoring starts from."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.visits import checks
from safeimpute.visits.arrays import FloatArray, VisitArrays
from safeimpute.visits.columns import COMPANIONS, KNOWN, ColumnChoice, clean_text, coded, high_cardinality_codes
from safeimpute.visits.limits import limits_of_rows, with_limits
from safeimpute.visits.tables import to_polars
from safeimpute.visits.visits import Visits, known_times, row_keys, visit_arrays

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Reading:
    """What a model reads of a table."""

    subject: str
    time: str
    target: str
    labs: tuple[str, ...]  # the target among them, in the model's order
    attributes: tuple[str, ...]  # numbers
    categories: dict[str, tuple[str, ...]]  # levels met at fit
    clocks: bool = False  # the fitted table said when values became known
    high_cardinality: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # text of many levels: those met at fit, hashed
    clocked: tuple[str, ...] = ()  # labs whose LAB__known the model counts on
    words: tuple[str, ...] = ()  # classes of the target in their order, where it holds words

    @property
    def encoded(self) -> tuple[str, ...]:
        """Names of the attribute columns the model sees."""
        levels = [f"{name}={level}" for name, levels in self.categories.items() for level in levels]
        return (*self.attributes, *levels)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*self.labs, *self.attributes, *self.categories, *self.high_cardinality)


def reading_of(visits: Visits, choice: ColumnChoice, *, past_only: bool = False) -> Reading:
    """How the table of a fit was read; numbers stand first among its attributes, under their own names."""
    clocked = tuple(name for name in visits.labs if name + KNOWN in visits.roles) if past_only else ()
    encoded = visits.arrays.attribute_names
    numbers = [name for name, column in zip(visits.attributes, encoded, strict=False) if name == column]
    levels: dict[str, tuple[str, ...]] = {}
    place = len(numbers)
    for name in visits.attributes[len(numbers) :]:
        own = []
        while place < len(encoded) and encoded[place].startswith(f"{name}="):
            own.append(encoded[place].removeprefix(f"{name}="))
            place += 1
        levels[name] = tuple(own)
    return Reading(
        choice.subject,
        choice.time,
        choice.target,
        visits.labs,
        tuple(numbers),
        levels,
        clocks=visits.arrays.known is not None,
        high_cardinality=visits.high_cardinality_levels,
        clocked=clocked,
        words=choice.words,
    )


@dataclass(frozen=True)
class NewVisits:
    """Checked new visits, and the way back to the user's identifiers."""

    arrays: VisitArrays
    subject: pl.Series
    time: pl.Series
    ignored: tuple[str, ...]  # columns the model does not know
    unknown_levels: dict[str, int]  # category -> rows with a level never met at fit


def read_new_visits(table: Any, reading: Reading, without: Sequence[str] = ()) -> NewVisits:
    """Check a table and read from it what the model knows; columns named in `without` count as never measured."""
    frame = coded(to_polars(table), reading.target, reading.words)
    frame = with_limits(frame, (*reading.labs, *reading.attributes))
    require_readable(frame.columns, reading, without)
    if frame.is_empty():
        raise VisitsError("the table has no rows: there is nothing to score.")
    for name in (reading.subject, reading.time):
        checks.require_complete(frame[name], "needed in every row")
    choice = ColumnChoice(reading.target, reading.subject, reading.time)
    keys = row_keys(frame, choice)
    attributes, unknown = _attributes(frame, reading)
    used = columns_read(frame.columns, reading)
    ignored = tuple(name for name in frame.columns if name not in used)
    subject = frame[reading.subject][keys.first_row]
    arrays = visit_arrays(
        subject,
        keys,
        labs={name: _numbers(frame, name, "lab") for name in reading.labs},
        target=reading.target,
        attributes=dict(zip(reading.encoded, attributes, strict=True)),
        known=known_times(frame, reading.labs, keys, reading.time) if reading.clocks else None,
        high_cardinality={name: _codes(frame, name, levels) for name, levels in reading.high_cardinality.items()},
        limits={name: limits_of_rows(frame, name) for name in reading.labs},
    )
    return NewVisits(arrays, subject, frame[reading.time][keys.first_row], ignored, unknown)


def whole_patients(batches: "Iterable[pa.RecordBatch]", subject: str) -> Iterator[pl.DataFrame]:
    """Rows sorted by patient, cut between patients wherever an engine cut its batches."""
    waiting = pl.DataFrame()
    for batch in batches:
        if batch.num_rows == 0:
            continue
        frame = pl.DataFrame(pl.from_arrow(batch))
        frame = pl.concat([waiting, frame]) if len(waiting) else frame
        start = frame[subject].eq_missing(frame[subject][-1]).arg_max() or 0
        if start:
            yield frame[:start]
        waiting = frame[start:]
    if len(waiting):
        yield waiting


def require_readable(columns: Sequence[str], reading: Reading, without: Sequence[str] = ()) -> None:
    """Refuse a table without a column the model reads, unless that column is declared missing, and a filled-in one."""
    checks.require_header(columns, (reading.subject, reading.time, reading.target))
    checks.refuse_filled_in(columns, reading.target)
    for name in without:
        if name not in reading.inputs:
            raise VisitsError(f"{name!r} is no lab or attribute of this model; it need not be declared missing.")
        if name in columns:
            raise VisitsError(f"column {name!r} is declared missing, but the table has it. Drop one or the other.")
    for name in (reading.subject, reading.time):
        if name not in columns:
            raise VisitsError(f"column {name!r} (needed in every visits table) is not in the table. Rename it.")
    for name in reading.inputs:
        if name not in without and name not in columns:
            kind = "target" if name == reading.target else "lab" if name in reading.labs else "attribute"
            raise VisitsError(
                f"column {name!r} ({kind} of the fitted model) is not in the table. Rename the column that holds it, "
                "or say that nobody measured it: --without, or without= in Python (nothing is promised then)."
            )
    for name in reading.clocked:
        if name not in without and name + KNOWN not in columns:
            raise VisitsError(
                f"column {name + KNOWN!r} (when {name} became known, as the fitted table said) is not in the table: "
                "what was known by a visit's time cannot be told. Add it; an empty cell means at the visit."
            )


def columns_read(columns: Sequence[str], reading: Reading) -> tuple[str, ...]:
    """Those of a table's columns that the model reads, clocks and limits of its labs included."""
    companions = {name + ending for name in reading.labs for ending in COMPANIONS}
    read = {reading.subject, reading.time, *reading.inputs} | companions
    return tuple(name for name in columns if name in read)


def _numbers(frame: pl.DataFrame, name: str, purpose: str) -> FloatArray:
    return checks.numbers(frame[name], purpose) if name in frame.columns else np.full(len(frame), np.nan)


def _codes(frame: pl.DataFrame, name: str, levels: tuple[str, ...]) -> FloatArray:
    return (
        high_cardinality_codes(clean_text(frame[name]), levels)
        if name in frame.columns
        else np.full(len(frame), np.nan)
    )


def _attributes(frame: pl.DataFrame, reading: Reading) -> tuple[list[FloatArray], dict[str, int]]:
    """The attribute columns the model sees; a level it never met is none of those it knows."""
    columns = [_numbers(frame, name, "attribute") for name in reading.attributes]
    unknown: dict[str, int] = {}
    for name, levels in reading.categories.items():
        if name not in frame.columns:
            columns += [np.full(len(frame), np.nan) for _ in levels]
            continue
        text = clean_text(frame[name])
        found = [(text == level).cast(pl.Float64).to_numpy() for level in levels]  # NaN where there is no text
        columns += found
        if strange := len(text) - text.null_count() - int(sum(np.nansum(each) for each in found)):
            unknown[name] = strange
    return columns, unknown
