"""`safeimpute export`: released values written back as FHIR, OMOP or MEDS, each marked as imputed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from safeimpute.cli import options as opt
from safeimpute.errors import MissingExtra, OptionError

if TYPE_CHECKING:
    from safeimpute.sources.writers.exported import Exported
    from safeimpute.visits.catalogue import Catalogue

STAGING = "safeimpute_staging"
Run = Annotated[Path, typer.Argument(help="Folder of a run, or a scored table (.parquet).", show_default=False)]
To = Annotated[Literal["fhir", "omop", "meds"], typer.Option("--to", help="What to write.")]


def export(
    run: Run,
    to: To,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    accepted: Annotated[
        bool, typer.Option("--accepted", help="Only what a reviewer accepted on the review page.")
    ] = False,
    model: Annotated[Path | None, typer.Option(help="Model folder a scored table comes from (RUN_DIR/model).")] = None,
    labs: Annotated[
        str, typer.Option(help="The catalogue's names of labs the run calls otherwise: 'chol=cholesterol'.")
    ] = "",
    catalogue: Annotated[Path | None, typer.Option(help="TOML file with further labs.")] = None,
    zone: Annotated[str, typer.Option(help="FHIR: time zone of times that carry none, such as Europe/Berlin.")] = "UTC",
    source: Annotated[
        Path | None, typer.Option(help="FHIR: folder the visits were built from, to name what a value is derived from.")
    ] = None,
    form: Annotated[Literal["parquet", "csv"], typer.Option(help="OMOP: form of the tables.")] = "parquet",
    first_id: Annotated[int, typer.Option(min=1, help="OMOP: first measurement_id of the files.")] = 1,
    database: Annotated[
        str | None, typer.Option(help="OMOP: also load into this database (postgresql://…), into a schema of its own.")
    ] = None,
    staging: Annotated[str, typer.Option(help="OMOP: that schema's name.")] = STAGING,
    into: Annotated[
        str | None, typer.Option(help="OMOP: add to the measurement table of this schema instead. Nothing else does.")
    ] = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write a run's released values back as FHIR, OMOP or MEDS; no reader here takes them for measurements."""
    from safeimpute.machine.files import finished_folder, require_new_folder
    from safeimpute.visits.catalogue import load_catalogue
    from safeimpute.web.export import carriers, ready_to_export, remember, write_record

    require_new_folder(output, force=force)
    _refuse_unused(to, database, into, source)
    known = load_catalogue(catalogue)
    ready = ready_to_export(run, model, known, opt.renames(labs), only_accepted=accepted)
    with finished_folder(output, force=force) as folder:
        if to == "fhir":
            from safeimpute.sources.writers.fhir import write_fhir

            write_fhir(folder, ready, zone=zone, derived_from=carriers(run, source, known, ready))
        elif to == "omop":
            from safeimpute.sources.writers.omop import write_omop

            write_omop(folder, ready, known, form=form, first_id=first_id)
        else:
            from safeimpute.sources.writers.meds import write_meds

            write_meds(folder, ready)
        write_record(folder, run, to, ready)
        loaded = None if database is None else _load(database, ready, known, staging, into)
    if warning := remember(output, ready):
        typer.echo(f"safeimpute: {warning}", err=True)
    if not quiet:
        _say(ready, output, loaded, into or staging)


def _refuse_unused(to: str, database: str | None, into: str | None, source: Path | None) -> None:
    if into is not None and database is None:
        raise OptionError("--into needs the database that holds that schema: --database postgresql://…")
    if database is not None and to != "omop":
        raise OptionError(f"--database goes with --to omop, not with {to}.")
    if source is not None and to != "fhir":
        raise OptionError(f"--source goes with --to fhir, not with {to}.")


def _load(database: str, ready: "Exported", catalogue: "Catalogue", staging: str, into: str | None) -> int:
    try:
        from safeimpute.sources.writers.omop_database import load_omop
    except ModuleNotFoundError as error:
        raise MissingExtra(f"loading into a database (module {error.name})", "postgres") from None
    return load_omop(database, ready, catalogue, staging=staging, into=into)


def _say(ready: "Exported", output: Path, loaded: int | None, schema: str) -> None:
    counts = ready.counts
    typer.echo(f"values written   {counts['values']:>9,}   marked as imputed")
    if counts["accepted"]:
        typer.echo(f"  accepted       {counts['accepted']:>9,}   by a reviewer")
    typer.echo(f"withheld         {counts['withheld']:>9,}   without a value")
    for name, coded in ready.labs.items():
        typer.echo(f"{name}: {coded.promise.note}")
    if loaded is not None:
        typer.echo(f"loaded           {loaded:>9,}   into schema {schema}")
    typer.echo(f"written: {output}")
