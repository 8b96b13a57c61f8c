"""Options shared by commands: one flag, one meaning, everywhere."""

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer
from typer.models import ArgumentInfo

from safeimpute.cli.fit_flags import (
    SWITCHES,
    TABLES,
    Flags,
    format_flags,
    given,
    parameter_of,
    settings_in,
    table_format,
)

if TYPE_CHECKING:
    from safeimpute.evaluation.trials import Trial
    from safeimpute.records.visits import Visits as VisitsTable
    from safeimpute.runtime.progress import Progress
    from safeimpute.settings import Settings
    from safeimpute.tolerance import Tolerance


def _read_defaults(context: typer.Context, path: Path | None) -> Path | None:
    """Options in the TOML file become the defaults of this command's flags; tables go to the presets."""
    if path is not None:
        from safeimpute.runtime.config_file import read_config_file

        found = {name.replace("-", "_"): each for name, each in read_config_file(path, TABLES).items()}
        context.obj = settings_in(found)
        options = {parameter_of(name): value for name, value in found.items() if name not in TABLES}
        _refuse_unknown(context, options)
        fields = {
            flag.lstrip("-").replace("-", "_"): each.name
            for each in context.command.params
            for flag in each.opts
        }
        told = {
            fields.get(name) or name: _as_typed(value)
            for name, value in options.items()
            if name not in SWITCHES
        }
        context.default_map = {**(context.default_map or {}), **told}
    return path


def _refuse_unknown(context: typer.Context, options: dict[str, Any]) -> None:
    """A misspelt option must not pass in silence; options of other commands are fine in a shared file."""
    from safeimpute.errors import OptionError

    program = context.find_root().command
    commands = getattr(program, "commands", {context.command.name: context.command}).values()
    known = {name for command in commands for each in command.params for name in (each.name, *each.opts)}
    for name in options:
        if name not in known and f"--{name.replace('_', '-')}" not in known:
            raise OptionError(
                f"configuration file: {name!r} is no option of any command. Check its spelling."
            )


def _as_typed(value: Any) -> Any:
    """A TOML list as it would be typed: comma separated."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


def set_threads(threads: int | None) -> int | None:
    """Before NumPy or torch are imported, so that every library obeys."""
    if threads is not None:
        import os

        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
            os.environ[name] = str(threads)
    return threads


def set_memory(gib: float | None) -> float | None:
    """For this process and those it starts."""
    if gib is not None:
        from safeimpute.runtime.memory import set_ceiling

        set_ceiling(gib)
    return gib


Visits = Annotated[Path, typer.Argument(help="Visits table: .csv, .csv.gz or .parquet.", show_default=False)]
Rename = Annotated[str, typer.Option("--columns", help="Rename columns: 'patient=subject_id,day=time'.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of every random choice.")]
Threads = Annotated[
    int | None, typer.Option(min=1, callback=set_threads, is_eager=True, help="CPU threads (default: all).")
]
Memory = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        callback=set_memory,
        help="Most main memory to use, in GiB; what cannot be kept is refused before work starts.",
    ),
]
Splits = Annotated[int, typer.Option(min=1, help="How many random splits.")]
SplitBy = Annotated[
    Literal["visits", "patients"], typer.Option("--split", help="Hold out visits, or whole patients.")
]
REDRAWN = 100  # draws of calibration and test per fit, where the two may be exchanged
TestFraction = Annotated[float, typer.Option(help="Share of known values hidden as test.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", callback=_read_defaults, is_eager=True, help="TOML file with options."),
]

Quick = Annotated[
    bool,
    typer.Option(
        "--quick", help="A light fit: fewer folds of patients and faster trees; every result says so."
    ),
]

MEMORY: Flags = {"memory": (Memory, None)}
QUICK: Flags = {"quick": (Quick, False)}
RENAME: Flags = {"columns": (Rename, "")}
READING: Flags = {**RENAME, **format_flags()}  # how a file is written
NO_EFFECT = "Taken by every command; without effect here."
EVERYWHERE: Flags = {
    "seed": (Annotated[int, typer.Option(min=0, help=NO_EFFECT, show_default=False)], 0),
    "device": (Annotated[str, typer.Option(help=NO_EFFECT, show_default=False)], "auto"),
    "threads": (Threads, None),
    "memory": (Annotated[float | None, typer.Option(min=0.1, help=NO_EFFECT)], None),
    "config": (ConfigFile, None),
    "quiet": (Quiet, False),
}
Command = Callable[..., None]


def takes(*groups: Flags, last: bool = False) -> Callable[[Command], Command]:
    """Let a command take these flags too, after its arguments or last of all; their values are in its context.

    What the command names itself stays its own.
    """
    flags = {name: flag for group in groups for name, flag in group.items()}

    def extended(command: Command) -> Command:
        own = inspect.signature(command)
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in flags.items()
            if name not in own.parameters
        ]
        named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.parameters.values()]
        place = len(named) if last else sum(map(_comes_first, named))
        together = [*named[:place], *added, *named[place:]]

        @functools.wraps(command)
        def carried_out(**told: Any) -> None:
            command(**{name: told[name] for name in own.parameters})

        vars(carried_out)["__signature__"] = own.replace(parameters=together)
        return carried_out

    return extended


def _comes_first(parameter: inspect.Parameter) -> bool:
    """The context and what is typed without a flag."""
    return parameter.annotation is typer.Context or any(
        isinstance(part, ArgumentInfo) for part in get_args(parameter.annotation)
    )


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


def read_table(context: typer.Context, path: Path, time: str = "time") -> Any:
    """A table of visits, read as the flags of `READING` say."""
    from safeimpute.records.tables import read_visits

    read_as = table_format(context)
    return read_visits(
        path,
        renames(context.params["columns"]),
        date_format=read_as.date_format,
        decimal=read_as.decimal,
        separator=read_as.separator,
        unit_of=read_as.units,
        time=time,
    )


def numbers(text: str, flag: str) -> tuple[float, ...]:
    """A comma-separated list of numbers."""
    from safeimpute.errors import OptionError

    try:
        return tuple(float(part) for part in names(text))
    except ValueError:
        raise OptionError(f"{flag} {text!r} is not a list of numbers such as 0.1,0.2.") from None


def shares(text: str, flag: str) -> tuple[float, ...]:
    """A comma-separated list of shares between 0 and 1."""
    from safeimpute.errors import OptionError

    given = numbers(text, flag)
    if not all(0 < each < 1 for each in given):
        raise OptionError(f"{flag} {text!r}: every one must lie between 0 and 1.")
    return given


def tolerances(text: str) -> "tuple[Tolerance, ...]":
    """A comma-separated list of tolerances."""
    from safeimpute.tolerance import parse_tolerance

    return tuple(parse_tolerance(part) for part in names(text))


def levels_of(context: typer.Context) -> tuple[float, ...]:
    """The levels a command was given, where it takes several."""
    from safeimpute.errors import OptionError

    levels = numbers(context.params["fdr"] or "", "--fdr")
    if not levels:
        raise OptionError("--fdr needs at least one level such as 0.1.")
    return levels


def prepare(context: typer.Context, levels: Sequence[Any], **changes: Any) -> "tuple[Settings, VisitsTable]":
    """The same for a command that takes one lab at a time."""
    from safeimpute.errors import OptionError

    settings, asked = prepare_labs(context, levels, **changes)
    if len(asked) > 1:
        raise OptionError(
            f"{context.info_name} takes one lab at a time, not {settings.target!r}. Name one: --target."
        )
    return next(iter(asked.values()))


def prepare_labs(
    context: typer.Context, levels: Sequence[Any], **changes: Any
) -> "tuple[Settings, dict[str, tuple[Settings, VisitsTable]]]":
    """Check every option, level and place to write to, then read and check the table; settings of the first level.

    As a whole, and of each lab with the table that has it as its target.
    """
    from safeimpute.errors import OptionError
    from safeimpute.records.asked import (
        labs_asked,
        require_units_of_labs,
        settings_of_labs,
        settings_of_one,
    )
    from safeimpute.records.known_values import refuse_known_values
    from safeimpute.records.units import column_choice
    from safeimpute.records.visits import prepare_targets
    from safeimpute.runtime.files import reserved
    from safeimpute.settings import make_settings

    told = context.params
    settings, *_ = [make_settings(**given(context, fdr=level, **changes)) for level in levels]
    if not 0 < told["test_fraction"] < 1:
        raise OptionError("--test-fraction must lie between 0 and 1.")
    read = (told["visits"], told.get("truth"))
    for name in ("out", "json_file"):
        if told.get(name) is not None:
            place = reserved(told[name], force=told["force"], inputs=read, folder=name == "out")
            context.with_resource(place)  # taken until the command ends
    table = read_table(context, told["visits"], settings.time)
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
    from safeimpute.evaluation.trials import run_trials
    from safeimpute.evaluation.truth import align_truth
    from safeimpute.records.tables import read_visits
    from safeimpute.records.units import unit_of
    from safeimpute.runtime.devices import resolve_device
    from safeimpute.runtime.progress import SideBySide

    told, places = context.params, list(asked)
    truth = read_visits(told["truth"]) if told.get("truth") else None
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
