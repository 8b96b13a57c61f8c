"""`safeimpute score`: visits that came in since, against a fitted model, on this machine or on Spark."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.console import shown_progress
from safeimpute.cli.options import format_flags, table_format
from safeimpute.errors import OptionError
from safeimpute.machine.options import TableFormat

if TYPE_CHECKING:
    from safeimpute.model.account import Account

Model = Annotated[Path, typer.Argument(help="Model folder (RUN_DIR/model, or what save wrote).", show_default=False)]
NewVisits = Annotated[
    str,
    typer.Argument(
        help="Table of the new visits, each patient's record whole: a file, or a database's table "
        "(postgresql://USER@HOST/DATABASE/SCHEMA#TABLE, FILE.duckdb#TABLE), scored in batches of patients.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", "-o", help="Imputation table: .parquet, .csv or .xlsx; with Spark a folder of parquet files."
    ),
]


@opt.takes(opt.MEMORY, format_flags())
def score(
    context: typer.Context,
    model: Model,
    new_visits: NewVisits,
    out: Out,
    engine: Annotated[str, typer.Option(help="local, or spark (a table larger than this machine).")] = "local",
    log: Annotated[
        Path | None,
        typer.Option(help="Night log (SQLite): a visit decided once stays decided, and an alarm of monitor is heard."),
    ] = None,
    columns: opt.Rename = "",
    without: Annotated[
        str,
        typer.Option(help="Labs or attributes of the model that the table lacks: taken as never measured, no promise."),
    ] = "",
    require_signature: Annotated[
        Path | None,
        typer.Option(help="Public key (PEM, Ed25519) by which the model must be signed.", show_default=False),
    ] = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Impute and release new visits against a fitted model, without refitting; each is decided by itself."""
    from safeimpute.cli.score_process import ScoreJob, score_apart
    from safeimpute.machine.files import reserved
    from safeimpute.sources.readers.patients import names_database

    read_as = table_format(context)
    if engine not in ("local", "spark"):
        raise OptionError(f"--engine {engine!r} is not known: local or spark.")
    if engine == "local" and out.suffix not in (".parquet", ".csv", ".xlsx"):
        raise OptionError(f"{out.name!r} has no suffix to write by: .parquet, .csv or .xlsx.")
    database = names_database(new_visits)
    file = None if database else Path(new_visits)
    if database and (engine == "spark" or out.suffix != ".parquet"):
        raise OptionError("a database's table is scored by the local engine into a parquet file: -o NAME.parquet.")
    if (engine == "spark" or database) and log is not None:
        raise OptionError("--log is kept by the local engine for files only: score the night's patients with it.")
    if (engine == "spark" or database) and read_as != TableFormat():
        raise OptionError(
            "Spark and databases read tables as they are: --date-format, --decimal, --separator and --unit-of are for "
            "files."
        )
    if engine == "spark":
        _refuse_several(model)
    job = ScoreJob(
        model=model,
        visits=file,
        database=new_visits if database else "",
        out=out,
        columns=opt.renames(columns),
        without=opt.names(without),
        read_as=read_as,
        engine=engine,
        public_key=require_signature,
        log=log,
        force=force,
    )
    if engine == "spark":  # takes its place itself
        accounts = score_apart(job)
    else:
        place = reserved(out, force=force, inputs=(model, file), folder=False)
        with place, shown_progress(quiet) as progress:
            accounts = score_apart(job, progress)
    if not quiet:
        for account in accounts:
            _say(account)
        typer.echo(f"Table: {out}")


def _refuse_several(model: Path) -> None:
    """Spark scores one lab's model at a time."""
    from safeimpute.model.open_model import model_folders

    if (places := model_folders(model)) != [model]:
        named = ", ".join(str(place) for place in places)
        raise OptionError(f"--engine spark scores one lab at a time. Give one of: {named}.")


def _say(account: "Account") -> None:
    """What came out and what it promises, in plain words."""
    for line in account.read:
        typer.echo(line)
    typer.echo(f"{account.visits:,} visits of {account.patients:,} patients")
    if account.ignored:
        typer.echo(f"Not used: {', '.join(account.ignored)} (unknown to the model)")
    for name, rows in account.unknown_levels.items():
        typer.echo(f"{name}: {rows:,} rows hold a level the model never met")
    missing = account.released + sum(account.withheld.values())
    typer.echo(f"{account.target} missing at {missing:,} visits")
    typer.echo(f"  released  {account.released:>7,}  ({account.released / max(missing, 1):.0%})")
    if account.earlier:
        typer.echo(f"  of all    {account.earlier:>7,}  decided on an earlier night, as they were")
    typer.echo(f"  withheld  {missing - account.released:>7,}")
    for reason, count in account.withheld.items():
        typer.echo(f"            {count:>7,}  {reason}")
    if account.no_promise:
        typer.echo(f"No guarantee: {account.no_promise}.")
    else:
        typer.echo(f"Promise: {account.promise}")
        typer.echo(f"Assumption: {account.assumption}")
    if account.advice:
        typer.echo(f"Advice: {account.advice}")
