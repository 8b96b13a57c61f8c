"""The columns an analysis of visits needs beside the target: a regressor, and an outcome."""

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray, IntArray, VisitArrays
from safeimpute.records.checks import numbers, require_columns


def regressor_of(visits: VisitArrays, name: str, target: str) -> tuple[str, FloatArray]:
    """A lab or attribute by name, or the first attribute (lab, time) there is; a category's first level."""
    others = {visits.lab_names[lab]: visits.labs[:, lab] for lab in visits.other_labs}
    attributes = dict(zip(visits.attribute_names, visits.attributes.T, strict=True))
    columns = {**attributes, **others, "time": visits.time}
    if not name:
        first = next(key for key, column in columns.items() if np.nanstd(column) > 0)
        return first, columns[first]
    found = [key for key in columns if key == name or key.split("=", 1)[0] == name]
    if not found:
        raise VisitsError(
            f"--covariate {name!r} is no lab or attribute beside the target {target!r}. There are: "
            f"{', '.join(columns)}."
        )
    return found[0], columns[found[0]]


def outcome_of(frame: pl.DataFrame, name: str, row_visit: IntArray, visits: int) -> FloatArray:
    """An outcome of 0 or 1 per visit, NaN where unknown; of merged rows the largest counts."""
    require_columns(frame, [name], "named as --outcome")
    column = frame[name]
    values = column.cast(pl.Float64).to_numpy() if column.dtype == pl.Boolean else numbers(column, "outcome")
    odd = int(np.sum(~np.isin(values[~np.isnan(values)], (0.0, 1.0))))
    if odd:
        raise VisitsError(f"column {name!r} (outcome) holds {odd:,} values other than 0 and 1. Recode it.")
    outcome = np.full(visits, -np.inf)
    there = ~np.isnan(values)
    np.maximum.at(outcome, row_visit[there], values[there])
    return np.where(np.isneginf(outcome), np.nan, outcome)
