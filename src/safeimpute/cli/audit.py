"""`safeimpute audit`: does the promise hold on this data? Checked by hiding known values again and again."""

from pathlib import Path
from typing import Annotated, Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import COLUMNS, MACHINE, PROMISE, flags_of, levels_flag
from safeimpute.cli.progress import shown_progress

CHECKED = "0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4"  # levels


@opt.takes(
    flags_of("target", "tolerance"),
    levels_flag(CHECKED),
    flags_of(*PROMISE, *COLUMNS, *MACHINE),
    opt.RENAME,
    opt.MEMORY,
)
def audit(
    context: typer.Context,
    visits: opt.Visits,
    splits: opt.Splits = 5,
    test_fraction: opt.TestFraction = 0.2,
    split: opt.SplitBy = "visits",
    repartitions: Annotated[int, typer.Option(min=1, help="Calibration/test draws per fit.")] = 100,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for audit.json and figures.")
    ] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Repeat splits of your own data and compare the achieved share of bad releases with the level asked for."""
    from safeimpute.evaluation.audit import audit as run_audit
    from safeimpute.evaluation.evaluate import score_splits
    from safeimpute.evaluation.subgroups import group_masks
    from safeimpute.report.audit_figure import draw_audit
    from safeimpute.report.run_folder import save_json, write_json
    from safeimpute.runtime.files import finished_folder

    levels = opt.levels_of(context)
    settings, table = opt.prepare(context, levels)
    with shown_progress(quiet) as progress:
        by = opt.split_name(split)
        results = score_splits(table, settings, splits, test_fraction, by=by, progress=progress)
        progress("redrawing calibration and test", 0.0)
        found = run_audit(results, settings.allowed_error, levels, group_masks(table), repartitions)
    report = {
        "target": settings.target,
        "tolerance": settings.tolerance,
        "splits": splits,
        "split": split,
        "preset": settings.preset,
        "claim": settings.claim,
        "promise": settings.promise,
        **found,
    }
    if json_file is not None:
        save_json(report, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            write_json(report, folder / "audit.json")
            draw_audit(report, folder)
    if not quiet:
        _print(report)


def _print(report: dict[str, Any]) -> None:
    from safeimpute.report.evaluation_folder import show_mean_se

    typer.echo(
        f"\nAchieved share of bad values among the released, {report['splits']} splits by {report['split']}"
    )
    typer.echo(f"  {'level':<8}{'achieved':<20}{'power':<20}within level + 3 SE")
    for row in report["levels"]:
        cells = f"{show_mean_se(row['fdp']):<20}{show_mean_se(row['power']):<20}"
        typer.echo(f"  {row['fdr']:<8g}{cells}{'yes' if row['holds'] else 'NO'}")
    middle = report["groups"][len(report["groups"]) // 2]
    typer.echo(f"\nBy group at level {middle['fdr']:g}. {report['note']}")
    for row in middle["rows"]:
        shown = show_mean_se(row["fdp"]) if row["fdp"] else "too few released"
        typer.echo(f"  {row['group']:<34}  {shown}")
