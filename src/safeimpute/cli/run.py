"""`safeimpute run`, `demo` and `rerun`: the main job, on one's own table, on the bundled one, or once more."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.progress import shown_progress

DEMO_OUT = Path("out/demo")  # the demo's own place, which it writes anew each time
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")]
ClaimName = Annotated[
    str,
    typer.Option(
        help="What is promised: visits, patients, unmeasured, or patients,unmeasured (as measured as the "
        "calibration visits, or for visits where nobody measured)."
    ),
]


@opt.takes(opt.COLUMNS, opt.FITTING)
def run(
    context: typer.Context,
    visits: opt.Visits,
    target: opt.Target,
    tolerance: opt.ToleranceText,
    fdr: opt.Fdr,
    preset: opt.Preset = "best",
    claim: ClaimName = "unmeasured",
    out: Out = Path("out/run"),
    columns: opt.Rename = "",
    past_only: opt.PastOnly = False,
    why: Annotated[
        bool, typer.Option("--why", help="Also write why.parquet: the visits that carried each imputation.")
    ] = False,
    gamma: Annotated[
        str,
        typer.Option(help="Sensitivity: factors by which an unseen reason may change the odds of measuring."),
    ] = "1,1.25,1.5,2,3",
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Impute a lab in your visits and release what can be promised."""
    from safeimpute.errors import OptionError
    from safeimpute.records.tables import read_visits

    if why and preset == "paper":
        raise OptionError("--why needs the preset 'best': 'paper' cannot say which visits carried a value.")
    told = opt.given(context, fdr=fdr, claim=claim, gammas=opt.numbers(gamma, "--gamma"))
    renamed = opt.renames(columns)
    table = read_visits(visits, renamed)
    carry_out(table, told, out, visits, renamed, force=force, quiet=quiet, why=why)


@opt.takes(opt.FITTING)
def demo(
    context: typer.Context,
    out: Out = DEMO_OUT,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Impute cholesterol in the bundled Mayo Clinic PBC visits at tolerance 20 % and FDR 20 %."""
    from safeimpute.records.bundled import load_pbc

    if not quiet:
        typer.echo(
            "Mayo Clinic trial in primary biliary cirrhosis: which missing cholesterol values can be trusted?"
        )
    given = {"target": "cholesterol", "tolerance": "20%", "fdr": 0.2, "unit": "mg/dL"}
    given |= {"random_state": seed, "device": device, **(context.obj or {})}
    carry_out(load_pbc(), given, out, None, {}, force=force or out == DEMO_OUT, quiet=quiet, why=True)


def rerun(
    run_dir: Annotated[Path, typer.Argument(help="Folder of a finished run or demo.", show_default=False)],
    tolerance: opt.ToleranceText,
    fdr: opt.Fdr,
    out: Out,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu or cuda (default: as the run was told).")
    ] = None,
    memory: opt.Memory = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Repeat a finished run at other levels; the result is labelled as chosen after looking."""
    from safeimpute.report.earlier_run import read_earlier_run

    earlier = read_earlier_run(run_dir)
    opt.refuse_unplanned_memory(earlier.config["preset"], memory)
    given = earlier.config | {"tolerance": tolerance, "fdr": fdr}
    given |= {"device": device} if device else {}
    why = (run_dir / "why.parquet").is_file()
    carry_out(
        earlier.visits(),
        given,
        out,
        earlier.path,
        earlier.columns,
        run_dir,
        force=force,
        quiet=quiet,
        why=why,
    )


def carry_out(
    table: Any,
    given: dict[str, Any],
    out: Path,
    source: Path | None,
    columns: Mapping[str, str],
    earlier: Path | None = None,
    *,
    force: bool,
    quiet: bool,
    why: bool = False,
) -> None:
    """Fit, release, and write the run's folder; `earlier` is a run on the same visits that was looked at."""
    from safeimpute.cli.console import print_columns, print_summary
    from safeimpute.estimator import SafeImputer
    from safeimpute.report.figures import draw_figures
    from safeimpute.report.html import write_report
    from safeimpute.report.review_folder import write_review
    from safeimpute.report.run_folder import showed_other_levels, write_run
    from safeimpute.runtime.files import finished_folder, require_new_folder

    require_new_folder(out, force=force)
    imputer = SafeImputer(**given)
    with shown_progress(quiet) as progress:
        imputer.fit(table, progress=progress)
    if not quiet:
        print_columns(imputer.visits_)
    looked_before = any(showed_other_levels(seen, imputer, source) for seen in (out, earlier or out))
    imputations = imputer.impute(table)
    with finished_folder(out, force=force) as folder:
        summary = write_run(folder, imputer, imputations, source, columns, looked_before=looked_before)
        write_review(folder, imputer)
        if why:
            imputer.explain(table).write_parquet(folder / "why.parquet")
        draw_figures(folder)
        write_report(folder)
    if not quiet:
        print_summary(summary, out)
