"""Writing files so that nothing half-written ever looks finished."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safeimpute.errors import OptionError


def require_new(path: Path, *, force: bool) -> None:
    """Refuse to overwrite unless forced; says what would be lost."""
    if path.exists() and not force:
        kind = f"a folder with {sum(1 for _ in path.iterdir())} entries" if path.is_dir() else "a file"
        raise OptionError(f"{path} exists ({kind}) and would be overwritten. Use --force or another name.")


@contextmanager
def finished_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name only when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=path.suffix)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def finished_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its name only when the block ends well."""
    require_new(path, force=force)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        yield partial
        partial.chmod(0o755)
        if path.exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
