"""Unfinished work on disk: names that say whose it is, so that what a killed run left is found, told and cleared."""

import fnmatch
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safeimpute.runtime.kept import KEPT
from safeimpute.runtime.locks import LOCK, is_held
from safeimpute.runtime.marker import listed_files, remove_ours
from safeimpute.runtime.signals import shielded

LONGEST_NAME = 150  # characters of an output's name; the names made from it must fit a file system
_PARTIAL = re.compile(
    r"\.(?P<name>.+)\.safeimpute-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)-(?P<kind>new|old)-.*",
    re.DOTALL,
)
DEEPEST = 4  # folders below the place that is searched


@dataclass(frozen=True)
class Leftover:
    """Something unfinished whose process is gone."""

    path: Path
    kind: Literal["new", "old", "lock", "kept"]
    name: str  # of the output it was to become, or was

    @property
    def in_words(self) -> str:
        """What it is."""
        what = {
            "new": "unfinished",
            "old": "an earlier result set aside",
            "lock": "a lock nobody holds",
            "kept": "finished folds to go on from",
        }
        return f"{self.path} ({what[self.kind]})"


def partial_prefix(name: str, kind: Literal["new", "old"] = "new") -> str:
    """How the name of something unfinished begins: hidden, with the output's name and the process that works on it."""
    return f".{name}.safeimpute-{_host()}-{os.getpid()}-{_start_of(os.getpid())}-{kind}-"


def is_partial(name: str) -> bool:
    """Whether a folder's or file's name says that it is unfinished work of ours."""
    return _PARTIAL.fullmatch(name) is not None


@contextmanager
def scratch_folder(name: str, parent: Path | None = None) -> Iterator[Path]:
    """A private folder for what is written on the way, gone at the end; in the system's place for such unless told."""
    place = tempfile.mkdtemp(prefix=partial_prefix(name), dir=parent)
    try:
        yield Path(place)
    finally:
        with shielded():
            shutil.rmtree(place, ignore_errors=True)


def leftovers_in(folder: Path, name: str | None = None) -> list[Leftover]:
    """What killed runs left in a folder, of the output so named or of any; oldest names first."""
    found = []
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    for path in entries:
        each = _leftover(path)
        if each is not None and name in (None, each.name):
            found.append(each)
    return found


def leftovers_below(folder: Path) -> list[Leftover]:
    """The same in a folder and those below it, links not followed."""
    found = []
    for place, inside, _ in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        inside[:] = [each for each in inside if depth < DEEPEST and not is_partial(each)]
        found += leftovers_in(Path(place))
    return found


def clear(leftover: Leftover) -> str:
    """Remove a leftover, or put an earlier result back where its run was killed between two steps; says which."""
    path, home = leftover.path, leftover.path.with_name(leftover.name)
    with shielded():
        if leftover.kind == "old" and not home.exists():
            path.rename(home)
            return f"put back: {home}"
        if leftover.kind == "old" and path.is_dir() and listed_files(path) is not None:
            remove_ours(path, home)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return f"removed: {leftover.in_words}"


def _leftover(path: Path) -> Leftover | None:
    """The leftover a path is; None for anything foreign, linked, another user's or still worked on."""
    if path.name.endswith(KEPT) and path.is_dir() and not path.is_symlink() and _is_mine(path):
        name = path.name[1 : -len(KEPT)]
        held = is_held(path.with_name(f".{name}{LOCK}"))
        return None if held else Leftover(path, "kept", name)
    lock, partial = fnmatch.fnmatchcase(path.name, f".*{LOCK}"), _PARTIAL.fullmatch(path.name)
    if not (lock or partial) or path.is_symlink() or not _is_mine(path):
        return None
    if partial is not None:
        gone = partial["host"] == _host() and not _alive(int(partial["pid"]), int(partial["start"]))
        kind: Literal["new", "old"] = "old" if partial["kind"] == "old" else "new"
        return Leftover(path, kind, partial["name"]) if gone else None
    return None if is_held(path) else Leftover(path, "lock", path.name[1 : -len(LOCK)])


def _is_mine(path: Path) -> bool:
    try:
        return not hasattr(os, "getuid") or path.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _host() -> str:
    """This machine, without its name."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _alive(pid: int, start: int) -> bool:
    """Whether the process that wrote the name still runs; its number may have gone to another since."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's: not ours to judge
    return _start_of(pid) in (start, 0)


def _start_of(pid: int) -> int:
    """When a process began, in the kernel's own count; 0 where the system does not say."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(after_name[19])
    except (OSError, ValueError, IndexError):
        return 0
