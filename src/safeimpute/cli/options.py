"""Options shared by commands: one flag, one meaning, everywhere."""

from pathlib import Path
from typing import Annotated, Any

import typer


def _read_defaults(context: typer.Context, path: Path | None) -> Path | None:
    """Options in the TOML file become the defaults of this command's flags; tables go to the presets."""
    if path is not None:
        from safeimpute.config import read_config_file

        options = read_config_file(path)
        tables = {name: options.pop(name) for name in list(options) if isinstance(options[name], dict)}
        context.default_map = {**(context.default_map or {}), **options}
        context.obj = tables
    return path


def set_threads(threads: int | None) -> int | None:
    """Before NumPy or torch are imported, so that every library obeys."""
    if threads is not None:
        import os

        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
            os.environ[name] = str(threads)
    return threads


Visits = Annotated[Path, typer.Argument(help="Visits table: .csv, .csv.gz or .parquet.", show_default=False)]
Target = Annotated[str, typer.Option(help="Lab to impute (a column of the table).")]
ToleranceText = Annotated[
    str, typer.Option("--tolerance", help="Unacceptable error: 0.5, '20%' or '10% or 6' (the larger).")
]
Fdr = Annotated[float, typer.Option(help="Largest share of unacceptable errors among released values.")]
Preset = Annotated[str, typer.Option(help="Which system: best (the default) or paper.")]
Labs = Annotated[
    str, typer.Option(help="Columns that are labs, comma separated (default: told by the data).")
]
Attributes = Annotated[str, typer.Option(help="Columns that are attributes, comma separated.")]
Exclude = Annotated[str, typer.Option(help="Columns to leave out, comma separated.")]
Rename = Annotated[str, typer.Option("--columns", help="Rename columns: 'patient=subject_id,day=time'.")]
Unit = Annotated[str | None, typer.Option(help="Unit of the target, where the catalogue does not know it.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every random choice.")]
Threads = Annotated[
    int | None, typer.Option(min=1, callback=set_threads, is_eager=True, help="CPU threads (default: all).")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", callback=_read_defaults, is_eager=True, help="TOML file with options."),
]


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list as a tuple."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def renames(text: str) -> dict[str, str]:
    """`theirs=ours,…` as a dictionary."""
    from safeimpute.errors import OptionError

    pairs = [part.partition("=") for part in names(text)]
    if any(not theirs or not ours for theirs, _, ours in pairs):
        raise OptionError(f"--columns {text!r} is not understood. Write 'their_name=subject_id,other=time'.")
    return {theirs.strip(): ours.strip() for theirs, _, ours in pairs}


def numbers(text: str, flag: str) -> tuple[float, ...]:
    """A comma-separated list of numbers."""
    from safeimpute.errors import OptionError

    try:
        return tuple(float(part) for part in names(text))
    except ValueError:
        raise OptionError(f"{flag} {text!r} is not a list of numbers such as 0.1,0.2.") from None


def preset_tables(context: typer.Context) -> dict[str, Any]:
    """Settings of presets from the configuration file's tables."""
    return dict(context.obj or {})
