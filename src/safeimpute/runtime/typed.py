"""From what was typed to the type that is checked: the ways in which options are read."""

from typing import Any

from safeimpute.errors import OptionError
from safeimpute.runtime.options import as_names as names


def a_name(given: Any) -> Any:
    if isinstance(given, str) and not given.strip():
        raise ValueError("empty")
    return given


def auto_or_names(given: Any) -> Any:
    return given if given == "auto" else names(given)


def or_none(given: Any) -> Any:
    """A TOML file has no word for nothing: it says "none"."""
    return None if given == "none" else given


def labs(given: Any) -> Any:
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


def claim(given: Any) -> Any:
    """`patients,unmeasured`, as the first models were told, is the claim `patients`."""
    both = isinstance(given, str) and set(names(given)) == {"patients", "unmeasured"}
    return "patients" if both else given
