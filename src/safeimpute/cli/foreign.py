"""`safeimpute hide` and `release`: selection for values that another tool filled in."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.console import promise_lines
from safeimpute.cli.options import COLUMNS, flag_with, flags_of, told
from safeimpute.errors import OptionError


@opt.takes(flags_of("target", *COLUMNS, "random_state"), opt.READING)
def hide(
    context: typer.Context,
    visits: opt.Visits,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the table to be filled in.")],
    validation: Annotated[float, typer.Option(help="Share of the values the risk is learnt from.")] = 0.15,
    calibration: Annotated[float, typer.Option(help="Share of the values that decide the release.")] = 0.15,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Hide some measured values, so that what another tool fills in can be judged and released."""
    from safeimpute.foreign.hidden import TABLE
    from safeimpute.foreign.hidden import hide as hide_values
    from safeimpute.learning.roles import Role
    from safeimpute.machine.files import reserved

    given = told(context)
    if "target" not in given:
        raise OptionError("--target is needed: the lab to be imputed.")
    context.with_resource(reserved(out, force=force, inputs=(visits,)))
    table = opt.read_table(context, visits, given)
    hidden = hide_values(table, validation=validation, calibration=calibration, **given)
    hidden.save(out, force=force)
    if quiet:
        return
    counts = {role: int((hidden.roles == role).sum()) for role in Role}
    deciding = counts[Role.CALIBRATION]
    typer.echo(f"{given['target']} measured at {len(hidden.roles) - counts[Role.UNMEASURED]:,} visits")
    typer.echo(f"  left visible {counts[Role.TRAINING]:>7,}")
    typer.echo(f"  hidden       {counts[Role.VALIDATION]:>7,}  to learn the risk from")
    typer.echo(f"  hidden       {deciding:>7,}  to decide the release; no level below {1 / (deciding + 1):.2g}")
    typer.echo(f"  never measured {counts[Role.UNMEASURED]:>5,}")
    typer.echo(f"\nLet your tool fill in {out / TABLE}.csv (or .parquet), every empty {given['target']}; then")
    typer.echo(f"safeimpute release {out} FILLED.csv --tolerance … --fdr …")


@opt.takes(
    flags_of("tolerance", "limits", "cost", "fdr"),
    flag_with("claim", "visits"),
    flags_of("promise", "confidence", "groups", "risk_cap", "interval"),
)
def release(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder that hide wrote.", show_default=False)],
    imputed: Annotated[
        Path, typer.Argument(help="hide's table, filled in by another tool: .csv or .parquet.", show_default=False)
    ],
    risk: Annotated[
        str | None, typer.Option(help="Column of the filled-in table that ranks its values by risk.")
    ] = None,
    signals: Annotated[
        str, typer.Option(help="Columns of it that the learnt risk may look at, such as the spread of draws.")
    ] = "",
    quiet: opt.Quiet = False,
) -> None:
    """Release what can be promised of the values another tool filled in; once per folder."""
    from safeimpute.foreign.hidden import Hidden
    from safeimpute.foreign.release import FOLDER
    from safeimpute.foreign.release import release as release_values
    from safeimpute.visits.tables import read_visits

    given = {"tolerance": None, "fdr": None, **told(context)}
    subject = Hidden.load(folder).facts.choice.subject
    result = release_values(
        folder, read_visits(imputed, subject=subject), risk=risk, signals=opt.names(signals), **given
    )
    if quiet:
        return
    said = result.summary()
    unit = f" {result.settings.unit}" if result.settings.unit else ""
    typer.echo(f"{said['target']} missing at {said['missing']:,} visits")
    typer.echo(f"  released  {said['released']:>7,}  ({said['released'] / max(said['missing'], 1):.0%})")
    for reason, count in said["withheld_by_reason"].items():
        typer.echo(f"  withheld  {count:>7,}  {reason}")
    typer.echo("\n" + "\n".join(promise_lines(**said)))
    if said["bound"]:
        typer.echo(f"Bound: {said['bound']}")
    typer.echo(f"\nRisk: {said['risk']}")
    typer.echo(
        f"Mean absolute error of the tool at {said['validation_visits']:,} hidden visits: "
        f"{said['validation_mae']:.3g}{unit}"
    )
    typer.echo(f"Written: {folder / FOLDER}")
