"""Tables at the border: files and any dataframe in, the same kind of dataframe out; polars inside."""

import csv
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import narwhals as nw
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from pyarrow.lib import ArrowException

from safeimpute.errors import VisitsError
from safeimpute.machine.resources import require_room_to_read
from safeimpute.visits.arrays import FloatArray
from safeimpute.visits.checks import has_decimal_commas, numbers
from safeimpute.visits.columns import DRAWN, KNOWN
from safeimpute.visits.dates import read_dates
from safeimpute.visits.files.delimited import BYTES_PER_NUMBER, read_csv
from safeimpute.visits.limits import with_limits
from safeimpute.visits.units import converted

SUFFIXES = ".csv, .csv.gz, .parquet"
# What a spreadsheet may take for the start of a formula, in its full-width and small forms too.
STARTS = r"[=+\-@\u{FF1D}\u{FF0B}\u{FF0D}\u{FF20}\u{2212}\u{FE62}\u{FE63}\u{FE66}\u{FE6B}]"
BLANK = r"[\s\p{C}\p{Z}]*"  # passed over by some programs: blanks, control and invisible characters
BYTES_PER_TEXT = 12


def read_visits(
    source: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    date_format: str | None = None,
    decimal: str = ".",
    separator: str = ",",
    unit_of: Mapping[str, str] | None = None,
    time: str = "time",
    subject: str = "subject_id",
) -> pl.DataFrame:
    """Read a visits table from a csv or parquet file.

    In a csv, identifiers stay text (007 is not 7) and dates are read later, by one rule.

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
    subject : str
        The column of patients, after renaming. It stays text, as do columns named like identifiers (`MRN`, `hadm_id`)
        and those of which an entry begins with a zero.

    Returns
    -------
    polars.DataFrame
        The table, renamed and converted.

    Raises
    ------
    VisitsError
        The file cannot be read as a table, or not in this format.
    """
    named = columns or {}
    identifiers = {theirs for theirs, ours in named.items() if ours == subject} or {subject}
    frame = rename_columns(_read_file(Path(source), identifiers, separator), named)
    if decimal == ",":
        frame = with_decimal_commas(frame, subject)
    if date_format is not None:
        times = [each for each in frame.columns if each == time or each.endswith((KNOWN, DRAWN))]
        frame = frame.with_columns(read_dates(frame[each], date_format) for each in times)
    return converted(frame, unit_of or {})


def _read_file(path: Path, identifiers: Collection[str], separator: str) -> pl.DataFrame:
    if not path.is_file():
        raise VisitsError(f"no file at {path.name!r}. Check the path; readable are {SUFFIXES}.")
    name = path.name.lower()
    try:
        if name.endswith((".csv", ".csv.gz")):
            return read_csv(path, identifiers, separator)
        if name.endswith((".parquet", ".pq")):
            return read_parquet(path)
        raise VisitsError(f"{path.name!r} has no readable suffix. Readable are {SUFFIXES}.")
    except (pl.exceptions.PolarsError, ArrowException, OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
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
        raise VisitsError(f"column mapping would make a second column {twice[0]!r}. Rename or drop the other.")
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
    return _as_pandas(frame, table)


def _as_pandas(frame: pl.DataFrame, table: Any) -> Any:
    """Rows of a filled table stay where they were."""
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
        return _as_pandas(frame, table)
    if kind.is_pyarrow():
        return frame.to_arrow()
    return frame


def fill_in(frame: pl.DataFrame, lab: str, value: FloatArray) -> pl.DataFrame:
    """The table with one lab filled in from `value` (NaN: not released), and a column that says where.

    Measured values are never changed; a column in which limits are written ("<5") stays text.
    """
    name = f"{lab}_released"
    if name in frame.columns:
        raise VisitsError(f"the table already has a column {name!r}, which transform would overwrite. Rename it.")
    released = pl.Series(value).fill_nan(None)
    exact = with_limits(frame, [lab])[lab]
    measured = pl.Series(numbers(exact, "target")).fill_nan(None)
    filled = measured.fill_null(released)
    if exact.null_count() > frame[lab].null_count():
        filled = frame[lab].cast(pl.String).zip_with(released.is_null(), released.cast(pl.String))
    return frame.with_columns(filled.alias(lab), released.is_not_null().alias(name))


def write_csv(table: pl.DataFrame, path: Path | IO[bytes]) -> None:
    """CSV in which no text can act as a spreadsheet formula: a quote is put before such text, in every line of it.

    Yes and no are TRUE and FALSE, which R, Python and spreadsheets all take for what they are.
    """
    guarded = table.with_columns(
        _guarded(pl.col(name).cast(pl.String)).alias(name)
        for name, kind in table.schema.items()
        if kind in (pl.String, pl.Categorical, pl.Enum)
    )
    logical = [name for name, kind in table.schema.items() if kind == pl.Boolean]
    guarded.with_columns(pl.col(logical).cast(pl.String).str.to_uppercase()).write_csv(path)


def _guarded(text: pl.Expr) -> pl.Expr:
    lines = text.str.replace_all(rf"([\r\n]{BLANK})({STARTS})", "${1}'${2}")
    risky = text.str.contains(rf"^{BLANK}{STARTS}|^[\t\r\n]")
    return pl.when(risky).then("'" + lines).otherwise(lines)


def read_parquet(path: Path) -> pl.DataFrame:
    """A parquet file that fits into memory."""
    facts = pa_parquet.read_metadata(path)
    schema = facts.schema.to_arrow_schema()
    numbers = sum(pa.types.is_primitive(field.type) for field in schema)
    per_row = BYTES_PER_NUMBER * numbers + BYTES_PER_TEXT * (len(schema) - numbers)
    require_room_to_read(path.name, facts.num_rows * per_row)
    return pl.read_parquet(path)


def with_decimal_commas(frame: pl.DataFrame, subject: str = "subject_id") -> pl.DataFrame:
    """Text columns of numbers with a decimal comma as numbers; with limits ("<5,0") they stay text, with a point."""
    changed = []
    for name, kind in frame.schema.items():
        if kind == pl.String and name != subject and has_decimal_commas(frame[name], whole=True):
            text = frame[name].str.strip_chars().replace("", None).str.replace(",", ".")
            number = text.cast(pl.Float64, strict=False)
            changed.append(number if number.null_count() == text.null_count() else text)
    return frame.with_columns(changed)
