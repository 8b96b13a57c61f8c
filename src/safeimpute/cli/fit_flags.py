"""The flags of a fit, made from the options that settings.py declares; nothing about them is said here again."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from safeimpute.runtime.options import Declared, declared, tables_of
from safeimpute.runtime.table_format import TableFormat, make_table_format
from safeimpute.settings import Settings

Flags = dict[str, tuple[Any, Any]]  # name of the parameter -> how it is typed, its default
OPTIONS = {each.name: each for each in declared(Settings) if len(each.path) == 1}
FORMAT = {each.name: each for each in declared(TableFormat)}
TABLES = tuple(tables_of(Settings))  # of the file: settings of the presets
SWITCHES = tuple(each.parameter for each in OPTIONS.values() if each.hint is bool)
LEVELS = ("target", "tolerance", "fdr")
COLUMNS = ("labs", "attributes", "exclude", "subject", "time", "unit")
PROMISE = ("preset", "claim", "promise", "confidence", "past_only")
SEVERAL = ("over",)  # of commands that take several labs
MACHINE = ("random_state", "device")


def flags_of(*names: str) -> Flags:
    """Flags for these options, all of them where none is named."""
    return {OPTIONS[name].parameter: _flag(OPTIONS[name]) for name in names or OPTIONS}


def format_flags() -> Flags:
    """Flags that say how a file of visits is written."""
    return {each.parameter: _flag(each) for each in FORMAT.values()}


def table_format(context: typer.Context) -> TableFormat:
    """How the command was told that its file is written."""
    return make_table_format(**{name: context.params.get(each.parameter) for name, each in FORMAT.items()})


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
        from safeimpute.errors import OptionError

        raise OptionError("--quick makes the preset 'best' lighter: leave it out where 'paper' runs.")
    return {**settings.get("best", {}), "effort": "light"}


def refuse_unplanned_memory(preset: str, memory: float | None) -> None:
    """A ceiling nothing would keep is an error."""
    if memory is not None and preset == "paper":
        from safeimpute.errors import OptionError

        raise OptionError(
            "--memory is planned for the preset 'best' only: leave it out where 'paper' runs, whose graph grows with "
            "the visits and cannot be read in blocks."
        )
