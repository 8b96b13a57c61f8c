"""`safeimpute ablate`: the paper's two ablation tables on any data."""

from typing import Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import COLUMNS, LEVELS, MACHINE, flags_of
from safeimpute.cli.progress import shown_progress


@opt.takes(flags_of(*LEVELS, *COLUMNS, *MACHINE), opt.RENAME, opt.MEMORY)
def ablate(
    context: typer.Context,
    visits: opt.Visits,
    splits: opt.Splits = 5,
    test_fraction: opt.TestFraction = 0.2,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Take the paper's system apart: what each part of the network and of the risk contributes."""
    from safeimpute.evaluation.ablate import ablate as run_ablations
    from safeimpute.report.run_folder import save_json

    settings, table = opt.prepare(context, (context.params["fdr"],), preset="paper", claim="visits")
    with shown_progress(quiet) as progress:
        result = run_ablations(table, settings, splits, test_fraction, progress)
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
