"""Progress on a terminal as a bar, elsewhere as plain lines, on standard error: share done and time left."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from safeimpute.runtime.progress import Progress, silent

FIRST_SHARE, FIRST_SECONDS = 0.02, 2.0  # nothing is said about time before


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress]:
    """A progress function that fits where the output goes."""
    if quiet:
        yield silent
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield bar
    else:
        yield _PlainLines()


class TimeLeft:
    """How long the rest takes if it goes on as it went; in words, no finer than that can be known."""

    def __init__(self) -> None:
        self.start, self.share = time.monotonic(), 0.0

    def told(self, share: float) -> str:
        """What to say at a share done, which never falls."""
        self.share = min(max(share, self.share), 1.0)
        done, passed = f"{100 * self.share:.0f} %", time.monotonic() - self.start
        if self.share < FIRST_SHARE or passed < FIRST_SECONDS or self.share >= 1.0:
            return done
        from safeimpute.runtime.forecast import in_words

        return f"{done}, about {in_words(passed * (1.0 - self.share) / self.share)} left"


class _PlainLines:
    """One line per stage."""

    def __init__(self) -> None:
        self.stage, self.left = "", TimeLeft()

    def __call__(self, stage: str, share: float) -> None:
        told = self.left.told(share)
        if stage != self.stage:
            self.stage = stage
            sys.stderr.write(f"{stage} … {told}\n")
            sys.stderr.flush()


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
    )
    left = TimeLeft()
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0, told="")

        def show(stage: str, share: float) -> None:
            told = left.told(share)
            bar.update(task, description=stage, completed=left.share, told=told)

        yield show
