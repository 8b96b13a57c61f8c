"""`safeimpute serve`: the review page of a run, for the browser on this machine alone."""

from importlib import util
from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt

RunFolder = Annotated[Path, typer.Argument(help="Folder written by run or demo.", show_default=False)]
NEEDED = ("fastapi", "uvicorn")


def serve(
    run_dir: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
    quiet: opt.Quiet = False,
) -> None:
    """Review a run in the browser: trajectories, reasons, accept and reject, other levels."""
    from safeimpute.errors import MissingExtra

    if any(util.find_spec(name) is None for name in NEEDED):
        raise MissingExtra("The review page", "web")
    from safeimpute.web.server import log_beside, serve_run

    def started(address: str) -> None:
        if not quiet:
            typer.echo(f"Review page: {address}")
            typer.echo(f"Decisions are kept in {log_beside(run_dir.resolve())}. Stop with Ctrl-C.")
        if browser:
            typer.launch(address)

    serve_run(run_dir, port, started)
