"""Who works where: a place that is being written is taken, and a second run is told by whom before it starts."""

import json
import os
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from safeimpute.errors import OptionError

if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _try_lock(file: IO[bytes]) -> None:
        file.seek(2**20)  # beyond what is read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


LOCK = ".safeimpute-lock"  # ends the name of a lock
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
            _remove_if_empty(folder)


def _open(lock: Path, place: Path) -> IO[bytes]:
    """The lock's file, locked; a file that its last holder removed meanwhile is tried anew."""
    while True:
        if lock.is_symlink():
            raise OptionError(f"{lock} is a link; a lock is to be written there. Remove it.")
        file = os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        try:
            _try_lock(file)
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
            _try_lock(file)
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


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
