"""How long work reports where it stands; shells decide how to show it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, float], None]  # stage in plain words, share done of that stage


def silent(stage: str, share: float) -> None:
    """Report nothing."""


class Stopwatch:
    """Seconds spent per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
