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
            "Labs are numbers or empty: convert results such as '<5', or leave the column out with exclude."
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
    moments = _moments(column) if column.dtype == pl.String else column
    if moments.dtype == pl.Date:
        return moments.cast(pl.Int32).to_numpy().astype(np.float64)
    if moments.dtype == pl.Datetime:
        return moments.cast(pl.Datetime("us")).cast(pl.Int64).to_numpy() / 86_400e6
    raise VisitsError(
        f"column {column.name!r} (time) holds {column.dtype}. "
        "Time is a date, a timestamp or a number of days."
    )


def _moments(column: pl.Series) -> pl.Series:
    """Text as timestamps; also text that holds numbers of days."""
    for kind in (pl.Datetime("us"), pl.Date()):
        try:
            parsed = column.str.strptime(kind, strict=False).cast(pl.Datetime("us"))
        except pl.exceptions.ComputeError:  # no format fits the first rows
            continue
        if parsed.null_count() == column.null_count():
            return parsed
    bad = _unreadable_times(column)
    raise VisitsError(
        f"column {column.name!r} (time) cannot be read in {bad:,} of {len(column):,} rows. "
        "Write every time the same way: 2024-03-31, 2024-03-31 08:15:00, or a number of days."
    )


def _unreadable_times(column: pl.Series) -> int:
    formats = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")
    readable = np.zeros(len(column), dtype=bool)
    for style in formats:
        readable |= column.str.to_datetime(style, strict=False).is_not_null().to_numpy()
    return int((~readable).sum()) or len(column)


def refuse_near_copies(columns: dict[str, FloatArray], target: str) -> None:
    """A column that nearly repeats the target would leak the answer into the input."""
    truth = columns[target]
    for name, values in columns.items():
        if name != target and _nearly_copies(values, truth):
            raise VisitsError(
                f"column {name!r} nearly copies the target {target!r}: as an input it would give the answer away. "
                f"Leave it out with exclude={name!r}."
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
