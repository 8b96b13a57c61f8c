"""The command line: thin shells over the library; nothing heavy is imported before a command runs."""

import os
import sys
from typing import Annotated

import typer

from safeimpute.cli import (
    ablate,
    audit,
    benchmark,
    check,
    cohort,
    downstream,
    evaluate,
    export,
    foreign,
    info,
    monitor,
    render,
    reproduce,
    run,
    score,
    serve,
    simulate,
)
from safeimpute.cli.endings import end_of
from safeimpute.cli.options import EVERYWHERE, takes

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
    check.check,
    run.run,
    cohort.cohort,
    evaluate.evaluate,
    benchmark.benchmark,
    ablate.ablate,
    reproduce.reproduce,
    audit.audit,
    downstream.downstream,
    foreign.hide,
    foreign.release,
    render.figures,
    render.report,
    score.score,
    monitor.monitor,
    monitor.recalibrate,
    serve.serve,
    export.export,
    run.rerun,
    simulate.simulate,
    info.methods,
    info.doctor,
):
    app.command()(takes(EVERYWHERE, last=True)(command))


def _silence_libraries() -> None:
    """Warnings of libraries are for developers: users see them only if they ask Python for them."""
    if not (sys.warnoptions or os.environ.get("SAFEIMPUTE_DEBUG")):
        import warnings

        warnings.simplefilter("ignore")
        os.environ["PYTHONWARNINGS"] = "ignore"  # for processes it starts


def main() -> None:
    """Entry point: errors made on purpose become one plain line and an exit code."""
    from safeimpute.runtime.signals import Stopped, heed_signals

    heed_signals()
    _silence_libraries()
    try:
        app()
    except (Exception, KeyboardInterrupt, Stopped) as error:
        line, code = end_of(error)
        if code == 1 and os.environ.get("SAFEIMPUTE_DEBUG"):
            raise
        if line:
            sys.stderr.write(f"safeimpute: {line}\n")
        sys.exit(code)
