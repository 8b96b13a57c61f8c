"""Fine columns: text of many levels (a ward, a doctor), used by no value model, that may decide who gets measured."""

import hashlib

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray, IntArray

MOST_LEVELS = 20  # a text column with more distinct entries is no category
ROWS_PER_LEVEL = 10  # on average; with fewer, a level says nothing about measuring
SHARED_ROWS = 0.5  # at least this share of rows must have an entry that another patient has too
DATE = r"^\d{4}-\d{2}-\d{2}([ T].*)?$"


def clean_text(column: pl.Series) -> pl.Series:
    """Entries as text without blanks around them; null where there is none."""
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        raise VisitsError(
            f"column {column.name!r} holds {column.dtype.base_type().__name__}, neither text nor numbers. Convert it."
        )
    return column.cast(pl.String).str.strip_chars().replace("", None)


def why_not_fine(text: pl.Series, patient: IntArray) -> str:
    """Why a text of more than `MOST_LEVELS` levels is no fine column; empty where it is one."""
    rows = pl.DataFrame({"text": text, "patient": patient}).drop_nulls()
    if rows["text"].str.contains(DATE).all():
        return "a date"
    levels = rows.group_by("text").agg(pl.len().alias("rows"), pl.col("patient").n_unique().alias("patients"))
    if len(rows) < ROWS_PER_LEVEL * len(levels):
        return (
            f"text with more than {MOST_LEVELS} different entries, on average in fewer than "
            f"{ROWS_PER_LEVEL} rows each"
        )
    if levels.filter(pl.col("patients") > 1)["rows"].sum() < SHARED_ROWS * len(rows):
        return "text that tells patients apart: most entries belong to one patient only"
    return ""


def fine_codes(text: pl.Series) -> FloatArray:
    """Per row a number from 0 to 65,535 that depends on the entry's text alone; NaN where empty."""
    codes = {
        level: float(int.from_bytes(hashlib.blake2b(level.encode(), digest_size=2).digest(), "little"))
        for level in text.drop_nulls().unique().to_list()
    }
    if not codes:
        return np.full(len(text), np.nan)
    coded = text.replace_strict(codes, default=None, return_dtype=pl.Float64)
    return coded.fill_null(np.nan).to_numpy().astype(np.float64)


def one_code_per_visit(columns: list[FloatArray], visit: IntArray, visits: int) -> FloatArray:
    """The smallest code among a visit's rows, so that the rows' order does not matter; NaN where all are empty."""
    merged = np.full((visits, len(columns)), np.nan)
    for position, codes in enumerate(columns):
        np.fmin.at(merged[:, position], visit, codes)
    return merged
