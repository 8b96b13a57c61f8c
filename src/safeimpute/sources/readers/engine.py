"""The engine that holds a source, its tables with checked columns, its faults in plain words; readers start here.

Files (csv, csv.gz, parquet) and DuckDB databases run in the embedded DuckDB; Spark and anything else through
Ibis. A file's text is converted row by row, so that one bad cell becomes an empty value that the cohort counts; a
database has typed columns, and a wrong type there is an error.
"""

import csv
import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TextIO
from urllib.parse import urlsplit

import ibis
import ibis.expr.types as ir
from ibis.common.exceptions import TableNotFound

from safeimpute.errors import MissingExtra, SafeImputeError, SourceError
from safeimpute.visits.catalogue import Catalogue

_CSV_LINE = re.compile(r"CSV Error on Line: (\d+)")
_FILE = re.compile(r"(?:^\s*file = |stream: |file ')(?P<path>[^\n']+)", re.MULTILINE)
_CAUSES = (
    ("gzip", "is damaged or incomplete. Fetch it again and check its SHA-256"),
    ("magic bytes", "is damaged or no parquet file. Fetch it again"),
    ("parquet", "is damaged or no parquet file. Fetch it again"),
    ("unicode", "is not UTF-8 text. Fetch it again"),
    ("not a valid duckdb", "is no DuckDB database"),
    ("no space left", "cannot be worked on: the disk is full. Write the output where there is more room"),
    ("not enough memory", "needs more than the memory limit. Allow more with --memory"),
    ("out of memory", "needs more than the memory limit. Allow more with --memory"),
    ("permission denied", "may not be read, or no temporary tables kept, by this user. Ask for that right"),
    ("conversion error", "holds text where numbers or dates belong"),
)
_PROGRAMMING = (TypeError, AttributeError, NameError, LookupError, AssertionError)
Condition = Callable[[ir.Table], ir.Value]  # which rows of a table are needed
Row = dict[str, Any]  # of a small table, by column
Wanted = Callable[[ir.Value], ir.Value]  # which codes a cohort asks for
TIME = "timestamp(6)"  # one precision everywhere, or unions of tables from different engines do not match
SPARK = "pyspark://"  # what follows is a folder, or a database of the catalogue
_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_DATABASE_SUFFIXES = {".duckdb", ".ddb", ".db"}
_IBIS_TYPES = {"integer": "int64", "number": "float64", "time": TIME, "text": "string", "code": "string"}


@contextmanager
def translated_faults(place: str) -> Iterator[None]:
    """Raise a `SourceError` without the engine's own text for whatever an engine raises inside."""
    try:
        yield
    except (SafeImputeError, *_PROGRAMMING):
        raise
    except Exception as error:
        raise SourceError(_explained(error, place)) from None


def _explained(error: Exception, place: str) -> str:
    text = str(error)
    file = _FILE.search(text)
    subject = f"{Path(file['path']).name} in {place}" if file else place
    if line := _CSV_LINE.search(text):
        return f"line {line[1]} of {subject} does not have the columns of the header. Fetch the file again."
    lowered = text.lower()
    for sign, cause in _CAUSES:
        if sign in lowered:
            return f"{subject} {cause}."
    return f"{subject} could not be read: the database engine stopped with {type(error).__name__}."


def lakehouse_kind(folder: Path) -> str | None:
    """`delta`, `iceberg`, or None for a plain folder of parquet files."""
    if (folder / "_delta_log").is_dir():
        return "delta"
    metadata = folder / "metadata"
    return "iceberg" if metadata.is_dir() and any(metadata.glob("*.metadata.json")) else None


def open_lakehouse(engine: Any, folder: Path, kind: str) -> ir.Table:
    """The table's rows as of now; an error with the line that installs the extension where it is not there."""
    try:
        engine.raw_sql(f"LOAD {kind}")
    except Exception:  # DuckDB's own text names places on this machine
        raise SourceError(
            f"table {folder.name} is a {kind.title()} table, which DuckDB reads with its extension {kind!r}. Install "
            f"it once, where DuckDB can reach its server: python -c \"import duckdb; duckdb.sql('INSTALL {kind}')\". "
            "Or write the table out as parquet."
        ) from None
    place = str(folder).replace("'", "''")
    return engine.sql(f"SELECT * FROM {kind}_scan('{place}')")  # noqa: S608


@dataclass(frozen=True)
class Budget:
    """What a build may use of the machine."""

    work: Path  # for spilling; removed after the build
    memory: float  # GiB
    threads: int | None = None

    @property
    def duckdb_settings(self) -> dict[str, str | int | bool]:
        settings: dict[str, str | int | bool] = {
            "memory_limit": f"{1024 * self.memory:.0f}MiB",
            "temp_directory": str(self.work),
            "preserve_insertion_order": False,
            # DuckDB cannot tell the length of a compressed file, takes it for short, and would hold all of it in
            # memory to join it with the patients; so joins keep the side they are written with.
            "disabled_optimizers": "build_side_probe_side",
        }
        return settings | ({"threads": self.threads} if self.threads else {})


@dataclass
class Source:
    """One opened source; column names are lower case whatever the source calls them."""

    engine: Any
    place: str  # for messages and the build's record: no user name, no password
    catalogue: Catalogue
    locate: Callable[[str], ir.Table | None]
    notes: list[str] = field(default_factory=list)
    advice: ClassVar[str] = "Give the source as published."

    def find(self, name: str) -> ir.Table | None:
        with translated_faults(self.place):
            found = self.locate(name)
            return None if found is None else found.rename(str.lower)

    def table(self, name: str) -> ir.Table:
        found = self.find(name)
        if found is None:
            raise SourceError(f"table {name} is not in {self.place}. {self.advice}")
        return found

    def has(self, name: str, column: str | None = None) -> bool:
        found = self.find(name)
        return found is not None and (column is None or column in found.columns)

    def get(self, name: str, only: Condition | None = None, **columns: str) -> ir.Table:
        """A table with the named columns as `integer`, `number`, `time`, `text` or `code`; `?` = optional.

        `code` keeps the source's own type, so that a database can use its index. Other columns are empty in rows
        that do not meet `only`: converting the text of rows nobody needs takes longer than reading them.
        """
        table = self.table(name)
        required = [column for column, kind in columns.items() if not kind.endswith("?")]
        if missing := [column for column in required if column not in table.columns]:
            raise SourceError(
                f"table {name} in {self.place} has no column {', '.join(missing)}. "
                f"Columns found: {', '.join(table.columns[:30])}."
            )
        needed = None if only is None else only(table)
        return table.select(
            **{column: self._typed(name, table, column, kind, needed) for column, kind in columns.items()}
        )

    def _typed(self, name: str, table: ir.Table, column: str, kind: str, needed: ir.Value | None) -> ir.Value:
        kind = kind.removesuffix("?")
        if column not in table.columns or _is_empty(table[column].type()):
            return ibis.null(_IBIS_TYPES[kind])
        value = table[column]
        if needed is not None and kind != "code":
            value = needed.ifelse(value, empty_like(value))
        if _fits(value.type(), kind):
            return _converted(value, kind)
        if value.type().is_string() and self.engine.name == "duckdb":
            # Stripped: DuckDB moves a bare try_cast into its csv reader, which stops at the first bad cell.
            return value.strip().try_cast(_IBIS_TYPES[kind])
        raise SourceError(
            f"column {column} of table {name} in {self.place} holds {value.type()}, expected {kind}. "
            "Load the table with the types it is published with."
        )

    def saved(self, name: str, table: ir.Table) -> ir.Table:
        """The table computed once and kept by the engine until the session ends."""
        with translated_faults(self.place):
            return self.engine.create_table(f"safeimpute_{name}", table, temp=True)

    def rows(self, table: ir.Table) -> list[Row]:
        """A small table's rows."""
        with translated_faults(self.place):
            rows: list[Row] = table.to_pyarrow().to_pylist()
            return rows

    def write(self, table: ir.Table, path: Path) -> None:
        """The table as one parquet file."""
        with translated_faults(self.place):
            table.to_parquet(path)

    def close(self) -> None:
        self.engine.disconnect()


def empty_like(value: ir.Value) -> ir.Value:
    """An empty value of the same type, also where the database says that the column is never empty."""
    return ibis.null(value.type().copy(nullable=True))


def _is_empty(dtype: Any) -> bool:
    """A column without a single value; DuckDB's name for it is unknown to Ibis."""
    return bool(dtype.is_null() or (dtype.is_unknown() and "NULL" in str(dtype)))


def _fits(dtype: Any, kind: str) -> bool:
    if kind in ("text", "code"):
        return True
    if kind == "time":
        return bool(dtype.is_timestamp() or dtype.is_date())
    return bool(dtype.is_numeric())


def _converted(value: ir.Value, kind: str) -> ir.Value:
    dtype = value.type()
    if kind == "code" and dtype.is_integer():
        return value
    if kind == "number" and dtype.is_float32():
        return value.cast("string").cast("float64")  # by its shortest decimal: 6.1 stays 6.1
    return value.cast(_IBIS_TYPES[kind])


def open_location(
    location: str, catalogue: Catalogue, budget: Budget, *, folders: tuple[str, ...] = (), schemas: tuple[str, ...] = ()
) -> Source:
    """The tables at a folder, a DuckDB file or a connection string.

    `folders` and `schemas` are where the source's publisher keeps its tables, besides the top.
    """
    if location.startswith(SPARK):
        from safeimpute.sources.readers.spark import open_spark  # an extra, and it builds on this module

        return open_spark(location, catalogue, budget, folders, schemas)
    if "://" in location and not location.startswith("duckdb://"):
        return _database(connect(location), without_credentials(location), catalogue, schemas)
    path = Path(location.removeprefix("duckdb://")).expanduser()
    if path.is_dir():
        return _folder(path, catalogue, budget, folders)
    if path.is_file() and path.suffix.lower() in _DATABASE_SUFFIXES:
        with translated_faults(str(path)):
            engine = ibis.duckdb.connect(path, read_only=True, **budget.duckdb_settings)
        return _database(engine, str(path), catalogue, schemas)
    raise SourceError(
        f"source {path} is {'not a database this program knows' if path.exists() else 'not there'}. "
        "Give a folder of csv, csv.gz or parquet files, a DuckDB file (.duckdb), or a connection string "
        "(postgresql://user@host/database/schema, pyspark:///folder)."
    )


def folder_of(location: str) -> Path:
    """Where a source's own files stand, if it is a folder of this machine."""
    return Path(location.removeprefix(SPARK))


def connect(url: str) -> Any:
    """An engine of Ibis at a connection string, or an error without what the string holds."""
    place = without_credentials(url)
    try:
        return ibis.connect(url)
    except (ImportError, ModuleNotFoundError):
        raise MissingExtra(f"reading from {urlsplit(url).scheme}", "postgres") from None
    except Exception as error:
        text = str(error).lower()
        if "password" in text or "authentication" in text:
            reason = "refused the user name or password"
        elif "does not exist" in text:
            reason = "says that this database or user does not exist"
        elif isinstance(error, ValueError):
            reason = "is no connection string this program knows"
        else:
            reason = f"cannot be reached ({type(error).__name__})"
        raise SourceError(f"{place} {reason}. Check the connection string.") from None


def without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _database(engine: Any, place: str, catalogue: Catalogue, schemas: tuple[str, ...]) -> Source:
    def locate(name: str) -> ir.Table | None:
        for schema in (None, *schemas):
            for spelling in (name, name.upper()):
                try:
                    return engine.table(spelling, database=schema)
                except TableNotFound:
                    continue
        return None

    return Source(engine, place, catalogue, locate)


def _folder(folder: Path, catalogue: Catalogue, budget: Budget, subfolders: tuple[str, ...]) -> Source:
    engine = ibis.duckdb.connect(**budget.duckdb_settings)
    places = [folder, *(folder / name for name in subfolders if (folder / name).is_dir())]

    def locate(name: str) -> ir.Table | None:
        found = [path for place in places for path in sorted(place.iterdir()) if _holds(path, name)]
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise SourceError(f"table {name} in {folder} is there more than once: {names}. Keep one of them.")
        return open_file(engine, found[0]) if found else None

    return Source(engine, str(folder), catalogue, locate)


def _holds(path: Path, table: str) -> bool:
    name = path.name.lower()
    return name in {f"{table}{suffix}" for suffix in _SUFFIXES} or (path.is_dir() and name == table)


def open_file(engine: Any, path: Path) -> ir.Table:
    """One table's file, or folder of parquet files or of a lakehouse, as a lazy table."""
    if path.is_dir() and (kind := lakehouse_kind(path)):
        return open_lakehouse(engine, path, kind)
    if path.is_dir() or path.name.lower().endswith(".parquet"):
        return engine.read_parquet(str(path / "**" / "*.parquet") if path.is_dir() else str(path))
    header = _header(path)
    separator = "\t" if "\t" in header and "," not in header else ","  # OHDSI's vocabulary files are tab-separated
    columns = next(csv.reader([header], delimiter=separator))
    quote = '"' if separator == "," else ""
    return engine.read_csv(
        str(path), columns=dict.fromkeys(columns, "VARCHAR"), delim=separator, quote=quote, escape=quote
    )


def _header(path: Path) -> str:
    try:
        with _open_text(path) as file:
            header = file.readline().strip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError):
        raise SourceError(f"{path} cannot be read: damaged, incomplete, or not what its name says.") from None
    if not header:
        raise SourceError(f"{path} is empty. Fetch the file again.")
    return header


def _open_text(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")
