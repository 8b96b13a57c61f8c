"""A fit at a glance, as notebooks expect: a summary in words, a picture, an HTML form; made from the fitted labs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from safeimpute.errors import SafeImputeError
from safeimpute.model.labs import FittedLab, Labs, decide_labs, decided
from safeimpute.selection.claims import Promised, headline_in_words
from safeimpute.settings import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BARS = 24


class AtAGlance(ABC):
    """What a fitted imputer shows of itself."""

    labs_: dict[str, FittedLab]
    settings_: Settings

    @abstractmethod
    def promised(self) -> Promised:
        """What the release promises."""

    @abstractmethod
    def _current(self) -> dict[str, FittedLab]: ...

    def summary(self) -> dict[str, str]:
        """What was fitted, what is promised and on what it rests, how many values were released; in words, by name.

        Decides the release of the fitted visits if that was not done.
        """
        decide_labs(self._current(), self.settings_)
        return at_a_glance(self.labs_, self.promised())

    def plot(self) -> "Figure":
        """The missing values by their risk, released and withheld, with the cut-off; of several labs a panel each.

        A matplotlib figure, as the report draws it; `figure.savefig` keeps it.
        """
        labs = self._current()
        decide_labs(labs, self.settings_)
        return released_by_risk(labs)

    def _repr_html_(self) -> str:
        if not hasattr(self, "labs_"):
            rows = {"fitted": "not yet"}
        else:
            try:
                rows = at_a_glance(self.labs_, self.promised())
            except SafeImputeError as error:
                rows = {"fitted": f"yes, but {error}"}
        return as_html(repr(self), rows)


def released_by_risk(labs: Labs) -> "Figure":
    """Stacked bars over the risk, one panel per lab."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2 * len(labs)), layout="constrained")
    panels = figure.subplots(len(labs), squeeze=False)[:, 0]
    for axes, (name, lab) in zip(panels, labs.items(), strict=True):
        risk, decision = lab.calibrated.estimates.risk[lab.calibrated.candidates], decided(lab)
        known = np.isfinite(risk)
        parts = [risk[known & decision.released], risk[known & ~decision.released]]
        words = [f"{what} ({len(part):,})" for what, part in zip(("released", "withheld"), parts, strict=True)]
        axes.hist(parts, bins=BARS, stacked=True, label=words, color=["C0", "0.8"])
        for cutoff in np.unique(decision.cutoff[np.isfinite(decision.cutoff)]):
            axes.axvline(cutoff, color="black", linewidth=1.4, label=f"cut-off {cutoff:.3g}")
        axes.set(xlabel=f"Risk of {name}", ylabel="Missing values")
        axes.legend(frameon=False)
    return figure


def as_html(heading: str, rows: Mapping[str, str]) -> str:
    """A heading and a table of names and words."""
    cells = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(words)}</td></tr>'
        for name, words in rows.items()
    )
    return f"<div><code>{escape(heading)}</code><table>{cells}</table></div>"


def at_a_glance(labs: Labs, promised: Promised) -> dict[str, str]:
    """What was fitted, what is promised, what was released and withheld, in words."""
    said = {"promise": promised.promise, "assumption": promised.assumption, "limits": promised.limits}
    said |= {"no guarantee": promised.no_promise}
    told = {name: words for name, words in said.items() if words}
    return {**_fitted(labs), **told, **_released(labs, promised=bool(promised.promise))}


def _fitted(labs: Labs) -> dict[str, str]:
    """The labs, and the visits they were learnt from."""
    first = next(iter(labs.values()))
    unit = f" ({first.unit.name})" if first.unit.name and len(labs) == 1 else ""
    found = {"target": f"{', '.join(labs)}{unit}", "claim": first.settings.claim}
    if visits := vars(first).get("visits"):
        found["fitted"] = f"{len(visits):,} visits of {visits.patients:,} patients"
    return found


def _released(labs: Labs, *, promised: bool) -> dict[str, str]:
    """How many values were released and withheld, and what to expect of them; of several labs, of each."""
    each = {name: _counts(lab, promised=promised) for name, lab in labs.items()}
    if len(each) == 1:
        return next(iter(each.values()))
    return {name: ", ".join(f"{what}: {words}" for what, words in said.items()) for name, said in each.items()}


def _counts(lab: FittedLab, *, promised: bool) -> dict[str, str]:
    if lab.decision is None:
        return {"released": "not decided yet: call impute"}
    released = int(lab.decision.released.sum())
    said = {"released": f"{released:,}", "withheld": f"{len(lab.decision.released) - released:,}"}
    if promised and released and lab.settings.over == "labs":
        said["expect"] = headline_in_words(released, lab.settings.allowed_error.fault(lab.unit.name), lab.settings)
    return said
