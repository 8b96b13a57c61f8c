"""Tables at the border: files and any dataframe in, the same kind of dataframe out; polars inside."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import IO, Any, Literal

import narwhals as nw
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.machine.options import make_table_format
from safeimpute.visits.arrays import BoolArray, FloatArray
from safeimpute.visits.checks import numbers, refuse_patterns
from safeimpute.visits.columns import coded, in_words
from safeimpute.visits.files.excel import write_excel
from safeimpute.visits.files.opened import open_table
from safeimpute.visits.limits import HIGH, LOW, with_limits

# What a spreadsheet may take for the start of a formula, in its full-width and small forms too.
STARTS = r"[=+\-@\u{FF1D}\u{FF0B}\u{FF0D}\u{FF20}\u{2212}\u{FE62}\u{FE63}\u{FE66}\u{FE6B}]"
BLANK = r"[\s\p{C}\p{Z}]*"  # passed over by some programs: blanks, control and invisible characters


def read_visits(
    source: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    date_format: str | None = None,
    decimal: str = ".",
    separator: str = ",",
    unit_of: Mapping[str, str] | None = None,
    time: str = "time",
    subject: str = "subject_id",
    window: str = "day",
    lab_names: str | Path | None = None,
    sheet: str | None = None,
    notes: list[str] | None = None,
) -> pl.DataFrame:
    """Read a visits table from a file, or from a folder of files with the same columns.

    Long tables (one row per result) and REDCap exports are known by their columns and made visits. Identifiers stay
    text (007 is not 7): the column of patients, those named like identifiers, those with leading zeros.

    Parameters
    ----------
    source : path
        A .csv, .csv.gz, .parquet or .xlsx file, or a folder of such.
    columns : mapping, optional
        Renames columns: {their name: our name}.
    date_format : str, optional
        How visit times and clocks of labs are written where not year first: `DD.MM.YYYY`; never guessed.
    decimal : str
        Decimal mark of numbers written as text: a point or a comma.
    separator : str
        What separates the columns of a csv.
    unit_of : mapping, optional
        {lab: unit} of labs that the file has in another unit of the catalogue; they are converted.
    time : str
        The column of visit times, after renaming.
    subject : str
        The column of patients, after renaming.
    window : str
        Which results of a long table make one visit: `day`, hours (`6h`), or the column that names the encounter.
    lab_names : path, optional
        csv file with what a long table calls its labs: columns `name`, `lab` and, where the table has none, `unit`.
    sheet : str, optional
        Sheet of an .xlsx file; the first that is not empty unless told.
    notes : list of str, optional
        What was done to the table is appended to it, in lines to print.

    Raises
    ------
    VisitsError
        The file cannot be read as a table, or not in this format.
    """
    units = tuple(f"{lab}={unit}" for lab, unit in (unit_of or {}).items())
    names = None if lab_names is None else str(lab_names)
    written = {"date_format": date_format, "decimal": decimal, "separator": separator, "unit_of": units}
    read_as = make_table_format(**written, window=window, lab_names=names, sheet=sheet)
    opened = open_table(Path(source), columns or {}, read_as, time=time, subject=subject)
    (notes if notes is not None else []).extend(opened.account.lines())
    return opened.frame


def to_polars(table: Any) -> pl.DataFrame:
    """Any eager dataframe narwhals knows (pandas, polars, pyarrow …), or AnnData, as polars; not modified."""
    if _is_anndata(table):
        from safeimpute.visits.scverse import visits_of_anndata

        return visits_of_anndata(table)
    try:
        known = nw.from_native(table, eager_only=True)
    except TypeError:
        raise VisitsError(
            f"a table is needed (pandas, polars, pyarrow or AnnData), not {type(table).__name__}. "
            "Read files with safeimpute.read_visits."
        ) from None
    except Exception as error:
        raise _unusable(error) from None
    try:
        frame: pl.DataFrame = known.to_polars()
    except Exception as error:  # pyarrow's conversion errors quote cells
        raise _unusable(error) from None
    refuse_patterns(frame.columns)
    return frame


def _is_anndata(table: Any) -> bool:
    """AnnData, or what is built on it."""
    return any(kind.__module__.partition(".")[0] == "anndata" for kind in type(table).__mro__)


def _unusable(error: Exception) -> VisitsError:
    return VisitsError(
        f"the table cannot be converted ({type(error).__name__}): a column name stands twice, or a column mixes "
        "types such as numbers and text. Make names unique and each column one type."
    )


def as_kind(frame: pl.DataFrame, kind: Literal["pandas", "polars"], table: Any) -> Any:
    """A polars frame as this kind of dataframe; a pandas table keeps the rows' labels of `table`."""
    if kind == "polars":
        return frame
    return _as_pandas(frame, table)


def numbers_only(frame: pl.DataFrame, subject: str) -> pl.DataFrame:
    """Numbers, truth values as 1 and 0, dates and moments as days since 1970; identifiers and text left out."""
    columns = []
    for name, kind in frame.schema.items():
        if isinstance(kind, pl.Date | pl.Datetime):
            moment = pl.col(name).cast(pl.Datetime("us")).dt.epoch("us")
            columns.append((moment / 86_400_000_000).alias(name))
        elif (kind.is_numeric() or kind == pl.Boolean) and name != subject:
            columns.append(pl.col(name).cast(pl.Float64))
    return frame.select(columns)


def _as_pandas(frame: pl.DataFrame, table: Any) -> Any:
    """Rows of a filled table stay where they were."""
    converted = frame.to_pandas()
    index = getattr(table, "index", None)
    if index is not None and len(index) == len(converted):
        converted.index = index
    return converted


def like(frame: pl.DataFrame, table: Any) -> Any:
    """A polars frame as the kind of dataframe `table` is; as it stands where that is none."""
    if _is_anndata(table):
        from safeimpute.visits.scverse import anndata_of

        return anndata_of(frame, table)
    known = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(known, nw.DataFrame):
        return frame
    kind = known.implementation
    if kind.is_pandas():
        return _as_pandas(frame, table)
    if kind.is_pyarrow():
        return frame.to_arrow()
    return frame


def fill_in(
    frame: pl.DataFrame, lab: str, value: FloatArray, promised: BoolArray | None = None, words: Sequence[str] = ()
) -> pl.DataFrame:
    """The table with one lab filled in from `value` (NaN: nothing to fill in), and columns that say where.

    `LAB_released` says which values are filled in; where all are (`promised` says which of them are released),
    `LAB__measured` and `LAB__promised` do. Measured values are never changed; a column in which limits are written
    ("<5") stays text, and so does one of classes that are words.
    """
    imputed = pl.Series(value).fill_nan(None)
    there = imputed.is_not_null()
    flags = {f"{lab}_released": there}
    if promised is not None:
        measured = frame[lab].is_not_null() | _beyond_a_limit(frame, lab)
        flags = {f"{lab}__measured": ~there & measured, f"{lab}__promised": pl.Series(promised) & there}
    if taken := [name for name in flags if name in frame.columns]:
        raise VisitsError(f"the table already has a column {taken[0]!r}, which transform would overwrite. Rename it.")
    frame = coded(frame, lab, words)
    exact = with_limits(frame, [lab])[lab]
    filled = pl.Series(numbers(exact, "target")).fill_nan(None).fill_null(imputed)
    if exact.null_count() > frame[lab].null_count():
        filled = frame[lab].cast(pl.String).zip_with(imputed.is_null(), imputed.cast(pl.String))
    return in_words(frame.with_columns(filled.alias(lab), **flags), [lab], words)


def _beyond_a_limit(frame: pl.DataFrame, lab: str) -> pl.Series:
    """Where LAB__low or LAB__high stands beside an empty cell: a result all the same."""
    ends = [frame[lab + end].is_not_null() for end in (LOW, HIGH) if lab + end in frame.columns]
    return reduce(or_, ends, pl.Series([False]).new_from_index(0, len(frame)))


def write_table(table: pl.DataFrame, path: Path) -> None:
    """As the suffix says: parquet, csv or Excel."""
    if path.suffix == ".csv":
        write_csv(table, path)
    elif path.suffix == ".xlsx":
        write_excel(table, path)
    else:
        table.write_parquet(path)


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
