"""The rules a visits table must keep; each broken one is an error that names column, rule, rows and remedy."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.tolerance import LARGEST
from safeimpute.visits.arrays import FloatArray, IntArray, VisitArrays, mix
from safeimpute.visits.dates import days as days
from safeimpute.visits.dates import days_or_empty as days_or_empty
from safeimpute.visits.limits import DECIMAL_COMMA, WHOLE, kinds_of_words

NEAR_COPY_CORRELATION = 0.995
NEAR_COPY_EQUAL_SHARE = 0.9
NEAR_COPY_ROWS = 20  # fewer common rows prove nothing
CLASS_LEVELS, CLASS_SHARE = 20, 0.8  # so few levels that explain so much of the target are made from it
CHANGES_PER_PATIENT = 1.2  # levels a patient has on average; what hardly changes is an attribute
LARGEST_FLOAT_ID = 1e15  # beyond it a number with a decimal point cannot tell neighbours apart
FEWEST_VALUES = 6  # measured in a record; fewer may agree with another patient's by chance
NEEDED = ("target", "lab", "attribute")  # purposes of columns that were named or that a model reads


def require_columns(frame: pl.DataFrame, names: Iterable[str], purpose: str) -> None:
    for name in names:
        if name not in frame.columns:
            close = difflib.get_close_matches(name, frame.columns, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise VisitsError(
                f"column {name!r} ({purpose}) is not in the table.{hint} "
                f"Columns found: {', '.join(map(repr, frame.columns[:20]))}. If one of them holds it, rename that: "
                f"--columns 'THEIRS={name}', or columns= of read_visits."
            )


def refuse_patterns(columns: Iterable[str]) -> None:
    """A name such as * or ^.*$ would be taken for a pattern of names by the library that holds the table."""
    if any(name == "*" or (name.startswith("^") and name.endswith("$")) for name in columns):
        raise VisitsError("a column is called '*', or its name begins with ^ and ends with $. Rename it.")


def require_header(columns: Sequence[str], needed: Sequence[str]) -> None:
    """Refuse a table none of whose needed columns is there: its first row may be data, so no name of it is shown."""
    if not set(needed) & set(columns):
        raise VisitsError(
            f"none of the columns {', '.join(map(repr, needed))} is among the table's {len(columns)} columns (not "
            "shown: they may be a first row of data). Add a header row, or map the names with --columns."
        )


def require_rows(frame: pl.DataFrame) -> None:
    if frame.is_empty():
        raise VisitsError("the table has no rows. Give at least a few dozen visits with a measured target.")


def require_identifiers(column: pl.Series) -> None:
    """Identifiers are text or whole numbers that were stored without loss."""
    kind = column.dtype
    if kind.is_nested() or kind in (pl.Binary, pl.Object) or kind.is_temporal():
        raise VisitsError(
            f"column {column.name!r} (whose visit it is) holds {kind.base_type().__name__}. Identifiers are text or "
            "whole numbers: convert the column."
        )
    if kind.is_float():
        lossy = int(((column.abs() >= LARGEST_FLOAT_ID) | ~column.is_finite()).sum())
        if lossy:
            raise VisitsError(
                f"column {column.name!r} (whose visit it is) holds numbers with a decimal point of 1e15 or more in "
                f"{lossy:,} of {len(column):,} rows: digits are lost there, and two patients may share one. Store "
                "identifiers as text or whole numbers."
            )


def refuse_companion_uses(columns: Iterable[str], companions: Iterable[str], uses: Iterable[tuple[str, str]]) -> None:
    """A column that only says something of another's values is no target, lab, attribute or key."""
    there = set(companions) & set(columns)
    for name, use in uses:
        if name in there:
            raise VisitsError(
                f"column {name!r} is named as {use}, but says when the values of another column were known or "
                "drawn, or what they lie above or below. "
                "Name another column, or rename it."
            )


def require_complete(column: pl.Series, purpose: str) -> None:
    empty = column.null_count() + (int(column.is_nan().sum()) if column.dtype.is_float() else 0)
    if column.dtype == pl.String:
        empty += int((column.str.strip_chars() == "").sum())
    if empty:
        raise VisitsError(
            f"column {column.name!r} ({purpose}) is empty in {empty:,} of {len(column):,} rows. "
            "Every row needs one: fill or drop those rows."
        )


def numbers(column: pl.Series, purpose: str) -> FloatArray:
    """The column as floats, NaN where empty; text, infinite and absurdly large values are errors."""
    values = _floats(column, purpose)
    absurd = int((np.abs(values) > LARGEST).sum())
    if absurd:
        leave_out = f", or leave the column out: --exclude {column.name}" if purpose not in NEEDED else ""
        raise VisitsError(
            f"column {column.name!r} ({purpose}) is infinite or beyond 1e12 in {absurd:,} of {len(column):,} rows, "
            "as no measurement is. Write the measured value there, or leave the cell empty if there is none"
            f"{leave_out}."
        )
    return values


def has_decimal_commas(text: pl.Series, *, whole: bool = False) -> bool:
    """Whether a text column holds numbers with a decimal comma: all of it beside whole numbers, or most of it."""
    filled = text.drop_nulls()
    filled = filled.filter(filled.str.strip_chars() != "")
    commas = filled.str.contains(DECIMAL_COMMA)
    if not commas.any():
        return False
    known = kinds_of_words(filled).is_null()
    filled, commas = filled.filter(known), commas.filter(known)
    numbers = commas | filled.str.contains(WHOLE)
    return bool(numbers.all()) if whole else int(numbers.sum()) > len(filled) / 2


def refuse_decimal_commas(text: pl.Series) -> None:
    """A column of numbers with a decimal comma must not pass as text."""
    if has_decimal_commas(text):
        raise VisitsError(
            f"column {text.name!r} holds numbers with a decimal comma. Read the file with --decimal , (and --separator "
            "where columns are not separated by commas), or decimal=',' of read_visits."
        )


def _floats(column: pl.Series, purpose: str) -> FloatArray:
    if column.dtype == pl.Null:
        return np.full(len(column), np.nan)
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)):
        raise VisitsError(
            f"column {column.name!r} ({purpose}) holds {column.dtype.base_type().__name__}, not numbers. "
            "Convert it to numbers or leave it out with exclude."
        )
    cast = column.str.strip_chars().replace("", None) if column.dtype == pl.String else column
    values = cast.cast(pl.Float64, strict=False)
    text = values.null_count() - cast.null_count()
    if text:
        commas = cast.dtype == pl.String and has_decimal_commas(cast)
        raise VisitsError(
            f"column {column.name!r} ({purpose}) holds text in {text:,} of {len(column):,} rows. "
            "Labs are numbers or empty (or limits: <5): empty cells such as 'NA', or leave the column out with exclude"
            f"{', or give --decimal , if numbers have a comma' if commas else ''}."
        )
    return values.to_numpy().astype(np.float64)  # NaN where null


def require_same_clock(since: float | str | None, time: pl.Series) -> None:
    """A date is compared with dates, a number of days with numbers of days."""
    text = time.dtype in (pl.String, pl.Categorical, pl.Enum)
    counted = time.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False) if text else time
    dates = counted.null_count() > 0 if text else not time.dtype.is_numeric()
    if since is not None and isinstance(since, str) != dates:
        kind, other = ("dates", "a number") if dates else ("numbers of days", "a date")
        raise VisitsError(
            f"column {time.name!r} (time) holds {kind}, and since was given as {other}. Write it as the table does."
        )


def refuse_near_copies(columns: dict[str, FloatArray], target: str) -> None:
    """A column that nearly repeats the target would leak the answer into the input."""
    truth = columns[target]
    for name, values in columns.items():
        if name != target and _nearly_copies(values, truth):
            raise VisitsError(
                f"column {name!r} nearly copies the target {target!r}: as an input it would give the answer away. "
                f"Leave it out: --exclude {name}, or exclude=[{name!r}] in Python."
            )


def refuse_copied_targets(columns: dict[str, FloatArray], targets: Sequence[str]) -> None:
    """Two labs to be imputed in one run must not nearly repeat each other."""
    for first, second in combinations(targets, 2):
        if _nearly_copies(columns[second], columns[first]):
            raise VisitsError(
                f"labs {first!r} and {second!r} nearly copy each other: either would give the other's answer away. "
                f"Impute one of them and leave the other out: --exclude {second}, or exclude=[{second!r}] in Python."
            )


def _nearly_copies(values: FloatArray, truth: FloatArray) -> bool:
    both = ~(np.isnan(values) | np.isnan(truth))
    if both.sum() < NEAR_COPY_ROWS:
        return False
    a, b = values[both], truth[both]
    if np.mean(a == b) > NEAR_COPY_EQUAL_SHARE:
        return True
    if a.std() == 0 or b.std() == 0:
        return False
    pairs = (a, b), (_ranks(a), _ranks(b))  # a curved copy keeps the order
    return max(abs(float(np.corrcoef(*pair)[0, 1])) for pair in pairs) > NEAR_COPY_CORRELATION


def _ranks(values: FloatArray) -> FloatArray:
    """1, 2, 3 … by size; equal values share the mean of theirs."""
    return pl.Series(values).rank("average").to_numpy()


def refuse_classes_of(
    numeric: dict[str, FloatArray], categories: dict[str, pl.Series], target: str, patient: IntArray
) -> None:
    """A column of few levels, changing from visit to visit, that nearly fixes the target is the target in classes."""
    few = {name: pl.Series(values).fill_nan(None) for name, values in numeric.items() if name != target}
    few = {name: values for name, values in few.items() if values.n_unique() <= CLASS_LEVELS}
    for name, levels in {**few, **categories}.items():
        if _fixed_by(levels, numeric[target], patient) > CLASS_SHARE:
            raise VisitsError(
                f"column {name!r} nearly fixes the target {target!r}, as classes made from it do: as an input it would "
                f"give the answer away. Leave it out: --exclude {name}, or exclude=[{name!r}] in Python."
            )


def _fixed_by(levels: pl.Series, truth: FloatArray, patient: IntArray) -> float:
    """Share of the variance of the target's ranks that the levels explain, free of chance; 0 for fixed attributes."""
    both = levels.is_not_null().to_numpy() & ~np.isnan(truth)
    if both.sum() < NEAR_COPY_ROWS:
        return 0.0
    _, code, size = np.unique(levels.filter(both).rank("dense").to_numpy(), return_inverse=True, return_counts=True)
    free, whose = len(code) - len(size), patient[both]
    met = len(np.unique(whose * len(size) + code)) / len(np.unique(whose))  # levels of a patient, on average
    rank = _ranks(truth[both])
    if met < CHANGES_PER_PATIENT or free < NEAR_COPY_ROWS or rank.var() == 0:
        return 0.0
    means = np.bincount(code, rank) / size
    return 1 - float(np.sum((rank - means[code]) ** 2)) / free / float(rank.var(ddof=1))


def refuse_filled_in(columns: Iterable[str], target: str, exclude: Sequence[str] = ()) -> None:
    """The table that `transform` gives back holds imputed values, which must not pass as measured: of any column."""
    there = set(columns)
    for name in sorted(there | {target}):
        flags = [flag for flag in (f"{name}_released", f"{name}__promised") if flag in there and flag not in exclude]
        if flags and name not in exclude:
            flag = flags[0]
            raise VisitsError(
                f"column {flag!r} says which values of {name!r} were imputed; they would count as measured here. Empty "
                f"{name!r} where it is true and drop the column, or exclude it if all values are measured."
            )


def refuse_copied_patients(visits: VisitArrays) -> None:
    """Refuse a table in which records of different patients agree in every time and every lab value."""
    copied = len(copied_patients(visits))
    if copied:
        raise VisitsError(
            f"{copied:,} patients have the same times and lab values as another patient: copies under another "
            "identifier, through which a value would be imputed from itself. Keep one of each."
        )


def copied_patients(visits: VisitArrays) -> IntArray:
    """Patients (by number) whose whole record stands in the table before, under another identifier."""
    starts = np.flatnonzero(np.r_[True, visits.patient[1:] != visits.patient[:-1]])
    if not len(visits):
        return np.empty(0, np.int64)
    with np.errstate(over="ignore"):
        record = np.add.reduceat(_visit_hash(visits), starts)
    values = np.add.reduceat((~np.isnan(visits.labs)).sum(axis=1), starts)
    rich = np.flatnonzero(values >= FEWEST_VALUES)
    _, first = np.unique(record[rich], return_index=True)
    return np.setdiff1d(rich, rich[first])


def _visit_hash(visits: VisitArrays) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """A hash of each visit's time and lab values; one bit pattern stands for every missing value."""
    found = mix((visits.time + 0.0).view(np.uint64))
    for column in visits.labs.T:
        seen = np.ascontiguousarray(np.where(np.isnan(column), np.nan, column + 0.0))
        found = mix(found ^ mix(seen.view(np.uint64)))
    return found


MOST_SHOWN = 30


class Faults:
    """What is wrong with a table; each fault is a sentence that names column, rule, rows and remedy."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is refused inside, and go on after it."""
        try:
            yield
        except VisitsError as error:
            if str(error) not in self.found:
                self.found.append(str(error))

    def refuse(self) -> None:
        """Raise VisitsError where anything was found: one fault as it is, several numbered."""
        if len(self.found) == 1:
            raise VisitsError(self.found[0])
        if self.found:
            shown = [f"({number}) {each}" for number, each in enumerate(self.found[:MOST_SHOWN], 1)]
            more = [f"and {len(self.found) - MOST_SHOWN} more"] if len(self.found) > MOST_SHOWN else []
            raise VisitsError(f"{len(self.found)} faults. {' '.join([*shown, *more])}")


@dataclass
class Account:
    """Sentences to show, and counts by reason; nothing of any value."""

    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)  # those of the counts whose rows are gone

    def say(self, sentence: str) -> None:
        """A sentence to show."""
        self.notes.append(sentence)

    def count(self, reason: str, rows: int, *, lost: bool = False) -> None:
        """Rows to which something happened; `lost`: they are not in the table."""
        if rows:
            self.counts[reason] = self.counts.get(reason, 0) + rows
            if lost:
                self.dropped[reason] = self.dropped.get(reason, 0) + rows

    def add(self, other: "Account") -> None:
        """What another account says, too."""
        self.notes += other.notes
        for reason, rows in other.counts.items():
            self.count(reason, rows, lost=reason in other.dropped)

    def keep(self, rows: pl.DataFrame, sound: pl.Expr, reason: str) -> pl.DataFrame:
        """The sound rows; the others are counted under the reason."""
        kept = rows.filter(sound)
        self.count(reason, len(rows) - len(kept), lost=True)
        return kept

    def in_words(self) -> str:
        """All counts in one line."""
        return "; ".join(f"{rows:,} {reason}" for reason, rows in self.counts.items()) or "no rows"

    def lines(self) -> list[str]:
        """What to show."""
        return [*self.notes, *(f"{rows:>12,}  {reason}" for reason, rows in self.counts.items())]
