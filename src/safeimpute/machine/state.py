"""Fitted things as named arrays and plain JSON, and finished parts of long work kept so on disk until it is done.

What is kept is known by what it was made from: the visits, the settings and the code. It holds what a model holds, so
only its owner may read it, and what cannot be read back whole counts as not there.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from safeimpute.errors import SafeImputeError
from safeimpute.machine.endings import shielded

Arrays = dict[str, NDArray[Any]]
Plain = dict[str, Any]
State = tuple[Arrays, Plain]
T = TypeVar("T")
CHECKPOINTS = ".safeimpute-kept"  # ends the name of the folder beside an output
COUNTS = ("lightgbm", "numpy", "scipy", "torch")  # versions on which the bytes of a fit may hang


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


@dataclass(frozen=True)
class Checkpoint:
    """Parts of one piece of work, by name."""

    folder: Path

    def of(self, *made_from: str) -> "Checkpoint":
        """Where parts of work on this lie."""
        digest = hashlib.sha256("\0".join((*made_from, code_version())).encode()).hexdigest()
        return Checkpoint(self.folder / digest[:32])

    def get(self, name: str) -> State | None:
        """A part as it was kept; None where it is not there, or not whole."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        if not _is_sound(self.folder.parent):
            return None
        try:
            tensors = (self.folder / f"{name}.safetensors").read_bytes()
            told = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            if told["sha256"] != hashlib.sha256(tensors).hexdigest():
                return None
            return load(tensors), told["plain"]
        except (OSError, ValueError, LookupError, TypeError, SafetensorError):
            return None

    def put(self, name: str, state: State) -> None:
        """Keep a part; where there is no room for it the work goes on without."""
        from safetensors.numpy import save

        arrays, plain = state
        tensors = save(arrays)
        told = json.dumps({"sha256": hashlib.sha256(tensors).hexdigest(), "plain": plain})
        try:
            for folder in (self.folder.parent, self.folder):
                folder.mkdir(mode=0o700, exist_ok=True)
            if _is_sound(self.folder.parent):
                (self.folder / f"{name}.safetensors").write_bytes(tensors)
                (self.folder / f"{name}.json").write_text(told, encoding="utf-8")
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):  # what other work keeps there stays
                self.folder.parent.rmdir()

    def clear(self) -> None:
        """Remove all that is kept here."""
        if _is_sound(self.folder):
            with shielded():
                shutil.rmtree(self.folder, ignore_errors=True)

    def count(self) -> int:
        """How many parts are kept, whatever they were made from."""
        return sum(1 for _ in self.folder.rglob("*.json"))


@contextmanager
def checkpoint_beside(out: Path) -> Iterator[Checkpoint]:
    """A hidden folder beside an output, left where the work was stopped: by a signal, a full disk, our own fault."""
    checkpoint = Checkpoint(out.with_name(f".{out.name}{CHECKPOINTS}"))
    try:
        yield checkpoint
    except SafeImputeError:  # the same work would be refused again
        checkpoint.clear()
        raise
    checkpoint.clear()


def _is_sound(folder: Path) -> bool:
    """A folder of this user's, and no link to another."""
    return is_mine(folder) and folder.is_dir() and not folder.is_symlink()


def is_mine(path: Path) -> bool:
    """Whether something is there and this user's; a link is looked at itself."""
    try:
        owner = path.lstat().st_uid
    except OSError:
        return False
    return not hasattr(os, "getuid") or owner == os.getuid()


@cache
def code_version() -> str:
    """What was fitted by other code, or other libraries, is not taken up."""
    digest = hashlib.sha256(repr([metadata.version(name) for name in COUNTS]).encode())
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
