"""`safeimpute evaluate`: hide known values, impute, release, score."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import COLUMNS, MACHINE, PROMISE, SEVERAL, flags_of, levels_flag
from safeimpute.cli.progress import shown_progress


@opt.takes(
    flags_of("target", "tolerance"),
    levels_flag(),
    flags_of(*PROMISE, *SEVERAL, *COLUMNS, *MACHINE),
    opt.READING,
    opt.MEMORY,
    opt.QUICK,
)
def evaluate(
    context: typer.Context,
    visits: opt.Visits,
    splits: opt.Splits = 5,
    test_fraction: opt.TestFraction = 0.2,
    split: opt.SplitBy = "visits",
    repartitions: Annotated[
        int, typer.Option(min=1, help="Re-partition calibration and test this often per fit.")
    ] = 1,
    truth: Annotated[
        Path | None, typer.Option(help="Table with the true target of unmeasured visits; scores against it.")
    ] = None,
    curve_tolerances: Annotated[
        str, typer.Option(help="Tolerances of the FDR-power curves, such as 0.5,0.6 (default: around yours).")
    ] = "",
    curve_levels: Annotated[
        str, typer.Option(help="Levels of the curves, such as 0.1,0.2 (default: 0.05 to 0.5).")
    ] = "",
    risk_groups: Annotated[
        int, typer.Option(min=2, max=100, help="Groups by risk in which errors are compared.")
    ] = 10,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for result, curves and figures.")
    ] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Score a preset on your own data: known values are hidden, imputed, released and compared."""
    levels = opt.levels_of(context)
    curves = opt.tolerances(curve_tolerances), opt.shares(curve_levels, "--curve-levels")
    whole, asked = opt.prepare_labs(context, levels)

    from safeimpute.cli.console import print_evaluation
    from safeimpute.cli.labs import print_evaluations
    from safeimpute.evaluation.curves import ALPHAS
    from safeimpute.evaluation.evaluate import summarise
    from safeimpute.evaluation.several import of_all_labs, trials_of_labs
    from safeimpute.records.units import target_unit
    from safeimpute.report.evaluation_folder import write_evaluation, write_evaluations
    from safeimpute.report.run_folder import save_json
    from safeimpute.runtime.files import finished_folder

    with shown_progress(quiet) as progress:
        rows = len(next(iter(asked.values()))[1])
        trials = trials_of_labs(
            opt.trials_by_lab(context, asked, progress, alone=True), tuple(asked), levels, rows
        )
    labs = {
        lab: {
            "preset": settings.preset,
            "target": settings.target,
            "tolerance": settings.tolerance,
            "splits": splits,
            "split": split,
            "claim": settings.claim,
            "promise": settings.promise,
            "confidence": settings.confidence,
            "past_only": settings.past_only,
            "effort": settings.best.effort_in_words if settings.preset == "best" else "",
            "n_visits": len(table),
            "n_patients": table.patients,
            **summarise(trials[lab], settings.allowed_error, levels, repartitions),
        }
        for lab, (settings, table) in asked.items()
    }
    alone = next(iter(labs)) if len(labs) == 1 else None
    summary = labs[alone] if alone else of_all_labs(whole, labs, trials, levels, repartitions)
    if json_file is not None:
        save_json(summary, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            drawn = curves[0], curves[1] or ALPHAS
            if alone:
                told, table = asked[alone]
                write_evaluation(folder, summary, trials[alone], told, table, *drawn, risk_groups)
            else:
                write_evaluations(folder, summary, trials, asked, *drawn, risk_groups)
    if not quiet and alone:
        print_evaluation(summary, target_unit(asked[alone][0]))
    elif not quiet:
        print_evaluations(summary)
