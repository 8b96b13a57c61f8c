"""Delimited text as a table: every row has the header's columns, and what may identify a patient stays text."""

import csv
import gzip
import re
from collections.abc import Collection
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv

from safeimpute.errors import VisitsError
from safeimpute.machine.resources import require_room_to_read
from safeimpute.visits.columns import names_an_identifier

BYTES_PER_NUMBER = 8
# What a number would lose: leading zeros, and digits beyond those a whole number holds.
WRITTEN_AS_TEXT = r"^\s*[+-]?(?:0\d+|\d{19,})\s*$"


def read_csv(path: Path, identifiers: Collection[str], separator: str = ",") -> pl.DataFrame:
    """A csv whose rows all have the columns that its header names.

    `identifiers` stay text, as do columns whose name says that they identify somebody or something, and those of
    which an entry would be another as a number (007).
    """
    names = _first_row(path, separator)
    require_names(names, path.name, separator)
    rows = _require_even(path, names, separator)
    require_room_to_read(path.name, rows * len(names) * BYTES_PER_NUMBER)
    text = pl.scan_csv(path, infer_schema=False, separator=separator)
    lossy = text.select(pl.all().str.contains(WRITTEN_AS_TEXT).any()).collect(engine="streaming").row(0)
    kept = {name for name, lost in zip(names, lossy, strict=True) if lost or names_an_identifier(name)}
    texts = dict.fromkeys(kept.union(set(identifiers) & set(names)), pl.String)
    return pl.read_csv(path, infer_schema_length=None, schema_overrides=texts, separator=separator)


def _first_row(path: Path, separator: str) -> list[str]:
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
        names = next(csv.reader(text, delimiter=separator), [])
    if not names:
        raise VisitsError(f"{path.name!r} is empty, or begins with an empty line. Its first row names the columns.")
    return names


def require_names(names: list[str], file: str, separator: str) -> None:
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
