"""The OMOP tables of an export put into a database through Ibis: a staging schema, or on request the model's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ibis
import polars as pl
from ibis.common.exceptions import TableNotFound

from safeimpute.errors import OptionError, SourceError
from safeimpute.sources.readers.engine import connect, translated_faults, without_credentials
from safeimpute.sources.writers.exported import Exported
from safeimpute.sources.writers.omop import RUNS, omop_tables
from safeimpute.visits.catalogue import Catalogue

AT_ONCE = 50_000  # rows sent together
NUMERIC = ("value_as_number", "range_low", "range_high")


def load_omop(url: str, export: Exported, catalogue: Catalogue, *, staging: str, into: str | None = None) -> int:
    """Put an export into a database, whole or not at all; returns how many measurements were written.

    Without `into` the schema `staging` is made and holds all tables. With it, rows are added to the `measurement` and
    `metadata` of that schema, and the tables of our own stand beside them. Raises OptionError where this run is there
    already or `into` holds no measurements, SourceError where the database cannot be used.
    """
    place = without_credentials(url)
    engine = connect(url)
    try:
        with translated_faults(place):
            last = {name: _largest(engine, name, f"{name}_id", into) for name in ("measurement", "metadata")}
            if into is not None and last["measurement"] is None:
                raise OptionError(f"schema {into!r} of {place} has no table measurement. Check --into.")
            tables = omop_tables(
                export, catalogue, first_id=(last["measurement"] or 0) + 1, metadata_id=(last["metadata"] or 0) + 1
            )
            _refuse_known_run(engine, export, into or staging)
            with _all_or_nothing(engine):
                if into is None:
                    engine.create_database(staging, force=True)
                for name, table in tables.items():
                    _append(engine, name, table, into or staging)
    finally:
        engine.disconnect()
    return len(tables["measurement"])


def _largest(engine: Any, table: str, column: str, schema: str | None) -> int | None:
    """The largest number in use, or None where the table is not there; without a schema, where readers look."""
    for place in (schema,) if schema else (None, "cdm", "omop", "cdm54"):
        try:
            found = engine.table(table, database=place)
        except TableNotFound:
            continue
        column = next((name for name in found.columns if name.lower() == column), column)
        largest = ibis.coalesce(found[column].max().cast("int64"), 0)
        return int(found.agg(largest=largest).to_pyarrow()["largest"][0].as_py())
    return None


def _refuse_known_run(engine: Any, export: Exported, schema: str) -> None:
    try:
        runs = engine.table(RUNS, database=schema)
    except TableNotFound:
        return
    if runs.filter(runs.run_sha256 == export.origin.table).count().to_pyarrow().as_py():
        raise OptionError(
            f"schema {schema!r} already holds the values of this run. Remove them there first, or load another run."
        )


@contextmanager
def _all_or_nothing(engine: Any) -> Iterator[None]:
    """One transaction; an engine that is not known to undo a failed load whole is refused."""
    if engine.name == "postgres":
        with engine.con.transaction():
            yield
    elif engine.name == "duckdb":
        engine.con.begin()
        try:
            yield
        except BaseException:
            engine.con.rollback()
            raise
        engine.con.commit()
    else:
        raise SourceError(
            f"writing into {engine.name} is not supported: only PostgreSQL and DuckDB can undo a failed load whole. "
            "Export files and load those."
        )


def _append(engine: Any, name: str, table: pl.DataFrame, schema: str) -> None:
    """Add rows to a table, which is made first where it is not there."""
    arrow = table.to_arrow()
    arrow = arrow.cast(ibis.Schema.from_polars(table.schema).to_pyarrow())
    try:
        there = engine.table(name, database=schema)
    except TableNotFound:
        there = engine.create_table(name, schema=ibis.Schema.from_polars(table.schema), database=schema)
    for start in range(0, len(arrow), AT_ONCE):
        rows = ibis.memtable(arrow.slice(start, AT_ONCE))
        engine.insert(name, _as_stored(rows, there), database=schema)


def _as_stored(rows: Any, there: Any) -> Any:
    """The columns in the stored order and types; numbers by their shortest decimal, so that no digit is lost."""
    stored = {column.lower(): (column, kind) for column, kind in there.schema().items()}
    chosen = {}
    for column, (spelling, kind) in stored.items():
        if column not in rows.columns:
            chosen[spelling] = ibis.null(kind.copy(nullable=True))
        elif kind.is_decimal() and column in NUMERIC:
            chosen[spelling] = rows[column].cast("string").cast("decimal")
        else:  # an explicit cast would cut a text to the stored length without a word, and a mark with it
            chosen[spelling] = rows[column] if kind.is_string() else rows[column].cast(kind.copy(nullable=True))
    return rows.select(**chosen)
