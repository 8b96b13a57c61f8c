"""The imputation table: one row per visit whose target is missing, with the same columns wherever it is made."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from safeimpute.errors import SafeImputeError
from safeimpute.records.arrays import BoolArray, FloatArray

# Column -> its type in Spark's words; subject_id and time keep the types of the visits table.
SPARK_TYPES: dict[str, str] = {
    "lab": "string",
    "unit": "string",
    "value": "double",
    "lower": "double",
    "upper": "double",
    "risk": "double",
    "cutoff": "double",
    "p_value": "double",
    "released": "boolean",
    "reason": "string",
}
COLUMNS: tuple[str, ...] = ("subject_id", "time", *SPARK_TYPES)


def imputation_table(
    subject: pl.Series,
    time: pl.Series,
    lab: str,
    unit: str | None,
    value: FloatArray,
    half_width: FloatArray,
    risk: FloatArray,
    cutoff: FloatArray,
    p_value: FloatArray,
    released: BoolArray,
    reason: NDArray[np.str_],
) -> pl.DataFrame:
    """The table of one lab's candidates; every argument but `lab` and `unit` has one entry per candidate.

    `half_width` is half the interval around the value, `cutoff` the risk up to which this value's group was released,
    `reason` why it is withheld ("" where it is not). What does not exist is NaN here and null in the table, which
    never holds NaN or infinity. Raises SafeImputeError where a value is released that is not a finite number.
    """
    _require_finite(lab, value[released])
    with np.errstate(all="ignore"):  # what comes out of NaN and infinity is null below
        lower, upper = value - half_width, value + half_width
    return pl.DataFrame(
        {
            "subject_id": subject,
            "time": time,
            "lab": pl.repeat(lab, len(value), dtype=pl.String, eager=True),
            "unit": pl.repeat(unit, len(value), dtype=pl.String, eager=True),
            "value": _finite(value),
            "lower": _finite(lower),
            "upper": _finite(upper),
            "risk": _finite(risk),
            "cutoff": _finite(cutoff),
            "p_value": _finite(p_value),
            "released": pl.Series(released, dtype=pl.Boolean),
            "reason": pl.Series(reason, dtype=pl.String),
        }
    )


def _require_finite(lab: str, released: FloatArray) -> None:
    unusable = int(np.sum(~np.isfinite(released)))
    if unusable:
        raise SafeImputeError(
            f"{unusable:,} values of {lab!r} were released that are no finite numbers. This is a fault of safeimpute; "
            "nothing was written. Please report it, with the output of safeimpute doctor."
        )


def _finite(values: FloatArray) -> pl.Series:
    """Null in place of NaN and infinity."""
    return pl.Series(np.where(np.isfinite(values), values, np.nan), dtype=pl.Float64, nan_to_null=True)
