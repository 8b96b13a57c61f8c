"""How a command ends when it does not end well: one line, an exit code, and for our own faults a trace in a file."""

import os
import re
import sys

from safeimpute.errors import SafeImputeError
from safeimpute.runtime.signals import Stopped
from safeimpute.runtime.traces import our_fault

INTERRUPTED = 130
NO_READER = 141  # what a shell shows for a closed pipe


def end_of(error: BaseException) -> tuple[str, int]:
    """What is said on standard error, and the exit code: 2 the user's input or machine, 1 our fault."""
    if isinstance(error, KeyboardInterrupt | Stopped):
        code = error.exit_code if isinstance(error, Stopped) else INTERRUPTED
        return "stopped; nothing unfinished was kept.", code
    if isinstance(error, SafeImputeError):
        return _one_line(str(error)), error.exit_code
    if isinstance(error, BrokenPipeError):
        _let_go_of_output()
        return "", NO_READER
    if isinstance(error, MemoryError):
        return (
            "the memory of this machine did not suffice. Give fewer visits or labs, or a larger machine.",
            2,
        )
    if _no_room(error):
        return (
            "there is no room to write (full disk, quota or limit on file sizes). Nothing unfinished was kept.",
            2,
        )
    if isinstance(error, OSError):
        place = _one_line(str(error.filename or "a file"))
        return f"{error.strerror or type(error).__name__}: {place}. Check the path, rights and space.", 2
    return our_fault(error), 1


def _no_room(error: BaseException) -> bool:
    from safeimpute.runtime.files import is_no_room

    return is_no_room(error)


def _let_go_of_output() -> None:
    """Whoever read the output is gone: the interpreter must not try to write the rest at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(text: str) -> str:
    return re.sub(r"\s*[\r\n]+\s*", " ", text).encode(errors="backslashreplace").decode()
