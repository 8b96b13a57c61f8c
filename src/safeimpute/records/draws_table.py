"""Draws as tables: one row per missing value and draw, or the user's own table completed once per draw."""

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray, IntArray

COLUMNS: tuple[str, ...] = ("subject_id", "time", "lab", "unit", "draw", "value")
IMP, ID = ".imp", ".id"  # what R's as.mids looks for


def draws_table(
    subject: pl.Series, time: pl.Series, lab: str, unit: str | None, drawn: FloatArray
) -> pl.DataFrame:
    """The long table: draw 1 of every missing value, then draw 2, and so on; `drawn` is values x draws."""
    values, draws = drawn.shape
    rows = pl.Series(np.tile(np.arange(values), draws))
    return pl.DataFrame(
        {
            "subject_id": subject.gather(rows),
            "time": time.gather(rows),
            "lab": pl.repeat(lab, values * draws, dtype=pl.String, eager=True),
            "unit": pl.repeat(unit, values * draws, dtype=pl.String, eager=True),
            "draw": pl.Series(np.repeat(np.arange(1, draws + 1), values), dtype=pl.Int32),
            "value": drawn.T.ravel(),
        }
    )


def completed_long(
    frame: pl.DataFrame, target: str, measured: pl.Series, row_draws: FloatArray
) -> pl.DataFrame:
    """The table as it came (`.imp` 0) and completed by every draw below it, as R's `as.mids` expects.

    `row_draws` is rows x draws, NaN where a row needs none; `measured` holds the target as numbers.
    """
    _require_free(frame, (IMP, ID))
    parts = [measured, *(measured.fill_null(_column(each)) for each in row_draws.T)]
    number = pl.Series(ID, np.arange(1, len(frame) + 1), dtype=pl.Int64)
    return pl.concat(
        frame.with_columns(part.alias(target)).select(
            pl.lit(place, pl.Int32).alias(IMP), number, pl.all().exclude(IMP, ID)
        )
        for place, part in enumerate(parts)
    )


def completed_wide(
    frame: pl.DataFrame, target: str, measured: pl.Series, row_draws: FloatArray
) -> pl.DataFrame:
    """The table with one more column per draw, `TARGET_1` and so on, in which the target is complete."""
    names = [f"{target}_{number}" for number in range(1, row_draws.shape[1] + 1)]
    _require_free(frame, tuple(names))
    filled = [
        measured.fill_null(_column(each)).alias(name) for name, each in zip(names, row_draws.T, strict=True)
    ]
    return frame.with_columns(filled)


def spread_over_rows(drawn: FloatArray, candidates: IntArray, row_visit: IntArray) -> FloatArray:
    """Draws of candidates at every row of the user's table; NaN at rows of other visits."""
    place = np.full(int(row_visit.max(initial=-1)) + 1, -1)
    place[candidates] = np.arange(len(candidates))
    at = place[row_visit]
    return (
        np.where((at >= 0)[:, None], drawn[at], np.nan)
        if len(drawn)
        else np.full((len(at), drawn.shape[1]), np.nan)
    )


def _column(values: FloatArray) -> pl.Series:
    return pl.Series(np.ascontiguousarray(values)).fill_nan(None)


def _require_free(frame: pl.DataFrame, names: tuple[str, ...]) -> None:
    taken = [name for name in names if name in frame.columns]
    if taken:
        raise VisitsError(f"the table already has a column {taken[0]!r}, which the draws need. Rename it.")
