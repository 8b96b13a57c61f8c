"""The wide table that `transform` gives back: released values in place of missing ones, each flagged."""

import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray
from safeimpute.records.checks import numbers


def fill_in(frame: pl.DataFrame, lab: str, value: FloatArray) -> pl.DataFrame:
    """The table with one lab filled in from `value` (NaN: not released), and a column that says where.

    Measured values are never changed.
    """
    name = f"{lab}_released"
    if name in frame.columns:
        raise VisitsError(
            f"the table already has a column {name!r}, which transform would overwrite. Rename it."
        )
    released = pl.Series(value).fill_nan(None)
    measured = pl.Series(numbers(frame[lab], "target")).fill_nan(None)
    flag = released.is_not_null().alias(name)
    return frame.with_columns(measured.fill_null(released).alias(lab), flag)
