"""The rules a visits table must keep; each broken one is an error that names column, rule, rows and remedy."""

import difflib
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from scipy.stats import rankdata

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray, IntArray

NEAR_COPY_CORRELATION = 0.995
NEAR_COPY_EQUAL_SHARE = 0.9
NEAR_COPY_ROWS = 20  # fewer common rows prove nothing
CLASS_LEVELS, CLASS_SHARE = 20, 0.8  # so few levels that explain so much of the target are made from it
CHANGES_PER_PATIENT = 1.2  # levels a patient has on average; what hardly changes is an attribute
LONGEST_DAYS = 300 * 365.25
LARGEST = 1e12  # no measured value is larger, in whatever unit
NEEDED = ("target", "lab", "attribute")  # purposes of columns that were named or that a model reads


def require_columns(frame: pl.DataFrame, names: Iterable[str], purpose: str) -> None:
    for name in names:
        if name not in frame.columns:
            close = difflib.get_close_matches(name, frame.columns, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise VisitsError(
                f"column {name!r} ({purpose}) is not in the table.{hint} "
                f"Columns found: {', '.join(map(repr, frame.columns[:20]))}."
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


def mostly_numbers(text: pl.Series) -> bool:
    """Whether more than half of a text's entries can be read as numbers."""
    filled = len(text) - text.null_count()
    return filled > 0 and (len(text) - text.cast(pl.Float64, strict=False).null_count()) > 0.5 * filled


def _floats(column: pl.Series, purpose: str) -> FloatArray:
    if column.dtype == pl.Null:
        return np.full(len(column), np.nan)
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)):
        raise VisitsError(
            f"column {column.name!r} ({purpose}) holds {column.dtype}, not numbers. "
            "Convert it to numbers or leave it out with exclude."
        )
    cast = column.str.strip_chars().replace("", None) if column.dtype == pl.String else column
    values = cast.cast(pl.Float64, strict=False)
    text = values.null_count() - cast.null_count()
    if text:
        raise VisitsError(
            f"column {column.name!r} ({purpose}) holds text in {text:,} of {len(column):,} rows. "
            "Labs are numbers or empty: convert results such as '<5' or 'NA', or leave the column out with exclude."
        )
    return values.fill_null(np.nan).to_numpy().astype(np.float64)


def days(column: pl.Series) -> FloatArray:
    """Time as days: numbers as they are, dates and timestamps since 1970."""
    if column.dtype.is_numeric():
        return _counted(_floats(column, "time"), column.name)
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        column = column.cast(pl.String).str.strip_chars()
        as_days = column.cast(pl.Float64, strict=False)
        if as_days.null_count() == 0:
            return _counted(_floats(as_days, "time"), column.name)
    moments = _moments(column) if column.dtype == pl.String else column
    if moments.dtype == pl.Date:
        return moments.cast(pl.Int32).to_numpy().astype(np.float64)
    if moments.dtype == pl.Datetime:
        return moments.cast(pl.Datetime("us")).cast(pl.Int64).to_numpy() / 86_400e6
    raise VisitsError(
        f"column {column.name!r} (time) holds {column.dtype}. "
        "Time is a date, a timestamp or a number of days."
    )


def _counted(given: FloatArray, name: str) -> FloatArray:
    """Numbers of days, unless they can only be something else."""
    infinite = int(np.isinf(given).sum())
    if infinite:
        raise VisitsError(
            f"column {name!r} (time) is infinite in {infinite:,} of {len(given):,} rows. Fill or drop those rows."
        )
    year, rest = np.divmod(given, 10_000)
    month, day = np.divmod(rest, 100)
    calendar = (year >= 1800) & (year <= 2300) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    if len(given) and calendar.all() and (given % 1 == 0).all():
        raise VisitsError(
            f"column {name!r} (time) holds dates written as numbers such as 20240331 in {len(given):,} rows. Write "
            "2024-03-31, or a number of days."
        )
    if len(given) and np.ptp(given) > LONGEST_DAYS:
        raise VisitsError(
            f"column {name!r} (time) would span {np.ptp(given) / 365.25:,.0f} years as a number of days. If it counts "
            "seconds or something else, turn it into days, dates or timestamps."
        )
    return given


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


def days_or_empty(column: pl.Series) -> FloatArray:
    """Times that may be empty, as days; NaN where empty."""
    found = np.full(len(column), np.nan)
    if column.dtype == pl.String:
        column = column.str.strip_chars().replace("", None)
    filled = column.is_not_null() & (column.is_not_nan() if column.dtype.is_float() else True)
    if filled.any():
        found[filled.to_numpy()] = days(column.filter(filled))
    return found


TIME_FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%dT%H:%M:%S%.f",
)


ZONED_FORMATS = ("%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f%z", "%Y-%m-%dT%H:%M%z")


def _moments(column: pl.Series) -> pl.Series:
    """Text as timestamps, year first: 03/01/2024 could be March or January and is refused."""
    read = pl.Series(column.name, [None] * len(column), dtype=pl.Datetime("us"))
    zoned = column.str.replace("[zZ]$", "+00:00")
    if zoned.str.contains(r"\d[+-]\d{2}:?\d{2}$").all():
        for style in ZONED_FORMATS:
            moment = zoned.str.to_datetime(style, strict=False, time_unit="us", time_zone="UTC")
            read = read.fill_null(moment.dt.replace_time_zone(None))
    for style in TIME_FORMATS:
        read = read.fill_null(column.str.to_datetime(style, strict=False, time_unit="us"))
    unread = read.null_count()
    if unread:
        raise VisitsError(
            f"column {column.name!r} (time) cannot be read in {unread:,} of {len(column):,} rows. "
            "Write every time year first (2024-03-31 or 2024-03-31 08:15:00), with a time zone in every row or in "
            "none, or as a number of days."
        )
    return read


def refuse_near_copies(columns: dict[str, FloatArray], target: str) -> None:
    """A column that nearly repeats the target would leak the answer into the input."""
    truth = columns[target]
    for name, values in columns.items():
        if name != target and _nearly_copies(values, truth):
            raise VisitsError(
                f"column {name!r} nearly copies the target {target!r}: as an input it would give the answer away. "
                f"Leave it out: --exclude {name}, or exclude=[{name!r}] in Python."
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
    pairs = (a, b), (rankdata(a), rankdata(b))  # a curved copy keeps the order
    return max(abs(float(np.corrcoef(*pair)[0, 1])) for pair in pairs) > NEAR_COPY_CORRELATION


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
    _, code, size = np.unique(
        levels.filter(both).rank("dense").to_numpy(), return_inverse=True, return_counts=True
    )
    free, whose = len(code) - len(size), patient[both]
    met = len(np.unique(whose * len(size) + code)) / len(np.unique(whose))  # levels of a patient, on average
    rank = rankdata(truth[both])
    if met < CHANGES_PER_PATIENT or free < NEAR_COPY_ROWS or rank.var() == 0:
        return 0.0
    means = np.bincount(code, rank) / size
    return 1 - float(np.sum((rank - means[code]) ** 2)) / free / float(rank.var(ddof=1))


def refuse_filled_in(columns: Iterable[str], target: str, exclude: Sequence[str] = ()) -> None:
    """The table that `transform` gives back holds imputed values, which must not pass as measured."""
    flag = f"{target}_released"
    if flag in columns and flag not in exclude:
        raise VisitsError(
            f"column {flag!r} says which values of {target!r} were imputed; they would count as measured here. Empty "
            f"{target!r} where it is true and drop the column, or exclude it if all values are measured."
        )
