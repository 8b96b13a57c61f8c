"""A run's folder: results, what was promised, how it came about, what the review page shows; written, and read back.

`run.json` lets the run be repeated. `review/visits.parquet` holds what was measured at the visits of every patient with
an imputation, `review/exploration.json` the outcome of other levels. Single errors stand nowhere.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from safeimpute.errors import OptionError
from safeimpute.evaluation.run_summary import RunSummary, SliderGrid
from safeimpute.evaluation.several_summary import LabsSummary
from safeimpute.records.arrays import BoolArray, IntArray
from safeimpute.records.visits import Visits
from safeimpute.records.writers.guarded_csv import write_csv
from safeimpute.report.manifest import Manifest
from safeimpute.runtime.files import finished_file

LAB_PREFIX = "lab."  # keeps a lab's name apart from the columns of review/visits.parquet
ROWS_PER_GROUP = 20_000  # small enough that one patient is read from a small part of that file


def write_run(folder: Path, imputations: pl.DataFrame, summary: RunSummary, manifest: Manifest) -> None:
    """Write the results of a run, and how it came about, into a folder that is not finished yet."""
    imputations.write_parquet(folder / "imputations.parquet")
    write_csv(imputations, folder / "imputations.csv")
    write_json(summary, folder / "summary.json")
    write_json(manifest, folder / "run.json")


def write_review(
    folder: Path,
    visits: Visits,
    candidates: IntArray,
    set_aside: Mapping[str, BoolArray],
    sliders: SliderGrid,
) -> None:
    """Write what the review page shows beside the imputations into a folder `review`."""
    (folder / "review").mkdir()
    table = review_visits(visits, candidates, set_aside)
    table.write_parquet(folder / "review" / "visits.parquet", row_group_size=ROWS_PER_GROUP)
    write_json(sliders, folder / "review" / "exploration.json")


def review_visits(visits: Visits, candidates: IntArray, set_aside: Mapping[str, BoolArray]) -> pl.DataFrame:
    """One row per visit of a patient with an imputation; `imputation` is its row in imputations.parquet.

    `set_aside` says, by reason, at which visits a measured target was no input: drawn, but not as used.
    """
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
            "set_aside": _named(set_aside, len(visits)).gather(shown),
            **labs,
        }
    )


def _named(reasons: Mapping[str, BoolArray], visits: int) -> pl.Series:
    """The reason that holds at each visit; null where none does."""
    named = pl.Series([None], dtype=pl.String).new_from_index(0, visits)
    for reason, there in reasons.items():
        named = pl.select(pl.when(pl.Series(there)).then(pl.lit(reason)).otherwise(named)).to_series()
    return named


def write_json(content: object, path: Path) -> None:
    """Write a JSON file inside a folder that is not finished yet."""
    path.write_text(json.dumps(content, indent=2, allow_nan=False, default=str) + "\n", encoding="utf-8")


def save_json(content: object, path: Path) -> None:
    """Write a JSON file of its own, whole or not at all."""
    with finished_file(path) as partial:
        write_json(content, partial)


def read_summary(folder: Path) -> RunSummary:
    """The summary of a run of this version."""
    return cast("RunSummary", _read(folder / "summary.json", RunSummary.__required_keys__))


def read_labs_summary(folder: Path) -> LabsSummary:
    """The summary of a run of several labs, of this version."""
    return cast("LabsSummary", _read(folder / "summary.json", LabsSummary.__required_keys__))


def holds_several_labs(folder: Path) -> bool:
    """Whether a run's folder is one of several labs."""
    return (folder / "labs").is_dir() and not (folder / "review").exists()


def lab_folders(folder: Path) -> list[Path]:
    """The labs' own folders in a run of several labs."""
    return [folder / line["folder"] for line in read_labs_summary(folder)["labs"].values()]


def read_manifest(folder: Path) -> Manifest:
    """How a run of this version came about."""
    return cast("Manifest", _read(folder / "run.json", Manifest.__required_keys__))


def _read(path: Path, needed: frozenset[str]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{path} cannot be read ({type(error).__name__}). Give the folder of a finished run."
        ) from None
    if not isinstance(content, dict) or not needed <= content.keys():
        raise OptionError(f"{path} was not written by this version of safeimpute. Run it again.")
    return content
