"""How options are declared, read, checked and put into words; settings.py declares them, surfaces derive from that."""

import difflib
import inspect
import math
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from safeimpute.errors import OptionError

T = TypeVar("T")
CHECKED: Any = {"extra": "forbid", "revalidate_instances": "always"}  # how pydantic reads a class of options


@dataclass(frozen=True)
class Option:
    """What an option means and takes; pydantic reads the bounds as constraints on the annotated type."""

    means: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    takes: str = ""  # in words, where type and bounds do not say it
    default: str = ""  # in words, where the data or another option decides
    flag: str = ""  # on the command line, where it is not the option's name
    reads: Callable[[Any], Any] | None = None  # from what was typed to the type that is checked

    __is_annotated_types_grouped_metadata__: ClassVar[Literal[True]] = True

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds there are, by pydantic's names."""
        named = {"ge": self.least, "le": self.most, "gt": self.above, "lt": self.below}
        return {name: bound for name, bound in named.items() if bound is not None}

    def __iter__(self) -> Iterator[Any]:
        """The bounds as pydantic takes them."""
        from pydantic import BeforeValidator, Field

        if self.bounds:
            bounds: Any = self.bounds
            yield from Field(**bounds).metadata
            yield BeforeValidator(_a_number)
        if self.reads is not None:
            yield BeforeValidator(self.reads)


def _a_number(given: Any) -> Any:
    """Neither true nor false, neither NaN nor infinite."""
    if isinstance(given, bool) or (isinstance(given, float) and not math.isfinite(given)):
        raise ValueError("not a number")
    return given


@dataclass(frozen=True)
class Declared:
    """One option as its class declares it."""

    path: tuple[str, ...]  # tables of the TOML file, then the name
    hint: Any
    about: Option
    default: Any  # inspect.Parameter.empty where it must be given

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def parameter(self) -> str:
        """The name by which commands take it."""
        return self.about.flag or self.name

    @property
    def flag(self) -> str:
        return "--" + self.parameter.replace("_", "-")

    @property
    def needed(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def takes(self) -> str:
        """Which values it takes, in words."""
        return self.about.takes or _in_words(self.hint, self.about)

    @property
    def default_in_words(self) -> str:
        """What holds where it is not given; empty where it must be."""
        if self.needed or self.about.default:
            return self.about.default
        if isinstance(self.default, tuple):
            return ",".join(f"{each:g}" if isinstance(each, float) else each for each in self.default)
        return str(self.default).lower() if isinstance(self.default, bool | NoneType) else str(self.default)


def declared(kind: type, path: tuple[str, ...] = ()) -> Iterator[Declared]:
    """The options of a settings class, those of its tables after its own."""
    hints, tables = get_type_hints(kind, include_extras=True), tables_of(kind)
    for each in fields(kind):
        if each.name not in tables:
            hint, about = get_args(hints[each.name])
            yield Declared((*path, each.name), hint, about, _default(each))
    for name, table in tables.items():
        yield from declared(table, (*path, name))


def tables_of(kind: type) -> dict[str, type]:
    """The classes of options that a class of options holds, by name."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if is_dataclass(hints[each.name])}


def parameters_of(kind: type) -> list[inspect.Parameter]:
    """The options of a settings class as keyword-only parameters of a signature."""
    hints = get_type_hints(kind)
    return [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=_default(each), annotation=hints[each.name]
        )
        for each in fields(kind)
    ]


def checked(kind: type[T], given: Mapping[str, Any]) -> T:
    """The class of options filled from values by name, or an error that names the option and what it takes."""
    from pydantic import ValidationError

    reader = _reader(kind)  # type: ignore[arg-type]  # a class is hashable
    try:
        read: T = reader.validate_python(given)
    except ValidationError as error:
        raise OptionError(_fault(kind, error.errors(include_url=False)[0])) from None
    return read


@cache
def _reader(kind: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _fault(kind: type, error: Mapping[str, Any]) -> str:
    """What was wrong with which option, and what it takes."""
    known = {each.path: each for each in declared(kind)}
    path = tuple(part for part in error["loc"] if isinstance(part, str))
    found = next((known[path[:n]] for n in range(len(path), 0, -1) if path[:n] in known), None)
    if found is None:
        return _unknown(path, error, known)
    name = ".".join(found.path) + (f" ({found.flag})" if found.about.flag else "")
    if error["type"].startswith("missing"):
        return f"{name} is needed: {found.takes}. {found.about.means}"
    return f"{name} takes {found.takes}; given: {_shortened(error['input'])}. {found.about.means}"


def _unknown(path: tuple[str, ...], error: Mapping[str, Any], known: Mapping[tuple[str, ...], Declared]) -> str:
    """Not an option: a misspelt name, or something else where a table of options belongs."""
    written = ".".join(path)
    inside = [each[len(path)] for each in known if each[: len(path)] == path]
    if inside:
        return f"{written} holds options ({', '.join(dict.fromkeys(inside))}); given: {_shortened(error['input'])}."
    beside = list(dict.fromkeys(each[len(path) - 1] for each in known if each[: len(path) - 1] == path[:-1]))
    close = difflib.get_close_matches(path[-1], beside, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Options here: {', '.join(beside)}."
    return f"{written!r} is no option. {hint}"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _default(entry: Any) -> Any:
    if entry.default is not MISSING:
        return entry.default
    return inspect.Parameter.empty if entry.default_factory is MISSING else entry.default_factory()


def _in_words(hint: Any, about: Option) -> str:
    """A type and its range."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "none"}
    if get_origin(hint) is Literal:
        *first, last = get_args(hint)
        return f"{', '.join(first)} or {last}"
    if NoneType in get_args(hint):
        return _in_words(get_args(hint)[0], about) + ", or none"
    return " ".join(filter(None, (words[hint], _bounds(about))))


def _bounds(about: Option) -> str:
    if about.least is not None and about.most is not None:
        return f"from {_number(about.least)} to {_number(about.most)}"
    named = {"above": about.above, "at least": about.least, "below": about.below, "at most": about.most}
    return " and ".join(f"{word} {_number(bound)}" for word, bound in named.items() if bound is not None)


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def as_names(given: Any) -> Any:
    """Names in one text, comma separated, as a tuple."""
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(",") if part.strip())
    return given


def a_name(given: Any) -> Any:
    if isinstance(given, str) and not given.strip():
        raise ValueError("empty")
    return given


def auto_or_names(given: Any) -> Any:
    return given if given == "auto" else as_names(given)


def or_none(given: Any) -> Any:
    """A TOML file has no word for nothing: it says "none"."""
    return None if given == "none" else given


def as_labs(given: Any) -> Any:
    """Several labs as one text, comma separated."""
    if not isinstance(given, list | tuple):
        return a_name(given)
    if not given or any(not isinstance(name, str) or not name.strip() for name in given):
        raise ValueError("no names")
    if broken := [name for name in given if len(given) > 1 and ("," in name or "=" in name)]:
        raise OptionError(
            f"lab {broken[0]!r} cannot stand in a list of labs: its name holds a comma or an equals sign. Rename the "
            "column."
        )
    return ",".join(given)


def as_claim(given: Any) -> Any:
    """`patients,unmeasured`, as the first models were told, is the claim `patients`."""
    both = isinstance(given, str) and set(as_names(given)) == {"patients", "unmeasured"}
    return "patients" if both else given


def read_config_file(path: Path, tables: Collection[str]) -> dict[str, Any]:
    """The file's options and tables by name; of tables it may have only the named ones."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"configuration file {path.name!r} cannot be read: {error}.") from None
    for name, value in found.items():
        if isinstance(value, dict) and name not in tables:
            raise OptionError(
                f"configuration file: [{name}] is no table it may have. Write options without a table; "
                f"{' and '.join(f'[{each}]' for each in tables)} hold settings of the presets."
            )
        if name in tables and not isinstance(value, dict):
            raise OptionError(f"configuration file: {name!r} is a table. Write its settings under [{name}].")
    return found


def _separator(given: Any) -> Any:
    """`tab` is how a tab is typed."""
    found = "\t" if given in ("tab", "\\t") else given
    if not isinstance(found, str) or len(found) != 1 or found.isalnum() or found in "\"'.-+ \r\n":
        raise ValueError("not a separator")
    return found


@dataclass(frozen=True)
class TableFormat:
    """How a file of visits is written, where it is not written plainly."""

    __pydantic_config__: ClassVar[Any] = CHECKED

    date_format: Annotated[
        str | None,
        Option(
            "How dates are written in the file.",
            takes="the order of day, month and four-digit year, such as DD.MM.YYYY or MM/DD/YYYY HH:MM",
            default="year first, 2024-03-31",
        ),
    ] = None
    decimal: Annotated[Literal[".", ","], Option("Decimal mark of a csv file.")] = "."
    separator: Annotated[
        str, Option("What separates the columns of a csv file.", takes="one mark such as ; or tab", reads=_separator)
    ] = ","
    unit_of: Annotated[
        tuple[str, ...],
        Option(
            "Labs whose column is in another unit of the catalogue: converted when the file is read.",
            takes="LAB=UNIT such as glucose=mmol/L, comma separated",
            default="every lab in the catalogue's unit",
            reads=as_names,
        ),
    ] = ()

    window: Annotated[
        str,
        Option(
            "Which results of a long table, one row per result, make one visit.",
            takes="day, a number of hours such as 6h, or the name of a column that says which encounter it was",
            reads=a_name,
        ),
    ] = "day"
    lab_names: Annotated[
        str | None,
        Option(
            "What a long table calls its labs, where the catalogue does not know it.",
            takes="a csv file with the columns name (theirs), lab (ours) and, where the table has none, unit",
            default="codes and names of the catalogue",
        ),
    ] = None
    sheet: Annotated[
        str | None, Option("Sheet of an .xlsx file.", takes="its name", default="the first that is not empty")
    ] = None

    def __post_init__(self) -> None:
        if self.decimal == self.separator:
            raise OptionError(
                "a comma cannot be both the decimal mark and the separator. Give --separator, such as ';'."
            )
        if wrong := [each for each in self.unit_of if not all(map(str.strip, (each + "=").split("=")[:2]))]:
            raise OptionError(f"unit_of (--unit-of) {wrong[0]!r} is not understood. Write LAB=UNIT.")

    @property
    def units(self) -> dict[str, str]:
        """The unit of every lab that has another."""
        pairs = (each.partition("=") for each in self.unit_of)
        return {lab.strip(): unit.strip() for lab, _, unit in pairs}


def make_table_format(**given: Any) -> TableFormat:
    """A checked format of a file from options by name (None: not given)."""
    return checked(TableFormat, {name: value for name, value in given.items() if value is not None})


def read_moment(given: Any) -> Any:
    """A number of days stays one, however it was typed; a date is kept as it is written, year first."""
    from datetime import date, datetime

    if isinstance(given, date):
        return given.isoformat()
    if isinstance(given, str):
        try:
            return float(given)
        except ValueError:
            datetime.fromisoformat(given)
    return given


def days_of(moment: float | str) -> float:
    """A number of days as it is, a date or timestamp as days since 1970; anything else is an error."""
    from datetime import UTC, datetime

    try:
        read = read_moment(moment)
        if not isinstance(read, str):
            return float(read)
        then = datetime.fromisoformat(read)
    except ValueError:
        raise OptionError(f"{moment!r} is neither a date such as 2026-01-31 nor a number of days.") from None
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() / 86_400


def as_costs(given: Any) -> Any:
    """A table in a file or in Python as the text that is typed."""
    if isinstance(given, list | tuple) and all(isinstance(row, list | tuple) for row in given):
        return "; ".join(" ".join(str(each) for each in row) for row in given)
    return given


LIMITS = Option(
    "Limits that the tolerance limits speaks of; a value at a limit lies above it.",
    takes="numbers in the target's unit, comma separated or as a list",
    default="the catalogue's decision limits",
    reads=as_names,
)
COST = Option(
    "What it costs to impute one band or class where another is the true one; fdr is then the mean cost among the "
    "released values, as a share of the largest.",
    takes="a row per true band, from the lowest, of what imputing each costs (0 1; 5 0, or a list of lists), or the "
    "size of the error up to a largest (error up to 2)",
    default="every wrong band the same",
    reads=as_costs,
)
