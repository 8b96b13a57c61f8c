"""`safeimpute simulate`: write a simulated cohort and, beside it, the truth it hides."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from safeimpute.cli import options
from safeimpute.errors import OptionError

if TYPE_CHECKING:
    import polars as pl


def simulate(
    shape: Annotated[Literal["mayo", "mimic3", "mimic4"], typer.Argument(help="Whose size to imitate.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Visits to write: .parquet or .csv.")],
    patients: Annotated[int | None, typer.Option(help="Patients, if not as many as the shape has.")] = None,
    labs: Annotated[int, typer.Option(help="Labs beside the target hba1c, 2 to 12.")] = 2,
    shift: Annotated[
        Literal["none", "covariate", "value", "patients"],
        typer.Option(
            help="What decides whether hba1c is measured: chance, what the table shows, or the hidden value; "
            "'patients' lets unstable patients come more often."
        ),
    ] = "none",
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Simulate a diabetic cohort; the target at every visit goes to a second file, NAME.truth.parquet."""
    truth_path = output.with_suffix(".truth.parquet")
    _check_writable(output, truth_path, force=force)

    import numpy as np

    from safeimpute.records.simulate import simulate as simulate_cohort

    cohort = simulate_cohort(shape, np.random.default_rng(seed), patients=patients, labs=labs, shift=shift)
    _write_together({truth_path: cohort.truth, output: cohort.visits}, force=force)
    if not quiet:
        visits = cohort.visits
        size = f"{visits.height:,} visits of {visits['subject_id'].n_unique():,} patients"
        missing = visits["hba1c"].null_count() / visits.height
        typer.echo(f"{output}: {size}, hba1c missing at {missing:.0%}")
        typer.echo(f"{truth_path}: hba1c at every visit, also where it is missing")


def _check_writable(output: Path, truth_path: Path, *, force: bool) -> None:
    from safeimpute.runtime.files import require_new

    if output.suffix not in (".parquet", ".csv"):
        raise OptionError(f"cannot tell the format of {output}: give a name that ends in .parquet or .csv")
    if not output.parent.is_dir():
        raise OptionError(f"the folder {output.parent} does not exist: create it first")
    existing = [str(path) for path in (output, truth_path) if path.exists()]
    if existing and not force:
        raise OptionError(f"would overwrite {' and '.join(existing)}: give --force, or another --output")
    for path in (output, truth_path):
        require_new(path, force=force)


def _write_together(tables: dict[Path, "pl.DataFrame"], *, force: bool) -> None:
    """Under passing names first, so that an interrupted run leaves nothing that looks finished."""
    from safeimpute.runtime.files import finished_file

    with ExitStack() as unfinished:
        for path, table in reversed(tables.items()):  # names are taken in the order given
            partial = unfinished.enter_context(finished_file(path, force=force))
            write = table.write_csv if path.suffix == ".csv" else table.write_parquet
            write(partial)
