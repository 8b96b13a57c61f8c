"""Being told to stop: every signal unwinds and clears away alike, and none is ever swallowed."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
