"""`safeimpute evaluate`: hide known values, impute, release, score."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.progress import shown_progress

Splits = Annotated[int, typer.Option(min=1, help="How many random splits.")]
TestFraction = Annotated[float, typer.Option(help="Share of known values hidden as test.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]


def evaluate(
    context: typer.Context,
    visits: opt.Visits,
    target: opt.Target,
    tolerance: opt.ToleranceText,
    fdr: Annotated[str, typer.Option(help="Level, or several: 0.1,0.2,0.35.")],
    splits: Splits = 5,
    test_fraction: TestFraction = 0.2,
    split: Annotated[str, typer.Option(help="Hold out visits, or whole patients.")] = "visits",
    preset: opt.Preset = "best",
    repartitions: Annotated[
        int, typer.Option(min=1, help="Re-partition calibration and test this often per fit.")
    ] = 1,
    truth: Annotated[
        Path | None, typer.Option(help="Table with the true target of unmeasured visits; scores against it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for result, curves and figures.")
    ] = None,
    json_file: JsonFile = None,
    labs: opt.Labs = "",
    attributes: opt.Attributes = "",
    exclude: opt.Exclude = "",
    columns: opt.Rename = "",
    unit: opt.Unit = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,  # noqa: ARG001
    config: opt.ConfigFile = None,  # noqa: ARG001
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Score a preset on your own data: known values are hidden, imputed, released and compared."""
    from safeimpute.config import make_config
    from safeimpute.errors import OptionError
    from safeimpute.evaluation.evaluate import score_splits, summarise
    from safeimpute.evaluation.truth import align_truth
    from safeimpute.files import finished_folder, require_new
    from safeimpute.records.tables import read_visits
    from safeimpute.records.visits import prepare_visits
    from safeimpute.report.evaluation_folder import print_evaluation, write_evaluation
    from safeimpute.report.run_folder import save_json

    levels = opt.numbers(fdr, "--fdr")
    if not levels:
        raise OptionError("--fdr needs at least one level such as 0.1.")
    if split not in ("visits", "patients"):
        raise OptionError(f"--split {split!r} is not known: visits or patients.")
    if not 0 < test_fraction < 1:
        raise OptionError("--test-fraction must lie between 0 and 1.")
    for path in (out, json_file):
        if path is not None:
            require_new(path, force=force)
    where = ",unmeasured" if truth is not None else ""
    common = {
        "target": target,
        "tolerance": tolerance,
        "preset": preset,
        "claim": split + where,
        "labs": opt.names(labs),
        "attributes": opt.names(attributes),
        "exclude": opt.names(exclude),
        "unit": unit,
        "random_state": seed,
        "device": device,
        **opt.preset_tables(context),
    }
    settings, *_ = [make_config(fdr=level, **common) for level in levels]
    visits_table = prepare_visits(read_visits(visits, opt.renames(columns)), settings.columns)
    known = align_truth(visits_table, read_visits(truth), settings) if truth else None
    with shown_progress(quiet) as progress:
        results = score_splits(
            visits_table.arrays,
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
        "tolerance": tolerance,
        "splits": splits,
        "split": split,
        "claim": settings.claim,
        "n_visits": len(visits_table),
        "n_patients": visits_table.patients,
        **summarise(results, settings.allowed_error, levels, repartitions),
    }
    if json_file is not None:
        save_json(summary, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            write_evaluation(folder, summary, results, settings, visits_table)
    if not quiet:
        print_evaluation(summary, settings.unit_known)
