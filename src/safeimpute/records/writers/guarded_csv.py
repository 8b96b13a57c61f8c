"""CSV for people who open it in a spreadsheet: the one place where a table of results becomes such a file."""

from pathlib import Path
from typing import IO

import polars as pl


def write_csv(table: pl.DataFrame, path: Path | IO[bytes]) -> None:
    """CSV in which no identifier can act as a spreadsheet formula: a quote is put before such text."""
    guarded = table.with_columns(
        _guarded(pl.col(name).cast(pl.String)).alias(name)
        for name, kind in table.schema.items()
        if kind in (pl.String, pl.Categorical, pl.Enum)
    )
    guarded.write_csv(path)


def _guarded(text: pl.Expr) -> pl.Expr:
    return pl.when(text.str.contains(r"^[=+\-@\t\r]")).then("'" + text).otherwise(text)
