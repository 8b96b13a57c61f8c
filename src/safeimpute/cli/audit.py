"""`safeimpute audit`: does the promise hold on this data? Checked by hiding known values again and again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import COLUMNS, MACHINE, PROMISE, SEVERAL, flags_of, levels_flag
from safeimpute.cli.progress import shown_progress

if TYPE_CHECKING:
    from safeimpute.evaluation.audit import AuditReport
    from safeimpute.evaluation.several import LabsAudit

CHECKED = "0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4"  # levels


@opt.takes(
    flags_of("target", "tolerance"),
    levels_flag(CHECKED),
    flags_of(*PROMISE, *SEVERAL, *COLUMNS, *MACHINE),
    opt.READING,
    opt.MEMORY,
    opt.QUICK,
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
    from safeimpute.cli.labs import print_audits
    from safeimpute.report.audit_figure import draw_audit
    from safeimpute.report.run_folder import save_json, write_json
    from safeimpute.runtime.files import finished_folder

    labs, together = _audited(context)
    alone = next(iter(labs.values()))
    report = together or alone
    if json_file is not None:
        save_json(report, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            write_json(report, folder / "audit.json")
            if together is None:
                draw_audit(alone, folder)
    if quiet:
        return
    if together is None:
        print_audit(alone)
    else:
        print_audits(together)


def _audited(context: typer.Context) -> "tuple[dict[str, AuditReport], LabsAudit | None]":
    """Every lab's audit and, of several, theirs together."""
    levels = opt.levels_of(context)
    whole, asked = opt.prepare_labs(context, levels)

    from safeimpute.evaluation.audit import audit as run_audit
    from safeimpute.evaluation.several import audited_together, trials_of_labs
    from safeimpute.evaluation.subgroups import group_masks
    from safeimpute.runtime.progress import part_of

    told = context.params
    draws = told["repartitions"] or (opt.REDRAWN if whole.claim == "visits" else 1)
    with shown_progress(told["quiet"]) as progress:
        rows = len(next(iter(asked.values()))[1])
        fits = part_of(progress, 0.0, 0.95)
        trials = trials_of_labs(opt.trials_by_lab(context, asked, fits), tuple(asked), levels, rows)
        progress("releasing at every level", 0.95)
        labs: dict[str, AuditReport] = {
            lab: {
                "target": lab,
                "tolerance": settings.tolerance,
                "splits": told["splits"],
                "split": told["split"],
                "preset": settings.preset,
                "claim": settings.claim,
                "promise": settings.promise,
                "effort": settings.best.effort_in_words if settings.preset == "best" else "",
                **run_audit(trials[lab], settings.allowed_error, levels, group_masks(table), draws),
            }
            for lab, (settings, table) in asked.items()
        }
        together = audited_together(whole, labs, trials, levels, draws) if len(labs) > 1 else None
    return labs, together
