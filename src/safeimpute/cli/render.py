"""`safeimpute figures` and `safeimpute report`: pictures and the page, made again from a run's folder."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt

RunFolder = Annotated[Path, typer.Argument(help="Folder written by run, demo or rerun.")]
AnyFolder = Annotated[Path, typer.Argument(help="Folder written by run, demo, rerun or evaluate --out.")]


def figures(run_dir: AnyFolder, quiet: opt.Quiet = False) -> None:
    """Draw the paper's figures as PNG and SVG from a run or evaluation folder."""
    from safeimpute.report.figures import draw_figures

    drawn = draw_figures(run_dir)
    if not quiet:
        typer.echo("\n".join(str(path) for path in drawn))


def report(run_dir: RunFolder, quiet: opt.Quiet = False) -> None:
    """Write the run's report: one self-contained HTML page."""
    from safeimpute.report.html import write_report

    path = write_report(run_dir)
    if not quiet:
        typer.echo(str(path))
