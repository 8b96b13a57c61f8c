"""CSV for people who open it in a spreadsheet: the one place where a table of results becomes such a file."""

from pathlib import Path
from typing import IO

import polars as pl

# What a spreadsheet may take for the start of a formula, in its full-width and small forms too.
STARTS = r"[=+\-@\u{FF1D}\u{FF0B}\u{FF0D}\u{FF20}\u{2212}\u{FE62}\u{FE63}\u{FE66}\u{FE6B}]"
BLANK = r"[\s\p{C}\p{Z}]*"  # passed over by some programs: blanks, control and invisible characters


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
