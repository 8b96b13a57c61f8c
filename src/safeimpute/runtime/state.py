"""Frozen dataclasses as named arrays and plain JSON, and back: how fitted models are stored."""

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Plain = dict[str, Any]
State = tuple[Arrays, Plain]
T = TypeVar("T")


def state_of(thing: Any, prefix: str = "") -> State:
    """Arrays under dotted names, everything else as JSON; nested dataclasses are followed."""
    arrays: Arrays = {}
    plain: Plain = {}
    for entry in fields(thing):
        value = getattr(thing, entry.name)
        if is_dataclass(value):
            inner_arrays, plain[entry.name] = state_of(value, f"{prefix}{entry.name}.")
            arrays |= inner_arrays
        elif isinstance(value, np.ndarray):
            arrays[prefix + entry.name] = value
        else:
            plain[entry.name] = value
    return arrays, plain


def from_state(kind: type[T], arrays: Arrays, plain: Plain, prefix: str = "") -> T:
    """The dataclass that `state_of` took apart."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        name, hint = entry.name, hints[entry.name]
        if is_dataclass(hint):
            values[name] = from_state(hint, arrays, plain[name], f"{prefix}{name}.")  # type: ignore[arg-type]
        elif prefix + name in arrays:
            values[name] = arrays[prefix + name]
        else:
            value = plain[name]
            values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
