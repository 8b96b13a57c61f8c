"""Refusals of one pass over a table, gathered and raised together."""

from collections.abc import Iterator
from contextlib import contextmanager

from safeimpute.errors import VisitsError

MOST_SHOWN = 30


class Faults:
    """What is wrong with a table; each fault is a sentence that names column, rule, rows and remedy."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is refused inside, and go on after it."""
        try:
            yield
        except VisitsError as error:
            if str(error) not in self.found:
                self.found.append(str(error))

    def refuse(self) -> None:
        """Raise VisitsError where anything was found: one fault as it is, several numbered."""
        if len(self.found) == 1:
            raise VisitsError(self.found[0])
        if self.found:
            shown = [f"({number}) {each}" for number, each in enumerate(self.found[:MOST_SHOWN], 1)]
            more = [f"and {len(self.found) - MOST_SHOWN} more"] if len(self.found) > MOST_SHOWN else []
            raise VisitsError(f"{len(self.found)} faults. {' '.join([*shown, *more])}")
