"""Tables at the border: files and any dataframe in, the same kind of dataframe out; polars inside."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import polars as pl
from pyarrow.lib import ArrowException

from safeimpute.errors import VisitsError
from safeimpute.records.conversions import converted
from safeimpute.records.dates import read_dates
from safeimpute.records.files import read_csv, read_parquet, with_decimal_commas

SUFFIXES = ".csv, .csv.gz, .parquet"
CLOCK_ENDINGS = ("__known", "__drawn")  # of columns that say when a lab's value was known or drawn


def read_visits(
    source: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    date_format: str | None = None,
    decimal: str = ".",
    separator: str = ",",
    unit_of: Mapping[str, str] | None = None,
    time: str = "time",
) -> pl.DataFrame:
    """Read a visits table from a csv or parquet file.

    In a csv, patient identifiers stay text (007 is not 7) and dates are read later, by one rule.

    Parameters
    ----------
    source : path
        A .csv, .csv.gz or .parquet file.
    columns : mapping, optional
        Renames columns: {their name: our name}.
    date_format : str, optional
        How dates are written where it is not year first: `DD.MM.YYYY`, `MM/DD/YYYY HH:MM`; never guessed.
    decimal : str
        Decimal mark of numbers written as text: a point or a comma.
    separator : str
        What separates the columns of a csv.
    unit_of : mapping, optional
        {lab: unit} of labs that the file has in another unit of the catalogue; they are converted.
    time : str
        The column of visit times, after renaming; `date_format` is about it and about the clocks of labs.

    Returns
    -------
    polars.DataFrame
        The table, renamed and converted.

    Raises
    ------
    VisitsError
        The file cannot be read as a table, or not in this format.
    """
    frame = rename_columns(_read_file(Path(source), columns or {}, separator), columns or {})
    if decimal == ",":
        frame = with_decimal_commas(frame)
    if date_format is not None:
        times = [each for each in frame.columns if each == time or each.endswith(CLOCK_ENDINGS)]
        frame = frame.with_columns(read_dates(frame[each], date_format) for each in times)
    return converted(frame, unit_of or {})


def _read_file(path: Path, columns: Mapping[str, str], separator: str) -> pl.DataFrame:
    if not path.is_file():
        raise VisitsError(f"no file at {path.name!r}. Check the path; readable are {SUFFIXES}.")
    name = path.name.lower()
    try:
        if name.endswith((".csv", ".csv.gz")):
            return read_csv(path, columns, separator)
        if name.endswith((".parquet", ".pq")):
            return read_parquet(path)
        raise VisitsError(f"{path.name!r} has no readable suffix. Readable are {SUFFIXES}.")
    except (
        pl.exceptions.PolarsError,
        ArrowException,
        OSError,
        EOFError,
        UnicodeDecodeError,
        csv.Error,
    ) as error:
        # The reader's own message may quote cells; only its kind is passed on.
        raise VisitsError(
            f"{path.name!r} cannot be read as the table its suffix says ({type(error).__name__}). "
            "Check that the file is whole, comma-separated (or give --separator) and UTF-8, or save it as parquet."
        ) from None


def rename_columns(frame: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    """Map a user's column names to ours; an unknown or doubled name is an error."""
    unknown = [name for name in columns if name not in frame.columns]
    if unknown:
        raise VisitsError(f"column mapping names {unknown[0]!r}, which the table does not have.")
    renamed = [columns.get(name, name) for name in frame.columns]
    if twice := [name for name in renamed if renamed.count(name) > 1]:
        raise VisitsError(
            f"column mapping would make a second column {twice[0]!r}. Rename or drop the other."
        )
    return frame.rename(dict(columns))


def to_polars(table: Any) -> pl.DataFrame:
    """Any eager dataframe narwhals knows (pandas, polars, pyarrow …) as polars; the input is not modified."""
    try:
        known = nw.from_native(table, eager_only=True)
    except TypeError:
        raise VisitsError(
            f"a table is needed (pandas, polars or pyarrow), not {type(table).__name__}. "
            "Read files with safeimpute.read_visits."
        ) from None
    except Exception as error:
        raise _unusable(error) from None
    try:
        frame: pl.DataFrame = known.to_polars()
    except Exception as error:  # pyarrow's conversion errors quote cells
        raise _unusable(error) from None
    return frame


def _unusable(error: Exception) -> VisitsError:
    return VisitsError(
        f"the table cannot be converted ({type(error).__name__}): a column name stands twice, or a column mixes "
        "types such as numbers and text. Make names unique and each column one type."
    )


def as_kind(frame: pl.DataFrame, kind: Literal["pandas", "polars"], table: Any) -> Any:
    """A polars frame as this kind of dataframe; a pandas table keeps the rows' labels of `table`."""
    if kind == "polars":
        return frame
    converted = frame.to_pandas()
    index = getattr(table, "index", None)
    if index is not None and len(index) == len(converted):
        converted.index = index
    return converted


def like(frame: pl.DataFrame, table: Any) -> Any:
    """A polars frame as the kind of dataframe `table` is; as it stands where that is none."""
    known = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(known, nw.DataFrame):
        return frame
    kind = known.implementation
    if kind.is_pandas():
        converted = frame.to_pandas()
        if len(converted) == len(table):
            converted.index = table.index  # rows of a filled table stay where they were
        return converted
    if kind.is_pyarrow():
        return frame.to_arrow()
    return frame
