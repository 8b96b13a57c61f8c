"""Tables at the border: files and any dataframe in, the same kind of dataframe out; polars inside."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from safeimpute.errors import VisitsError

SUFFIXES = ".csv, .csv.gz, .parquet"


def read_visits(source: str | Path, columns: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Read a visits table from a csv or parquet file; `columns` renames: {their name: our name}."""
    path = Path(source)
    if not path.is_file():
        raise VisitsError(f"no file at {path.name!r}. Check the path; readable are {SUFFIXES}.")
    name = path.name.lower()
    try:
        if name.endswith((".csv", ".csv.gz")):
            frame = pl.read_csv(path, infer_schema_length=None, try_parse_dates=True)
        elif name.endswith((".parquet", ".pq")):
            frame = pl.read_parquet(path)
        else:
            raise VisitsError(f"{path.name!r} has no readable suffix. Readable are {SUFFIXES}.")
    except (pl.exceptions.PolarsError, OSError) as error:
        # The reader's own message may quote cells; only its kind is passed on.
        raise VisitsError(
            f"{path.name!r} cannot be read as the table its suffix says ({type(error).__name__}). "
            "Check that the file is whole and comma-separated, or save it as parquet."
        ) from None
    return rename_columns(frame, columns or {})


def rename_columns(frame: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    """Map a user's column names to ours; an unknown name is an error."""
    unknown = [name for name in columns if name not in frame.columns]
    if unknown:
        raise VisitsError(f"column mapping names {unknown[0]!r}, which the table does not have.")
    clash = [
        new for old, new in columns.items() if new in frame.columns and new != old and new not in columns
    ]
    if clash:
        raise VisitsError(
            f"column mapping would make a second column {clash[0]!r}. Rename or drop the other."
        )
    return frame.rename(dict(columns))


def to_polars(table: Any) -> pl.DataFrame:
    """Any eager dataframe narwhals knows (pandas, polars, pyarrow …) as polars; the input is not modified."""
    try:
        frame: pl.DataFrame = nw.from_native(table, eager_only=True).to_polars()
        return frame
    except TypeError:
        raise VisitsError(
            f"a table is needed (pandas, polars or pyarrow), not {type(table).__name__}. "
            "Read files with safeimpute.read_visits."
        ) from None
    except Exception as error:  # pyarrow's conversion errors quote cells
        raise VisitsError(
            f"the table cannot be converted ({type(error).__name__}): a column probably mixes types, "
            "such as numbers and text. Make each column one type."
        ) from None


def like(frame: pl.DataFrame, table: Any) -> Any:
    """A polars frame as the kind of dataframe `table` is."""
    kind = nw.from_native(table, eager_only=True).implementation
    if kind.is_pandas():
        return frame.to_pandas()
    if kind.is_pyarrow():
        return frame.to_arrow()
    return frame
