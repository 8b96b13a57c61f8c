"""How long work reports where it stands; shells decide how to show it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, float], None]  # stage in plain words, share done of the whole


def silent(stage: str, share: float) -> None:
    """Report nothing."""


def part_of(progress: Progress, start: float, end: float, said: str = "") -> Progress:
    """What a part of the work reports to: its shares lie between two of the whole, its stages after some words."""
    return lambda stage, share: progress(f"{said}{stage}", start + (end - start) * share)


class SideBySide:
    """Several like jobs, done at once or one after the other, as one piece of work."""

    def __init__(self, progress: Progress, jobs: int) -> None:
        self.progress, self.shares = progress, [0.0] * jobs

    def job(self, number: int, said: str = "") -> Progress:
        """What one of them reports to, counted from 0."""

        def told(stage: str, share: float) -> None:
            self.shares[number] = max(share, self.shares[number])
            self.progress(f"{said}{stage}", sum(self.shares) / len(self.shares))

        return told


class Stopwatch:
    """Seconds spent per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
