"""`safeimpute evaluate`: hide known values, impute, release, score."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import COLUMNS, MACHINE, PROMISE, flags_of, levels_flag
from safeimpute.cli.progress import shown_progress


@opt.takes(
    flags_of("target", "tolerance"),
    levels_flag(),
    flags_of(*PROMISE, *COLUMNS, *MACHINE),
    opt.READING,
    opt.MEMORY,
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
    settings, table = opt.prepare(context, levels)

    from safeimpute.cli.console import print_evaluation
    from safeimpute.evaluation.curves import ALPHAS
    from safeimpute.evaluation.evaluate import summarise
    from safeimpute.evaluation.trials import run_trials
    from safeimpute.evaluation.truth import align_truth
    from safeimpute.records.tables import read_visits
    from safeimpute.records.units import decision_limits, plausible_range, target_unit
    from safeimpute.report.evaluation_folder import write_evaluation
    from safeimpute.report.run_folder import save_json
    from safeimpute.runtime.devices import resolve_device
    from safeimpute.runtime.files import finished_folder

    unit = target_unit(settings)
    known = align_truth(table, read_visits(truth), settings) if truth else None
    with shown_progress(quiet) as progress:
        trials = run_trials(
            table.arrays,
            settings,
            splits,
            test_fraction,
            split,
            truth=known,
            plausible=plausible_range(settings.target, unit),
            device=resolve_device(settings.device),
            progress=progress,
            limits=decision_limits(settings.target, unit),
            alone=True,
        )
    summary = {
        "preset": settings.preset,
        "target": settings.target,
        "tolerance": settings.tolerance,
        "splits": splits,
        "split": split,
        "claim": settings.claim,
        "promise": settings.promise,
        "confidence": settings.confidence,
        "past_only": settings.past_only,
        "n_visits": len(table),
        "n_patients": table.patients,
        **summarise(trials, settings.allowed_error, levels, repartitions),
    }
    if json_file is not None:
        save_json(summary, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            asked = curves[0], curves[1] or ALPHAS
            write_evaluation(folder, summary, trials, settings, table, *asked, risk_groups)
    if not quiet:
        print_evaluation(summary, unit)
