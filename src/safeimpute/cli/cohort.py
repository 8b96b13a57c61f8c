"""`safeimpute cohort` and `simulate`: a table of visits, from a clinical source as published or simulated."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.console import shown_progress
from safeimpute.errors import MissingExtra, OptionError

if TYPE_CHECKING:
    import polars as pl


@opt.takes(opt.READING)
def cohort(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="mimic3|mimic4|omop|meds|fhir|long", help="What the source is; long: a table of one row per result."
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            help="Folder of csv, csv.gz or parquet files as published (FHIR: json or ndjson), a DuckDB file, "
            "or a connection string such as postgresql://user@host/database/schema or, for Spark, pyspark:///folder; "
            "of a long table its file.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Visits to write: .parquet.")],
    target: Annotated[
        str, typer.Option(help="Lab to impute: a name of the catalogue, or several. Of a long table every lab is kept.")
    ] = "",
    labs: Annotated[
        str, typer.Option(help="Labs beside the target, comma separated (default: the published cohort's).")
    ] = "",
    anchors: Annotated[
        str, typer.Option(help="Where visits stand: target (each measurement of it), or any (each day of care).")
    ] = "target",
    diabetes: Annotated[
        str, typer.Option(help="Which patients: any diabetes, primary only, type1, or none (everybody).")
    ] = "any",
    disease: Annotated[
        str, typer.Option(help="Patients with this disease of --catalogue ([diseases.NAME], ICD prefixes) instead.")
    ] = "",
    since: Annotated[str, typer.Option("--from", help="First day of visits, such as 2022-01-01.")] = "",
    until: Annotated[str, typer.Option("--until", help="Day before which visits lie.")] = "",
    attributes: Annotated[str, typer.Option(help="Attributes to keep: sex, age or both.")] = "sex,age",
    concept_set: Annotated[
        Path | None,
        typer.Option(help="OMOP: another disease, a concept set as ATLAS exports it (JSON), instead of diabetes."),
    ] = None,
    snomed: Annotated[
        str, typer.Option(help="FHIR, OMOP: another disease by SNOMED codes, comma separated, instead of diabetes.")
    ] = "",
    lookback: Annotated[
        str, typer.Option(help="How far back a visit looks: glucose=7d,cholesterol=90d (default: catalogue).")
    ] = "",
    glucose: Annotated[str, typer.Option(help="Which glucose counts: serum, blood-gas or both.")] = ("serum,blood-gas"),
    catalogue: Annotated[Path | None, typer.Option(help="TOML file with further labs and diseases.")] = None,
    memory: Annotated[
        float | None, typer.Option(min=0.1, help="GiB the database engine may use (default: 1.5).")
    ] = None,
    threads: opt.Threads = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Build the visits table from MIMIC, OMOP, MEDS, FHIR or a long table, and say what became of every row."""
    from safeimpute.machine.options import TableFormat
    from safeimpute.visits.catalogue import load_catalogue

    if kind == "long":
        _of_long(context, Path(source), output, force=force, quiet=quiet)
        return
    if opt.table_format(context) != TableFormat() or context.params["columns"]:
        raise OptionError(f"how a file is written is told of long tables only; {kind} is read as published.")
    if not target:
        raise OptionError("--target is needed: the lab to be imputed.")

    try:
        from safeimpute.sources.cohort.build import build_cohort
        from safeimpute.sources.cohort.definition import define_cohort, read_concept_set
    except ModuleNotFoundError as error:
        raise MissingExtra(f"building cohorts (module {error.name})", "ehr") from None
    from safeimpute.sources.cohort.summary import describe

    known = load_catalogue(catalogue)
    definition = define_cohort(
        known,
        target=target,
        labs=opt.names(labs) or None,
        anchors=anchors,
        diabetes=diabetes,
        lookback=lookback,
        glucose=glucose,
        disease=disease,
        since=since,
        until=until,
        attributes=opt.names(attributes),
        concept_set=None if concept_set is None else read_concept_set(concept_set),
        snomed=opt.names(snomed),
    )
    with shown_progress(quiet) as progress:
        record = build_cohort(
            kind,
            source,
            definition,
            output,
            catalogue=known,
            force=force,
            memory=memory,
            threads=threads,
            progress=progress,
        )
    if not quiet:
        typer.echo(describe(record))
        typer.echo(f"\nwritten: {output} and {output.with_suffix('.cohort.json').name}")


def _of_long(context: typer.Context, source: Path, output: Path, *, force: bool, quiet: bool) -> None:
    """The visits of a long table, and the record of what became of its rows."""
    from safeimpute.machine.files import finished_file, sha256_of
    from safeimpute.report.run_folder import write_json

    record = output.with_suffix(".cohort.json")
    if output.suffix != ".parquet":
        raise OptionError(f"output {output} must end in .parquet.")
    _check_writable(output, record, force=force)
    origin = opt.origin_of(context, source)
    visits = origin.read()
    told = {
        "source": {"kind": "long", "title": "a table of one row per result", "place": source.name},
        "format": vars(origin.read_as),
        "visits": len(visits),
        "patients": visits["subject_id"].n_unique() if "subject_id" in visits.columns else None,
        "notes": origin.account.notes,
        "counts": origin.account.counts,
        "dropped": origin.account.dropped,
    }
    with finished_file(record, force=force) as partial_record, finished_file(output, force=force) as partial:
        visits.write_parquet(partial)
        write_json({**told, "visits_sha256": sha256_of(partial)}, partial_record)
    if not quiet:
        opt.say_what_was_read(origin)
        typer.echo(f"\nwritten: {output} and {record.name}")


def simulate(
    shape: Annotated[Literal["mayo", "mimic3", "mimic4"], typer.Argument(help="Whose size to imitate.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Visits to write: .parquet or .csv.")],
    patients: Annotated[int | None, typer.Option(help="Patients, if not as many as the shape has.")] = None,
    labs: Annotated[int, typer.Option(help="Labs beside the target hba1c, 2 to 12.")] = 2,
    shift: Annotated[
        Literal["none", "covariate", "value", "patients"],
        typer.Option(
            help="What decides whether hba1c is measured: chance, what the table shows, or the hidden value; "
            "'patients' lets unstable patients come more often."
        ),
    ] = "none",
    seed: opt.Seed = 0,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Simulate a diabetic cohort; the target at every visit goes to a second file, NAME.truth.parquet."""
    truth_path = output.with_suffix(".truth.parquet")
    _check_writable(output, truth_path, force=force)

    import numpy as np

    from safeimpute.visits.examples import simulate as simulate_cohort

    cohort = simulate_cohort(shape, np.random.default_rng(seed), patients=patients, labs=labs, shift=shift)
    _write_together({truth_path: cohort.truth, output: cohort.visits}, force=force)
    if not quiet:
        visits = cohort.visits
        size = f"{visits.height:,} visits of {visits['subject_id'].n_unique():,} patients"
        missing = visits["hba1c"].null_count() / visits.height
        typer.echo(f"{output}: {size}, hba1c missing at {missing:.0%}")
        typer.echo(f"{truth_path}: hba1c at every visit, also where it is missing")


def _check_writable(output: Path, truth_path: Path, *, force: bool) -> None:
    from safeimpute.machine.files import require_new

    if output.suffix not in (".parquet", ".csv"):
        raise OptionError(f"cannot tell the format of {output}: give a name that ends in .parquet or .csv")
    if not output.parent.is_dir():
        raise OptionError(f"the folder {output.parent} does not exist: create it first")
    existing = [str(path) for path in (output, truth_path) if path.exists()]
    if existing and not force:
        raise OptionError(f"would overwrite {' and '.join(existing)}: give --force, or another --output")
    for path in (output, truth_path):
        require_new(path, force=force)


def _write_together(tables: dict[Path, "pl.DataFrame"], *, force: bool) -> None:
    """Under passing names first, so that an interrupted run leaves nothing that looks finished."""
    from safeimpute.machine.files import finished_file

    with ExitStack() as unfinished:
        for path, table in reversed(tables.items()):  # names are taken in the order given
            partial = unfinished.enter_context(finished_file(path, force=force))
            write = table.write_csv if path.suffix == ".csv" else table.write_parquet
            write(partial)
