"""Places where we write: who has taken them, which files there are ours, and what a killed run left unfinished."""

import fnmatch
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from safeimpute.errors import OptionError
from safeimpute.machine.endings import shielded
from safeimpute.machine.state import CHECKPOINTS, is_mine

LOCK = ".safeimpute-lock"  # ends the name of a lock
MARKER = ".safeimpute.json"
OUR_ID = "safeimpute output 5d0c4f0e-3b39-4a52-9a53-7d0b6d6f5c1a"
LARGEST_MARKER = 16 * 2**20  # bytes; no folder of ours holds so many files
LONGEST_NAME = 150  # characters of an output's name; the names made from it must fit a file system
_PARTIAL = re.compile(
    r"\.(?P<name>.+)\.safeimpute-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)-(?P<kind>new|old)-.*", re.DOTALL
)
DEEPEST = 4  # folders below the place that is searched


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def try_lock(file: IO[bytes]) -> None:
        file.seek(2**20)  # beyond what is read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def try_lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_held: dict[Path, int] = {}  # places this process has taken, and how often
_guard = threading.Lock()


@contextmanager
def taken(path: Path) -> Iterator[None]:
    """Take a place for this process until the block ends; the system frees it if the process dies."""
    place = path.absolute()
    with _guard:
        again = place in _held
        _held[place] = _held.get(place, 0) + 1
    try:
        if again:
            yield
        else:
            with _locked(place):
                yield
    finally:
        with _guard:
            _held[place] -= 1
            if not _held[place]:
                del _held[place]


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    made = [each for each in place.parents if not each.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = place.with_name(f".{place.name}{LOCK}")
    file = _open(lock, place)
    try:
        file.truncate(0)
        file.write(json.dumps(_who()).encode())
        file.flush()
        yield
    finally:
        lock.unlink(missing_ok=True)
        file.close()
        for folder in made:  # deepest first
            with suppress(OSError):  # not empty any more
                folder.rmdir()


def _open(lock: Path, place: Path) -> IO[bytes]:
    """The lock's file, locked; a file that its last holder removed meanwhile is tried anew."""
    while True:
        if lock.is_symlink():
            raise OptionError(f"{lock} is a link; a lock is to be written there. Remove it.")
        file = os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        try:
            try_lock(file)
        except OSError:
            said = _in_words(file.read(4096))
            file.close()
            raise OptionError(
                f"{place} is being written by another run{said}. Wait for it, or give another name."
            ) from None
        try:
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return file
        except OSError:
            pass
        file.close()


def is_held(lock: Path) -> bool:
    """Whether a process works under this lock."""
    try:
        with lock.open("r+b") as file:
            try_lock(file)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _who() -> dict[str, object]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": platform.node(), "since": now}


def _in_words(content: bytes) -> str:
    try:
        who = json.loads(content)
        return f" (process {int(who['pid'])} on {str(who['host'])[:80]}, since {str(who['since'])[:40]})"
    except (ValueError, KeyError, TypeError):
        return ""


def write_marker(folder: Path) -> None:
    """List everything in a folder that is about to be finished."""
    files = sorted(path.relative_to(folder).as_posix() for path in _everything(folder))
    content = {"written_by": OUR_ID, "files": files}
    (folder / MARKER).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def listed_files(folder: Path) -> frozenset[str] | None:
    """The files we wrote in a folder, the marker among them; None where the folder is not ours."""
    path = folder / MARKER
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST_MARKER:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        files = content["files"] if content["written_by"] == OUR_ID else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(files, list) or not all(isinstance(each, str) and _stays_inside(each) for each in files):
        return None
    return frozenset((*files, MARKER))


def foreign_files(folder: Path) -> list[str]:
    """What lies in a folder and is not ours, as paths inside it; everything where the folder is not ours."""
    ours = listed_files(folder) or frozenset()
    found = (path.relative_to(folder).as_posix() for path in _everything(folder))
    return sorted(name for name in found if name not in ours)


def carry_over(old: Path, new: Path) -> list[str]:
    """Let everything foreign in the old folder stand in the new one too; returns what has no place there."""
    taken = []
    for name in foreign_files(old):
        place = new / name
        if os.path.lexists(place) or any(os.path.lexists(new / up) and not (new / up).is_dir() for up in _above(name)):
            taken.append(name)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        _same_file(old / name, place)
    return taken


def remove_ours(old: Path, home: Path) -> None:
    """Delete from a folder set aside what we wrote and what stands at home too; anything else moves home or stays."""
    ours = listed_files(old) or frozenset()
    for path in list(_everything(old)):
        name = path.relative_to(old).as_posix()
        there = home / name
        if name in ours or (os.path.lexists(there) and _is_carried(path, there)):
            path.unlink()
        elif not os.path.lexists(there) and home.is_dir():
            there.parent.mkdir(parents=True, exist_ok=True)
            path.rename(there)
    for place, _, _ in os.walk(old, topdown=False):
        if not any(Path(place).iterdir()):
            Path(place).rmdir()


def _everything(folder: Path) -> "list[Path]":
    """Files, links and empty folders below a folder; links are not followed."""
    found = []
    for place, inside, files in os.walk(folder):
        linked = [each for each in inside if (Path(place) / each).is_symlink()]
        found += [Path(place) / each for each in (*files, *linked)]
    return found


def _same_file(path: Path, place: Path) -> None:
    try:
        os.link(path, place, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system without second names
        shutil.copy2(path, place, follow_symlinks=False)


def _is_carried(path: Path, there: Path) -> bool:
    """Whether a file stands in both places: one file under two names, or a copy of the same size and time."""
    one, other = path.lstat(), there.lstat()
    if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino):
        return True
    return (one.st_size, one.st_mtime_ns, one.st_mode) == (other.st_size, other.st_mtime_ns, other.st_mode)


def _above(name: str) -> list[str]:
    return [str(each) for each in PurePosixPath(name).parents if str(each) != "."]


def _stays_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


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
    if path.name.endswith(CHECKPOINTS) and path.is_dir() and not path.is_symlink() and is_mine(path):
        name = path.name[1 : -len(CHECKPOINTS)]
        held = is_held(path.with_name(f".{name}{LOCK}"))
        return None if held else Leftover(path, "kept", name)
    lock, partial = fnmatch.fnmatchcase(path.name, f".*{LOCK}"), _PARTIAL.fullmatch(path.name)
    if not (lock or partial) or path.is_symlink() or not is_mine(path):
        return None
    if partial is not None:
        gone = partial["host"] == _host() and not _alive(int(partial["pid"]), int(partial["start"]))
        kind: Literal["new", "old"] = "old" if partial["kind"] == "old" else "new"
        return Leftover(path, kind, partial["name"]) if gone else None
    return None if is_held(path) else Leftover(path, "lock", path.name[1 : -len(LOCK)])


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
