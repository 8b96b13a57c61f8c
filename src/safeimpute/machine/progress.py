"""How much work a fit is, about how long it takes, and how far it has come; shells decide how to show it."""

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from typing import Any, Literal, Self

from safeimpute.machine.resources import thread_count

EffortName = Literal["auto", "full", "light"]
FOLDS_IF_LIGHT, PACE_IF_LIGHT = 4, 1.5
# Processor seconds of a fit in five folds: 2,000 to 198,449 visits took 7 to 410, more where there are more labs.
AT_LEAST, PER_VISIT, FOLDS = 5.0, 0.0022, 5
Progress = Callable[[str, float], None]  # stage in plain words, share done of the whole


class Effort:
    """What the options `folds` and `effort` come to."""

    folds: int
    effort: EffortName

    def resolved(self, *, several: bool) -> Self:
        """The effort decided, and the folds with it."""
        effort = ("light" if several else "full") if self.effort == "auto" else self.effort
        folds = min(self.folds, FOLDS_IF_LIGHT) if effort == "light" else self.folds
        options: Any = self
        found: Self = replace(options, effort=effort, folds=folds)
        return found

    @property
    def pace(self) -> float:
        """How many times as fast as usual trees learn."""
        return PACE_IF_LIGHT if self.effort == "light" else 1.0

    @property
    def effort_in_words(self) -> str:
        """What a light fit did with less; empty where nothing was spared."""
        if self.effort != "light":
            return ""
        return f"light fit: {self.folds} folds of patients, trees that learn {self.pace:g} times as fast"


def fit_seconds(visits: int, folds: int, pace: float, threads: int | None = None) -> float:
    """Seconds by the clock, on a machine that does nothing else."""
    threads = threads or thread_count()
    return (AT_LEAST + PER_VISIT * visits) * folds / FOLDS / pace / min(threads, folds)


def in_words(seconds: float) -> str:
    """A duration, no finer than it is known."""
    if seconds < 90:
        return f"{max(round(seconds / 10) * 10, 5):d} seconds"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def silent(stage: str, share: float) -> None:
    """Report nothing."""


def shown_in_notebook() -> Progress:
    """A bar where the code runs in a notebook, nothing elsewhere; what a notebook has loaded tells it."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return silent if getattr(shell, "kernel", None) is None else _NotebookBar(shell.display_pub.publish)


class _NotebookBar:
    """One line of a notebook's output, written anew when it changes."""

    def __init__(self, publish: Callable[..., Any]) -> None:
        self.publish, self.place = publish, {"display_id": uuid.uuid4().hex}
        self.line, self.share = "", 0.0

    def __call__(self, stage: str, share: float) -> None:
        self.share = min(max(share, self.share), 1.0)
        line = f"{stage} … {100 * self.share:.0f} %"
        if line != self.line:
            bar = f'<progress max="1" value="{self.share:.2f}"></progress> {escape(line)}'
            self.publish({"text/plain": line, "text/html": bar}, transient=self.place, update=bool(self.line))
        self.line = line


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
