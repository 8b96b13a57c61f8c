"""Delta and Iceberg tables in folders, read by DuckDB's own extensions; never as the parquet files they are made of.

Those files also hold rows that were deleted or replaced: which of them count is written in the table's log.
"""

from pathlib import Path
from typing import Any

import ibis.expr.types as ir

from safeimpute.errors import SourceError


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
