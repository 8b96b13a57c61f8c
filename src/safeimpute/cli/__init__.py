"""The command line: thin shells over the library; nothing heavy is imported before a command runs."""

import os
import sys
from typing import Annotated

import typer

from safeimpute.cli import (
    ablate,
    audit,
    benchmark,
    cohort,
    downstream,
    evaluate,
    info,
    monitor,
    render,
    run,
    score,
    serve,
    simulate,
)
from safeimpute.cli.options import EVERYWHERE, takes
from safeimpute.errors import SafeImputeError

app = typer.Typer(
    name="safeimpute",
    help="Impute missing lab values in patient visits and release only those whose error rate can be promised.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    if asked:
        from safeimpute import __version__

        typer.echo(f"safeimpute {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What every command goes through."""


for command in (
    run.demo,
    run.run,
    cohort.cohort,
    evaluate.evaluate,
    benchmark.benchmark,
    ablate.ablate,
    audit.audit,
    downstream.downstream,
    render.figures,
    render.report,
    score.score,
    monitor.monitor,
    monitor.recalibrate,
    serve.serve,
    run.rerun,
    simulate.simulate,
    info.methods,
    info.doctor,
):
    app.command()(takes(EVERYWHERE, last=True)(command))


def main() -> None:
    """Entry point: errors made on purpose become one plain line and an exit code."""
    try:
        app()
    except SafeImputeError as error:
        sys.stderr.write(f"safeimpute: {error}\n")
        sys.exit(error.exit_code)
    except OSError as error:
        sys.stderr.write(
            f"safeimpute: {error.strerror or type(error).__name__}: {error.filename or 'a file'}. "
            "Check the path, rights and space.\n"
        )
        sys.exit(2)
    except Exception as error:
        if os.environ.get("SAFEIMPUTE_DEBUG"):
            raise
        sys.stderr.write(
            f"safeimpute: internal error ({type(error).__name__}), our fault. "
            "SAFEIMPUTE_DEBUG=1 shows the trace, which may quote data.\n"
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("safeimpute: interrupted; nothing unfinished was kept.\n")
        sys.exit(130)
