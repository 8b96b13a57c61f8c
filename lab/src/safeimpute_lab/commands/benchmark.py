"""`safeimpute benchmark`: every method on the same splits, the paper's tables with time and memory."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.console import shown_progress
from safeimpute.cli.evaluate import REDRAWN, levels_of, prepare
from safeimpute.cli.options import COLUMNS, MACHINE, flags_of, levels_flag

if TYPE_CHECKING:
    from safeimpute.machine.progress import Progress
    from safeimpute_lab.benchmark.processes import Status
    from safeimpute_lab.benchmark.result import BenchmarkResult


@opt.takes(flags_of("target", "tolerance"), levels_flag(), flags_of(*COLUMNS, *MACHINE), opt.READING)
def benchmark(
    context: typer.Context,
    visits: opt.Visits,
    methods: Annotated[str, typer.Option(help="all, or names such as mean,lightgbm,best.")] = "all",
    splits: opt.Splits = 5,
    test_fraction: opt.TestFraction = 0.2,
    epochs_scale: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the published training rounds; below 1: quick run.")
    ] = 1.0,
    repartitions: Annotated[int, typer.Option(min=1, help="Calibration/test draws per fit.")] = REDRAWN,
    time_limit: Annotated[float, typer.Option(min=1.0, help="Seconds one method may take on one split.")] = 14_400,
    memory: Annotated[float, typer.Option(min=0.1, help="GiB one method may hold.")] = 16.0,
    budget_seconds: Annotated[
        float | None, typer.Option(min=1.0, help="Seconds one method may take over all splits; then it is left out.")
    ] = None,
    finished_only: Annotated[
        bool, typer.Option("--finished-only", help="Run nothing: show what is finished so far.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="How many methods run at a time.")] = 1,
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for benchmark.json, .md, .tex and the figure.")
    ] = Path("out/benchmark"),
    work: Annotated[
        Path | None, typer.Option(help="Folder for finished cells, kept for a rerun (default: OUT/work).")
    ] = None,
    json_file: opt.JsonFile = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compare every method on your own data: accuracy, release, time and memory, on the same hidden values.

    Finished methods are kept: a run that was killed goes on where it stopped.
    """
    _check(context, folder, force=force)
    levels = levels_of(context)
    settings, table = prepare(context, levels)

    from safeimpute.machine.resources import resolve_device
    from safeimpute.report.run_folder import save_json
    from safeimpute.visits.units import plausible_range, target_unit
    from safeimpute_lab.benchmark.cells import Study, open_study
    from safeimpute_lab.benchmark.gather import Field, gather, methods_asked_for
    from safeimpute_lab.benchmark.processes import Limits, run_cells
    from safeimpute_lab.report.benchmark_folder import write_benchmark

    device, seed = resolve_device(settings.device), settings.random_state
    field = Field(methods_asked_for(methods), tuple(range(seed, seed + splits)))
    refuse_too_few(table.arrays, seed, test_fraction, levels)
    unit = target_unit(settings)
    study = Study(
        fingerprint=table.fingerprint,
        tolerance=settings.allowed_error,
        levels=levels,
        test_fraction=test_fraction,
        effort=epochs_scale,
        repartitions=repartitions,
        plausible=plausible_range(settings.target, unit),
        paper=settings.paper,
        best=settings.best,
    )
    cells = open_study(work or folder / "work", study, table.arrays)
    if not finished_only:
        with shown_progress(quiet) as progress:
            limits = Limits(time_limit, memory, budget_seconds)
            run_cells(cells, field.cells(), limits, device, jobs, shown_cells(progress, field.seeds))
    result: BenchmarkResult = {
        "target": settings.target,
        "unit": unit,
        "tolerance": settings.tolerance,
        "splits": splits,
        "split": "visits",
        "test_fraction": test_fraction,
        "n_visits": len(table),
        "n_patients": table.patients,
        "limits": None if finished_only else {"seconds": time_limit, "memory_gib": memory},
        **gather(cells, study, table.arrays, field),
    }
    write_benchmark(folder, result)
    if json_file is not None:
        save_json(result, json_file)
    if not quiet:
        _print(result, folder)


def _check(context: typer.Context, folder: Path, *, force: bool) -> None:
    """Refuse what a benchmark cannot honour, before any work."""
    from safeimpute.errors import OptionError

    if context.params["epochs_scale"] == 0:
        raise OptionError("--epochs-scale must be above 0 and at most 1.")
    if (folder / "benchmark.json").exists() and not force:
        raise OptionError(
            f"{folder} holds a finished benchmark, which would be overwritten. Use --force or another name; "
            "with --force, finished methods are kept and only what is new is run."
        )
    ours = {"work", "figures", "benchmark.json", "benchmark.md", "benchmark.tex"}
    ours |= {path.name for path in (context.params["json_file"], context.params["work"]) if path}
    if folder.is_dir() and {path.name for path in folder.glob("[!.]*")} - ours:
        raise OptionError(f"{folder} holds files safeimpute did not write. Give a new folder.")


def refuse_too_few(arrays: Any, seed: int, test_fraction: float, levels: tuple[float, ...]) -> None:
    """A level no method could release at is said at once, not once per method."""
    from safeimpute.errors import GuaranteeRefused
    from safeimpute.learning.roles import Role
    from safeimpute.selection.enough import fewest_calibration
    from safeimpute.selection.questions import draw_roles

    there = int((draw_roles(arrays, seed, test_fraction) == Role.CALIBRATION).sum())
    needed = fewest_calibration(min(levels))
    if there < needed:
        raise GuaranteeRefused(
            f"an FDR level of {min(levels):g} needs at least {needed} calibration visits; this split has {there}. "
            "Give more measured visits or a higher level."
        )


def shown_cells(progress: "Progress", seeds: tuple[int, ...]) -> "Callable[[Status], None]":
    """Progress in words: what runs and on which split; the share done is one of time, for methods differ by hours."""

    def show(now: "Status") -> None:
        running = ", ".join(
            f"{name.method} on split {seeds.index(name.seed) + 1} of {len(seeds)}" for name in now.running
        )
        stage = f"{now.done} of {now.total} done"
        progress(f"{running}: {stage}" if running else stage, _share(now))

    return show


def _share(now: "Status") -> float:
    """Of the time it takes, as far as finished cells tell; else of the cells."""
    if now.remaining is None or now.elapsed + now.remaining <= 0:
        return now.done / now.total
    return now.elapsed / (now.elapsed + now.remaining)


def _print(result: "BenchmarkResult", folder: Path) -> None:
    """The answer first, then the tables it rests on."""
    from safeimpute_lab.benchmark.tables import accuracy_table, as_text, failure_table, heading, reading, release_table

    typer.echo(f"\n{heading(result)}\n")
    for sentence in reading(result):
        typer.echo(f"  {sentence}")
    failed = failure_table(result)
    for table in (accuracy_table(result), release_table(result, brief=True), *([failed] if failed.rows else [])):
        typer.echo(f"\n{as_text(table)}")
    typer.echo(f"\nPublished: {result['published']['source']}.")
    typer.echo(f"What each column means, and all methods on our releases: {folder / 'benchmark.md'}")
