"""`safeimpute monitor` and `recalibrate`: whether the promise still holds, and a new cut-off when it does not."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.score import Model
from safeimpute.errors import OptionError
from safeimpute.machine.options import days_of

ALARM = 3  # exit code
Measured = Annotated[
    Path,
    typer.Argument(
        help="Visits as they are now: each patient's record whole, with what was measured since the fit.",
        show_default=False,
    ),
]
Log = Annotated[Path, typer.Option(help="The night log (SQLite), made where it does not exist.", show_default=False)]


@opt.takes(opt.MEMORY)
def monitor(
    model: Model,
    measured: Measured,
    log: Log,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the report; that of an earlier night is replaced.")
    ] = Path("out/monitor"),
    columns: opt.Rename = "",
    quiet: opt.Quiet = False,
) -> None:
    """Impute what was measured since the fit as if it were missing, and say whether the promise still holds.

    Exit code 3: an alarm stands. From then on score promises nothing until recalibrate.
    """
    from safeimpute.evaluation.monitor_summary import in_words, summarise_monitoring
    from safeimpute.model.night_log import NightLog
    from safeimpute.model.open_model import Status
    from safeimpute.model.scorer import Scorer
    from safeimpute.monitoring.monitor import monitor as look
    from safeimpute.monitoring.monitor import require_visits_since
    from safeimpute.report.monitor_page import write_monitor_report
    from safeimpute.visits.tables import read_visits

    scorer = Scorer.load(model, status=Status())  # the night log named says what stands
    reading = next(iter(scorer.labs.values())).reading
    visits = read_visits(measured, opt.renames(columns), time=reading.time, subject=reading.subject)
    found = look(scorer, visits, NightLog(log), (out, measured))
    if not found.alarm:
        require_visits_since(found)
    if not found.heard:
        typer.echo(f"safeimpute: {model} cannot be written: give score the --log each night.", err=True)
    summary = summarise_monitoring(found, scorer)
    write_monitor_report(out, summary)
    if not quiet:
        typer.echo("\n".join(in_words(summary)))
        typer.echo(f"Report: {out / 'monitor.html'}")
    if found.alarm:
        raise typer.Exit(ALARM)


@opt.takes(opt.MEMORY)
def recalibrate(
    model: Model,
    log: Annotated[Path | None, typer.Option(help="The night log, after an alarm.", show_default=False)] = None,
    visits: Annotated[
        str | None,
        typer.Option(
            help="Or a whole table of which the fit saw a sample, a file or a database's table as score takes it: the "
            "model calibrated on all of it goes to --out.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for that model.", show_default=False)] = None,
    engine: Annotated[str, typer.Option(help="For --visits: local, or spark.")] = "local",
    since: Annotated[
        str | None,
        typer.Option(
            help="First day to calibrate on, as the visits count time.",
            show_default="when the alarm's evidence began to grow",
        ),
    ] = None,
    columns: opt.Rename = "",
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Set a new cut-off without refitting: from the night log after an alarm, or from a whole table."""
    if (log is None) == (visits is None):
        raise OptionError("give --log (after an alarm) or --visits (a table the fit saw a sample of), not both.")
    if log is not None:
        _from_log(model, log, since, quiet=quiet)
    elif visits is not None:
        _from_table(model, visits, out, engine, columns, force=force, quiet=quiet)


def _from_table(
    model: Path, visits: str, out: Path | None, engine: str, columns: str, *, force: bool, quiet: bool
) -> None:
    from safeimpute.sources.readers.patients import names_database

    if out is None:
        raise OptionError("--visits needs --out: the folder for the calibrated model.")
    if engine not in ("local", "spark"):
        raise OptionError(f"--engine {engine!r} is not known: local or spark.")
    renamed = opt.renames(columns)
    if names_database(visits):
        if engine == "spark":
            raise OptionError("a database's table is calibrated on by the local engine: leave --engine out.")
        from safeimpute.model.batches import calibrate_database

        found = calibrate_database(model, visits, out, columns=renamed, force=force)
    elif engine == "spark":
        from safeimpute.spark.calibrate import calibrate_files_on_spark

        found = calibrate_files_on_spark(model, Path(visits), out, columns=renamed, force=force)
    else:
        from safeimpute.model.whole_table import calibrate_files

        found = calibrate_files(model, Path(visits), out, columns=renamed, force=force)
    if quiet:
        return
    typer.echo(f"Calibrated on {found.measured:,} measured visits of {found.patients:,} patients")
    typer.echo(
        f"They are worth {found.effective_visits:,.0f} visits of equal weight, of {found.effective_patients:,.0f} "
        "patients"
    )
    if found.auc is not None:
        typer.echo(f"Who gets measured: AUC {found.auc:.3f} (0.5: measuring looks random)")
    typer.echo(f"Model: {out}; safeimpute doctor {out} shows its cut-off")


def _from_log(model: Path, log: Path, since: str | None, *, quiet: bool) -> None:
    from safeimpute.model.night_log import NightLog
    from safeimpute.model.open_model import Status
    from safeimpute.model.scorer import Scorer
    from safeimpute.monitoring.recalibrate import recalibrate as set_anew

    scorer = Scorer.load(model, status=Status())  # the night log named says what stands
    found = set_anew(scorer, NightLog(log), None if since is None else days_of(since))
    if quiet:
        return
    cutoffs = [each for each in found.cutoffs.values() if each.risk is not None]
    typer.echo(f"Calibrated on {found.values:,} values measured since day {found.since:g}")
    if not cutoffs:
        typer.echo("No risk keeps the level on them: nothing is released. Recalibrate later, or fit anew.")
    for each in cutoffs:
        typer.echo(f"New cut-off: risk {each.risk:.4g} (share of unacceptable values below it {each.share:.3f})")
