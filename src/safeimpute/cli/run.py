"""`safeimpute run`, `demo` and `rerun`: the main job, on one's own table, on the bundled one, or once more."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeimpute.cli import options as opt
from safeimpute.cli.fit_flags import (
    MACHINE,
    flag_with,
    flags_of,
    given,
    refuse_unplanned_memory,
    table_format,
    told,
)
from safeimpute.cli.going_on import going_on
from safeimpute.cli.outcome import Origin, Wanted, write_outcome
from safeimpute.cli.progress import shown_progress

if TYPE_CHECKING:
    from safeimpute.evaluation.drawn_run import DrawsAsked
    from safeimpute.runtime.table_format import TableFormat
    from safeimpute.settings import Settings

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
        bool,
        typer.Option(
            "--mice", help="With --draws: the visits completed by every draw, as R's mice reads them."
        ),
    ] = False,
    delta: Annotated[
        str,
        typer.Option(
            help="Tipping points: shifts of unmeasured values, comma separated (-1,-0.5,0.5,1), or auto."
        ),
    ] = "",
    limit: Annotated[
        float | None, typer.Option(help="With --delta: the limit the mean is held against.")
    ] = None,
    covariate: Annotated[
        str, typer.Option(help="With --delta: the lab or attribute whose association may turn.")
    ] = "",
    sign: Annotated[
        Path | None,
        typer.Option(help="Private key (PEM, Ed25519) to sign the model with.", show_default=False),
    ] = None,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Impute a lab in your visits and release what can be promised."""
    from safeimpute.errors import OptionError
    from safeimpute.records.asked import asks_for_several
    from safeimpute.settings import make_settings

    settings = make_settings(**given(context))
    if why and settings.preset == "paper":
        raise OptionError("--why needs the preset 'best': 'paper' cannot say which visits carried a value.")
    if sign is not None:
        from safeimpute.scoring.signature import private_key

        private_key(sign)  # a key that cannot sign is refused before the fit
    table = opt.read_table(context, visits, settings.time)
    renamed, read_as = opt.renames(context.params["columns"]), table_format(context)
    if delta and asks_for_several(settings, table.columns):
        raise OptionError("--delta shifts one lab by an amount in its unit: name one lab with --target.")
    asked = _asked(draws, delta, limit, covariate, mice=mice, measured=table, target=settings.target)
    carry_out(
        table,
        settings,
        out,
        visits,
        renamed,
        force=force,
        quiet=quiet,
        why=why,
        draws=asked,
        read_as=read_as,
        sign=sign,
    )


def _asked(
    draws: int | None,
    delta: str,
    limit: float | None,
    covariate: str,
    *,
    mice: bool,
    measured: Any,
    target: str,
) -> "DrawsAsked | None":
    """The draws that were asked for; None where none were. Shifts need draws: twenty, unless said otherwise."""
    from safeimpute.errors import OptionError

    if not delta and (limit is not None or covariate):
        raise OptionError(
            "--limit and --covariate say what may turn under --delta: give --delta, or leave them out."
        )
    if mice and draws is None:
        raise OptionError("--mice writes the visits completed by draws: say how many with --draws 20.")
    if draws is None and not delta:
        return None
    from safeimpute.evaluation.drawn_run import DrawsAsked, shifts_around
    from safeimpute.records.checks import numbers

    auto = delta.strip() == "auto" and target in measured.columns
    deltas = shifts_around(numbers(measured[target], "target")) if auto else opt.numbers(delta, "--delta")
    return DrawsAsked(draws or 20, tuple(deltas), limit, covariate, mice)


@opt.takes(flags_of(*MACHINE), opt.MEMORY, opt.QUICK)
def demo(
    context: typer.Context,
    out: Out = DEMO_OUT,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Impute cholesterol in the bundled Mayo Clinic PBC visits at tolerance 20 % and FDR 20 %."""
    from safeimpute.records.bundled import load_pbc
    from safeimpute.settings import make_settings

    settings = make_settings(**given(context, target="cholesterol", tolerance="20%", fdr=0.2, unit="mg/dL"))
    if not quiet:
        typer.echo(
            "Mayo Clinic trial in primary biliary cirrhosis: which missing cholesterol values can be trusted?"
        )
    carry_out(load_pbc(), settings, out, None, {}, force=force or out == DEMO_OUT, quiet=quiet, why=True)


@opt.takes(flags_of("tolerance", "fdr"), flag_with("device", "as the run was told"), opt.MEMORY)
def rerun(
    context: typer.Context,
    run_dir: Annotated[Path, typer.Argument(help="Folder of a finished run or demo.", show_default=False)],
    out: Out,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Repeat a finished run at other levels; the result is labelled as chosen after looking."""
    from safeimpute.report.earlier_run import read_earlier_run
    from safeimpute.settings import make_settings

    earlier = read_earlier_run(run_dir)
    levels: dict[str, Any] = {"tolerance": None, "fdr": None}  # must be given anew
    settings = make_settings(**earlier.config | levels | told(context))
    refuse_unplanned_memory(settings.preset, context.params["memory"])
    why = (run_dir / "why.parquet").is_file()
    carry_out(
        earlier.visits(),
        settings,
        out,
        earlier.path,
        earlier.columns,
        run_dir,
        force=force,
        quiet=quiet,
        why=why,
        read_as=earlier.read_as,
    )


def carry_out(
    table: Any,
    settings: "Settings",
    out: Path,
    source: Path | None,
    columns: Mapping[str, str],
    earlier: Path | None = None,
    *,
    force: bool,
    quiet: bool,
    why: bool = False,
    draws: "DrawsAsked | None" = None,
    read_as: "TableFormat | None" = None,
    sign: Path | None = None,
) -> None:
    """Fit, release, and write the run's folder; `earlier` is a run on the same visits that was looked at."""
    from safeimpute.cli.labs import run_labs
    from safeimpute.records.asked import asks_for_several
    from safeimpute.runtime.files import reserved

    origin, wanted = Origin(source, columns, read_as, earlier), Wanted(why, draws, sign)
    with reserved(out, force=force, inputs=(source, earlier)):
        if asks_for_several(settings, table.columns):
            run_labs(table, settings, out, origin, wanted, force=force, quiet=quiet)
        else:
            _run(table, settings, out, origin, wanted, force=force, quiet=quiet)


def _run(
    table: Any, settings: "Settings", out: Path, origin: Origin, wanted: Wanted, *, force: bool, quiet: bool
) -> None:
    """The same for one lab, once the folder is this run's to write."""
    from safeimpute.cli.console import print_columns, print_draws, print_plan, print_summary
    from safeimpute.cli.looks import look_at
    from safeimpute.estimator import SafeImputer
    from safeimpute.records.asked import settings_of_one
    from safeimpute.records.known_values import refuse_known_values
    from safeimpute.records.units import column_choice
    from safeimpute.records.visits import prepare_visits
    from safeimpute.records.writers.released_ledger import record_released
    from safeimpute.report.draws_folder import write_draws
    from safeimpute.runtime.files import finished_folder, sha256_of
    from safeimpute.runtime.looks import record_look
    from safeimpute.runtime.progress import part_of

    visits = prepare_visits(table, column_choice(settings))
    refuse_known_values(visits.arrays, out, origin.source or out)
    if not quiet:
        print_columns(visits)
        print_plan(visits, settings_of_one(settings))
    look, second = look_at(visits, settings_of_one(settings), out, origin.earlier)
    imputer = SafeImputer(**vars(settings))
    with going_on(out, quiet) as kept, shown_progress(quiet) as progress:
        imputer.fit(visits, progress=part_of(progress, 0.0, 0.9), kept=kept)
        progress("deciding the release", 0.9)
        imputations, result = imputer.impute(visits), imputer.result()
        progress("writing tables, figures and report", 0.93)
        with finished_folder(out, force=force) as folder:
            imputer.save(folder / "model", second_look=second, sign=wanted.sign)
            if wanted.why:
                imputer.explain(visits).write_parquet(folder / "why.parquet")
            drawn = None if wanted.draws is None else write_draws(folder, imputer, table, wanted.draws)
            summary = write_outcome(folder, result, visits, imputations, origin, second_look=second)
    released = record_released(out, sha256_of(out / "imputations.parquet"), imputations, visits.arrays)
    for warning in filter(None, (record_look(out, look), released)):
        typer.echo(f"safeimpute: {warning}", err=True)
    if not quiet:
        print_summary(summary, out)
        if drawn is not None:
            print_draws(drawn, out)
