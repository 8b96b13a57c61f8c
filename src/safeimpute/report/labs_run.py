"""The folder of a run of several labs: one long table, one wide one, a folder per lab, a model per lab, one report."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from safeimpute.evaluation.several_summary import LabsSummary
from safeimpute.records.writers.guarded_csv import write_csv
from safeimpute.report.labs_page import write_labs_report
from safeimpute.report.manifest import Manifest
from safeimpute.report.run_folder import write_json
from safeimpute.runtime.text import folder_names

LABS = "labs"  # the folder of the labs' own results


def places_of_labs(labs: Sequence[str]) -> dict[str, str]:
    """Each lab's own folder inside the run's."""
    return {lab: f"{LABS}/{name}" for lab, name in folder_names(tuple(labs)).items()}


def write_labs_run(
    folder: Path, imputations: pl.DataFrame, filled: pl.DataFrame, summary: LabsSummary, manifest: Manifest
) -> None:
    """Write what holds for all labs into a folder in which each lab's own is written."""
    for table, name in ((imputations, "imputations"), (filled, "filled")):
        table.write_parquet(folder / f"{name}.parquet")
        write_csv(table, folder / f"{name}.csv")
    write_json(summary, folder / "summary.json")
    write_json(manifest, folder / "run.json")
    write_labs_report(folder)
