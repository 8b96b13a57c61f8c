"""`safeimpute evaluate`, `audit` and `downstream`: what is achieved on one's own data, known values hidden."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.console import (
    print_audit,
    print_audits,
    print_downstream,
    print_evaluation,
    print_evaluations,
    shown_progress,
)
from safeimpute.cli.options import (
    COLUMNS,
    MACHINE,
    PROMISE,
    SEVERAL,
    flags_of,
    given,
    levels_flag,
    numbers,
    read_table,
    told,
)
from safeimpute.errors import OptionError
from safeimpute.machine.progress import Progress, SideBySide, part_of
from safeimpute.settings import Settings, make_settings

if TYPE_CHECKING:
    from safeimpute.evaluation.audit import AuditReport, LabsAudit
    from safeimpute.evaluation.downstream import Plan
    from safeimpute.evaluation.evaluate import LabEvaluation
    from safeimpute.evaluation.trials import Trial
    from safeimpute.visits.visits import Visits
    from safeimpute.visits.visits import Visits as VisitsTable

REDRAWN = 100  # draws of calibration and test per fit, where the two may be exchanged
JUDGED = {**flags_of(*PROMISE, *SEVERAL, *COLUMNS, *MACHINE), **opt.READING, **opt.MEMORY, **opt.QUICK}
CHECKED = "0.05,0.1,0.15,0.2,0.25,0.3,0.35,0.4"  # levels
Draws = Annotated[int, typer.Option(min=2, max=1000, help="Draws of every missing value.")]


@opt.takes(flags_of("target", "tolerance", "limits", "cost"), levels_flag(), JUDGED)
def evaluate(
    context: typer.Context,
    visits: opt.Visits,
    splits: opt.Splits = 5,
    test_fraction: opt.TestFraction = 0.2,
    split: opt.SplitBy = "visits",
    repartitions: Annotated[int, typer.Option(min=1, help="Re-partition calibration and test this often per fit.")] = 1,
    truth: Annotated[
        Path | None, typer.Option(help="Table with the true target of unmeasured visits; scores against it.")
    ] = None,
    curve_tolerances: Annotated[
        str, typer.Option(help="Tolerances of the FDR-power curves, such as 0.5,0.6 (default: around yours).")
    ] = "",
    curve_levels: Annotated[
        str, typer.Option(help="Levels of the curves, such as 0.1,0.2 (default: 0.05 to 0.5).")
    ] = "",
    risk_groups: Annotated[int, typer.Option(min=2, max=100, help="Groups by risk in which errors are compared.")] = 10,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for result, curves and figures.")] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Score a preset on your own data: known values are hidden, imputed, released and compared."""
    levels = levels_of(context)
    curves = opt.tolerances(curve_tolerances), opt.shares(curve_levels, "--curve-levels")
    whole, asked = prepare_labs(context, levels)

    from safeimpute.evaluation.evaluate import evaluation_terms, of_all_labs, summarise
    from safeimpute.evaluation.trials import trials_of_labs
    from safeimpute.machine.files import finished_folder
    from safeimpute.report.evaluation_folder import write_evaluation, write_evaluations
    from safeimpute.report.run_folder import save_json
    from safeimpute.visits.units import target_unit

    with shown_progress(quiet) as progress:
        rows = len(next(iter(asked.values()))[1])
        trials = trials_of_labs(trials_by_lab(context, asked, progress, alone=True), tuple(asked), levels, rows)
    labs: dict[str, LabEvaluation] = {
        lab: {
            **evaluation_terms(settings, splits, split),
            "confidence": settings.confidence,
            "past_only": settings.past_only,
            "effort": settings.best.effort_in_words if settings.preset == "best" else "",
            "n_visits": len(table),
            "n_patients": table.patients,
            **summarise(trials[lab], settings.allowed_error, levels, repartitions),
        }
        for lab, (settings, table) in asked.items()
    }
    first, own = next(iter(labs.items()))
    together = of_all_labs(whole, labs, trials, levels, repartitions) if len(labs) > 1 else None
    if json_file is not None:
        save_json(together or own, json_file)
    if out is not None:
        with finished_folder(out, force=force) as folder:
            if together is None:
                write_evaluation(folder, own, trials[first], *asked[first], *curves, risk_groups)
            else:
                write_evaluations(folder, together, trials, asked, *curves, risk_groups)
    if quiet:
        return
    if together is None:
        print_evaluation(own, target_unit(asked[first][0]))
    else:
        print_evaluations(together)


def levels_of(context: typer.Context) -> tuple[float, ...]:
    """The levels a command was given, where it takes several."""
    levels = numbers(context.params["fdr"] or "", "--fdr")
    if not levels:
        raise OptionError("--fdr needs at least one level such as 0.1.")
    return levels


def prepare(context: typer.Context, levels: Sequence[Any], **changes: Any) -> "tuple[Settings, VisitsTable]":
    """The same for a command that takes one lab at a time."""
    settings, asked = prepare_labs(context, levels, **changes)
    if len(asked) > 1:
        raise OptionError(f"{context.info_name} takes one lab at a time, not {settings.target!r}. Name one: --target.")
    return next(iter(asked.values()))


def prepare_labs(
    context: typer.Context, levels: Sequence[Any], **changes: Any
) -> "tuple[Settings, dict[str, tuple[Settings, VisitsTable]]]":
    """Check every option, level and place to write to, then read and check the table; settings of the first level.

    As a whole, and of each lab with the table that has it as its target.
    """
    from safeimpute.machine.files import reserved
    from safeimpute.visits.imputations import refuse_known_values
    from safeimpute.visits.lab_settings import labs_asked, require_units_of_labs, settings_of_labs, settings_of_one
    from safeimpute.visits.units import column_choice
    from safeimpute.visits.visits import prepare_targets

    told = context.params
    settings, *_ = [make_settings(**given(context, fdr=level, **changes)) for level in levels]
    if not 0 < told["test_fraction"] < 1:
        raise OptionError("--test-fraction must lie between 0 and 1.")
    read = (told["visits"], told.get("truth"))
    for name in ("out", "json_file"):
        if told.get(name) is not None:
            place = reserved(told[name], force=told["force"], inputs=read, folder=name == "out")
            context.with_resource(place)  # taken until the command ends
    table = read_table(context, told["visits"], vars(settings))
    labs = labs_asked(settings, table)
    tables = prepare_targets(table, column_choice(settings), labs)
    each = settings_of_labs(settings, labs) if len(labs) > 1 else {labs[0]: settings_of_one(settings)}
    require_units_of_labs(each, tables[labs[0]].arrays)
    places = filter(None, (told.get("out"), told.get("json_file")))
    refuse_known_values(tables[labs[0]].arrays, told["visits"], *places)
    return settings, {lab: (each[lab], tables[lab]) for lab in labs}


def trials_by_lab(
    context: typer.Context,
    asked: "dict[str, tuple[Settings, VisitsTable]]",
    progress: "Progress",
    *,
    alone: bool = False,
) -> "Callable[[str], list[Trial]]":
    """Runs the splits of one of the labs asked for, as the command was told."""
    from safeimpute.evaluation.data_profile import align_truth
    from safeimpute.evaluation.trials import run_trials
    from safeimpute.machine.resources import resolve_device
    from safeimpute.visits.tables import read_visits
    from safeimpute.visits.units import unit_of

    told, places = context.params, list(asked)
    subject = next(iter(asked.values()))[0].subject
    truth = read_visits(told["truth"], subject=subject) if told.get("truth") else None
    together = SideBySide(progress, len(asked))

    def trials_of(lab: str) -> "list[Trial]":
        settings, table = asked[lab]
        unit = unit_of(settings)
        return run_trials(
            table.arrays,
            settings,
            told["splits"],
            told["test_fraction"],
            told["split"],
            truth=None if truth is None else align_truth(table, truth, settings),
            plausible=unit.plausible,
            device=resolve_device(settings.device),
            progress=together.job(places.index(lab), f"{lab}: " if len(asked) > 1 else ""),
            limits=unit.decision_limits,
            alone=alone,
        )

    return trials_of


@opt.takes(flags_of("target", "tolerance", "limits", "cost"), levels_flag(CHECKED), JUDGED)
def audit(
    context: typer.Context,
    visits: opt.Visits,
    splits: opt.Splits = 5,
    test_fraction: opt.TestFraction = 0.2,
    split: opt.SplitBy = "visits",
    repartitions: Annotated[
        int | None,
        typer.Option(min=1, help=f"Calibration/test draws per fit (default: {REDRAWN} with claim visits, else 1)."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for audit.json and figures.")] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Repeat splits of your own data; compare the achieved share of unacceptable releases with the level asked for."""
    from safeimpute.machine.files import finished_folder
    from safeimpute.report.evaluation_folder import draw_audit
    from safeimpute.report.run_folder import save_json, write_json

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
    levels = levels_of(context)
    whole, asked = prepare_labs(context, levels)

    from safeimpute.evaluation.audit import audit as run_audit
    from safeimpute.evaluation.audit import audited_together
    from safeimpute.evaluation.evaluate import evaluation_terms
    from safeimpute.evaluation.release_profile import group_masks
    from safeimpute.evaluation.trials import trials_of_labs

    told = context.params
    draws = told["repartitions"] or (REDRAWN if whole.claim == "visits" else 1)
    with shown_progress(told["quiet"]) as progress:
        rows = len(next(iter(asked.values()))[1])
        fits = part_of(progress, 0.0, 0.95)
        trials = trials_of_labs(trials_by_lab(context, asked, fits), tuple(asked), levels, rows)
        progress("releasing at every level", 0.95)
        labs: dict[str, AuditReport] = {
            lab: {
                **evaluation_terms(settings, told["splits"], told["split"]),
                "effort": settings.best.effort_in_words if settings.preset == "best" else "",
                **run_audit(trials[lab], settings.allowed_error, levels, group_masks(table), draws),
            }
            for lab, (settings, table) in asked.items()
        }
        together = audited_together(whole, labs, trials, levels, draws) if len(labs) > 1 else None
    return labs, together


@opt.takes(flags_of("target", "tolerance", "fdr"), flags_of(*PROMISE, *COLUMNS, *MACHINE), opt.READING, opt.MEMORY)
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
        Path | None, typer.Option(help="Table with the true target of unmeasured visits; nothing is hidden then.")
    ] = None,
    hide: Annotated[Literal["random", "covariates"], typer.Option(help="How known values are hidden.")] = "random",
    test_fraction: Annotated[float, typer.Option(help="Share of known values hidden.")] = 0.3,
    splits: opt.Splits = 3,
    draws: Draws = 20,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for result, table and figure.")] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compare ways to go on with missing values: what each does to a mean, a share, a regression, a prediction."""
    left_out = told(context).get("exclude") or ""
    changes: dict[str, Any] = {"exclude": (*opt.names(left_out), outcome)} if outcome else {}
    if "limits" not in str(told(context).get("tolerance")):
        changes["limits"] = None  # what they are here is who crosses, not what is risky
    settings, table = prepare(context, [told(context).get("fdr")], **changes)

    from safeimpute.evaluation.data_profile import align_truth
    from safeimpute.evaluation.downstream import run_downstream
    from safeimpute.machine.files import finished_folder
    from safeimpute.machine.resources import resolve_device
    from safeimpute.report.evaluation_folder import write_downstream
    from safeimpute.report.run_folder import save_json
    from safeimpute.visits.tables import read_visits
    from safeimpute.visits.units import plausible_range, target_unit

    unit = target_unit(settings)
    known = align_truth(table, read_visits(truth, subject=settings.subject), settings) if truth else None
    plan = _plan(context, table, settings, unit)
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


def _plan(context: typer.Context, table: "Visits", settings: "Settings", unit: str | None) -> "Plan":
    """What is computed; every column named is there and fit for it."""
    import numpy as np

    from safeimpute.evaluation.completions import outcome_of, regressor_of
    from safeimpute.evaluation.downstream import Plan
    from safeimpute.visits.units import decision_limits

    given, target = context.params, settings.target
    limits = opt.numbers(given["limits"], "--limits")
    limits = limits or settings.allowed_error.limits or decision_limits(target, unit)
    if not limits:
        limits = (float(f"{np.nanquantile(table.arrays.target_values, 0.8):.3g}"),)
    name, regressor = regressor_of(table.arrays, given["covariate"], target)
    outcome = None
    if given["outcome"]:
        frame = opt.read_table(context, given["visits"], told(context))
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
