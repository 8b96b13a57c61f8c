"""Progress on a terminal as a bar, elsewhere as plain lines, on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from safeimpute.runtime.progress import Progress, silent


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


class _PlainLines:
    """One line per stage."""

    def __init__(self) -> None:
        self.stage = ""

    def __call__(self, stage: str, share: float) -> None:  # noqa: ARG002
        if stage != self.stage:
            self.stage = stage
            sys.stderr.write(f"{stage} …\n")
            sys.stderr.flush()


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def show(stage: str, share: float) -> None:
            bar.update(task, description=stage, completed=share)

        yield show
