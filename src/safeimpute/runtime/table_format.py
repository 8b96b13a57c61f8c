"""How a file of visits is written, where it is not written plainly: options of reading, declared once."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from safeimpute.errors import OptionError
from safeimpute.runtime.options import CHECKED, Option, as_names, checked


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
        str,
        Option(
            "What separates the columns of a csv file.", takes="one mark such as ; or tab", reads=_separator
        ),
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
