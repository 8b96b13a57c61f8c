"""The known truth of a simulated cohort, laid beside the visits it belongs to."""

from typing import Any

import numpy as np
import polars as pl

from safeimpute.errors import VisitsError
from safeimpute.records.arrays import FloatArray
from safeimpute.records.checks import days, numbers, require_columns
from safeimpute.records.tables import to_polars
from safeimpute.records.visits import Visits
from safeimpute.settings import Settings


def align_truth(visits: Visits, table: Any, settings: Settings) -> FloatArray:
    """The true target of every visit, matched by subject and time."""
    frame = to_polars(table)
    keys = [settings.subject, settings.time]
    require_columns(frame, [*keys, settings.target], "needed in the truth table")
    asked = pl.DataFrame({"subject": visits.subject.cast(pl.String), "time": visits.arrays.time})
    offered = pl.DataFrame(
        {
            "subject": frame[settings.subject].cast(pl.String),
            "time": days(frame[settings.time]),
            "truth": numbers(frame[settings.target], "truth"),
        }
    )
    found = asked.join(offered, on=["subject", "time"], how="left", maintain_order="left")
    truth = found["truth"].fill_null(np.nan).to_numpy()
    absent = int(np.isnan(truth).sum())
    if len(truth) != len(visits) or absent:
        raise VisitsError(f"the truth table lacks {absent:,} of {len(visits):,} visits, or lists some twice.")
    return truth
