"""Writing files so that nothing half-written ever looks finished, and nothing of the user's is lost."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safeimpute.errors import OptionError

# A folder holding one of these was written by safeimpute and may be replaced when asked.
OURS = (
    *("run.json", "evaluation.json", "audit.json", "downstream.json", "model.json", "_score.json"),
    "hidden.json",
    "export.jsonl",
)


def sha256_of(path: Path) -> str:
    """Of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_new(path: Path, *, force: bool) -> None:
    """Refuse to overwrite unless forced, and never a folder with anything but our own results."""
    if not path.exists():
        _require_room(path)
        return
    if path.is_dir() and any(path.iterdir()) and not any((path / name).is_file() for name in OURS):
        raise OptionError(f"{path} holds files safeimpute did not write. Give a new folder.")
    if not force:
        kind = f"a folder with {sum(1 for _ in path.iterdir())} entries" if path.is_dir() else "a file"
        raise OptionError(f"{path} exists ({kind}) and would be overwritten. Use --force or another name.")


def require_new_folder(path: Path, *, force: bool) -> None:
    """The same for results that are a folder: a file in its place is the user's, and never replaced."""
    if path.exists() and not path.is_dir():
        raise OptionError(f"{path} is a file; a folder is to be written there. Give another name.")
    require_new(path, force=force)


def _require_room(path: Path) -> None:
    """Find out before any work that nothing can be written there."""
    above = next(each for each in path.absolute().parents if each.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise OptionError(f"nothing can be written to {path}. Check the path and its rights.")


@contextmanager
def finished_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name only when the block ends well."""
    if path.is_dir():
        raise OptionError(f"{path} is a folder; a file is to be written there. Give another name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=path.suffix)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o666 & ~_umask())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def finished_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its name only when the block ends well."""
    require_new_folder(path, force=force)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        yield partial
        partial.chmod(0o777 & ~_umask())
        _swap(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _swap(new: Path, path: Path) -> None:
    """Put the new folder in the old one's place; the old one goes only when the new one stands."""
    if not path.exists():
        new.rename(path)
        return
    old = path.with_name(f".{path.name}-old-{os.getpid()}")
    path.rename(old)
    new.rename(path)
    shutil.rmtree(old)


def _umask() -> int:
    """The user's own choice of who may read new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
