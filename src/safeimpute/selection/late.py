"""Nights at a fit: visits whose result was still on its way.

At night a result on its way looks like one nobody took, and its visit is released or withheld like any other. So the
values released at night are those of unmeasured visits and of late results; the level must hold for both together,
and for the unmeasured ones alone, which are what stays imputed. A late result speaks for itself: it counts once more
beside the odds with which it speaks for unmeasured visits (docs/guarantee.md).
"""

from dataclasses import replace
from functools import reduce

from safeimpute.records.arrays import BoolArray, VisitArrays
from safeimpute.records.clocks import on_its_way
from safeimpute.selection.cutoff import Cutoff
from safeimpute.selection.release import Decision, Ground, Rule, decide, decide_by_cutoff, withhold_all
from safeimpute.settings import Settings


def late_results(visits: VisitArrays, settings: Settings) -> BoolArray | None:
    """Measured visits that looked unmeasured at their own time; None where the claim or the table knows none."""
    if settings.claim != "later":
        return None
    late = on_its_way(visits, visits.target)
    return late if late.any() else None


def decide_at_night(ground: Ground, late: BoolArray, rule: Rule) -> Decision:
    """The stricter of two releases, group by group: with late results among the unmeasured, and without them."""
    alone = decide(ground, rule)
    together = decide(replace(ground, weight=ground.weight + late), rule)
    cutoffs = {
        number: reduce(
            smaller, (together.cutoffs[each] for each in _counterparts(alone, together, number)), cutoff
        )
        for number, cutoff in alone.cutoffs.items()
    }
    rows, merged = ground.candidate, alone.merged
    group = None if merged is None or ground.cell is None else merged.of(ground.cell)[rows]
    outside = {name: visits[rows] for name, visits in ground.outside.items()}
    found = replace(decide_by_cutoff(ground.risk[rows], outside, cutoffs, group), merged=merged)
    refused = alone.refused or together.refused
    return withhold_all(found, refused) if refused else found


def _counterparts(one: Decision, other: Decision, number: int) -> set[int]:
    """The other release's groups that share a cell with a group: weights decide which cells stand together."""
    if one.merged is None or other.merged is None:
        return {0}
    return {other.merged.group[cell] for cell in one.merged.cells[number] if cell in other.merged.group}


def smaller(one: Cutoff, other: Cutoff) -> Cutoff:
    """The stricter of two cut-offs; none at all is the strictest."""
    if one.risk is None or other.risk is None:
        return one if one.risk is None else other
    return one if one.risk <= other.risk else other
