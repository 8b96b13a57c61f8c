"""How much a release hangs on the draw: the same values, decided without each fold of the patients in turn.

To look at, not to promise. Another seed divides the patients otherwise and moves the cut-off likewise; no fit is
repeated here, only the decision.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.selection.cutoff import Rule
from safeimpute.selection.release import SelectionData, decide
from safeimpute.visits.arrays import BoolArray, IntArray


@dataclass(frozen=True)
class Stability:
    """What the decisions without one part of the patients release."""

    parts: int
    fewest: int
    most: int
    always: int  # values of the release that every one of them releases

    def in_words(self, released: int) -> str:
        """One sentence; empty where nothing was released."""
        if not released or not self.parts:
            return ""
        return (
            f"How much hangs on the draw: were each of {self.parts} parts of the patients left out of the decision in "
            f"turn, {self.fewest:,} to {self.most:,} values would be released, {self.always:,} of these {released:,} "
            "each time; another seed moves it about as much."
        )


def without_each_fold(data: SelectionData, fold: IntArray) -> Iterator[SelectionData]:
    """The data with the errors of one fold's patients unknown, for each fold that has any."""
    for number in np.unique(fold[data.judged & data.inside]):
        yield replace(data, judged=data.judged & (fold != number))


def stability_of(released: BoolArray, others: Sequence[BoolArray]) -> Stability:
    """A release beside what the decisions without each part release."""
    counts = [int(each.sum()) for each in others]
    always = int(np.logical_and.reduce([released, *others]).sum())
    return Stability(len(others), min(counts, default=0), max(counts, default=0), always)


def released_without_folds(data: SelectionData, rule: Rule, fold: IntArray) -> Stability:
    """How many candidates stay released whichever fold of patients the decision does without."""
    others = [decide(each, rule).released for each in without_each_fold(data, fold)]
    return stability_of(decide(data, rule).released, others)
