"""The command line: thin shells over the library; nothing heavy is imported before a command runs."""

import os
import re
import sys
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from safeimpute.cli import check, cohort, evaluate, export, foreign, info, monitor, render, run, score, sites
from safeimpute.cli.options import EVERYWHERE, takes
from safeimpute.errors import OptionError, SafeImputeError
from safeimpute.machine.endings import Stopped, heed_signals, ignore_signals, our_fault

INTERRUPTED = 130
NO_READER = 141  # what a shell shows for a closed pipe
LABORATORY = ("benchmark", "ablate", "reproduce")


@cache
def _loaded(name: str) -> Any:
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command()(takes(EVERYWHERE, last=True)(info.entry_points_of("safeimpute.commands")[name].load()))
    return typer.main.get_command(alone)


class Program(TyperGroup):
    """The program's own commands, and those of packages that add some under `safeimpute.commands`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Own commands first."""
        own: list[str] = super().list_commands(ctx)
        return [*own, *(name for name in info.entry_points_of("safeimpute.commands") if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, imported now if another package has it; one of the laboratory's is missed by name."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        if cmd_name in info.entry_points_of("safeimpute.commands"):
            return _loaded(cmd_name)
        if cmd_name in LABORATORY:
            raise OptionError(
                f"{cmd_name} belongs to the laboratory, which is not installed. In a checkout: {info.INSTALL}"
            )
        return None


app = typer.Typer(
    name="safeimpute",
    cls=Program,
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
    evaluate.audit,
    evaluate.downstream,
    foreign.hide,
    foreign.release,
    render.figures,
    render.report,
    score.score,
    monitor.monitor,
    monitor.recalibrate,
    sites.site,
    sites.join,
    render.serve,
    export.export,
    run.rerun,
    cohort.simulate,
    info.methods,
    info.doctor,
):
    app.command()(takes(EVERYWHERE, last=True)(command))


def _let_idle_threads_sleep() -> None:
    """Said to OpenMP before it loads, in this process and those it starts; what the user set himself stays.

    By default idle threads spin, and two runs on two cores then take five times as long as one.
    """
    for name, value in {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}.items():
        os.environ.setdefault(name, value)


def _silence_libraries() -> None:
    """Warnings of libraries are for developers: users see them only if they ask Python for them."""
    if not (sys.warnoptions or os.environ.get("SAFEIMPUTE_DEBUG")):
        import warnings

        warnings.simplefilter("ignore")
        os.environ["PYTHONWARNINGS"] = "ignore"  # for processes it starts


def main() -> None:
    """Entry point: errors made on purpose become one plain line and an exit code."""
    from safeimpute.machine.endings import Stopped

    heed_signals()
    _let_idle_threads_sleep()
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
    finally:
        ignore_signals()


def end_of(error: BaseException) -> tuple[str, int]:
    """What is said on standard error, and the exit code: 2 the user's input or machine, 1 our fault."""
    if isinstance(error, KeyboardInterrupt | Stopped):
        code = error.exit_code if isinstance(error, Stopped) else INTERRUPTED
        return "stopped; nothing unfinished was kept.", code
    if isinstance(error, SafeImputeError):
        return _one_line(str(error)), error.exit_code
    if isinstance(error, BrokenPipeError):
        _let_go_of_output()
        return "", NO_READER
    if isinstance(error, MemoryError):
        return "the memory of this machine did not suffice. Give fewer visits or labs, or a larger machine.", 2
    from safeimpute.machine.files import is_no_room

    if is_no_room(error):
        return "there is no room to write (full disk, quota or limit on file sizes). Nothing unfinished was kept.", 2
    if isinstance(error, OSError):
        place = _one_line(str(error.filename or "a file"))
        return f"{error.strerror or type(error).__name__}: {place}. Check the path, rights and space.", 2
    return our_fault(error), 1


def _let_go_of_output() -> None:
    """Whoever read the output is gone: the interpreter must not try to write the rest at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(text: str) -> str:
    return re.sub(r"\s*[\r\n]+\s*", " ", text).encode(errors="backslashreplace").decode()
