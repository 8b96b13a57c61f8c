"""Tables at the border: files and any dataframe in, the same kind of dataframe out; polars inside."""

import csv
import gzip
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import narwhals as nw
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from pyarrow.lib import ArrowException

from safeimpute.errors import VisitsError
from safeimpute.machine.resources import require_room_to_read
from safeimpute.visits.arrays import FloatArray
from safeimpute.visits.checks import has_decimal_commas, numbers
from safeimpute.visits.columns import DRAWN, KNOWN, with_limits
from safeimpute.visits.dates import read_dates
from safeimpute.visits.units import converted

SUFFIXES = ".csv, .csv.gz, .parquet"
# What a spreadsheet may take for the start of a formula, in its full-width and small forms too.
STARTS = r"[=+\-@\u{FF1D}\u{FF0B}\u{FF0D}\u{FF20}\u{2212}\u{FE62}\u{FE63}\u{FE66}\u{FE6B}]"
BLANK = r"[\s\p{C}\p{Z}]*"  # passed over by some programs: blanks, control and invisible characters
BYTES_PER_NUMBER, BYTES_PER_TEXT = 8, 12


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
        times = [each for each in frame.columns if each == time or each.endswith((KNOWN, DRAWN))]
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


def read_csv(path: Path, columns: Mapping[str, str], separator: str = ",") -> pl.DataFrame:
    """A csv whose rows all have the columns that its header names; identifiers stay text."""
    names = _first_row(path, separator)
    _require_header(names, path.name, separator)
    rows = _require_even(path, names, separator)
    require_room_to_read(path.name, rows * len(names) * BYTES_PER_NUMBER)
    identifiers = {theirs for theirs, ours in columns.items() if ours == "subject_id"} or {"subject_id"}
    texts = {name: pl.String for name in names if name in identifiers}
    return pl.read_csv(path, infer_schema_length=None, schema_overrides=texts, separator=separator)


def _first_row(path: Path, separator: str) -> list[str]:
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
        names = next(csv.reader(text, delimiter=separator), [])
    if not names:
        raise VisitsError(f"{path.name!r} is empty, or begins with an empty line. Its first row names the columns.")
    return names


def read_parquet(path: Path) -> pl.DataFrame:
    """A parquet file that fits into memory."""
    facts = pa_parquet.read_metadata(path)
    schema = facts.schema.to_arrow_schema()
    numbers = sum(pa.types.is_primitive(field.type) for field in schema)
    per_row = BYTES_PER_NUMBER * numbers + BYTES_PER_TEXT * (len(schema) - numbers)
    require_room_to_read(path.name, facts.num_rows * per_row)
    return pl.read_parquet(path)


def _require_header(names: list[str], file: str, separator: str) -> None:
    """Names of columns, not data; where it may be data, nothing of it is shown."""
    if len(names) == 1 and (other := [mark for mark in ",;\t|" if mark != separator and mark in names[0]]):
        shown = {"\t": "tab"}.get(other[0], other[0])
        raise VisitsError(
            f"{file!r} has one column by the separator {separator!r}. If {shown!r} separates its columns, give "
            f"--separator {shown!r} (and --decimal , where numbers have a comma)."
        )
    if unnamed := [number for number, name in enumerate(names, 1) if not name.strip()]:
        raise VisitsError(
            f"column {unnamed[0]} of {file!r} has no name. Name it; if it is a row index (pandas writes one), "
            "save without it (index=False)."
        )
    if any(_looks_like_data(name) for name in names):
        raise VisitsError(f"the first row of {file!r} looks like data, not column names. Add a header row.")
    if len(set(names)) < len(names):
        first = next(place for place, name in enumerate(names) if names.count(name) > 1)
        second = names.index(names[first], first + 1)
        raise VisitsError(f"columns {first + 1} and {second + 1} of {file!r} have the same name. Rename or drop one.")


def _looks_like_data(name: str) -> bool:
    try:
        float(name.replace(",", "."))
    except ValueError:
        return bool(re.fullmatch(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*", name))
    return True


def _require_even(path: Path, names: list[str], separator: str) -> int:
    """How many rows there are, all with as many cells as the header; polars would fill short ones up in silence."""
    uneven = 0

    def count(_: pa_csv.InvalidRow) -> str:
        nonlocal uneven
        uneven += 1
        return "skip"

    parsing = pa_csv.ParseOptions(
        delimiter=separator, newlines_in_values=True, invalid_row_handler=count, ignore_empty_lines=True
    )
    wanted = pa_csv.ConvertOptions(
        include_columns=names[:1], column_types={names[0]: pa.large_binary()}, check_utf8=False
    )
    reading = pa_csv.ReadOptions(
        use_threads=False, block_size=2**20, encoding="latin1"
    )  # any byte will do: only cells are counted
    rows = 0
    with pa_csv.open_csv(path, parse_options=parsing, convert_options=wanted, read_options=reading) as stream:
        for batch in stream:
            rows += batch.num_rows
    if uneven:
        raise VisitsError(
            f"{uneven:,} of {rows + uneven:,} rows of {path.name!r} have more or fewer cells than the header's "
            f"{len(names)} columns. Correct those rows; text that holds the separator belongs in quotes."
        )
    return rows


def with_decimal_commas(frame: pl.DataFrame) -> pl.DataFrame:
    """Text columns of numbers with a decimal comma as numbers; with limits ("<5,0") they stay text, with a point."""
    changed = []
    for name, kind in frame.schema.items():
        if kind == pl.String and name != "subject_id" and has_decimal_commas(frame[name], whole=True):
            text = frame[name].str.strip_chars().replace("", None).str.replace(",", ".")
            number = text.cast(pl.Float64, strict=False)
            changed.append(number if number.null_count() == text.null_count() else text)
    return frame.with_columns(changed)
