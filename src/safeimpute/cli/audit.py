"""`safeimpute audit`: does the promise hold on this data? Checked by hiding known values again and again."""

from pathlib import Path
from typing import Annotated

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import COLUMNS, MACHINE, PROMISE, SEVERAL, flags_of, levels_flag
from safeimpute.cli.progress import shown_progress

REDRAWN = 100  # draws per fit, where calibration and test may be exchanged
CHECKED = "0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4"  # levels


@opt.takes(
    flags_of("target", "tolerance"),
    levels_flag(CHECKED),
    flags_of(*PROMISE, *SEVERAL, *COLUMNS, *MACHINE),
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
        typer.Option(min=1, help="Calibration/test draws per fit (default: 100 with claim visits, else 1)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for audit.json and figures.")
    ] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Repeat splits of your own data and compare the achieved share of bad releases with the level asked for."""
    levels = opt.levels_of(context)
    whole, asked = opt.prepare_labs(context, levels)

    from safeimpute.cli.console import print_audit
    from safeimpute.cli.labs import print_audits
    from safeimpute.evaluation.audit import audit as run_audit
    from safeimpute.evaluation.several import audited_together, trials_of_labs
    from safeimpute.evaluation.subgroups import group_masks
    from safeimpute.evaluation.trials import Trial, run_trials
    from safeimpute.records.units import decision_limits, plausible_range, target_unit
    from safeimpute.report.audit_figure import draw_audit
    from safeimpute.report.run_folder import save_json, write_json
    from safeimpute.runtime.devices import resolve_device
    from safeimpute.runtime.files import finished_folder

    draws = repartitions or (REDRAWN if whole.claim == "visits" else 1)
    with shown_progress(quiet) as progress:

        def trials_of(lab: str) -> list[Trial]:
            settings, table = asked[lab]
            return run_trials(
                table.arrays,
                settings,
                splits,
                test_fraction,
                split,
                plausible=plausible_range(lab, target_unit(settings)),
                device=resolve_device(settings.device),
                progress=progress
                if len(asked) == 1
                else lambda part, share: progress(f"{lab}: {part}", share),
                limits=decision_limits(lab, target_unit(settings)),
            )

        rows = len(next(iter(asked.values()))[1])
        trials = trials_of_labs(trials_of, tuple(asked), levels, rows)
        progress("releasing at every level", 0.0)
        found = {
            lab: run_audit(trials[lab], settings.allowed_error, levels, group_masks(table), draws)
            for lab, (settings, table) in asked.items()
        }
    said = {
        "splits": splits,
        "split": split,
        "preset": whole.preset,
        "claim": whole.claim,
        "promise": whole.promise,
    }
    labs = {
        lab: {"target": lab, "tolerance": settings.tolerance, **said, **found[lab]}
        for lab, (settings, _) in asked.items()
    }
    alone = next(iter(labs)) if len(labs) == 1 else None
    together = {} if alone else {"levels": [audited_together(trials, alpha, draws) for alpha in levels]}
    several = {"target": whole.target, "tolerance": whole.tolerance, "over": whole.over, **said, **together}
    report = labs[alone] if alone else {**several, "labs": labs}
    if json_file is not None:
        save_json(report, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            write_json(report, folder / "audit.json")
            if alone:
                draw_audit(found[alone], folder)
    if not quiet and alone:
        print_audit(report)
    elif not quiet:
        print_audits(report)
