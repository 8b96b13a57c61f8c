"""The folder of a run of several labs: one long table, one wide one, a folder per lab, a model per lab, one report."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from safeimpute.evaluation.drawn_run import DrawsAsked
from safeimpute.evaluation.run_summary import RunSummary
from safeimpute.evaluation.several_summary import FittedLabs, LabsSummary, summarise_labs
from safeimpute.records.tables import to_polars
from safeimpute.records.writers.guarded_csv import write_csv
from safeimpute.report.draws_folder import write_draws
from safeimpute.report.figures import draw_figures
from safeimpute.report.html import write_report
from safeimpute.report.labs_page import write_labs_report
from safeimpute.report.manifest import make_manifest
from safeimpute.report.reporting import write_reporting
from safeimpute.report.review_folder import write_review
from safeimpute.report.run_folder import write_json, write_run
from safeimpute.runtime.table_format import TableFormat
from safeimpute.runtime.text import folder_names

LABS = "labs"  # the folder of the labs' own results


@dataclass(frozen=True)
class Wanted:
    """What a run was asked to write beside its release."""

    why: bool = False  # the visits that carried each imputation
    draws: DrawsAsked | None = None
    read_as: TableFormat | None = None  # how the source is written
    sign: Path | None = None  # private key to sign the models with


def write_labs_run(
    folder: Path,
    imputer: FittedLabs,
    table: Any,
    source: Path | None,
    columns: Mapping[str, str],
    wanted: Wanted,
    *,
    second_looks: Collection[str],
) -> LabsSummary:
    """Write everything a run of several labs leaves behind; returns the summary of the whole.

    The labs among `second_looks` were seen before under another choice: nothing is promised for them.
    """
    several, frame = imputer.labs_, to_polars(table)
    imputations = to_polars(imputer.impute(table))
    write_both(imputations, folder, "imputations")
    write_both(several.filled(frame), folder, "filled")
    folders = {lab: f"{LABS}/{name}" for lab, name in folder_names(tuple(several.imputers)).items()}
    each: dict[str, RunSummary] = {}
    for (lab,), part in imputations.partition_by("lab", as_dict=True).items():
        own, one = folder / folders[str(lab)], several.imputers[str(lab)]
        own.mkdir(parents=True)
        each[str(lab)] = write_run(
            own,
            one,
            part,
            source,
            columns,
            second_look=lab in second_looks,
            read_as=wanted.read_as,
            model=False,
        )
        write_review(own, one)
        if wanted.why:
            one.explain(table).write_parquet(own / "why.parquet")
        if wanted.draws is not None:
            write_draws(own, one, table, wanted.draws)
        draw_figures(own)
        write_report(own)
        write_reporting(own)
    summary = summarise_labs(imputer, each, folders)
    first = next(iter(several.imputers.values()))
    second = bool(second_looks)
    write_json(summary, folder / "summary.json")
    write_json(
        make_manifest(
            several.settings, first.visits_, source, columns, second_look=second, read_as=wanted.read_as
        ),
        folder / "run.json",
    )
    several.save(folder / "model", second_looks=second_looks, sign=wanted.sign)
    write_labs_report(folder)
    return summary


def write_both(table: pl.DataFrame, folder: Path, name: str) -> None:
    """As parquet and as CSV."""
    table.write_parquet(folder / f"{name}.parquet")
    write_csv(table, folder / f"{name}.csv")
