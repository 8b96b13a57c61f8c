"""`safeimpute ablate`: the paper's two ablation tables on any data."""

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.console import shown_progress
from safeimpute.cli.evaluate import prepare
from safeimpute.cli.options import COLUMNS, LEVELS, MACHINE, flags_of


@opt.takes(flags_of(*LEVELS, *COLUMNS, *MACHINE), opt.READING, opt.MEMORY)
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
    settings, table = prepare(context, (context.params["fdr"],), preset="paper", claim="visits")

    from safeimpute.machine.resources import resolve_device
    from safeimpute.report.run_folder import save_json
    from safeimpute_lab.benchmark.ablate import ablate as run_ablations
    from safeimpute_lab.benchmark.ablation_tables import ablation_tables
    from safeimpute_lab.benchmark.published import SOURCE
    from safeimpute_lab.benchmark.typeset import as_text

    with shown_progress(quiet) as progress:
        device = resolve_device(settings.device)
        result = run_ablations(table.arrays, settings, splits, test_fraction, device, progress)
    if json_file is not None:
        save_json(result, json_file)
    if not quiet:
        for each in ablation_tables(result):
            typer.echo(f"\n{as_text(each)}")
        typer.echo(f"\nPublished: {SOURCE}.")
