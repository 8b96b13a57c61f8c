"""`review/` in a run's folder: what the review page shows beside the imputations.

`visits.parquet` holds what was measured at the visits of every patient with an imputation, `exploration.json` the
outcome of other levels on validation visits. Which visits calibrated, and their errors, stand in neither.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from safeimpute.estimator import SafeImputer  # the page reads this folder without loading the imputers

LAB_PREFIX = "lab."  # keeps a lab's name apart from the table's own columns
ROWS_PER_GROUP = 20_000  # small enough that one patient is read from a small part of the file


def write_review(folder: Path, imputer: "SafeImputer") -> None:
    """Write both files into a folder `review`."""
    from safeimpute.evaluation.exploration import slider_grid
    from safeimpute.report.run_folder import write_json

    (folder / "review").mkdir()
    review_visits(imputer).write_parquet(folder / "review" / "visits.parquet", row_group_size=ROWS_PER_GROUP)
    config, truth = imputer.current_config(), imputer.visits_.arrays.target_values
    grid = slider_grid(imputer.scored_, truth, config.fdr, config.unit_known)
    write_json(grid, folder / "review" / "exploration.json")


def review_visits(imputer: "SafeImputer") -> pl.DataFrame:
    """One row per visit of a patient with an imputation; `imputation` is its row in imputations.parquet."""
    visits, candidates = imputer.visits_, imputer.scored_.candidates()
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
