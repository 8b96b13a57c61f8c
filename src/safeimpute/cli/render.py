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
    from safeimpute.report.run_folder import holds_several_labs, lab_folders

    folders = lab_folders(run_dir) if holds_several_labs(run_dir) else [run_dir]
    drawn = [path for folder in folders for path in draw_figures(folder)]
    if not quiet:
        typer.echo("\n".join(str(path) for path in drawn))


def report(run_dir: RunFolder, quiet: opt.Quiet = False) -> None:
    """Write the run's report: one self-contained HTML page."""
    from safeimpute.report.html import write_report
    from safeimpute.report.labs_page import write_labs_report
    from safeimpute.report.run_folder import holds_several_labs

    path = write_labs_report(run_dir) if holds_several_labs(run_dir) else write_report(run_dir)
    if not quiet:
        typer.echo(str(path))
