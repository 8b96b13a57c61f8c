"""`review/` in a run's folder: what the review page shows beside the imputations.

`visits.parquet` holds what was measured at the visits of every patient with an imputation, `exploration.json` the
outcome of other levels, judged by the errors the run was decided by. Single errors stand in neither.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from safeimpute.evaluation.summary import FittedImputer  # the page reads this folder without the imputers

LAB_PREFIX = "lab."  # keeps a lab's name apart from the table's own columns
ROWS_PER_GROUP = 20_000  # small enough that one patient is read from a small part of the file


def write_review(folder: Path, imputer: "FittedImputer") -> None:
    """Write both files into a folder `review`."""
    from safeimpute.evaluation.exploration import explore_run
    from safeimpute.report.run_folder import write_json

    (folder / "review").mkdir()
    review_visits(imputer).write_parquet(folder / "review" / "visits.parquet", row_group_size=ROWS_PER_GROUP)
    write_json(explore_run(imputer), folder / "review" / "exploration.json")


def review_visits(imputer: "FittedImputer") -> pl.DataFrame:
    """One row per visit of a patient with an imputation; `imputation` is its row in imputations.parquet."""
    visits, candidates = imputer.visits_, imputer.calibrated_.candidates
    arrays = visits.arrays
    imputation = np.full(len(visits), -1)
    imputation[candidates] = np.arange(len(candidates))
    shown = np.flatnonzero(np.isin(arrays.patient, arrays.patient[candidates]))
    labs = {
        f"{LAB_PREFIX}{name}": pl.Series(arrays.labs[shown, position], dtype=pl.Float32).fill_nan(None)
        for position, name in enumerate(arrays.lab_names)
    }
    return pl.DataFrame(
        {
            "patient": pl.Series(arrays.patient[shown], dtype=pl.Int32).rank("dense") - 1,
            "subject_id": visits.subject[shown],
            "time": visits.time[shown],
            "day": arrays.time[shown],
            "imputation": pl.Series(imputation[shown], dtype=pl.Int32),
            **labs,
        }
    )
