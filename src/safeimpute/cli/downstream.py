"""`safeimpute downstream`: what released, filled-in and drawn values do to a mean, a regression, a prediction."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import COLUMNS, MACHINE, PROMISE, flags_of
from safeimpute.cli.progress import shown_progress

if TYPE_CHECKING:
    from safeimpute.evaluation.downstream import Plan
    from safeimpute.records.visits import Visits

Draws = Annotated[int, typer.Option(min=2, max=1000, help="Draws of every missing value.")]


@opt.takes(
    flags_of("target", "tolerance", "fdr"), flags_of(*PROMISE, *COLUMNS, *MACHINE), opt.READING, opt.MEMORY
)
def downstream(
    context: typer.Context,
    visits: opt.Visits,
    limits: Annotated[
        str,
        typer.Option(
            help="Limits of the target: 6.5,8. [default: the catalogue's decision limits, else the 80th percentile]"
        ),
    ] = "",
    covariate: Annotated[
        str, typer.Option(help="Lab or attribute the target is regressed on. [default: the first attribute]")
    ] = "",
    outcome: Annotated[
        str, typer.Option(help="Column with 0 or 1 that is predicted from the target; never an input.")
    ] = "",
    truth: Annotated[
        Path | None,
        typer.Option(help="Table with the true target of unmeasured visits; nothing is hidden then."),
    ] = None,
    hide: Annotated[
        Literal["random", "covariates"], typer.Option(help="How known values are hidden.")
    ] = "random",
    test_fraction: Annotated[float, typer.Option(help="Share of known values hidden.")] = 0.3,
    splits: opt.Splits = 3,
    draws: Draws = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for result, table and figure.")
    ] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compare ways to go on with missing values: what each does to a mean, a share, a regression, a prediction."""
    from safeimpute.cli.fit_flags import told

    left_out = told(context).get("exclude") or ""
    changes = {"exclude": (*opt.names(left_out), outcome)} if outcome else {}
    settings, table = opt.prepare(context, [told(context).get("fdr")], **changes)

    from safeimpute.cli.console import print_downstream
    from safeimpute.evaluation.downstream import run_downstream
    from safeimpute.evaluation.truth import align_truth
    from safeimpute.records.tables import read_visits
    from safeimpute.records.units import plausible_range, target_unit
    from safeimpute.report.downstream_folder import write_downstream
    from safeimpute.report.run_folder import save_json
    from safeimpute.runtime.devices import resolve_device
    from safeimpute.runtime.files import finished_folder

    unit = target_unit(settings)
    known = align_truth(table, read_visits(truth), settings) if truth else None
    plan = _plan(context, table, settings.target, unit)
    with shown_progress(quiet) as progress:
        result = run_downstream(
            table.arrays,
            settings,
            plan,
            known,
            plausible_range(settings.target, unit),
            resolve_device(settings.device),
            progress,
        )
    if json_file is not None:
        save_json(result, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            write_downstream(folder, result, settings.target, unit)
    if not quiet:
        print_downstream(result, unit)


def _plan(context: typer.Context, table: "Visits", target: str, unit: str | None) -> "Plan":
    """What is computed; every column named is there and fit for it."""
    import numpy as np

    from safeimpute.evaluation.downstream import Plan
    from safeimpute.evaluation.downstream_columns import outcome_of, regressor_of
    from safeimpute.records.units import decision_limits

    given = context.params
    limits = opt.numbers(given["limits"], "--limits") or decision_limits(target, unit)
    if not limits:
        limits = (float(f"{np.nanquantile(table.arrays.target_values, 0.8):.3g}"),)
    name, regressor = regressor_of(table.arrays, given["covariate"], target)
    outcome = None
    if given["outcome"]:
        frame = opt.read_table(context, given["visits"], given["time"] or "time")
        outcome = outcome_of(frame, given["outcome"], table.row_visit, len(table))
    return Plan(
        limits=limits,
        regressor=regressor,
        regressor_name=name,
        outcome=outcome,
        outcome_name=given["outcome"],
        hide_by=given["hide"],
        hide=given["test_fraction"],
        splits=1 if given["truth"] else given["splits"],
        draws=given["draws"],
    )
