"""Second looks: a log of the user's says which visits were shown before, and under which choices.

A level, a seed or a column chosen after an earlier result on the same visits has no promise of its own. The log stands
in the user's state folder, wherever results were written, and holds hashes only.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safeimpute.machine.places import try_lock

VARIABLE, OFF = "SAFEIMPUTE_STATE", "off"  # a folder for the log, or no log at all: for servers
LOG = "looks.jsonl"
MOST_BYTES = 4 * 2**20  # about 20,000 looks; beyond it the older half goes
PATIENCE = 10.0  # seconds to wait for another run that writes
NOT_KEPT = (
    f"No log of looks is kept ({VARIABLE}=off): whether these visits were looked at before under other choices is not "
    "known, and the promise holds only if they were not."
)
COLUMNS = ("target", "subject", "time", "labs", "attributes", "exclude")  # they reach a decision through the table
CARRIED = ("limits", "cost")  # by the tolerance, once settings are made
NO_CHOICES = (*COLUMNS, *CARRIED, "interval", "gammas", "device", "best", "paper")  # all others reach a decision


@dataclass(frozen=True)
class Look:
    """One finished run: which visits it showed, and what was chosen before it."""

    visits: str  # hash of patients, times and the target's values, whatever the columns are called and others there are
    choices: str  # hash of the settings that reach a decision and of the table as it was read
    when: str  # ISO 8601, UTC


def look_of(options: Mapping[str, Any], fingerprint: str, table: str, preset: str | None = None) -> Look:
    """A run with these settings, by name, as a look at visits; `preset` names another tool's values.

    `fingerprint` is of patients, times and the target's values, `table` of all that was read of them.
    """
    name = preset or options["preset"]
    own = options["paper"] if options["preset"] == "paper" else options["best"].resolved(several=False)
    chosen = {each: value for each, value in options.items() if each not in NO_CHOICES}
    told = json.dumps([chosen | {"preset": name, "system": own}, table], sort_keys=True, default=str)
    return Look(_hash(fingerprint), _hash(told), datetime.now(UTC).isoformat(timespec="seconds"))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_second_look(looks: Iterable[Look], look: Look) -> bool:
    """Whether an earlier run showed the same visits and target under another choice; a plain repetition does not."""
    return any(each.visits == look.visits and each.choices != look.choices for each in looks)


def state_folder() -> Path | None:
    """Where the user's log stands, by the platform's convention or as the environment says; None: nowhere."""
    told = os.environ.get(VARIABLE, "").strip()
    if told.lower() == OFF:
        return None
    if told:
        return Path(told).expanduser().absolute()
    home = Path.home()
    if sys.platform == "win32":  # pragma: no cover
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "safeimpute"
    if sys.platform == "darwin":  # pragma: no cover
        return home / "Library" / "Application Support" / "safeimpute"
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "safeimpute"


def earlier_looks() -> list[Look]:
    """The user's looks, oldest first; a log that cannot be read counts as empty, damaged lines are passed over."""
    folder = state_folder()
    try:
        text = (folder / LOG).read_text(encoding="utf-8", errors="replace") if folder else ""
    except OSError:
        return []
    return [look for line in text.split("\n") if (look := _parse(line))]


def record_look(look: Look) -> str:
    """Enter a finished run in the log.

    Returns a warning to show where that was not possible, else ""; a finished run is never lost to it.
    """
    folder = state_folder()
    if folder is None:
        return NOT_KEPT
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(folder / LOG) as path:
            _append(path, json.dumps(asdict(look)).encode())
    except OSError as error:
        return (
            f"this run could not be entered in {folder / LOG} ({type(error).__name__}), so a later run on the same "
            f"visits will not be known as a second look. Check the rights of that folder, or name another: {VARIABLE}."
        )
    return ""


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """One writer at a time."""
    with path.with_suffix(".lock").open("ab") as file:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                try_lock(file)
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        yield path


def _append(path: Path, line: bytes) -> None:
    """One line at the end; where there are too many, the older half is left behind."""
    known = path.read_bytes() if path.is_file() else b""
    if len(known) > MOST_BYTES:
        newer = known[len(known) // 2 :].partition(b"\n")[2]
        partial = path.with_suffix(".partial")
        partial.write_bytes(newer)
        partial.replace(path)
        known = newer
    start = b"" if not known or known.endswith(b"\n") else b"\n"  # a torn line must not swallow this one
    with path.open("ab") as file:
        file.write(start + line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _parse(line: str) -> Look | None:
    """The look a line holds, or None where it holds none."""
    try:
        content = json.loads(line)
        found = {each.name: content[each.name] for each in fields(Look)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Look(**found) if all(isinstance(value, str) for value in found.values()) else None
