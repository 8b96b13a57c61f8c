"""Sources on Spark: a folder of parquet tables, or tables of its catalogue; the cluster does the work."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet as pq

from safeimpute.errors import MissingExtra, SourceError
from safeimpute.sources.readers.engine import SPARK, Budget, Row, Source, translated_faults
from safeimpute.visits.catalogue import Catalogue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH = 50_000  # visits held at a time while they are written


@dataclass
class SparkSource(Source):
    """Spark has no temporary tables: what is computed once stays cached on its workers until `close`."""

    own_session: bool = False
    kept: "list[DataFrame]" = field(default_factory=list)
    advice: ClassVar[str] = "Spark reads tables of its catalogue, or parquet files: convert csv files first."

    def saved(self, name: str, table: ir.Table) -> ir.Table:
        with translated_faults(self.place):
            frame = self._frame(table).persist()
            self.kept.append(frame)
            # Ibis reads Spark's timestamps back without their precision, and would not unite the two.
            return _view(self.engine, f"safeimpute_{name}", frame).cast(table.schema())

    def rows(self, table: ir.Table) -> list[Row]:
        with translated_faults(self.place):
            return [row.asDict() for row in self._frame(table).collect()]

    def write(self, table: ir.Table, path: Path) -> None:
        """One file, fetched a partition at a time: the visits need not fit the driver's memory."""
        schema = table.schema().to_pyarrow()
        with translated_faults(self.place), pq.ParquetWriter(path, schema) as file:
            rows = self._frame(table).toLocalIterator()
            while batch := [row.asDict() for row in islice(rows, _BATCH)]:
                file.write_table(pa.Table.from_pylist(batch, schema))

    def close(self) -> None:
        for frame in self.kept:
            frame.unpersist()
        if self.own_session:
            self.engine.disconnect()

    def _frame(self, table: ir.Table) -> "DataFrame":
        frame: DataFrame = self.engine.raw_sql(self.engine.compile(table))
        return frame


def open_spark(
    location: str, catalogue: Catalogue, budget: Budget, folders: tuple[str, ...], schemas: tuple[str, ...]
) -> Source:
    """The tables at `pyspark://FOLDER` or in the database `pyspark://NAME`, in the session that is there or a new one.

    What holds a slash is a folder, in whatever file system Spark can read.
    """
    if find_spec("pyspark") is None:
        raise MissingExtra("reading from Spark", "spark")
    from pyspark.sql import SparkSession

    where = location.removeprefix(SPARK)
    place = SPARK + re.sub("//[^/@]*:[^/@]*@", "//", where)  # without a store's key and secret
    with translated_faults(place):
        theirs = SparkSession.getActiveSession()
        session = _new_session(budget, "/" in where) if theirs is None else theirs.newSession()
        session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")  # clinical clocks carry no zone
        engine = ibis.pyspark.connect(session)
    if "/" in where:
        locate = _files(session, engine, place, [where, *(f"{where}/{name}" for name in folders)])
    else:
        locate = _catalogued(session, engine, (where or session.catalog.currentDatabase(), *schemas))
    return SparkSource(engine, place, catalogue, cache(locate), own_session=theirs is None)


def _new_session(budget: Budget, reads_files: bool) -> "SparkSession":
    """As Spark's own configuration says; reading files needs no warehouse, and Spark would leave one behind."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("safeimpute cohort").config("spark.ui.showConsoleProgress", False)
    if reads_files:
        builder = builder.config("spark.sql.warehouse.dir", str(budget.work / "warehouse"))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # its messages can quote rows
    return session


def _files(session: "SparkSession", engine: Any, place: str, folders: list[str]) -> Callable[[str], ir.Table | None]:
    def locate(name: str) -> ir.Table | None:
        for spelling in (name, name.upper()):
            paths = [f"{folder}/{file}" for folder in folders for file in (f"{spelling}.parquet", spelling)]
            found = [frame for path in paths if (frame := _parquet(session, path)) is not None]
            if len(found) > 1:
                raise SourceError(f"table {name} in {place} is there more than once. Keep one of them.")
            if found:
                return _view(engine, f"safeimpute_source_{name}", found[0])
        return None

    return locate


def _parquet(session: "SparkSession", path: str) -> "DataFrame | None":
    """A parquet file, or a folder of them at any depth; None if there is none."""
    from pyspark.errors import AnalysisException

    try:
        return session.read.parquet(path, recursiveFileLookup=True, pathGlobFilter="*.parquet")
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def _catalogued(session: "SparkSession", engine: Any, databases: tuple[str, ...]) -> Callable[[str], ir.Table | None]:
    def locate(name: str) -> ir.Table | None:
        for database in databases:
            if session.catalog.tableExists(f"{database}.{name}"):
                return engine.table(name, database=database)
        return None

    return locate


def _view(engine: Any, name: str, frame: "DataFrame") -> ir.Table:
    frame.createOrReplaceTempView(name)
    return engine.table(name)
