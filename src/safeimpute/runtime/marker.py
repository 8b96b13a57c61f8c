"""The marker of a finished folder: our id and the files we wrote there, the only ones we may ever replace."""

import json
import os
import shutil
from pathlib import Path, PurePosixPath

MARKER = ".safeimpute.json"
OUR_ID = "safeimpute output 5d0c4f0e-3b39-4a52-9a53-7d0b6d6f5c1a"
LARGEST_MARKER = 16 * 2**20  # bytes; no folder of ours holds so many files


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
    if not isinstance(files, list) or not all(
        isinstance(each, str) and _stays_inside(each) for each in files
    ):
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
        if os.path.lexists(place) or any(
            os.path.lexists(new / up) and not (new / up).is_dir() for up in _above(name)
        ):
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
