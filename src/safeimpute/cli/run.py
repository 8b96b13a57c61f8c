"""`safeimpute run`, `demo` and `rerun`: the main job, on one's own table, on the bundled one, or once more."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.console import shown_progress
from safeimpute.cli.options import MACHINE, flag_with, flags_of, given, refuse_unplanned_memory, told
from safeimpute.errors import OptionError, SafeImputeError
from safeimpute.machine.progress import part_of
from safeimpute.settings import Settings, make_settings

if TYPE_CHECKING:
    import polars as pl

    from safeimpute.evaluation.drawn_run import DrawsAsked, DrawsSummary
    from safeimpute.evaluation.run_summary import LabsSummary, RunSummary
    from safeimpute.machine.looks_log import Look
    from safeimpute.machine.state import Checkpoint
    from safeimpute.model.filling import Fill
    from safeimpute.model.imputer import SafeImputer
    from safeimpute.report.run_folder import Origin
    from safeimpute.selection.result import RunResult
    from safeimpute.settings import Settings
    from safeimpute.visits.visits import Visits

DEMO_OUT = Path("out/demo")  # the demo's own place, which it writes anew each time
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")]


@opt.takes(flags_of(), opt.READING, opt.MEMORY, opt.QUICK)
def run(
    context: typer.Context,
    visits: opt.Visits,
    out: Out = Path("out/run"),
    why: Annotated[
        bool, typer.Option("--why", help="Also write why.parquet: the visits that carried each imputation.")
    ] = False,
    draws: Annotated[
        int | None,
        typer.Option(min=2, max=1000, help="Also write draws.parquet: so many draws of every missing value."),
    ] = None,
    mice: Annotated[
        bool, typer.Option("--mice", help="With --draws: the visits completed by every draw, as R's mice reads them.")
    ] = False,
    delta: Annotated[
        str, typer.Option(help="Tipping points: shifts of unmeasured values, comma separated (-1,-0.5,0.5,1), or auto.")
    ] = "",
    limit: Annotated[float | None, typer.Option(help="With --delta: the limit the mean is held against.")] = None,
    covariate: Annotated[str, typer.Option(help="With --delta: the lab or attribute whose association may turn.")] = "",
    filled: Annotated[
        Literal["released", "all"] | None,
        typer.Option(help="Also write filled.parquet and .csv: your table with released values, or all, filled in."),
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(help="Private key (PEM, Ed25519) to sign the model with.", show_default=False)
    ] = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Impute a lab in your visits and release what can be promised."""
    from safeimpute.errors import OptionError
    from safeimpute.settings import make_settings
    from safeimpute.visits.lab_settings import asks_for_several

    settings = make_settings(**given(context))
    if why and settings.preset == "paper":
        raise OptionError("--why needs the preset 'best': 'paper' cannot say which visits carried a value.")
    if sign is not None:
        from safeimpute.model.manifest import private_key

        private_key(sign)  # a key that cannot sign is refused before the fit
    origin = opt.origin_of(context, visits)
    table = origin.read(settings.time, settings.subject)
    if not quiet:
        opt.say_what_was_read(origin)
    if delta and asks_for_several(settings, table.columns):
        raise OptionError("--delta shifts one lab by an amount in its unit: name one lab with --target.")
    asked = _asked(draws, delta, limit, covariate, mice=mice, measured=table, target=settings.target)
    carry_out(table, settings, out, origin, Wanted(why, asked, sign, filled), force=force, quiet=quiet)


def _asked(
    draws: int | None, delta: str, limit: float | None, covariate: str, *, mice: bool, measured: Any, target: str
) -> "DrawsAsked | None":
    """The draws that were asked for; None where none were. Shifts need draws: twenty, unless said otherwise."""
    if not delta and (limit is not None or covariate):
        raise OptionError("--limit and --covariate say what may turn under --delta: give --delta, or leave them out.")
    if mice and draws is None:
        raise OptionError("--mice writes the visits completed by draws: say how many with --draws 20.")
    if draws is None and not delta:
        return None
    from safeimpute.evaluation.drawn_run import DrawsAsked, shifts_around
    from safeimpute.visits.checks import numbers
    from safeimpute.visits.limits import with_limits

    auto = delta.strip() == "auto" and target in measured.columns
    deltas = (
        shifts_around(numbers(with_limits(measured, [target])[target], "target"))
        if auto
        else opt.numbers(delta, "--delta")
    )
    return DrawsAsked(draws or 20, tuple(deltas), limit, covariate, mice)


@opt.takes(flags_of(*MACHINE), opt.MEMORY, opt.QUICK)
def demo(context: typer.Context, out: Out = DEMO_OUT, force: opt.Force = False, quiet: opt.Quiet = False) -> None:
    """Impute cholesterol in the bundled Mayo Clinic PBC visits at tolerance 20 % and FDR 20 %."""
    from safeimpute.report.run_folder import Origin
    from safeimpute.settings import make_settings

    settings = make_settings(**given(context, target="cholesterol", tolerance="20%", fdr=0.2, unit="mg/dL"))
    if not quiet:
        typer.echo("Mayo Clinic trial in primary biliary cirrhosis: which missing cholesterol values can be trusted?")
    origin, force = Origin(), force or out == DEMO_OUT
    carry_out(origin.read(), settings, out, origin, Wanted(why=True), force=force, quiet=quiet)


@opt.takes(flags_of("tolerance", "fdr"), flag_with("device", "as the run was told"), opt.MEMORY)
def rerun(
    context: typer.Context,
    run_dir: Annotated[Path, typer.Argument(help="Folder of a finished run or demo.", show_default=False)],
    out: Out,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Repeat a finished run at other levels; the result is labelled as chosen after looking."""
    from safeimpute.report.run_folder import read_earlier_run

    earlier = read_earlier_run(run_dir)
    settings = make_settings(**earlier.config | {"tolerance": None, "fdr": None} | told(context))  # levels given anew
    refuse_unplanned_memory(settings.preset, context.params["memory"])
    why = (run_dir / "why.parquet").is_file()
    carry_out(earlier.visits(), settings, out, earlier.origin, Wanted(why), force=force, quiet=quiet)


class Wanted(NamedTuple):
    """What a run was asked to write beside its release."""

    why: bool = False  # the visits that carried each imputation
    draws: "DrawsAsked | None" = None
    sign: Path | None = None  # private key to sign the model with
    filled: "Fill | None" = None  # the table with its holes filled, by what is released or by everything


def carry_out(
    table: Any, settings: "Settings", out: Path, origin: "Origin", wanted: Wanted, *, force: bool, quiet: bool
) -> None:
    """Fit, release, and write the run's folder; the same for one lab or several."""
    from safeimpute.machine.files import reserved

    with reserved(out, force=force, inputs=(origin.source, origin.earlier)):
        _run(table, settings, out, origin, wanted, force=force, quiet=quiet)


def _run(
    table: Any, settings: "Settings", out: Path, origin: "Origin", wanted: Wanted, *, force: bool, quiet: bool
) -> None:
    """The same for one lab or several, once the folder is this run's to write."""
    from safeimpute.cli import console
    from safeimpute.machine.files import finished_folder, sha256_of
    from safeimpute.machine.looks_log import record_look
    from safeimpute.model.imputer import SafeImputer
    from safeimpute.model.labs import check_labs, settings_by_lab
    from safeimpute.visits.imputations import record_released, refuse_known_values

    checked = check_labs(settings, table)
    first, one = next(iter(checked.values())), checked.get(settings.target)
    refuse_known_values(first.arrays, out, origin.source or out)
    if not quiet:
        console.print_columns(first)
    told = settings_by_lab(settings, checked)
    if not quiet and one is not None:
        console.print_plan(one, told[settings.target])
    together = tuple(told) if len(told) > 1 and settings.over == "cells" else ()
    looks = {lab: look_at(checked[lab], own, origin.earlier, together) for lab, own in told.items()}
    imputer = SafeImputer(**vars(settings))
    with going_on(out, quiet) as checkpoint, shown_progress(quiet) as progress:
        imputer.fit(checked, progress=part_of(progress, 0.0, 0.85), checkpoint=checkpoint)
        second = [lab for lab in imputer.labs_ if looks[lab][1]]
        if second and imputer.settings_.over == "cells":
            second = list(imputer.labs_)
        progress("deciding the release", 0.85)
        imputations = imputer.impute(checked)
        progress("writing tables, figures and report", 0.9)
        with finished_folder(out, force=force) as folder:
            summary, drawn = write_labs(folder, imputer, table, imputations, origin, wanted, second)
    said = list(dict.fromkeys(record_look(looks[lab][0]) for lab in imputer.labs_))
    said.append(record_released(out, sha256_of(out / "imputations.parquet"), imputations, first.arrays))
    for warning in filter(None, said):
        typer.echo(f"safeimpute: {warning}", err=True)
    if not quiet:
        console.print_run(summary, drawn, out)


def look_at(
    visits: "Visits", settings: "Settings", earlier: Path | None, together: tuple[str, ...] = ()
) -> "tuple[Look, bool]":
    """This run as a look at its visits, and whether the user saw them before under other choices.

    `together` are the labs that one level holds over: one more or less is another release of each of them.
    """
    from safeimpute.machine.looks_log import earlier_looks, is_second_look, look_of
    from safeimpute.report.run_folder import read_earlier_run
    from safeimpute.visits.visits import looks_fingerprint

    look = look_of(
        vars(settings) | {"together": sorted(together)}, looks_fingerprint(visits.arrays), visits.fingerprint
    )
    chosen_after = earlier is not None and read_earlier_run(earlier).chose_otherwise(settings)
    return look, chosen_after or is_second_look(earlier_looks(), look)


@contextmanager
def going_on(out: Path, quiet: bool) -> "Iterator[Checkpoint]":
    """Where finished folds of a run are kept; says what is there before, and what is left after a stop."""
    from safeimpute.machine.state import checkpoint_beside

    with checkpoint_beside(out) as checkpoint:
        before = checkpoint.count()
        if before and not quiet:
            typer.echo(f"Going on from {before} finished folds of a run that was stopped, where they fit this one")
        try:
            yield checkpoint
        except BaseException as error:
            if checkpoint.count() and not isinstance(error, SafeImputeError):
                typer.echo(
                    f"safeimpute: {checkpoint.count()} finished folds are kept in {checkpoint.folder}; the same "
                    "command goes on from there, safeimpute doctor --clean removes them",
                    err=True,
                )
            raise


def write_labs(
    folder: Path,
    imputer: "SafeImputer",
    table: Any,
    imputations: "pl.DataFrame",
    origin: "Origin",
    wanted: Wanted,
    second_looks: Collection[str],
) -> "tuple[RunSummary | LabsSummary, DrawsSummary | None]":
    """Write the models and what every lab came to; returns the summary and, of one lab, that of its draws.

    One lab's results are the run's folder; several have a folder each inside it, beside the tables and report of all.
    """
    from safeimpute.evaluation.drawn_run import drawn_run
    from safeimpute.model.filling import explained
    from safeimpute.model.labs import save_labs
    from safeimpute.report.run_folder import places_of_labs, write_draws

    settings, labs, results = imputer.settings_, imputer.labs_, imputer.results()
    save_labs(folder / "model", labs, settings, second_looks=second_looks, key_file=wanted.sign)
    alone = settings.target in labs
    places = {settings.target: "."} if alone else places_of_labs(tuple(labs))
    each: dict[str, RunSummary] = {}
    drawn = None
    for name, lab in labs.items():
        own = folder / places[name]
        own.mkdir(parents=True, exist_ok=True)
        if wanted.why:
            explained(lab).write_parquet(own / "why.parquet")
        if wanted.draws is not None:
            drawn = write_draws(own, drawn_run(lab, table, wanted.draws))
        part = imputations.filter(imputations["lab"] == name)
        second = name in second_looks
        beside = folder / places[next(iter(each))] if each else None
        each[name] = write_outcome(own, results[name], lab.visits, part, origin, second_look=second, beside=beside)
    if alone:
        if wanted.filled:
            _write_filled(folder, imputer, table, wanted.filled, origin)
        return each[settings.target], drawn
    return _write_together(folder, imputer, table, imputations, origin, each, places, wanted.filled), None


def _write_filled(folder: Path, imputer: "SafeImputer", table: Any, fill: "Fill", origin: "Origin") -> None:
    """The table with its holes filled; in csv with the digits the lab is reported with."""
    from safeimpute.model.filling import as_reported, fill_labs
    from safeimpute.visits.tables import to_polars, write_csv

    filled = fill_labs(imputer.labs_, to_polars(table), fill)
    filled.write_parquet(folder / "filled.parquet")
    reported = as_reported(filled, imputer.labs_)
    write_csv(reported, folder / "filled.csv")
    _write_excel(folder, {"filled": reported}, origin)
    _write_long(folder, imputer, reported, origin)


def _write_long(folder: Path, imputer: "SafeImputer", filled: "pl.DataFrame", origin: "Origin") -> None:
    """Where the file has one row per result, it comes back so, with what was filled in below."""
    from safeimpute.model.filling import marks_in
    from safeimpute.visits.files.opened import results_with_imputed
    from safeimpute.visits.tables import write_csv

    if origin.source is None:
        return
    marks, settings = {lab: marks_in(filled, lab) for lab in imputer.labs_}, imputer.settings_
    place = {"time": settings.time, "subject": settings.subject}
    results = results_with_imputed(origin.source, origin.columns, origin.read_as, filled, marks, **place)
    if results is not None:
        results.write_parquet(folder / "filled_long.parquet")
        write_csv(results, folder / "filled_long.csv")
        _write_excel(folder, {"filled_long": results}, origin)


def _write_excel(folder: Path, tables: "Mapping[str, pl.DataFrame]", origin: "Origin") -> None:
    """Excel beside csv for those who gave Excel, of tables that a sheet holds."""
    from safeimpute.visits.files.excel import MOST_ROWS, write_excel

    if origin.source is not None and origin.source.suffix.lower() == ".xlsx":
        for name, table in tables.items():
            if len(table) < MOST_ROWS:
                write_excel(table, folder / f"{name}.xlsx")


def _write_together(
    folder: Path,
    imputer: "SafeImputer",
    table: Any,
    imputations: "pl.DataFrame",
    origin: "Origin",
    each: "Mapping[str, RunSummary]",
    places: Mapping[str, str],
    fill: "Fill | None",
) -> "LabsSummary":
    """The tables of all labs, their summary and one report, beside each lab's own folder."""
    from safeimpute.evaluation.summary import summarise_labs
    from safeimpute.model.filling import as_reported, fill_labs
    from safeimpute.report.html import write_report
    from safeimpute.report.run_folder import make_manifest, write_run
    from safeimpute.visits.imputations import at_usual_precision
    from safeimpute.visits.tables import to_polars

    summary = summarise_labs(imputer, each, places)
    visits = next(iter(imputer.labs_.values())).visits
    manifest = make_manifest(imputer.settings_, visits, origin, second_look=summary["second_look"])
    filled = fill_labs(imputer.labs_, to_polars(table), fill or "released")
    tables = {"imputations": imputations, "filled": filled}
    in_csv = {"imputations": at_usual_precision(imputations), "filled": as_reported(filled, imputer.labs_)}
    write_run(folder, tables, summary, manifest, in_csv)
    _write_excel(folder, in_csv, origin)
    if fill:
        _write_long(folder, imputer, in_csv["filled"], origin)
    write_report(folder)
    return summary


def write_outcome(
    folder: Path,
    result: "RunResult",
    visits: "Visits",
    imputations: "pl.DataFrame",
    origin: "Origin",
    *,
    second_look: bool,
    beside: Path | None = None,
) -> "RunSummary":
    """Write what one lab came to, and its report; returns the summary. `beside`: an earlier lab's folder."""
    from safeimpute.evaluation.release_profile import slider_grid
    from safeimpute.evaluation.summary import as_second_look, summarise_run
    from safeimpute.machine.looks_log import NOT_KEPT, state_folder
    from safeimpute.report.figures import draw_figures
    from safeimpute.report.html import write_report
    from safeimpute.report.reporting import write_reporting
    from safeimpute.report.run_folder import make_manifest, write_review, write_run
    from safeimpute.visits.imputations import at_usual_precision

    summary, sliders = summarise_run(result, visits, imputations), slider_grid(result)
    if second_look:
        summary = as_second_look(summary)
    elif state_folder() is None:
        summary["limits"] = f"{summary['limits']} {NOT_KEPT}".strip()
    manifest = make_manifest(result.settings, visits, origin, second_look=second_look)
    in_csv = {"imputations": at_usual_precision(imputations)}
    write_run(folder, {"imputations": imputations}, summary, manifest, in_csv)
    _write_excel(folder, in_csv, origin)
    asked = result.calibrated
    write_review(folder, visits, asked.candidates, asked.question.set_aside, sliders)
    draw_figures(folder, beside)
    write_report(folder)
    write_reporting(folder)
    return summary
