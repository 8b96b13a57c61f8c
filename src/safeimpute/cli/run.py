"""`safeimpute run` and `safeimpute demo`: the main job, on one's own table or on the bundled one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.progress import shown_progress

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")]
ClaimName = Annotated[
    str,
    typer.Option(
        help="What is promised: visits, patients, unmeasured, or patients,unmeasured (as measured as the "
        "calibration visits, or for visits where nobody measured)."
    ),
]


def run(
    context: typer.Context,
    visits: opt.Visits,
    target: opt.Target,
    tolerance: opt.ToleranceText,
    fdr: opt.Fdr,
    preset: opt.Preset = "best",
    claim: ClaimName = "unmeasured",
    out: Out = Path("out/run"),
    labs: opt.Labs = "",
    attributes: opt.Attributes = "",
    exclude: opt.Exclude = "",
    columns: opt.Rename = "",
    unit: opt.Unit = None,
    past_only: Annotated[
        bool,
        typer.Option(
            "--past-only",
            help="Impute each visit from the patient's record up to its time "
            "(when a result became known is not yet taken into account).",
        ),
    ] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Also write why.parquet: the visits that carried each imputation.")
    ] = False,
    gamma: Annotated[
        str,
        typer.Option(help="Sensitivity: factors by which an unseen reason may change the odds of measuring."),
    ] = "1,1.25,1.5,2,3",
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    config: opt.ConfigFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Impute a lab in your visits and release what can be promised."""
    from safeimpute.records.tables import read_visits

    told = opt.given(context, fdr=fdr, claim=claim, past_only=past_only, gammas=opt.numbers(gamma, "--gamma"))
    table = read_visits(visits, opt.renames(columns))
    _run(table, told, out, visits, force=force, quiet=quiet, why=why)


def demo(
    out: Out = Path("out/demo"),
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    force: opt.Force = True,
    quiet: opt.Quiet = False,
) -> None:
    """Impute cholesterol in the bundled Mayo Clinic PBC visits at tolerance 20 % and FDR 20 %."""
    from safeimpute.records.bundled import load_pbc

    if not quiet:
        typer.echo(
            "Mayo Clinic trial in primary biliary cirrhosis: which missing cholesterol values can be trusted?"
        )
    given = {"target": "cholesterol", "tolerance": "20%", "fdr": 0.2, "unit": "mg/dL", "random_state": seed}
    _run(load_pbc(), given, out, None, force=force, quiet=quiet)


def _run(
    table: Any,
    given: dict[str, Any],
    out: Path,
    source: Path | None,
    *,
    force: bool,
    quiet: bool,
    why: bool = False,
) -> None:
    from safeimpute.estimator import SafeImputer
    from safeimpute.files import finished_folder, require_new
    from safeimpute.report.console import print_columns, print_summary
    from safeimpute.report.figures import draw_figures
    from safeimpute.report.html import write_report
    from safeimpute.report.run_folder import showed_other_levels, write_run

    require_new(out, force=force)
    imputer = SafeImputer(**given)
    with shown_progress(quiet) as progress:
        imputer.fit(table, progress=progress)
    if not quiet:
        print_columns(imputer.visits_)
    looked_before = showed_other_levels(out, imputer)
    imputations = imputer.impute(table)
    with finished_folder(out, force=force) as folder:
        summary = write_run(folder, imputer, imputations, source, looked_before=looked_before)
        if why:
            imputer.explain(table).write_parquet(folder / "why.parquet")
        draw_figures(folder)
        write_report(folder)
    if not quiet:
        print_summary(summary, out)
