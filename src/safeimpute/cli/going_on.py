"""A run that was stopped goes on: what it had finished is kept beside its output until a run ends well."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from safeimpute.errors import SafeImputeError

if TYPE_CHECKING:
    from safeimpute.runtime.kept import Kept


@contextmanager
def going_on(out: Path, quiet: bool) -> "Iterator[Kept]":
    """Where finished folds of a run are kept; says what is there before, and what is left after a stop."""
    from safeimpute.runtime.kept import kept_beside

    with kept_beside(out) as kept:
        before = kept.count()
        if before and not quiet:
            typer.echo(
                f"Going on from {before} finished folds of a run that was stopped, where they fit this one"
            )
        try:
            yield kept
        except BaseException as error:
            if kept.count() and not isinstance(error, SafeImputeError):
                typer.echo(
                    f"safeimpute: {kept.count()} finished folds are kept in {kept.folder}; the same command goes on "
                    "from there, safeimpute doctor --clean removes them",
                    err=True,
                )
            raise
