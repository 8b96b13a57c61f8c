"""`safeimpute reproduce`: every table and figure of the paper on a user's own visits, in one folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.console import shown_progress
from safeimpute.cli.evaluate import prepare
from safeimpute.cli.options import COLUMNS, MACHINE, flag_with, flags_of
from safeimpute_lab.commands.benchmark import refuse_too_few, shown_cells

if TYPE_CHECKING:
    from safeimpute.settings import Settings
    from safeimpute_lab.benchmark.cells import Study
    from safeimpute_lab.benchmark.protocols import Protocol


@opt.takes(
    flags_of("target"),
    flag_with("tolerance", "the paper's, for HbA1c"),
    flag_with("fdr", "the paper's"),
    flags_of(*COLUMNS, *MACHINE),
    opt.READING,
)
def reproduce(
    context: typer.Context,
    visits: opt.Visits,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder for all of it.")],
    protocol: Annotated[
        str, typer.Option(metavar="mayo|mimic", help="Which of the paper's settings: share held out, tolerance, level.")
    ] = "mayo",
    methods: Annotated[
        str, typer.Option(help="all: the paper's thirteen, paper and best; or some of them, comma separated.")
    ] = "all",
    splits: opt.Splits = 5,
    test_fraction: Annotated[
        float | None, typer.Option(help="Share of known values hidden as test (default: the protocol's).")
    ] = None,
    epochs_scale: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="Share of the published training rounds; below 1: quick run.")
    ] = 1.0,
    repartitions: Annotated[
        int, typer.Option(min=1, help="Calibration/test draws per fit; 1: the split itself, as in the paper.")
    ] = 100,
    time_limit: Annotated[float, typer.Option(min=1.0, help="Seconds one method may take on one split.")] = 14_400,
    memory: Annotated[float, typer.Option(min=0.1, help="GiB one method may hold.")] = 16.0,
    budget_seconds: Annotated[
        float | None, typer.Option(min=1.0, help="Seconds one method may take over all splits; then it is left out.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many methods run at a time.")] = 1,
    finished_only: Annotated[
        bool, typer.Option("--finished-only", help="Run nothing: show what is finished so far.")
    ] = False,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Make every table and figure of the paper from your visits, its published figures beside yours.

    What is finished is kept: a run that was killed goes on where it stopped.
    """
    from safeimpute_lab.benchmark.protocols import protocol_named

    chosen = protocol_named(protocol)
    context.params["test_fraction"] = chosen.test_fraction if test_fraction is None else test_fraction
    _check(folder, force=force)
    levels = _levels(context, chosen)
    settings, table = prepare(context, (levels.pop("fdr"),), **levels)

    from safeimpute.evaluation.data_profile import profile_data
    from safeimpute.machine.resources import resolve_device
    from safeimpute.visits.units import target_unit
    from safeimpute_lab.benchmark.cells import open_study
    from safeimpute_lab.benchmark.processes import Limits, run_cells
    from safeimpute_lab.benchmark.reproduction import EVERY_METHOD, cells_of, gather_reproduction
    from safeimpute_lab.benchmark.typeset import as_text
    from safeimpute_lab.report.reproduction_folder import Reproduction, heading, make_tables, write_reproduction

    seeds = tuple(range(settings.random_state, settings.random_state + splits))
    names = _methods(methods, EVERY_METHOD)
    share = context.params["test_fraction"]
    refuse_too_few(table.arrays, settings.random_state, share, (settings.fdr,))
    study = _study(settings, table.fingerprint, chosen, share, epochs_scale, repartitions)
    cells = open_study(folder / "work", study, table.arrays)
    if not finished_only:
        with shown_progress(quiet) as progress:
            watch = shown_cells(progress, seeds)
            device = resolve_device(settings.device)
            run_cells(cells, cells_of(seeds, names), Limits(time_limit, memory, budget_seconds), device, jobs, watch)
    told = (settings.target, settings.tolerance, names)
    result: Reproduction = {
        "protocol": chosen.name,
        "target": settings.target,
        "unit": target_unit(settings),
        "tolerance": settings.tolerance,
        "fdr": settings.fdr,
        "splits": splits,
        "test_fraction": share,
        "n_visits": len(table),
        "n_patients": table.patients,
        "source": visits.name,
        "found": gather_reproduction(cells, study, table.arrays, seeds, *told),
        "data": profile_data(table, settings.random_state),
    }
    write_reproduction(folder, result, chosen)
    if not quiet:
        typer.echo(f"\n{heading(result)}")
        for each in make_tables(result, chosen):
            typer.echo(f"\n{as_text(each)}")
        typer.echo(f"\nAll tables and figures: {folder / 'index.html'}")


def _levels(context: typer.Context, protocol: "Protocol") -> dict[str, Any]:
    """Tolerance and level: as given, else the paper's."""
    from safeimpute.cli.options import told
    from safeimpute_lab.benchmark.protocols import tolerance_of

    given = told(context)
    tolerance = tolerance_of(protocol, str(given.get("target")), given.get("tolerance"))
    return {"tolerance": tolerance, "fdr": given.get("fdr", protocol.alpha)}


def _check(folder: Path, *, force: bool) -> None:
    from safeimpute.errors import OptionError

    if (folder / "reproduce.json").exists() and not force:
        raise OptionError(
            f"{folder} holds a finished reproduction, which would be overwritten. Use --force or another name; with "
            "--force, finished methods are kept and only what is new is run."
        )
    ours = {"work", "figures", "index.html", "reproduce.json", "tables.md", "tables.tex", "tables.txt"}
    if folder.is_dir() and {path.name for path in folder.glob("[!.]*")} - ours:
        raise OptionError(f"{folder} holds files safeimpute did not write. Give a new folder.")


def _methods(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    from safeimpute.errors import OptionError

    asked = opt.names(text)
    if asked == ("all",):
        return known
    if unknown := [name for name in asked if name not in known]:
        raise OptionError(f"method {unknown[0]!r} is not in the paper's tables. Methods: {', '.join(known)}.")
    return tuple(name for name in known if name in asked)


def _study(
    settings: "Settings", fingerprint: str, protocol: "Protocol", share: float, effort: float, repartitions: int
) -> "Study":
    from safeimpute.visits.units import plausible_range, target_unit
    from safeimpute_lab.benchmark.cells import Study
    from safeimpute_lab.benchmark.protocols import LEVELS

    return Study(
        fingerprint=fingerprint,
        tolerance=settings.allowed_error,
        levels=(settings.fdr,),
        test_fraction=share,
        effort=effort,
        repartitions=repartitions,
        plausible=plausible_range(settings.target, target_unit(settings)),
        paper=settings.paper,
        best=settings.best,
        curve_tolerances=protocol.curve_tolerances(settings.allowed_error),
        curve_levels=LEVELS,
        risk_groups=protocol.risk_groups,
    )
