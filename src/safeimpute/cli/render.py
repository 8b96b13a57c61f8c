"""`safeimpute figures`, `report` and `serve`: what is shown of a finished run, made from its folder."""

from importlib import util
from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.errors import MissingExtra, OptionError

RunFolder = Annotated[Path, typer.Argument(help="Folder written by run, demo or rerun.")]
AnyFolder = Annotated[Path, typer.Argument(help="Folder written by run, demo, rerun or evaluate --out.")]
ReviewedFolder = Annotated[Path, typer.Argument(help="Folder written by run or demo.", show_default=False)]
NEEDED = ("fastapi", "uvicorn")


def figures(run_dir: AnyFolder, quiet: opt.Quiet = False) -> None:
    """Draw the paper's figures as PNG and SVG from a run or evaluation folder."""
    from safeimpute.report.figures import draw_figures
    from safeimpute.report.run_folder import lab_folders

    first, *others = lab_folders(run_dir)
    drawn = draw_figures(first) + [path for folder in others for path in draw_figures(folder, first)]
    if not quiet:
        typer.echo("\n".join(str(path) for path in drawn))


def report(
    run_dir: RunFolder,
    hospital: Annotated[
        bool,
        typer.Option(
            "--hospital", help="Instead the pages for a hospital's review: use, model card, change and monitoring plan."
        ),
    ] = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write the run's report: one self-contained HTML page."""
    from safeimpute.report.hospital import write_hospital_review
    from safeimpute.report.html import write_report

    paths = write_hospital_review(run_dir) if hospital else [write_report(run_dir)]
    if not quiet:
        typer.echo("\n".join(map(str, paths)))


def serve(
    run_dir: ReviewedFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
    reviewer: Annotated[
        str,
        typer.Option(help="Names, comma separated: each gets an address of their own, and decides under that name."),
    ] = "",
    quiet: opt.Quiet = False,
) -> None:
    """Review a run in the browser: trajectories, reasons, accept and reject, other levels."""
    if any(util.find_spec(name) is None for name in NEEDED):
        raise MissingExtra("The review page", "web")
    from safeimpute.web.app import serve_run
    from safeimpute.web.decisions import log_beside

    reviewers = opt.names(reviewer)
    if len(set(reviewers)) < len(reviewers) or any(len(each) > 80 for each in reviewers):
        raise OptionError("--reviewer takes different names of at most 80 characters, comma separated.")

    def started(addresses: dict[str, str]) -> None:
        address = next(iter(addresses.values()))
        if not quiet:
            for name, each in addresses.items():
                typer.echo(f"Review page{f' of {name}' if name else ''}: {each}")
            typer.echo(f"Decisions are kept in {log_beside(run_dir.resolve())}. Stop with Ctrl-C.")
        if browser:
            typer.launch(address)

    serve_run(run_dir, port, started, reviewers)
