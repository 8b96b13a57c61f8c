"""`safeimpute ablate`: the paper's two ablation tables on any data."""

from typing import Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.evaluate import JsonFile, Splits, TestFraction
from safeimpute.cli.progress import shown_progress


def ablate(
    context: typer.Context,
    visits: opt.Visits,
    target: opt.Target,
    tolerance: opt.ToleranceText,
    fdr: opt.Fdr,
    splits: Splits = 5,
    test_fraction: TestFraction = 0.2,
    json_file: JsonFile = None,
    labs: opt.Labs = "",
    attributes: opt.Attributes = "",
    exclude: opt.Exclude = "",
    columns: opt.Rename = "",
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,  # noqa: ARG001
    config: opt.ConfigFile = None,  # noqa: ARG001
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Take the paper's system apart: what each part of the network and of the risk contributes."""
    from safeimpute.config import make_config
    from safeimpute.evaluation.ablate import ablate as run_ablations
    from safeimpute.files import require_new
    from safeimpute.records.tables import read_visits
    from safeimpute.records.visits import prepare_visits
    from safeimpute.report.run_folder import save_json

    if json_file is not None:
        require_new(json_file, force=force)
    settings = make_config(
        target=target,
        tolerance=tolerance,
        fdr=fdr,
        preset="paper",
        claim="visits",
        labs=opt.names(labs),
        attributes=opt.names(attributes),
        exclude=opt.names(exclude),
        random_state=seed,
        device=device,
        **opt.preset_tables(context),
    )
    prepared = prepare_visits(read_visits(visits, opt.renames(columns)), settings.columns)
    with shown_progress(quiet) as progress:
        result = run_ablations(prepared, settings, splits, test_fraction, progress)
    if json_file is not None:
        save_json(result, json_file)
    if not quiet:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    from safeimpute.report.evaluation_folder import show_mean_se

    typer.echo(f"\nImputer, without fallback edges ({result['splits']} splits)")
    typer.echo(f"  {'':<22}{'MAE':<20}RMSE")
    for name, row in result["imputer"].items():
        typer.echo(f"  {name:<22}{show_mean_se(row['mae']):<20}{show_mean_se(row['rmse'])}")
    typer.echo(f"\nRisk, release at FDR level {result['fdr']:g}")
    typer.echo(f"  {'':<22}{'FDP':<20}{'power':<20}MAE released")
    for name, row in result["risk"].items():
        cells = [show_mean_se(row[column]) for column in ("fdp", "power", "mae")]
        typer.echo(f"  {name:<22}{cells[0]:<20}{cells[1]:<20}{cells[2]}")
