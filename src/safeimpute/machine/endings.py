"""How work ends before it is done: told to stop by a signal, or by a fault of ours, whose trace can be sent."""

import os
import platform
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

HEEDED = ("SIGINT", "SIGTERM", "SIGHUP")


class Stopped(BaseException):
    """The process was told to stop; nothing but the entry point may end this, so it is no plain KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As shells count it: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.number


class _State:
    received: int | None = None
    shields = 0


def heed_signals() -> None:
    """Unwind on Ctrl-C, SIGTERM and SIGHUP alike; one that the caller had ignored (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return
    _State.received = None
    for name in HEEDED:
        number = getattr(signal, name, None)  # Windows lacks some
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def ignore_signals() -> None:
    """The work has ended one way or the other: a signal that comes now changes nothing of it, nor its exit code."""
    if threading.current_thread() is threading.main_thread():
        for number in filter(None, (getattr(signal, name, None) for name in HEEDED)):
            signal.signal(number, signal.SIG_IGN)


def _stop(number: int, _: FrameType | None) -> None:
    _State.received = number
    if not _State.shields:
        raise Stopped(number)


def raise_if_stopped(*_: Any) -> None:
    """Stop here if a signal came, even where a library swallowed the exception it was turned into."""
    if _State.received is not None:
        raise Stopped(_State.received)


@contextmanager
def shielded() -> Iterator[None]:
    """A few steps that must be taken together (a swap, clearing away): a signal waits until they are done."""
    _State.shields += 1
    try:
        yield
    finally:
        _State.shields -= 1


def our_fault(error: BaseException) -> str:
    """One line about an error nobody meant, which names the file with its trace."""
    kind = type(error).__name__
    try:
        path = write_trace(error)
    except OSError:
        return f"internal error ({kind}), our fault; its trace could not be written. SAFEIMPUTE_DEBUG=1 shows it."
    return (
        f"internal error ({kind}), our fault. Please report it with {path}, which holds no values and no messages, "
        "only where it happened."
    )


def write_trace(error: BaseException) -> Path:
    """The trace in a file that only the user may read: places in the code, kinds of errors, versions.

    Messages of errors, arguments and variables are left out, since they may quote a patient.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    handle, name = tempfile.mkstemp(prefix=f"safeimpute-trace-{stamp}-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("\n".join((*_about(), *_chain(error))) + "\n")
    return Path(name)


def _about() -> list[str]:
    version = sys.modules["safeimpute"].__version__
    command = sys.argv[1] if len(sys.argv) > 1 and re.fullmatch(r"[a-z]+", sys.argv[1]) else "?"
    flags = sorted({each.partition("=")[0] for each in sys.argv[2:] if re.match(r"--[a-z-]+(=|$)", each)})
    return [
        f"safeimpute {version}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"command: {command} {' '.join(flags)}",
    ]


def _chain(error: BaseException) -> list[str]:
    """Where each error of the chain happened, the first cause first."""
    lines, seen = [], error
    chain = []
    while seen is not None and seen not in chain:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__  # type: ignore[assignment]
    for each in reversed(chain):
        lines.append(f"{type(each).__module__}.{type(each).__qualname__}")
        lines += [_place(frame) for frame in traceback.extract_tb(each.__traceback__)]
    return lines


def _place(frame: traceback.FrameSummary) -> str:
    parts = Path(frame.filename).parts
    known = [place for place, part in enumerate(parts) if part in ("safeimpute", "site-packages")]
    short = "/".join(parts[known[-1] :]) if known else parts[-1]
    return f"  {short}:{frame.lineno} in {frame.name}"
