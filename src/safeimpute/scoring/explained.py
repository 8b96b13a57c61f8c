"""Why values were imputed, as a table: one row per visit that carried one."""

import numpy as np
import polars as pl

from safeimpute.records.visits import Visits
from safeimpute.systems.protocol import Support


def explanation_table(visits: Visits, support: Support) -> pl.DataFrame:
    """The visits that carried each imputation, with weights, values, gaps and distances."""
    return pl.DataFrame(
        {
            "subject_id": visits.subject[support.visit],
            "time": visits.time[support.visit],
            "carried_by": np.where(support.own, "own visit", "another patient's visit"),
            "weight": support.weight,
            "value": support.target,
            "gap_days": pl.Series(support.gap_days).fill_nan(None),
            "value_distance": pl.Series(support.value_distance).fill_nan(None),
            "trend_distance": pl.Series(support.trend_distance).fill_nan(None),
        }
    )
