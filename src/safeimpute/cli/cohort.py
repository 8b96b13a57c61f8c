"""`safeimpute cohort`: the visits table from a clinical source as published."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.progress import shown_progress


def cohort(
    kind: Annotated[str, typer.Argument(metavar="mimic3|mimic4|omop|meds|fhir", help="What the source is.")],
    source: Annotated[
        str,
        typer.Argument(
            help="Folder of csv, csv.gz or parquet files as published (FHIR: json or ndjson), a DuckDB file, "
            "or a connection string such as postgresql://user@host/database/schema or, for Spark, pyspark:///folder.",
            show_default=False,
        ),
    ],
    target: Annotated[str, typer.Option(help="Lab to impute: a name of the catalogue, or several.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Visits to write: .parquet.")],
    labs: Annotated[
        str, typer.Option(help="Labs beside the target, comma separated (default: the published cohort's).")
    ] = "",
    anchors: Annotated[
        str,
        typer.Option(help="Where visits stand: target (each measurement of it), or any (each day of care)."),
    ] = "target",
    diabetes: Annotated[
        str, typer.Option(help="Which patients: any diabetes, primary only, type1, or none (everybody).")
    ] = "any",
    disease: Annotated[
        str,
        typer.Option(
            help="Patients with this disease of --catalogue ([diseases.NAME], ICD prefixes) instead."
        ),
    ] = "",
    since: Annotated[str, typer.Option("--from", help="First day of visits, such as 2022-01-01.")] = "",
    until: Annotated[str, typer.Option("--until", help="Day before which visits lie.")] = "",
    attributes: Annotated[str, typer.Option(help="Attributes to keep: sex, age or both.")] = "sex,age",
    concept_set: Annotated[
        Path | None,
        typer.Option(
            help="OMOP: another disease, a concept set as ATLAS exports it (JSON), instead of diabetes."
        ),
    ] = None,
    snomed: Annotated[
        str,
        typer.Option(
            help="FHIR, OMOP: another disease by SNOMED codes, comma separated, instead of diabetes."
        ),
    ] = "",
    lookback: Annotated[
        str, typer.Option(help="How far back a visit looks: glucose=7d,cholesterol=90d (default: catalogue).")
    ] = "",
    glucose: Annotated[str, typer.Option(help="Which glucose counts: serum, blood-gas or both.")] = (
        "serum,blood-gas"
    ),
    catalogue: Annotated[Path | None, typer.Option(help="TOML file with further labs and diseases.")] = None,
    memory: Annotated[
        float | None,
        typer.Option(min=0.1, help="GiB the database engine may use (default: 1.5)."),
    ] = None,
    threads: opt.Threads = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Build the visits table from MIMIC, OMOP, MEDS or FHIR, and say what became of every row."""
    from safeimpute.records.catalogue import load_catalogue

    try:
        from safeimpute.records.cohort import build_cohort, define_cohort
        from safeimpute.records.cohort.concept_set import read_concept_set
    except ModuleNotFoundError as error:
        from safeimpute.errors import MissingExtra

        raise MissingExtra(f"building cohorts (module {error.name})", "ehr") from None
    from safeimpute.records.cohort.summary import describe

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
