"""A file of visits, opened: its rows, made visits where they are results, and an account of what was done."""

import csv
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from pyarrow.lib import ArrowException

from safeimpute.errors import VisitsError
from safeimpute.machine.options import TableFormat
from safeimpute.machine.resources import require_room_to_read
from safeimpute.visits.catalogue import load_catalogue
from safeimpute.visits.checks import Account, has_decimal_commas, refuse_patterns
from safeimpute.visits.columns import DRAWN, KNOWN
from safeimpute.visits.dates import read_dates
from safeimpute.visits.files.delimited import BYTES_PER_NUMBER, read_csv
from safeimpute.visits.files.excel import read_excel
from safeimpute.visits.files.long_filled import with_imputed
from safeimpute.visits.files.long_results import LongColumns, long_columns, read_lab_names, visits_of_results
from safeimpute.visits.files.redcap import ONLY_REDCAP, visits_of_redcap
from safeimpute.visits.limits import DECIMAL_COMMA
from safeimpute.visits.units import converted

SUFFIXES = ".csv, .csv.gz, .parquet, .xlsx"
BYTES_PER_TEXT = 12


@dataclass(frozen=True)
class Opened:
    """A table of visits out of a file."""

    frame: pl.DataFrame
    account: Account


def open_table(
    source: Path, columns: Mapping[str, str], read_as: TableFormat, *, time: str = "time", subject: str = "subject_id"
) -> Opened:
    """Read, rename, and make visits of what is none; `read_as` says how the file is written."""
    account = Account()
    frame, long = _prepared(source, columns, read_as, account, time=time, subject=subject)
    if long is not None:
        frame, results = visits_of_results(
            frame,
            long,
            load_catalogue(),
            window=read_as.window,
            names=read_lab_names(read_as.lab_names),
            decimal=read_as.decimal,
            subject=subject,
            time=time,
        )
        account.add(results)
    return Opened(converted(frame, read_as.units), account)


def _prepared(
    source: Path, columns: Mapping[str, str], read_as: TableFormat, account: Account, *, time: str, subject: str
) -> tuple[pl.DataFrame, LongColumns | None]:
    """The rows with our names, dates and points for commas; and how they are long, where they are."""
    identifiers = {theirs for theirs, ours in columns.items() if ours == subject} or {subject}
    frame = rename_columns(read_files(source, identifiers, read_as, account), columns)
    if not ONLY_REDCAP.isdisjoint(frame.columns):
        frame = visits_of_redcap(frame, account, subject=subject, time=time)
    long = long_columns(frame, subject, time)
    if read_as.decimal == ",":
        frame = with_decimal_commas(frame, {subject, *([long.patient, long.result] if long else [])})
    if read_as.date_format is not None:
        times = [each for each in frame.columns if each == time or each.endswith((KNOWN, DRAWN))]
        times += [long.time] if long and long.time not in times else []
        frame = frame.with_columns(read_dates(frame[each], read_as.date_format) for each in times)
    return frame, long


def results_with_imputed(
    source: Path,
    columns: Mapping[str, str],
    read_as: TableFormat,
    filled: pl.DataFrame,
    marks_of: Mapping[str, tuple[pl.Expr, pl.Expr]],
    *,
    time: str,
    subject: str,
) -> pl.DataFrame | None:
    """A long file with what was filled in, columns named as they came; None where it has one row per visit."""
    frame, long = _prepared(source, columns, read_as, Account(), time=time, subject=subject)
    if long is None:
        return None
    table = with_imputed(frame, long, load_catalogue(), filled, marks_of, read_as=read_as, subject=subject, time=time)
    theirs = {ours: name for name, ours in columns.items()}
    return table.rename(lambda name: theirs.get(name, name))


def read_files(source: Path, identifiers: Collection[str], read_as: TableFormat, account: Account) -> pl.DataFrame:
    """The rows of a file, or of all files of a folder one below another."""
    if not source.is_dir():
        return read_file(source, identifiers, read_as, account)
    files = files_in(source)
    parts = [read_file(each, identifiers, read_as, account) for each in files]
    for path, part in zip(files[1:], parts[1:], strict=True):
        if set(part.columns) != set(parts[0].columns):
            odd = sorted(set(part.columns) ^ set(parts[0].columns))[0]
            raise VisitsError(
                f"the files of folder {source.name!r} have different columns: {odd!r} is in {path.name!r} or in "
                f"{files[0].name!r}, not in both. Give files with the same columns, or one file."
            )
    account.say(f"{len(files)} files of folder {source.name!r}, one below another: {sum(map(len, parts)):,} rows")
    return pl.concat(_of_one_kind([part.select(parts[0].columns) for part in parts]))


def _of_one_kind(parts: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """A column that is text in one file is text in all, and whole numbers are numbers beside others."""
    for name in parts[0].columns:
        kinds = {part.schema[name] for part in parts} - {pl.Null}
        if len(kinds) > 1:
            common = pl.Float64 if all(kind.is_numeric() for kind in kinds) else pl.String
            parts = [part.with_columns(pl.col(name).cast(common)) for part in parts]
        elif kinds:
            parts = [part.with_columns(pl.col(name).cast(next(iter(kinds)))) for part in parts]
    return parts


def files_in(folder: Path) -> list[Path]:
    """The readable files of a folder, by name."""
    endings = (".csv", ".csv.gz", ".parquet", ".pq", ".xlsx")
    files = sorted(each for each in folder.iterdir() if each.is_file() and each.name.lower().endswith(endings))
    files = [each for each in files if not each.name.startswith((".", "~$"))]
    if not files:
        raise VisitsError(f"folder {folder.name!r} holds no readable file. Readable are {SUFFIXES}.")
    return files


def read_file(path: Path, identifiers: Collection[str], read_as: TableFormat, account: Account) -> pl.DataFrame:
    """The rows of one file, as its suffix says."""
    if not path.is_file():
        raise VisitsError(f"no file at {path.name!r}. Check the path; readable are {SUFFIXES}.")
    name = path.name.lower()
    try:
        if name.endswith((".csv", ".csv.gz")):
            return read_csv(path, identifiers, read_as.separator)
        if name.endswith((".parquet", ".pq")):
            return read_parquet(path)
        if name.endswith(".xlsx"):
            return read_excel(path, identifiers, read_as.sheet, account)
        raise VisitsError(f"{path.name!r} has no readable suffix. Readable are {SUFFIXES}.")
    except (pl.exceptions.PolarsError, ArrowException, OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        # The reader's own message may quote cells; only its kind is passed on.
        raise VisitsError(
            f"{path.name!r} cannot be read as the table its suffix says ({type(error).__name__}). "
            "Check that the file is whole, comma-separated (or give --separator) and UTF-8, or save it as parquet."
        ) from None


def read_parquet(path: Path) -> pl.DataFrame:
    """A parquet file that fits into memory."""
    facts = pa_parquet.read_metadata(path)
    schema = facts.schema.to_arrow_schema()
    numbers = sum(pa.types.is_primitive(field.type) for field in schema)
    per_row = BYTES_PER_NUMBER * numbers + BYTES_PER_TEXT * (len(schema) - numbers)
    require_room_to_read(path.name, facts.num_rows * per_row)
    return pl.read_parquet(path)


def rename_columns(frame: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    """Map a user's column names to ours; an unknown or doubled name is an error."""
    refuse_patterns([*frame.columns, *columns.values()])
    unknown = [name for name in columns if name not in frame.columns]
    if unknown:
        raise VisitsError(f"column mapping names {unknown[0]!r}, which the table does not have.")
    renamed = [columns.get(name, name) for name in frame.columns]
    if twice := [name for name in renamed if renamed.count(name) > 1]:
        raise VisitsError(f"column mapping would make a second column {twice[0]!r}. Rename or drop the other.")
    return frame.rename(dict(columns))


def with_decimal_commas(frame: pl.DataFrame, apart: Collection[str]) -> pl.DataFrame:
    """Text columns of numbers with a decimal comma as numbers; with limits ("<5,0") they stay text, with a point.

    `apart` are columns that are left as they are.
    """
    changed = []
    for name, kind in frame.schema.items():
        if kind == pl.String and name not in apart and _has_commas(frame[name]):
            text = frame[name].str.strip_chars().replace("", None)
            text = text.str.replace(",", ".").zip_with(text.str.contains(DECIMAL_COMMA).fill_null(False), text)
            number = text.cast(pl.Float64, strict=False)
            changed.append(number if number.null_count() == text.null_count() else text)
    return frame.with_columns(changed)


def _has_commas(text: pl.Series) -> bool:
    return has_decimal_commas(text) or has_decimal_commas(text, whole=True)
