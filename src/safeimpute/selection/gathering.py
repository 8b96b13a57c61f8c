"""Where risky values gather: what one rule for all values does in each group, and what a rule of its own would do.

It is shown before a user asks for groups; it reads the errors the run was decided by, so it is to look at, and groups
chosen after looking are a second look.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.records.arrays import BoolArray, IntArray
from safeimpute.selection.calibrate import Calibrated
from safeimpute.selection.groups import Grouping, make_grouping
from safeimpute.selection.release import Decision, Ground, Rule, decide, passing
from safeimpute.splits.enough import attribute_groups
from safeimpute.tolerance import Tolerance

LEVELS = (0.1, 0.2, 0.35)
MOST_ATTRIBUTES = 4
FEWEST_ERRORS = 10  # a share of fewer says nothing


@dataclass(frozen=True)
class GatheringCell:
    """One group at one level: what the rule over all values does there, and what a rule of its own would do."""

    fdr: float
    released: int
    share: float | None  # of unacceptable errors among its measured visits that would be released, weighted
    own_released: int
    own_share: float | None


@dataclass(frozen=True)
class GatheringGroup:
    """One group of visits, at every level."""

    group: str
    missing: int
    cells: tuple[GatheringCell, ...]


@dataclass(frozen=True)
class Gathering:
    """Where risky values gather by one way to group visits."""

    by: str
    groups: tuple[GatheringGroup, ...]


def where_risky_gathers(
    calibrated: Calibrated, tolerance: Tolerance, rule: Rule, limits: Sequence[float] = ()
) -> list[Gathering]:
    """For bands of the value, own history and a few attributes: each group under one rule for all and under its own."""
    if rule.published:
        return []
    visits, value = calibrated.question.visits, calibrated.estimates.value
    ground = replace(calibrated.ground(tolerance), cell=None)
    levels = sorted({*LEVELS, rule.alpha})
    together = {level: decide(ground, replace(rule, alpha=level)) for level in levels}
    past_only = calibrated.grouping.past_only if calibrated.grouping is not None else False
    found: list[Gathering] = []
    for name in ("value", "history", *attribute_groups(visits)[:MOST_ATTRIBUTES]):
        grouping = make_grouping([name], visits, value, limits, past_only=past_only)
        cells = grouping.cells(visits, value)
        rows = _groups(replace(ground, cell=cells), rule, grouping, cells, together)
        if len(rows) > 1:
            found.append(Gathering(name, rows))
    return found


def _groups(
    ground: Ground, rule: Rule, grouping: Grouping, cells: IntArray, together: dict[float, Decision]
) -> tuple[GatheringGroup, ...]:
    own = {level: decide(ground, replace(rule, alpha=level)) for level in together}
    there = np.unique(cells[ground.candidate | ground.judged])
    return tuple(
        GatheringGroup(
            grouping.dimensions[0].labels[cell],
            int(np.sum(ground.candidate & (cells == cell))),
            tuple(
                _cell(ground, cells == cell, level, together[level], own[level]) for level in sorted(together)
            ),
        )
        for cell in there.tolist()
    )


def _cell(
    ground: Ground, member: BoolArray, level: float, together: Decision, own: Decision
) -> GatheringCell:
    released, share = _share(ground, member, passing(replace(ground, cell=None), together))
    own_released, own_share = _share(ground, member, passing(ground, own))
    return GatheringCell(level, released, share, own_released, own_share)


def _share(ground: Ground, member: BoolArray, through: BoolArray) -> tuple[int, float | None]:
    """Values released in a group, and the weighted share of risky ones among its measured visits let through."""
    judged = member & through & ground.judged
    released = int(np.sum(member & through & ground.candidate))
    if int(judged.sum()) < FEWEST_ERRORS:
        return released, None
    weight = ground.weight[judged]
    return released, float(weight @ ground.risky[judged] / weight.sum())
