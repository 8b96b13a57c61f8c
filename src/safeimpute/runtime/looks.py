"""Second looks: a ledger beside the output folders says which visits were shown before, and with which choices.

A level, seed or claim chosen after an earlier result on the same visits has no promise of its own. The ledger holds no
patient data beyond one hash of the whole table.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

LEDGER = ".safeimpute-looks.jsonl"
CHOICES = ("tolerance", "fdr", "seed", "claim", "preset", "promise", "confidence")


@dataclass(frozen=True)
class Look:
    """One finished run: which visits it showed, and what was chosen before it."""

    fingerprint: str  # of the visits shown, see `records.visits.looks_fingerprint`
    target: str
    tolerance: float | str
    fdr: float
    seed: int
    claim: str
    preset: str
    promise: str
    confidence: float
    when: str  # ISO 8601, UTC
    run: str  # name of the run's folder


def earlier_looks(folder: Path, fingerprint: str, target: str) -> list[Look]:
    """Runs on these visits and this target, oldest first, whose folders stood beside `folder`.

    A ledger that is not there or cannot be read counts as empty; damaged lines are passed over.
    """
    path = _ledger(folder)
    try:
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    looks = (_parse(line) for line in lines)
    return [look for look in looks if look and (look.fingerprint, look.target) == (fingerprint, target)]


def is_second_look(looks: Iterable[Look], look: Look) -> bool:
    """Whether an earlier run showed the same visits and target under another choice; a plain repetition does not."""
    same_visits = (
        each for each in looks if (each.fingerprint, each.target) == (look.fingerprint, look.target)
    )
    return any(_choices(each) != _choices(look) for each in same_visits)


def _choices(look: Look) -> tuple[object, ...]:
    return tuple(getattr(look, name) for name in CHOICES)


def record_look(folder: Path, look: Look) -> str:
    """Append a finished run to the ledger beside its folder.

    Returns a warning to show where that was not possible, else ""; a finished run is never lost to it.
    """
    path = _ledger(folder)
    try:
        line = json.dumps(asdict(look), allow_nan=False).encode()
        if path.exists() and not path.is_file():
            raise OSError("not a file")
        _append(path, line)
    except (OSError, TypeError, ValueError) as error:
        return (
            f"this run could not be entered in {path} ({type(error).__name__}), so a later run on the same visits will "
            "not be known as a second look. Check the rights of that folder."
        )
    return ""


def _append(path: Path, line: bytes) -> None:
    """One write at the end of the file: lines of two writers never mix."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        start = b"" if _ends_a_line(handle) else b"\n"  # a torn line must not swallow this one
        text = start + line + b"\n"
        if os.write(handle, text) != len(text):
            raise OSError("no room")
        os.fsync(handle)
    finally:
        os.close(handle)


def _ends_a_line(handle: int) -> bool:
    if os.fstat(handle).st_size == 0:
        return True
    os.lseek(handle, -1, os.SEEK_END)
    return os.read(handle, 1) == b"\n"


def _ledger(folder: Path) -> Path:
    return folder.resolve().parent / LEDGER


KINDS: dict[str, tuple[type, ...]] = {
    "tolerance": (float, int, str),
    "fdr": (float, int),
    "seed": (int,),
    "confidence": (float, int),
}


def _parse(line: str) -> Look | None:
    """The look a line holds, or None where it holds none."""
    try:
        content = json.loads(line)
        found = {each.name: content[each.name] for each in fields(Look)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    sound = all(
        isinstance(value, KINDS.get(name, (str,))) and not isinstance(value, bool)
        for name, value in found.items()
    )
    return Look(**found) if sound else None
