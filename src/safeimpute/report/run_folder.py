"""A run's folder: results, what was promised, and the manifest that lets it be repeated."""

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from safeimpute.evaluation.summary import FittedImputer, RunSummary, as_second_look, summarise_run
from safeimpute.records.writers.guarded_csv import write_csv
from safeimpute.report.manifest import PACKAGES, make_manifest
from safeimpute.runtime.files import finished_file
from safeimpute.runtime.table_format import TableFormat

__all__ = ["PACKAGES", "save_json", "write_json", "write_run"]


def write_run(
    folder: Path,
    imputer: FittedImputer,
    imputations: pl.DataFrame,
    source: Path | None,
    columns: Mapping[str, str],
    *,
    second_look: bool,
    read_as: TableFormat | None = None,
    sign: Path | None = None,
    model: bool = True,
) -> RunSummary:
    """Write everything a run leaves behind; returns the summary.

    `columns` renamed the source's columns, `read_as` says how its file is written.
    After a `second_look` at the same visits neither summary nor model
    promises anything. Of several labs, the `model` is kept with the others'.
    """
    summary = summarise_run(imputer, imputations)
    if second_look:
        summary = as_second_look(summary)
    settings = imputer.current_settings()
    visits = imputer.visits_
    manifest = make_manifest(settings, visits, source, columns, second_look=second_look, read_as=read_as)
    imputations.write_parquet(folder / "imputations.parquet")
    write_csv(imputations, folder / "imputations.csv")
    write_json(summary, folder / "summary.json")
    write_json(manifest, folder / "run.json")
    if model:
        imputer.save(folder / "model", second_look=second_look, sign=sign)
    return summary


def write_json(content: object, path: Path) -> None:
    """Write a JSON file inside a folder that is not finished yet."""
    path.write_text(json.dumps(content, indent=2, allow_nan=False, default=str) + "\n", encoding="utf-8")


def save_json(content: object, path: Path) -> None:
    """Write a JSON file of its own, whole or not at all."""
    with finished_file(path) as partial:
        write_json(content, partial)
