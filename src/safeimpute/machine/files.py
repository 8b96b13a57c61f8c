"""Writing files so that nothing half-written ever looks finished, nothing of the user's is lost, no name does harm."""

import errno
import hashlib
import os
import re
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safeimpute.errors import OptionError
from safeimpute.machine.endings import raise_if_stopped, shielded
from safeimpute.machine.places import (
    LONGEST_NAME,
    carry_over,
    clear,
    is_partial,
    leftovers_in,
    listed_files,
    partial_prefix,
    remove_ours,
    taken,
    write_marker,
)

NO_ROOM = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_NO_ROOM_TEXT = re.compile(r"os error (27|28|122)\b|no space left|file too large|disk quota", re.IGNORECASE)


def sha256_of(path: Path) -> str:
    """Of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_new(path: Path, *, force: bool, inputs: Sequence[Path | None] = ()) -> None:
    """Refuse to overwrite unless forced, never anything but our own results, and never what is read.

    `inputs` are files and folders that are read: none may be what is written, lie in it, or hold it.
    """
    _require_sound_place(path)
    _require_apart(path, inputs)
    if not path.exists():
        _require_room(path)
        return
    if path.is_dir() and any(path.iterdir()) and listed_files(path) is None:
        raise OptionError(f"{path} holds files safeimpute did not write. Give a new folder.")
    if not path.is_dir() and not path.is_file():
        raise OptionError(f"{path} is neither a file nor a folder. Give another name.")
    if not force:
        kind = f"a folder with {sum(1 for _ in path.iterdir())} entries" if path.is_dir() else "a file"
        raise OptionError(f"{path} exists ({kind}) and would be overwritten. Use --force or another name.")


def require_new_folder(path: Path, *, force: bool, inputs: Sequence[Path | None] = ()) -> None:
    """The same for results that are a folder: a file in its place is the user's, and never replaced."""
    if path.exists() and not path.is_dir():
        raise OptionError(f"{path} is a file; a folder is to be written there. Give another name.")
    require_new(path, force=force, inputs=inputs)


@contextmanager
def reserved(path: Path, *, force: bool, inputs: Sequence[Path | None] = (), folder: bool = True) -> Iterator[None]:
    """Take the place of a result before the work starts: everything that could be refused at the end is refused here.

    What killed runs left for this very place is cleared, and said on standard error.
    """
    require = require_new_folder if folder else require_new
    require(path, force=force, inputs=inputs)
    with taken(path):
        for each in leftovers_in(path.parent, path.name):
            if each.kind in ("new", "old"):
                sys.stderr.write(f"safeimpute: a killed run left something. {clear(each)}\n")
        require(path, force=force, inputs=inputs)
        yield


def _require_sound_place(path: Path) -> None:
    if path.is_symlink():
        raise OptionError(f"{path} is a link; nothing is written through links. Give the place itself.")
    if len(path.name.encode(errors="replace")) > LONGEST_NAME or not path.name:
        raise OptionError(f"the name of the output has to be 1 to {LONGEST_NAME} characters. Give another.")


def _require_apart(path: Path, inputs: Sequence[Path | None]) -> None:
    """What is read is never written over, nor anything put among it."""
    out = path.resolve()
    for each in inputs:
        if each is None:
            continue
        read = each.resolve()
        if read == out or (read.exists() and path.exists() and path.samefile(read)):
            raise OptionError(f"{path} is what is read; it cannot be written too. Give another name.")
        if read.is_relative_to(out):
            raise OptionError(f"{each} is read and lies in {path}, which would be written anew. Give another folder.")
        if read.is_dir() and out.is_relative_to(read):
            raise OptionError(f"{path} lies in {each}, which is read. Give a place outside of it.")


def _require_room(path: Path) -> None:
    """Find out before any work that nothing can be written there."""
    above = next(each for each in path.absolute().parents if each.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise OptionError(f"nothing can be written to {path}. Check the path and its rights.")


@contextmanager
def finished_file(path: Path, *, force: bool = True) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name only when the block ends well.

    Without `force`, a file that appeared there meanwhile stays and this is an error.
    """
    if path.is_dir():
        raise OptionError(f"{path} is a folder; a file is to be written there. Give another name.")
    _require_sound_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=partial_prefix(path.name), suffix=path.suffix)
    os.close(handle)
    partial = Path(name)
    try:
        with disk_faults(path):
            yield partial
        raise_if_stopped()
        with shielded():
            partial.chmod(0o666 & ~_umask())
            _take_name(partial, path, force=force)
    finally:
        with shielded():
            partial.unlink(missing_ok=True)


def _take_name(partial: Path, path: Path, *, force: bool) -> None:
    if force:
        partial.replace(path)
        return
    try:
        os.link(partial, path)  # fails where there is something, in one step
    except FileExistsError:
        raise OptionError(f"{path} appeared while this was worked on, and stays as it is. Run again.") from None
    except OSError:  # a file system without second names
        if path.exists():
            raise OptionError(f"{path} appeared while this was worked on, and stays as it is. Run again.") from None
        partial.replace(path)


@contextmanager
def finished_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its name only when the block ends well.

    With `force`, the files we wrote there before are replaced; whatever else lies there stays.
    """
    with reserved(path, force=force):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=partial_prefix(path.name)))
        try:
            with disk_faults(path):
                yield partial
                if not _inside_unfinished(path):
                    write_marker(partial)
            raise_if_stopped()
            with shielded():
                partial.chmod(0o777 & ~_umask())
                _swap(partial, path, force=force)
        finally:
            with shielded():
                shutil.rmtree(partial, ignore_errors=True)


def _inside_unfinished(path: Path) -> bool:
    """Part of a larger folder that will list these files itself."""
    return any(is_partial(each.name) for each in path.absolute().parents)


def _swap(new: Path, path: Path, *, force: bool) -> None:
    """Put the new folder in the old one's place; the old one goes only when the new one stands."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        _rename_or_say(new, path)
        return
    if not force or path.is_symlink() or not path.is_dir() or listed_files(path) is None:
        raise _moved_beside(new, path)
    if clash := carry_over(path, new):
        raise OptionError(
            f"{path} holds {clash[0]!r}, which safeimpute did not write and would have to overwrite. Move it elsewhere."
        )
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=partial_prefix(path.name, "old")))
    path.rename(old)  # onto an empty folder, in one step
    try:
        _rename_or_say(new, path)
    except OptionError:
        if not path.exists():
            old.rename(path)
        raise
    remove_ours(old, path)


def _rename_or_say(new: Path, path: Path) -> None:
    try:
        new.rename(path)  # fails on anything but an empty folder, in one step
    except OSError:
        if not path.exists():
            raise
        raise _moved_beside(new, path) from None


def _moved_beside(new: Path, path: Path) -> OptionError:
    """A finished result whose place was taken meanwhile is not thrown away."""
    number = 2
    while (beside := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    new.rename(beside)
    return OptionError(f"{path} appeared while this was worked on, and stays as it is. This result is in {beside}.")


@contextmanager
def disk_faults(path: Path) -> Iterator[None]:
    """A full disk or a limit on file sizes is said in one way, whichever library met it."""
    try:
        yield
    except Exception as error:
        if not is_no_room(error):
            raise
        raise OptionError(
            f"there is no room to write {path} (full disk, quota or limit on file sizes). Nothing unfinished was kept."
        ) from None


def is_no_room(error: BaseException) -> bool:
    """Whether an error of any library came from a full disk, a quota or a file-size limit."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in NO_ROOM:
            return True
        if not isinstance(seen, OptionError) and _NO_ROOM_TEXT.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _umask() -> int:
    """The user's own choice of who may read new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def plain_text(text: object, longest: int = 200) -> str:
    """A name from the data without invisible or control characters, cut where it would not fit."""
    shown = "".join("\ufffd" if unicodedata.category(c).startswith("C") else c for c in str(text))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def folder_names(labs: tuple[str, ...]) -> dict[str, str]:
    """A folder's name for every lab: its number, and what of its name any file system takes."""
    plain = {lab: re.sub(r"[^a-z0-9]+", "-", lab.lower()).strip("-")[:40] for lab in labs}
    return {lab: f"{number:02d}-{plain[lab]}".rstrip("-") for number, lab in enumerate(labs, start=1)}
