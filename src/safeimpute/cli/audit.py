"""`safeimpute audit`: does the promise hold on this data? Checked by hiding known values again and again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import COLUMNS, MACHINE, PROMISE, flags_of, levels_flag
from safeimpute.cli.progress import shown_progress

if TYPE_CHECKING:
    from safeimpute.evaluation.audit import AuditReport

CHECKED = "0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4"  # levels


@opt.takes(
    flags_of("target", "tolerance"),
    levels_flag(CHECKED),
    flags_of(*PROMISE, *COLUMNS, *MACHINE),
    opt.READING,
    opt.MEMORY,
)
def audit(
    context: typer.Context,
    visits: opt.Visits,
    splits: opt.Splits = 5,
    test_fraction: opt.TestFraction = 0.2,
    split: opt.SplitBy = "visits",
    repartitions: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Calibration/test draws per fit (default: {opt.REDRAWN} with claim visits, else 1)."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for audit.json and figures.")
    ] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Repeat splits of your own data; compare the achieved share of unacceptable releases with the level asked for."""
    from safeimpute.cli.console import print_audit
    from safeimpute.report.audit_figure import draw_audit
    from safeimpute.report.run_folder import save_json, write_json
    from safeimpute.runtime.files import finished_folder

    report = _audited(context)
    if json_file is not None:
        save_json(report, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            write_json(report, folder / "audit.json")
            draw_audit(report, folder)
    if not quiet:
        print_audit(report)


def _audited(context: typer.Context) -> "AuditReport":
    levels = opt.levels_of(context)
    settings, table = opt.prepare(context, levels)

    from safeimpute.evaluation.audit import audit as run_audit
    from safeimpute.evaluation.subgroups import group_masks
    from safeimpute.evaluation.trials import run_trials
    from safeimpute.records.units import unit_of
    from safeimpute.runtime.devices import resolve_device

    asked, unit = context.params, unit_of(settings)
    with shown_progress(asked["quiet"]) as progress:
        trials = run_trials(
            table.arrays,
            settings,
            asked["splits"],
            asked["test_fraction"],
            asked["split"],
            plausible=unit.plausible,
            device=resolve_device(settings.device),
            progress=progress,
            limits=unit.decision_limits,
        )
        progress("releasing at every level", 0.0)
        draws = asked["repartitions"] or (opt.REDRAWN if settings.claim == "visits" else 1)
        found = run_audit(trials, settings.allowed_error, levels, group_masks(table), draws)
    return {
        "target": settings.target,
        "tolerance": settings.tolerance,
        "splits": asked["splits"],
        "split": asked["split"],
        "preset": settings.preset,
        "claim": settings.claim,
        "promise": settings.promise,
        **found,
    }
