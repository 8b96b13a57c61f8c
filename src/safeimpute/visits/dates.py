"""Times as days: dates are read by one rule and never guessed; what could mean two days is refused by its form."""

import re
from datetime import UTC, date, datetime
from typing import Literal

import numpy as np
import polars as pl

from safeimpute.errors import OptionError, VisitsError
from safeimpute.visits.arrays import BoolArray, FloatArray

LONGEST_DAYS = 300 * 365.25
EARLIEST_YEAR, LATEST_SHIFTED_YEAR = 1900, 2300
PER_DAY = {"ms": 86_400e3, "us": 86_400e6}
TEXTS = (pl.String, pl.Categorical, pl.Enum)
TIME_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S%.f")
ZONED_FORMATS = ("%Y-%m-%dT%H:%M:%S%.f%z", "%Y-%m-%d %H:%M:%S%.f%z", "%Y-%m-%dT%H:%M%z")
YEAR_FIRST = r"^\d{4}-\d{2}-\d{2}([T ]|$)"
# How texts may look, in the order in which they are tried; the words are shown instead of any value.
SHAPES = {
    YEAR_FIRST: "YYYY-MM-DD",
    r"^\d{4}[./]\d{1,2}[./]\d{1,2}": "YYYY/MM/DD",
    r"^\d{1,2}/\d{1,2}/\d{4}": "DD/MM/YYYY or MM/DD/YYYY",
    r"^\d{1,2}\.\d{1,2}\.\d{4}": "DD.MM.YYYY",
    r"^\d{1,2}-\d{1,2}-\d{4}": "DD-MM-YYYY or MM-DD-YYYY",
    r"^\d{1,2}[-./]\d{1,2}[-./]\d{1,2}([T ]|$)": "a year of two digits",
    r"^[+-]?\d+([.,]\d+)?$": "a number",
}
OTHER_SHAPE = "something else"


def days(column: pl.Series) -> FloatArray:
    """Time as days: numbers as they are, dates and timestamps since 1970."""
    if column.dtype.is_numeric():
        return _counted(_as_floats(column), column.name)
    if column.dtype in TEXTS:
        column = column.cast(pl.String).str.strip_chars()
        as_days = column.cast(pl.Float64, strict=False)
        if as_days.null_count() == 0:
            return _counted(_as_floats(as_days), column.name)
    moments = _moments(column) if column.dtype == pl.String else column
    if moments.dtype == pl.Date:
        return _plausible(moments.cast(pl.Int32).to_numpy().astype(np.float64), column.name)
    if isinstance(moments.dtype, pl.Datetime):
        ticks, unit = moments.to_physical(), moments.dtype.time_unit
        if unit == "ns":  # no clock of a laboratory is finer, and every kind of table gives the same number
            ticks, unit = ticks // 1000, "us"
        return _plausible(ticks.to_numpy().astype(np.float64) / PER_DAY[unit], column.name)
    raise VisitsError(
        f"column {column.name!r} (time) holds {column.dtype.base_type().__name__}. "
        "Time is a date, a timestamp or a number of days."
    )


def days_or_empty(column: pl.Series) -> FloatArray:
    """Times that may be empty, as days; NaN where empty."""
    found = np.full(len(column), np.nan)
    filled = _filled(column)
    if filled.any():
        found[filled] = days(column.filter(filled))
    return found


def kind_of(column: pl.Series) -> Literal["days", "dates", ""]:
    """Whether times are numbers of days or dates; empty where there are none."""
    column = column.filter(_filled(column))
    if not len(column):
        return ""
    if column.dtype in TEXTS:
        numbers = column.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
        return "dates" if numbers.null_count() else "days"
    return "days" if column.dtype.is_numeric() else "dates"


def _filled(column: pl.Series) -> BoolArray:
    if column.dtype in TEXTS:
        column = column.cast(pl.String).str.strip_chars().replace("", None)
    filled = column.is_not_null() & (column.is_not_nan() if column.dtype.is_float() else True)
    return filled.to_numpy()


def _as_floats(column: pl.Series) -> FloatArray:
    return column.cast(pl.Float64).to_numpy().astype(np.float64)  # NaN where null


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


def _plausible(found: FloatArray, name: str) -> FloatArray:
    """Dates since 1970, unless their years cannot be meant; a record shifted whole for privacy may lie ahead."""
    next_year = datetime.now(UTC).year + 1
    early, late, absurd = (
        int(np.sum(found < _since_1970(EARLIEST_YEAR))),
        int(np.sum(found >= _since_1970(next_year + 1))),
        int(np.sum(found >= _since_1970(LATEST_SHIFTED_YEAR))),
    )
    if early or absurd or 0 < late <= len(found) / 2:
        raise VisitsError(
            f"column {name!r} (time) has a year before {EARLIEST_YEAR} in {early:,} and after {next_year} in {late:,} "
            f"of {len(found):,} rows. Correct or drop those rows; only where most years lie ahead are they taken as "
            "shifted for privacy."
        )
    return found


def _since_1970(year: int) -> float:
    return float((date(year, 1, 1) - date(1970, 1, 1)).days)


def _moments(column: pl.Series) -> pl.Series:
    """Text as timestamps, year first in four digits: 03/01/2024 could be March or January and is refused."""
    read = pl.Series(column.name, [None] * len(column), dtype=pl.Datetime("us"))
    given = column
    column = column.set(~column.str.contains(YEAR_FIRST).fill_null(value=False), None)
    zoned = column.str.replace("[zZ]$", "+00:00")
    if zoned.drop_nulls().str.contains(r"\d[+-]\d{2}:?\d{2}$").all() and zoned.null_count() < len(zoned):
        for style in ZONED_FORMATS:
            moment = zoned.str.to_datetime(style, strict=False, time_unit="us", time_zone="UTC")
            read = read.fill_null(moment.dt.replace_time_zone(None))
    for style in TIME_FORMATS:
        read = read.fill_null(column.str.to_datetime(style, strict=False, time_unit="us"))
    if unread := read.null_count():
        raise VisitsError(
            f"column {column.name!r} (time) cannot be read in {unread:,} of {len(column):,} rows. Seen: "
            f"{shapes_in(given)}. Write every time year first (2024-03-31 or 2024-03-31 08:15:00), with a time zone in "
            "every row or in none, or as a number of days; or say how dates are written: --date-format DD.MM.YYYY, or "
            "date_format= of read_visits."
        )
    return read


def read_dates(column: pl.Series, date_format: str) -> pl.Series:
    """A text column as timestamps by the format it was said to have; other types are left as they are."""
    if column.dtype not in TEXTS:
        return column
    style = format_of(date_format)
    text = column.cast(pl.String).str.strip_chars().replace("", None)
    clocked = "%H" in style
    kind = pl.Datetime("us") if clocked else pl.Date
    read = text.str.strptime(kind, style, strict=False)
    unread = read.null_count() - text.null_count()
    if unread:
        raise VisitsError(
            f"column {column.name!r} (time) is not written {date_format} in {unread:,} of {len(text):,} rows. Seen: "
            f"{shapes_in(text)}. Give the format of every row, or correct those rows."
        )
    return read


def shapes_in(text: pl.Series) -> str:
    """The forms that texts have, in words, with how many rows each; nothing of their content."""
    left, found = text.drop_nulls(), []
    for pattern, words in SHAPES.items():
        there = left.str.contains(pattern)
        if rows := int(there.sum()):
            found.append(f"{words} in {rows:,} rows")
        left = left.filter(~there)
    return "; ".join([*found, *([f"{OTHER_SHAPE} in {len(left):,} rows"] if len(left) else [])])


_LETTERS = {"YYYY": "%Y", "DD": "%d", "MM": "%m"}
_DATE_PARTS = {"Y", "m", "d", "b", "B"}
_CLOCK_PARTS = {"H", "M", "S", "I", "p"}


def format_of(text: str) -> str:
    """`DD.MM.YYYY`, `MM/DD/YYYY HH:MM` or `%d.%m.%Y` as the reader takes it; two-digit years are refused."""
    style = text.strip() if "%" in text else _from_letters(text.strip())
    parts = set(re.findall(r"%(\w)", style))
    named = _DATE_PARTS | _CLOCK_PARTS
    if "y" in parts or re.fullmatch(r"[^Y]*YY[^Y]*", text):
        raise OptionError(
            f"--date-format {text!r}: a year of two digits could mean two centuries. Write four digits in the table."
        )
    if not {"Y", "d"} <= parts or not parts & {"m", "b", "B"} or parts - named or re.search(r"%\W", style):
        raise OptionError(
            f"--date-format {text!r} is not understood. Write the order of day, month and year such as DD.MM.YYYY, "
            "MM/DD/YYYY or YYYY-MM-DD HH:MM:SS."
        )
    return style


def _from_letters(text: str) -> str:
    day, blank, clock = text.partition(" ")
    for letters, code in _LETTERS.items():
        day = day.replace(letters, code, 1)
    clock = clock.replace("HH", "%H", 1).replace("MM", "%M", 1).replace("SS", "%S", 1)
    return day + blank + clock
