"""Tables at the border: files and any dataframe in, the same kind of dataframe out; polars inside."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from safeimpute.errors import VisitsError

SUFFIXES = ".csv, .csv.gz, .parquet"


def read_visits(source: str | Path, columns: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Read a visits table from a csv or parquet file.

    In a csv, patient identifiers stay text (007 is not 7) and dates are read later, by one rule.

    Parameters
    ----------
    source : path
        A .csv, .csv.gz or .parquet file.
    columns : mapping, optional
        Renames columns: {their name: our name}.
    """
    path = Path(source)
    if not path.is_file():
        raise VisitsError(f"no file at {path.name!r}. Check the path; readable are {SUFFIXES}.")
    name = path.name.lower()
    try:
        if name.endswith((".csv", ".csv.gz")):
            frame = _read_csv(path, columns or {})
        elif name.endswith((".parquet", ".pq")):
            frame = pl.read_parquet(path)
        else:
            raise VisitsError(f"{path.name!r} has no readable suffix. Readable are {SUFFIXES}.")
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        # The reader's own message may quote cells; only its kind is passed on.
        raise VisitsError(
            f"{path.name!r} cannot be read as the table its suffix says ({type(error).__name__}). "
            "Check that the file is whole, comma-separated and UTF-8, or save it as parquet."
        ) from None
    return rename_columns(frame, columns or {})


def _read_csv(path: Path, columns: Mapping[str, str]) -> pl.DataFrame:
    header = pl.read_csv(path, has_header=False, n_rows=1, infer_schema=False).row(0)
    names = ["" if name is None else str(name) for name in header]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise VisitsError(f"{path.name!r} is not separated by commas. Save it comma-separated, as UTF-8.")
    if unnamed := [number for number, name in enumerate(names, 1) if not name.strip()]:
        raise VisitsError(
            f"column {unnamed[0]} of {path.name!r} has no name. Name it; if it is a row index (pandas writes one), "
            "save without it (index=False)."
        )
    if any(_looks_like_data(name) for name in names):
        raise VisitsError(
            f"the first row of {path.name!r} looks like data, not column names. Add a header row."
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise VisitsError(f"{path.name!r} has more than one column {twice[0]!r}. Rename or drop one.")
    identifiers = {theirs for theirs, ours in columns.items() if ours == "subject_id"} or {"subject_id"}
    texts = {name: pl.String for name in names if name in identifiers}
    return pl.read_csv(path, infer_schema_length=None, schema_overrides=texts)


def _looks_like_data(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return bool(re.fullmatch(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*", name))
    return True


def rename_columns(frame: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    """Map a user's column names to ours; an unknown or doubled name is an error."""
    unknown = [name for name in columns if name not in frame.columns]
    if unknown:
        raise VisitsError(f"column mapping names {unknown[0]!r}, which the table does not have.")
    renamed = [columns.get(name, name) for name in frame.columns]
    if twice := [name for name in renamed if renamed.count(name) > 1]:
        raise VisitsError(
            f"column mapping would make a second column {twice[0]!r}. Rename or drop the other."
        )
    return frame.rename(dict(columns))


def to_polars(table: Any) -> pl.DataFrame:
    """Any eager dataframe narwhals knows (pandas, polars, pyarrow …) as polars; the input is not modified."""
    try:
        known = nw.from_native(table, eager_only=True)
    except TypeError:
        raise VisitsError(
            f"a table is needed (pandas, polars or pyarrow), not {type(table).__name__}. "
            "Read files with safeimpute.read_visits."
        ) from None
    except Exception as error:
        raise _unusable(error) from None
    try:
        frame: pl.DataFrame = known.to_polars()
    except Exception as error:  # pyarrow's conversion errors quote cells
        raise _unusable(error) from None
    return frame


def _unusable(error: Exception) -> VisitsError:
    return VisitsError(
        f"the table cannot be converted ({type(error).__name__}): a column name stands twice, or a column mixes "
        "types such as numbers and text. Make names unique and each column one type."
    )


def like(frame: pl.DataFrame, table: Any) -> Any:
    """A polars frame as the kind of dataframe `table` is."""
    kind = nw.from_native(table, eager_only=True).implementation
    if kind.is_pandas():
        converted = frame.to_pandas()
        if len(converted) == len(table):
            converted.index = table.index  # rows of a filled table stay where they were
        return converted
    if kind.is_pyarrow():
        return frame.to_arrow()
    return frame
