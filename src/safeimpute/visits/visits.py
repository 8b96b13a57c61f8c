"""From a user's table to checked visits: columns sorted into labs and attributes, one row per visit, arrays."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import VisitsError
from safeimpute.visits import checks
from safeimpute.visits.arrays import FloatArray, IntArray, VisitArrays, mix
from safeimpute.visits.checks import Faults
from safeimpute.visits.columns import (
    KNOWN,
    ColumnChoice,
    ColumnRole,
    Columns,
    high_cardinality_codes,
    high_cardinality_levels,
    named_lab,
    note_unreadable,
    one_code_per_visit,
    read_columns,
)
from safeimpute.visits.dates import kind_of
from safeimpute.visits.limits import limits_of_visits
from safeimpute.visits.tables import to_polars

__all__ = ["ColumnChoice", "ColumnRole", "Visits", "prepare_targets", "prepare_visits"]


@dataclass(frozen=True)
class Visits:
    """Checked visits: the canonical arrays, and the way back to the user's rows."""

    arrays: VisitArrays
    subject: pl.Series  # per visit, in the user's own type
    time: pl.Series
    row_visit: IntArray  # visit of each row of the user's table
    labs: tuple[str, ...]
    attributes: tuple[str, ...]
    roles: dict[str, ColumnRole]  # what every column but patient and time was taken for
    rows: int
    merged_rows: int  # rows that shared a patient and a time with another row
    fingerprint: str
    choice: ColumnChoice  # what the user said about its columns
    high_cardinality_levels: dict[
        str, tuple[str, ...]
    ]  # of each high-cardinality column, hashed, in the order of their codes
    words: dict[str, dict[str, int]] = field(default_factory=dict)  # of labs: rows with a word ("not done"), by kind

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def patients(self) -> int:
        return int(self.arrays.patient[-1]) + 1

    @property
    def censored(self) -> dict[str, int]:
        """Per lab, the visits at which its result is known only by a limit; labs without any left out."""
        counts = self.arrays.censored.sum(axis=0).tolist()
        return {lab: int(count) for lab, count in zip(self.arrays.lab_names, counts, strict=True) if count}

    @property
    def ignored(self) -> dict[str, str]:
        """Columns that are no input, and why; clocks and limits among them."""
        unused = ("ignored", "clock", "limit")
        return {name: each.reason for name, each in self.roles.items() if each.role in unused}


@dataclass(frozen=True)
class RowKeys:
    """Per row of the table: its patient and visit in canonical order."""

    patient: IntArray
    visit: IntArray
    first_row: IntArray  # one row of each visit
    time: FloatArray


def prepare_visits(table: Any, choice: ColumnChoice) -> Visits:
    """Check a table and turn it into visits; the table itself is not modified."""
    return prepare_targets(table, choice, (choice.target,))[choice.target]


def visits_of(table: Any, choice: ColumnChoice) -> Visits:
    """The visits of a table, or those checked before from the same columns."""
    if not isinstance(table, Visits):
        return prepare_visits(table, choice)
    if table.choice != choice:
        raise VisitsError("these visits were read with other columns than the imputer was told. Give the table itself.")
    return table


def prepare_targets(table: Any, choice: ColumnChoice, targets: Sequence[str]) -> dict[str, Visits]:
    """The same for each of several targets, which are labs to one another; the arrays are shared, not copied."""
    frame, several = to_polars(table), len(targets) > 1
    choice = replace(choice, target=targets[0])
    if several:
        choice = replace(choice, labs=tuple(dict.fromkeys((*choice.labs, *targets))))
    _refuse_overlap(choice)
    checks.require_header(frame.columns, [choice.subject, choice.time, choice.target])
    faults = Faults()
    _require_named(frame, choice, targets, faults)
    checks.require_rows(frame)
    if faults.found:
        note_unreadable(frame, choice, faults)
    faults.refuse()
    keys = _keys(frame, choice, faults)
    columns = read_columns(frame, choice, keys.patient, keys.visit, faults)
    faults.refuse()
    _refuse_leaks(columns, targets, keys, faults)
    faults.refuse()
    first = _assemble(frame, choice, keys, columns)
    return {target: first if target == choice.target else _aimed_at(first, target) for target in targets}


def _require_named(frame: pl.DataFrame, choice: ColumnChoice, targets: Sequence[str], faults: Faults) -> None:
    """Every column that is needed or named is there."""
    needed = [(name, "needed in every visits table") for name in (choice.subject, choice.time)]
    needed += [(name, "target") for name in targets] + [(name, "named as a lab") for name in choice.labs]
    needed += [(name, "named as an attribute") for name in choice.attributes]
    needed += [(name, "named in exclude") for name in choice.exclude]
    first = dict(reversed(needed))  # of a name with two purposes, the first
    for name in dict.fromkeys(name for name, _ in needed):
        with faults.noted():
            checks.require_columns(frame, [name], first[name])
    for target in targets:
        with faults.noted():
            checks.refuse_filled_in(frame.columns, target, choice.exclude)


def _keys(frame: pl.DataFrame, choice: ColumnChoice, faults: Faults) -> RowKeys:
    """Patient and visit of each row; where they cannot be told, what else is wrong is noted before that is said."""
    for name in (choice.subject, choice.time):
        with faults.noted():
            checks.require_complete(frame[name], "needed in every row")
    if not faults.found:
        with faults.noted():
            return row_keys(frame, choice)
    with faults.noted():
        checks.days_or_empty(frame[choice.time])
    note_unreadable(frame, choice, faults)
    faults.refuse()
    raise AssertionError("a fault was noted")


def _refuse_leaks(columns: Columns, targets: Sequence[str], keys: RowKeys, faults: Faults) -> None:
    """No column gives a target away."""
    if len(targets) > 1:
        with faults.noted():
            checks.refuse_copied_targets(columns.numeric, targets)
    texts = columns.categories | columns.high_cardinality
    for target in targets:
        with faults.noted():
            checks.refuse_near_copies(columns.numeric, target)
        with faults.noted():
            checks.refuse_classes_of(columns.numeric, texts, target, keys.patient)


def _aimed_at(visits: Visits, target: str) -> Visits:
    """The same visits with another of their labs as the target."""
    arrays = replace(visits.arrays, target=visits.labs.index(target))
    _require_varying_target(arrays)
    former = visits.arrays.lab_names[visits.arrays.target]
    roles = visits.roles | {target: visits.roles[former], former: named_lab(former)}
    choice = replace(visits.choice, target=target)
    return replace(
        visits,
        arrays=arrays,
        roles=roles,
        fingerprint=_fingerprint(arrays, visits.high_cardinality_levels),
        choice=choice,
    )


def _refuse_overlap(choice: ColumnChoice) -> None:
    """One column, one use."""
    used = [choice.target, choice.subject, choice.time, *choice.attributes, *choice.exclude]
    used += [name for name in choice.labs if name != choice.target]
    if twice := [name for name in used if used.count(name) > 1]:
        raise VisitsError(f"column {twice[0]!r} is named for two uses. Name it once.")


def row_keys(frame: pl.DataFrame, choice: ColumnChoice) -> RowKeys:
    checks.require_identifiers(frame[choice.subject])
    subject = subject_names(frame[choice.subject])
    time = checks.days(frame[choice.time])
    patient = subject.rank("dense").to_numpy().astype(np.int64) - 1
    order = np.lexsort((time, patient))
    new = np.r_[True, (np.diff(patient[order]) != 0) | (np.diff(time[order]) != 0)]
    visit = np.empty(len(frame), np.int64)
    visit[order] = np.cumsum(new) - 1
    return RowKeys(patient, visit, order[new], time)


def _assemble(frame: pl.DataFrame, choice: ColumnChoice, keys: RowKeys, columns: Columns) -> Visits:
    labs, attributes = columns.labs, columns.numeric_attributes
    levels = _one_hot(columns.categories)
    _refuse_doubled(levels, frame.columns)
    encoded = {name: columns.numeric[name] for name in attributes} | levels
    levels_met = {name: high_cardinality_levels(text) for name, text in columns.high_cardinality.items()}
    subject = frame[choice.subject][keys.first_row]
    arrays = visit_arrays(
        subject,
        keys,
        labs={name: columns.numeric[name] for name in labs},
        target=choice.target,
        attributes=encoded,
        known=known_times(frame, labs, keys, choice.time),
        high_cardinality={
            name: high_cardinality_codes(text, levels_met[name]) for name, text in columns.high_cardinality.items()
        },
        limits=columns.limits,
    )
    _require_varying_target(arrays)
    checks.refuse_copied_patients(arrays)
    return Visits(
        arrays=arrays,
        subject=subject,
        time=frame[choice.time][keys.first_row],
        row_visit=keys.visit,
        labs=labs,
        attributes=attributes + tuple(columns.categories),
        roles=dict(sorted(columns.roles.items())),
        rows=len(frame),
        merged_rows=len(frame) - len(arrays),
        fingerprint=_fingerprint(arrays, levels_met),
        choice=choice,
        high_cardinality_levels=levels_met,
        words=columns.words,
    )


def _refuse_doubled(levels: Mapping[str, FloatArray], names: Sequence[str]) -> None:
    """A column called like a level of another, `sex=F` beside `sex`, would take its place unseen."""
    if doubled := [name for name in levels if name in names]:
        raise VisitsError(
            f"column {doubled[0]!r} is called like a level of the category {doubled[0].partition('=')[0]!r}: the two "
            "cannot be told apart. Drop or rename one of them."
        )


def visit_arrays(
    subject: pl.Series,
    keys: RowKeys,
    *,
    labs: Mapping[str, FloatArray],
    target: str,
    attributes: Mapping[str, FloatArray],
    known: FloatArray | None,
    high_cardinality: Mapping[str, FloatArray],
    limits: Mapping[str, FloatArray],
) -> VisitArrays:
    """One row per visit from columns of the table's rows; `subject` has one entry per visit."""
    visits, time = len(keys.first_row), keys.time[keys.first_row]
    patient_key = patient_keys(subject_names(subject))
    values = _merge_rows(list(labs.values()), keys.visit, visits)
    return VisitArrays(
        patient=keys.patient[keys.first_row],
        time=time,
        labs=values,
        lab_names=tuple(labs),
        target=tuple(labs).index(target),
        attributes=_merge_rows(list(attributes.values()), keys.visit, visits),
        attribute_names=tuple(attributes),
        patient_key=patient_key,
        visit_key=mix(patient_key ^ mix(time.view(np.uint64))),
        known=known,
        high_cardinality=one_code_per_visit(list(high_cardinality.values()), keys.visit, visits),
        high_cardinality_names=tuple(high_cardinality),
        limits=limits_of_visits([limits[name] for name in labs], keys.visit, ~np.isnan(values)),
    )


def _merge_rows(columns: list[FloatArray], visit: IntArray, visits: int) -> FloatArray:
    """One value per visit: the mean of what its rows hold, whatever their order."""
    merged = np.full((visits, len(columns)), np.nan)
    for position, values in enumerate(columns):
        rows = np.flatnonzero(~np.isnan(values))
        rows = rows[np.lexsort((values[rows], visit[rows]))]  # a sum in value order ignores the row order
        count = np.bincount(visit[rows], minlength=visits)
        total = np.bincount(visit[rows], weights=values[rows], minlength=visits)
        np.divide(total, count, out=merged[:, position], where=count > 0)
    return merged


def _require_same_clock(known: pl.Series, time: pl.Series) -> None:
    kinds = kind_of(known), kind_of(time)
    if kinds[0] and kinds[0] != kinds[1]:
        raise VisitsError(
            f"column {known.name!r} holds {kinds[0]}, but {time.name!r} holds {kinds[1]}: they cannot be compared. "
            "Write both as dates or both as days."
        )


def known_times(frame: pl.DataFrame, labs: tuple[str, ...], keys: RowKeys, time: str) -> FloatArray | None:
    """When each lab's value became known: the last of a visit's rows; NaN where the table does not say."""
    if not any(name + KNOWN in frame.columns for name in labs):
        return None
    known = np.full((len(keys.first_row), len(labs)), np.nan)
    for position, name in enumerate(labs):
        if name + KNOWN in frame.columns:
            _require_same_clock(frame[name + KNOWN], frame[time])
            np.fmax.at(known[:, position], keys.visit, checks.days_or_empty(frame[name + KNOWN]))
    return known


def _one_hot(categories: dict[str, pl.Series]) -> dict[str, FloatArray]:
    """One 0/1 column per level, NaN where the category is missing."""
    columns: dict[str, FloatArray] = {}
    for name, text in categories.items():
        for level in sorted(text.drop_nulls().unique().to_list()):
            flag = (text == level).cast(pl.Float64).fill_null(np.nan)
            columns[f"{name}={level}"] = flag.to_numpy()
    return columns


def subject_names(subject: pl.Series) -> pl.Series:
    """Identifiers as text; a whole number is written the same, however the table stores it and whoever is beside it."""
    text = subject.cast(pl.String)
    if subject.dtype.is_float():
        whole = (subject == subject.floor()) & (subject.abs() < 2**63)
        text = subject.cast(pl.Int64, strict=False).cast(pl.String).zip_with(whole.fill_null(False), text)
    return text


def patient_keys(subject: pl.Series) -> NDArray[np.uint64]:
    """A stable 64-bit hash per subject."""
    names = subject.unique(maintain_order=True)
    hashed = [
        int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") for name in names.to_list()
    ]
    position = subject.replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64).to_numpy()
    keys: NDArray[np.uint64] = np.array(hashed, dtype=np.uint64)[position]
    return keys


def _require_varying_target(arrays: VisitArrays) -> None:
    seen = arrays.target_values[~np.isnan(arrays.target_values)]
    name = arrays.lab_names[arrays.target]
    if len(seen) == 0:
        raise VisitsError(f"target {name!r} is never measured: there is nothing to learn from.")
    if np.ptp(seen) == 0:
        raise VisitsError(f"target {name!r} has the same value at all {len(seen):,} visits: nothing to impute.")


def looks_fingerprint(arrays: VisitArrays) -> str:
    """SHA-256 of patients, times and target values: with other columns left out, the visits are still the same."""
    digest = hashlib.sha256(np.ascontiguousarray(arrays.patient_key).tobytes())
    for part in (arrays.time, arrays.target_values):
        one_nan_one_zero = np.where(np.isnan(part), np.nan, part + 0.0)
        digest.update(np.ascontiguousarray(one_nan_one_zero).tobytes())
    return digest.hexdigest()


def _fingerprint(arrays: VisitArrays, levels: dict[str, tuple[str, ...]]) -> str:
    """SHA-256 of the canonical content: the same table in another row or column order has the same one."""
    high_cardinality = (levels,) if levels else ()
    digest = hashlib.sha256(repr((arrays.lab_names, arrays.target, arrays.attribute_names, *high_cardinality)).encode())
    more = tuple(part for part in (arrays.known, arrays.limits) if part is not None)
    for part in (arrays.patient_key, arrays.time, arrays.labs, arrays.attributes, *more, arrays.high_cardinality):
        digest.update(np.ascontiguousarray(part + 0.0 if part.dtype.kind == "f" else part).tobytes())
    return digest.hexdigest()
