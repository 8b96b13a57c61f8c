"""`safeimpute evaluate`: hide known values, impute, release, score."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.progress import shown_progress


@opt.takes(opt.COLUMNS, opt.FITTING)
def evaluate(
    context: typer.Context,
    visits: opt.Visits,
    target: opt.Target,
    tolerance: opt.ToleranceText,
    fdr: Annotated[str, typer.Option(help="Level, or several: 0.1,0.2,0.35.")],
    splits: opt.Splits = 5,
    test_fraction: opt.TestFraction = 0.2,
    split: opt.SplitBy = "visits",
    preset: opt.Preset = "best",
    past_only: opt.PastOnly = False,
    repartitions: Annotated[
        int, typer.Option(min=1, help="Re-partition calibration and test this often per fit.")
    ] = 1,
    truth: Annotated[
        Path | None, typer.Option(help="Table with the true target of unmeasured visits; scores against it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for result, curves and figures.")
    ] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Score a preset on your own data: known values are hidden, imputed, released and compared."""
    from safeimpute.evaluation.evaluate import score_splits, summarise
    from safeimpute.evaluation.truth import align_truth
    from safeimpute.records.tables import read_visits
    from safeimpute.report.evaluation_folder import print_evaluation, write_evaluation
    from safeimpute.report.run_folder import save_json
    from safeimpute.runtime.files import finished_folder

    levels = opt.numbers(fdr, "--fdr")
    where = ",unmeasured" if truth is not None else ""
    settings, table = opt.prepare(context, levels, opt.split_name(split) + where)
    known = align_truth(table, read_visits(truth), settings) if truth else None
    with shown_progress(quiet) as progress:
        results = score_splits(
            table.arrays,
            settings.plan(),
            settings.promise,
            splits,
            test_fraction,
            known,
            settings.plausible_range,
            progress,
        )
    summary = {
        "preset": preset,
        "target": target,
        "tolerance": settings.tolerance,
        "splits": splits,
        "split": split,
        "claim": settings.claim,
        "past_only": past_only,
        "n_visits": len(table),
        "n_patients": table.patients,
        **summarise(results, settings.allowed_error, levels, repartitions),
    }
    if json_file is not None:
        save_json(summary, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            write_evaluation(folder, summary, results, settings, table)
    if not quiet:
        print_evaluation(summary, settings.unit_known)
