"""Files of visits as frames: structure checked before anything is read, messages free of what the cells hold."""

import csv
import gzip
import re
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from safeimpute.errors import VisitsError
from safeimpute.runtime.memory import require_room_to_read

BYTES_PER_NUMBER, BYTES_PER_TEXT = 8, 12
DECIMAL_COMMA = r"^\s*[+-]?\d*,\d+\s*$"
NUMBER = r"^\s*[+-]?\d+\s*$"


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
        raise VisitsError(
            f"{path.name!r} is empty, or begins with an empty line. Its first row names the columns."
        )
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
        raise VisitsError(
            f"columns {first + 1} and {second + 1} of {file!r} have the same name. Rename or drop one."
        )


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
    """Text columns of numbers with a decimal comma as numbers; a column that mixes them with other text stays."""
    changed = []
    for name, kind in frame.schema.items():
        if kind == pl.String and name != "subject_id" and has_decimal_commas(frame[name], whole=True):
            changed.append(
                pl.col(name).str.strip_chars().str.replace(",", ".").cast(pl.Float64, strict=False)
            )
    return frame.with_columns(changed)


def has_decimal_commas(text: pl.Series, *, whole: bool = False) -> bool:
    """Whether a text column holds numbers with a decimal comma: all of it beside whole numbers, or most of it."""
    filled = text.drop_nulls()
    filled = filled.filter(filled.str.strip_chars() != "")
    commas = filled.str.contains(DECIMAL_COMMA)
    if not commas.any():
        return False
    numbers = commas | filled.str.contains(NUMBER)
    return bool(numbers.all()) if whole else int(numbers.sum()) > len(filled) / 2
