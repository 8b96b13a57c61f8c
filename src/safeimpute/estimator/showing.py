"""An imputer at a glance: one line in a console, a small table in a notebook; showing it decides nothing."""

from abc import ABC, abstractmethod
from html import escape

from safeimpute.errors import SafeImputeError
from safeimpute.estimator.parameters import PARAMETERS
from safeimpute.records.units import TargetUnit
from safeimpute.records.visits import Visits
from safeimpute.selection.claims import Promised
from safeimpute.selection.release import Decision
from safeimpute.settings import Settings


class Showing(ABC):
    """What an imputer was told, what it was fitted on, what it promises and what it released."""

    settings_: Settings
    visits_: Visits
    unit_: TargetUnit
    decision_: Decision

    def __repr__(self) -> str:
        told = {name: getattr(self, name) for name in PARAMETERS}
        said = [f"{n}={value!r}" for n, value in told.items() if value != PARAMETERS[n].default]
        return f"{type(self).__name__}({', '.join(said)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(words)}</td></tr>'
            for name, words in self.at_a_glance().items()
        )
        return f"<div><code>{escape(repr(self))}</code><table>{rows}</table></div>"

    def at_a_glance(self) -> dict[str, str]:
        """What was fitted, what is promised, what was released and withheld, in words; nothing is decided for it."""
        if not hasattr(self, "settings_"):
            return {"fitted": "not yet"}
        try:
            promised = self.promised()
        except SafeImputeError as error:
            return {"fitted": f"yes, but {error}"}
        made = {"promise": promised.promise, "assumption": promised.assumption, "limits": promised.limits}
        said = {name: words for name, words in made.items() if words}
        if promised.no_promise:
            said["no guarantee"] = promised.no_promise
        return {**self.fitted_in_words(), **said, **self.release_in_words()}

    def fitted_in_words(self) -> dict[str, str]:
        """The target and the visits it was learnt from."""
        unit = f" ({self.unit_.name})" if self.unit_.name else ""
        found = {"target": f"{self.settings_.target}{unit}", "claim": self.settings_.claim}
        if hasattr(self, "visits_"):
            found["fitted"] = f"{len(self.visits_):,} visits of {self.visits_.patients:,} patients"
        return found

    def release_in_words(self) -> dict[str, str]:
        """How many values were released and withheld by the last `impute`."""
        decision = vars(self).get("decision_")
        if decision is None:
            return {"released": "not decided yet: call impute"}
        released = int(decision.released.sum())
        return {"released": f"{released:,}", "withheld": f"{len(decision.released) - released:,}"}

    @abstractmethod
    def promised(self) -> Promised:
        """What the release promises."""
