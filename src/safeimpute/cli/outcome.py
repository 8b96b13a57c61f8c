"""What a run leaves behind for one lab: summary, tables, what the review page shows, pictures, report."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl

    from safeimpute.evaluation.drawn_run import DrawsAsked
    from safeimpute.evaluation.run_summary import RunSummary
    from safeimpute.records.visits import Visits
    from safeimpute.runtime.table_format import TableFormat
    from safeimpute.selection.result import RunResult


class Origin(NamedTuple):
    """Where a run's visits came from, and the run on them that was looked at before."""

    source: Path | None = None
    columns: Mapping[str, str] = {}  # of the source, renamed
    read_as: "TableFormat | None" = None  # how the source is written
    earlier: Path | None = None


class Wanted(NamedTuple):
    """What a run was asked to write beside its release."""

    why: bool = False  # the visits that carried each imputation
    draws: "DrawsAsked | None" = None
    sign: Path | None = None  # private key to sign the model with


def write_outcome(
    folder: Path,
    result: "RunResult",
    visits: "Visits",
    imputations: "pl.DataFrame",
    origin: Origin,
    *,
    second_look: bool,
) -> "RunSummary":
    """Write what the run came to, and the report; returns the summary."""
    from safeimpute.evaluation.exploration import slider_grid
    from safeimpute.evaluation.summary import as_second_look, summarise_run
    from safeimpute.report.figures import draw_figures
    from safeimpute.report.html import write_report
    from safeimpute.report.manifest import make_manifest
    from safeimpute.report.reporting import write_reporting
    from safeimpute.report.run_folder import write_review, write_run

    summary, sliders = summarise_run(result, visits, imputations), slider_grid(result)
    if second_look:
        summary = as_second_look(summary)
    manifest = make_manifest(
        result.settings,
        visits,
        origin.source,
        origin.columns,
        second_look=second_look,
        read_as=origin.read_as,
    )
    write_run(folder, imputations, summary, manifest)
    asked = result.calibrated
    write_review(folder, visits, asked.candidates, asked.question.set_aside, sliders)
    draw_figures(folder)
    write_report(folder)
    write_reporting(folder)
    return summary
