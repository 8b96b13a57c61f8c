"""How much work a fit may be: a run of several labs fits lightly unless told otherwise, and says so."""

from dataclasses import replace
from typing import Any, Literal, Self

EffortName = Literal["auto", "full", "light"]
FOLDS_IF_LIGHT, PACE_IF_LIGHT = 4, 1.5


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
