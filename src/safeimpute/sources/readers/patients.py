"""A table of visits in a database, in batches of whole patients; scoring and calibration of large tables start here.

The database sorts by patient and keeps its own memory; here no more than one batch is held.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl

from safeimpute.errors import MissingExtra, SourceError
from safeimpute.machine.places import partial_prefix
from safeimpute.visits.new_visits import Reading, columns_read, require_readable, whole_patients

if TYPE_CHECKING:
    import pyarrow as pa

    from safeimpute.sources.readers.engine import Source

ROWS_AT_ONCE = 50_000
DATABASE_MEMORY = 1.0  # GiB that an embedded database may take before it sorts on disk


def names_database(place: str) -> bool:
    """Whether a place is a database's table: `postgresql://user@host/database/schema#table`, `file.duckdb#table`."""
    location, mark, _ = place.partition("#")
    return "://" in location or (bool(mark) and Path(location).suffix.lower() in (".duckdb", ".ddb", ".db"))


@dataclass(frozen=True)
class PatientTable:
    """An opened table of visits."""

    table: Any  # of Ibis, columns as the model knows them
    source: "Source"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table.columns)

    def batches(self, reading: Reading, without: tuple[str, ...] = ()) -> Iterator[pl.DataFrame]:
        """What the model reads, sorted by patient, cut between patients."""
        from safeimpute.sources.readers.engine import translated_faults

        require_readable(self.columns, reading, without)
        read = self.table.select(
            **{name: _plain(self.table[name], name, reading) for name in columns_read(self.columns, reading)}
        )
        with translated_faults(self.source.place):
            yield from whole_patients(self._rows(read.order_by(reading.subject)), reading.subject)

    def _rows(self, wanted: Any) -> "Iterator[pa.RecordBatch]":
        """As they stream; DuckDB 2 is asked itself, since Ibis 12 calls it by a name that is gone."""
        engine = self.source.engine
        if engine.name == "duckdb":
            found = engine.con.sql(engine.compile(wanted))
            yield from (getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader)(ROWS_AT_ONCE)
        else:
            yield from engine.to_pyarrow_batches(wanted, chunk_size=ROWS_AT_ONCE)


def _plain(value: Any, name: str, reading: Reading) -> Any:
    """Decimals as numbers, those that identify patients as text."""
    if value.type().is_decimal():
        return value.cast("string" if name == reading.subject else "float64")
    return value


@contextmanager
def opened_patients(place: str, columns: Mapping[str, str]) -> Iterator[PatientTable]:
    """The table at `LOCATION#TABLE`, `columns` renamed; a password is better left to the database's own settings."""
    location, _, name = place.partition("#")
    try:
        from safeimpute.sources.readers.engine import Budget, open_location, without_credentials
    except ModuleNotFoundError:
        raise MissingExtra("Reading a database", "ehr") from None
    from safeimpute.visits.catalogue import load_catalogue

    shown = without_credentials(location) if "://" in location else location
    if not name:
        raise SourceError(f"which table of {shown}? Put it behind a #, as in {shown}#visits.")
    with TemporaryDirectory(prefix=partial_prefix("database")) as work:
        budget = Budget(Path(work), DATABASE_MEMORY)
        with closing(open_location(location, load_catalogue(), budget)) as source:
            table = source.locate(name)
            if table is None:
                raise SourceError(f"table {name} is not in {shown}. Check its name, and the schema in the location.")
            for theirs in columns:
                if theirs not in table.columns:
                    raise SourceError(f"column mapping names {theirs!r}, which the table does not have.")
            yield PatientTable(table.rename({ours: theirs for theirs, ours in columns.items()}), source)
