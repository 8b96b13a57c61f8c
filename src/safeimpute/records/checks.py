"""The rules a visits table must keep; each broken one is an error that names column, rule, rows and remedy."""

import difflib
from collections.abc import Iterable

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray

NEAR_COPY_CORRELATION = 0.995
NEAR_COPY_EQUAL_SHARE = 0.9
NEAR_COPY_ROWS = 20  # fewer common rows prove nothing


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
    """The column as floats, NaN where empty; text and infinite values are errors."""
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
    result = values.fill_null(np.nan).to_numpy().astype(np.float64)
    infinite = int(np.isinf(result).sum())
    if infinite:
        raise VisitsError(
            f"column {column.name!r} ({purpose}) is infinite in {infinite:,} of {len(column):,} rows. "
            "Replace them by the measured value or leave them empty."
        )
    return result


def days(column: pl.Series) -> FloatArray:
    """Time as days: numbers as they are, dates and timestamps since 1970."""
    if column.dtype.is_numeric():
        return numbers(column, "time")
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        column = column.cast(pl.String).str.strip_chars()
        as_days = column.cast(pl.Float64, strict=False)
        if as_days.null_count() == 0:
            return numbers(as_days, "time")
    moments = _moments(column) if column.dtype == pl.String else column
    if moments.dtype == pl.Date:
        return moments.cast(pl.Int32).to_numpy().astype(np.float64)
    if moments.dtype == pl.Datetime:
        return moments.cast(pl.Datetime("us")).cast(pl.Int64).to_numpy() / 86_400e6
    raise VisitsError(
        f"column {column.name!r} (time) holds {column.dtype}. "
        "Time is a date, a timestamp or a number of days."
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


def _moments(column: pl.Series) -> pl.Series:
    """Text as timestamps, year first: 03/01/2024 could be March or January and is refused."""
    read = pl.Series(column.name, [None] * len(column), dtype=pl.Datetime("us"))
    for style in TIME_FORMATS:
        read = read.fill_null(column.str.to_datetime(style, strict=False, time_unit="us"))
    unread = read.null_count()
    if unread:
        raise VisitsError(
            f"column {column.name!r} (time) cannot be read in {unread:,} of {len(column):,} rows. "
            "Write every time year first (2024-03-31 or 2024-03-31 08:15:00), or as a number of days."
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
    return abs(float(np.corrcoef(a, b)[0, 1])) > NEAR_COPY_CORRELATION
