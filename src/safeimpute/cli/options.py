"""Options of commands: flags of a fit, made from what settings.py declares, and those that several commands share."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.models import ArgumentInfo

from safeimpute.errors import OptionError
from safeimpute.machine.options import Declared, TableFormat, declared, make_table_format, tables_of
from safeimpute.settings import Settings

if TYPE_CHECKING:
    from safeimpute.report.run_folder import Origin
    from safeimpute.tolerance import Tolerance

Flags = dict[str, tuple[Any, Any]]  # name of the parameter -> how it is typed, its default
Command = Callable[..., None]
OPTIONS = {each.name: each for each in declared(Settings) if len(each.path) == 1}
FORMAT = {each.name: each for each in declared(TableFormat)}
TABLES = tuple(tables_of(Settings))  # of the file: settings of the presets
SWITCHES = tuple(each.parameter for each in OPTIONS.values() if each.hint is bool)
LEVELS = ("target", "tolerance", "fdr")
COLUMNS = ("labs", "attributes", "exclude", "subject", "time", "unit")
PROMISE = ("preset", "claim", "promise", "confidence", "past_only")
SEVERAL = ("over",)  # of commands that take several labs
MACHINE = ("random_state", "device")
NO_EFFECT = "Taken by every command; without effect here."


def flags_of(*names: str) -> Flags:
    """Flags for these options, all of them where none is named."""
    return {OPTIONS[name].parameter: _flag(OPTIONS[name]) for name in names or OPTIONS}


def format_flags() -> Flags:
    """Flags that say how a file of visits is written."""
    return {each.parameter: _flag(each) for each in FORMAT.values()}


def flag_with(name: str, default: str) -> Flags:
    """The flag of an option whose default this command decides, in words."""
    return {OPTIONS[name].parameter: _flag(OPTIONS[name], default)}


def levels_flag(default: str = "") -> Flags:
    """The level, where a command takes several."""
    means = f"{OPTIONS['fdr'].about.means[:-1]}: one level or several, comma separated"
    return {"fdr": (_text("--fdr", "<str>", f"{means}. {_shown(default)}"), default or None)}


def _flag(option: Declared, default: str = "") -> tuple[Any, Any]:
    """What is typed stays text until the settings check it, so that every fault is answered in the same words."""
    ending = _shown(default or option.default_in_words)
    if option.hint is bool:
        return Annotated[bool, typer.Option(option.flag, help=option.about.means, show_default=False)], False
    if get_origin(option.hint) is Literal:
        return _text(option.flag, "|".join(get_args(option.hint)), f"{option.about.means} {ending}"), None
    kind = option.hint.__name__ if option.hint in (int, float) else "str"
    return _text(option.flag, f"<{kind}>", f"{option.about.means[:-1]}: {option.takes}. {ending}"), None


def _text(flag: str, metavar: str, means: str) -> Any:
    return Annotated[str | None, typer.Option(flag, metavar=metavar, help=means, show_default=False)]


def _shown(default: str) -> str:
    return f"[default: {default}]" if default else "[required]"


def parameter_of(name: str) -> str:
    """The parameter by which commands take an option, given by its own name or by its flag's."""
    return OPTIONS[name].parameter if name in OPTIONS else name


def settings_in(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says about a fit, by the settings' names, as it stands there."""
    named = {each.parameter: name for name, each in OPTIONS.items()}
    said = {named.get(name, name): value for name, value in found.items()}
    return {name: value for name, value in said.items() if name in (*OPTIONS, *TABLES)}


def _read_defaults(context: typer.Context, path: Path | None) -> Path | None:
    """Options in the TOML file become the defaults of this command's flags; tables go to the presets."""
    if path is not None:
        from safeimpute.machine.options import read_config_file

        found = {name.replace("-", "_"): each for name, each in read_config_file(path, TABLES).items()}
        context.obj = settings_in(found)
        options = {parameter_of(name): value for name, value in found.items() if name not in TABLES}
        _refuse_unknown(context, options)
        fields = {
            flag.lstrip("-").replace("-", "_"): each.name for each in context.command.params for flag in each.opts
        }
        told = {fields.get(name) or name: _as_typed(value) for name, value in options.items() if name not in SWITCHES}
        context.default_map = {**(context.default_map or {}), **told}
    return path


def _refuse_unknown(context: typer.Context, options: Iterable[str]) -> None:
    """A misspelt option must not pass in silence; options of other commands are fine in a shared file."""
    program: Any = context.find_root().command
    commands = (program.get_command(context, name) for name in program.list_commands(context))
    known = {name for command in commands for each in command.params for name in (each.name, *each.opts)}
    for name in options:
        if name not in known and f"--{name.replace('_', '-')}" not in known:
            raise OptionError(f"configuration file: {name!r} is no option of any command. Check its spelling.")


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
        from safeimpute.machine.resources import set_ceiling

        set_ceiling(gib)
    return gib


Visits = Annotated[
    Path,
    typer.Argument(help="Visits table: .csv, .csv.gz, .parquet or .xlsx, or a folder of such.", show_default=False),
]
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
SplitBy = Annotated[Literal["visits", "patients"], typer.Option("--split", help="Hold out visits, or whole patients.")]
TestFraction = Annotated[float, typer.Option(help="Share of known values hidden as test.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", callback=_read_defaults, is_eager=True, help="TOML file with options.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="A light fit: fewer folds of patients and faster trees; every result says so.")
]
MEMORY: Flags = {"memory": (Memory, None)}
QUICK: Flags = {"quick": (Quick, False)}
RENAME: Flags = {"columns": (Rename, "")}
READING: Flags = {**RENAME, **format_flags()}  # how a file is written
EVERYWHERE: Flags = {
    "seed": (Annotated[int, typer.Option(min=0, help=NO_EFFECT, show_default=False)], 0),
    "device": (Annotated[str, typer.Option(help=NO_EFFECT, show_default=False)], "auto"),
    "threads": (Threads, None),
    "memory": (Annotated[float | None, typer.Option(min=0.1, help=NO_EFFECT)], None),
    "config": (ConfigFile, None),
    "quiet": (Quiet, False),
}


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


def table_format(context: typer.Context) -> TableFormat:
    """How the command was told that its file is written."""
    return make_table_format(**{name: context.params.get(each.parameter) for name, each in FORMAT.items()})


def origin_of(context: typer.Context, path: Path) -> "Origin":
    """A table of visits, to be read as the flags of `READING` say."""
    from safeimpute.report.run_folder import Origin

    return Origin(path, renames(context.params["columns"]), table_format(context))


def read_table(context: typer.Context, path: Path, said: Mapping[str, Any]) -> Any:
    """The same, read; `said` are the settings, of which the columns of times and patients are needed."""
    origin = origin_of(context, path)
    table = origin.read(said.get("time", "time"), said.get("subject", "subject_id"))
    if not context.params.get("quiet"):
        say_what_was_read(origin)
    return table


def say_what_was_read(origin: "Origin") -> None:
    """What reading did to the rows of a file."""
    for line in origin.account.lines():
        typer.echo(line)


def told(context: typer.Context) -> dict[str, Any]:
    """The options of a fit that a command takes and was given, by the settings' names; what is typed wins."""
    settings = {}
    for name, option in OPTIONS.items():
        if option.parameter not in context.params:
            continue
        source = context.get_parameter_source(option.parameter)
        if source is not None and source.name == "COMMANDLINE":
            settings[name] = context.params[option.parameter]
        elif name in (context.obj or {}):
            settings[name] = context.obj[name]
    return settings


def given(context: typer.Context, **changes: Any) -> dict[str, Any]:
    """The same with the presets' settings from the file's tables, and with what the command itself decides."""
    tables = {name: context.obj[name] for name in TABLES if name in (context.obj or {})}
    settings = {**told(context), **tables, **changes}
    if context.params.get("quick"):
        settings["best"] = _lightly(settings)
    refuse_unplanned_memory(str(settings.get("preset", "")), context.params.get("memory"))
    return settings


def _lightly(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the preset best with a light effort; the preset paper has none to spare."""
    if settings.get("preset") == "paper":
        raise OptionError("--quick makes the preset 'best' lighter: leave it out where 'paper' runs.")
    return {**settings.get("best", {}), "effort": "light"}


def refuse_unplanned_memory(preset: str, memory: float | None) -> None:
    """A ceiling nothing would keep is an error."""
    if memory is not None and preset == "paper":
        raise OptionError(
            "--memory is planned for the preset 'best' only: leave it out where 'paper' runs, whose graph grows with "
            "the visits and cannot be read in blocks."
        )


def names(text: str) -> tuple[str, ...]:
    """A comma-separated list as a tuple."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def renames(text: str) -> dict[str, str]:
    """`theirs=ours,…` as a dictionary."""
    pairs = [part.partition("=") for part in names(text)]
    if any(not theirs or not ours for theirs, _, ours in pairs):
        raise OptionError(f"--columns {text!r} is not understood. Write 'their_name=subject_id,other=time'.")
    return {theirs.strip(): ours.strip() for theirs, _, ours in pairs}


def numbers(text: str, flag: str) -> tuple[float, ...]:
    """A comma-separated list of numbers."""
    try:
        return tuple(float(part) for part in names(text))
    except ValueError:
        raise OptionError(f"{flag} {text!r} is not a list of numbers such as 0.1,0.2.") from None


def shares(text: str, flag: str) -> tuple[float, ...]:
    """A comma-separated list of shares between 0 and 1."""
    given = numbers(text, flag)
    if not all(0 < each < 1 for each in given):
        raise OptionError(f"{flag} {text!r}: every one must lie between 0 and 1.")
    return given


def tolerances(text: str) -> "tuple[Tolerance, ...]":
    """A comma-separated list of tolerances."""
    from safeimpute.tolerance import parse_tolerance

    return tuple(parse_tolerance(part) for part in names(text))
