"""What the same errors would have released otherwise: other levels, tolerances or odds, or without some patients.

To look at, not to promise: a level chosen after looking has no promise of its own. Odds: if the true odds of being
unmeasured differ from the modelled ones by a factor of at most gamma either way, a patient's balance is at most the sum
of w_i 1{risk_i <= T} (gamma (1 - alpha) 1{risky_i} - alpha / gamma 1{not risky_i}).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from safeimpute.selection.cutoff import Rule, find_cutoffs
from safeimpute.selection.groups import Merged
from safeimpute.selection.ledger import Ledger
from safeimpute.selection.p_values import ROUNDING
from safeimpute.selection.release import (
    Decision,
    SelectionData,
    bound_of,
    bound_up_to,
    decide,
    ledgers_of,
    merge_groups,
    parts_of,
)
from safeimpute.tolerance import Tolerance, parse_tolerance
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray

LEVELS = tuple(round(0.01 * step, 2) for step in range(1, 51))
TOLERANCE_FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)


@dataclass(frozen=True)
class UnderDoubt:
    """What would still be released if an unseen reason changed the odds by so much."""

    gamma: float
    released: int


@dataclass(frozen=True)
class Reach:
    """How far up the risk a level reaches, and how many candidates that lets through."""

    level: float
    cutoffs: Mapping[int, float]  # by cell of the groups, 0 without any; nothing is released in one not named
    released: int
    bound: int  # with the rule's confidence at most so many of them are risky, whichever level is picked

    @property
    def cutoff(self) -> float | None:
        """The largest of them; None where nothing is released."""
        return max(self.cutoffs.values(), default=None)


@dataclass(frozen=True)
class AtTolerance:
    """What every level would release at one tolerance."""

    tolerance: Tolerance
    typed: str  # as a user would type it
    reaches: tuple[Reach, ...]


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
            "each time; another seed would move it too."
        )


@dataclass(frozen=True)
class WhatIf:
    """What other choices, or fewer patients, would have released: to look at, not to promise."""

    elsewhere: tuple[AtTolerance, ...]
    doubts: list[UnderDoubt]  # empty where the claim does not look at who gets measured
    stability: Stability


def tolerances_around(own: Tolerance) -> list[tuple[Tolerance, str]]:
    """Multiples of the run's tolerance, itself among them, with what a user would type for each."""
    typed = [own.times(factor).typed(4) for factor in TOLERANCE_FACTORS]
    return [
        (own if factor == 1.0 else parse_tolerance(text), text)
        for factor, text in zip(TOLERANCE_FACTORS, typed, strict=True)
    ]


@dataclass(frozen=True)
class Division:
    """A table divided into groups, with what every level is decided from."""

    data: SelectionData
    merged: Merged | None

    @cached_property
    def parts(self) -> dict[int, SelectionData]:
        return parts_of(self.data, self.merged)

    @cached_property
    def ledgers(self) -> dict[int, tuple[Ledger, ...]]:
        return ledgers_of(self.parts)

    @cached_property
    def asked(self) -> dict[int, FloatArray]:
        """Risks of each group's candidates, in order."""
        return {number: np.sort(part.risk[part.inside & part.candidate]) for number, part in self.parts.items()}

    def limits(self, rule: Rule) -> dict[int, float | None]:
        """Up to which risk the rule releases each group."""
        found, refused = find_cutoffs(self.ledgers, rule)
        return {number: None if refused else each.risk for number, each in found.items()}

    def reach(self, limits: Mapping[int, float | None], rule: Rule, *, bounded: bool = False) -> Reach:
        """What is released here up to these limits; they may have been found elsewhere."""
        released = sum(
            int(np.searchsorted(self.asked[number], limit, side="right"))
            for number, limit in limits.items()
            if limit is not None
        )
        bound = bound_up_to(self.parts, rule, limits).risky if bounded and released else released
        return Reach(rule.alpha, _by_cell(limits, self.merged), released, bound)


def _by_cell(limits: Mapping[int, float | None], merged: Merged | None) -> dict[int, float]:
    return {
        cell: limit
        for number, limit in limits.items()
        if limit is not None
        for cell in ((0,) if merged is None else merged.cells[number])
    }


def reaches(data: SelectionData, rule: Rule, levels: Sequence[float], *, bounded: bool = True) -> tuple[Reach, ...]:
    """What the rule would release at each level; where not `bounded`, the bound says nothing better than all."""
    if rule.claim == "visits":
        return _by_p_values(data, rule, levels, bounded=bounded)
    divisions: dict[object, Division] = {}
    found = []
    for level in levels:
        at = replace(rule, alpha=level)
        merged = merge_groups(data, at)
        key = None if merged is None else tuple(merged.cells.values())
        division = divisions.setdefault(key, Division(data, merged))
        found.append(division.reach(division.limits(at), at, bounded=bounded))
    return tuple(found)


def _by_p_values(data: SelectionData, rule: Rule, levels: Sequence[float], *, bounded: bool) -> tuple[Reach, ...]:
    """The same under claim `visits`; the release alone is worked out once where one sort serves all levels."""
    plain = rule.promise == "average" and data.cell is None
    decisions = (
        _all_levels(data, rule, levels) if plain else (decide(data, replace(rule, alpha=level)) for level in levels)
    )
    found = []
    for level, decision in zip(levels, decisions, strict=True):
        limits = {number: None if decision.refused else each.risk for number, each in decision.cutoffs.items()}
        released = int(decision.released.sum())
        bound = bound_of(data, rule, decision).risky if bounded and released else released
        found.append(Reach(level, _by_cell(limits, decision.merged), released, bound))
    return tuple(found)


def _all_levels(data: SelectionData, rule: Rule, levels: Sequence[float]) -> Iterator[Decision]:
    """All levels from one sort: Benjamini-Hochberg releases a candidate from its adjusted p-value on."""
    from scipy.stats import false_discovery_control

    tested = decide(data, replace(rule, alpha=max(levels)))
    there = np.isfinite(tested.p_value)
    adjusted = np.full(len(there), np.inf)
    adjusted[there] = false_discovery_control(tested.p_value[there]) if there.any() else []
    risk, (whole,) = data.risk[data.candidate], tested.cutoffs.values()
    for level in levels:
        released = adjusted <= level * (1.0 + ROUNDING)
        limit = float(risk[released].max()) if released.any() else None
        yield replace(tested, released=released, cutoffs={0: replace(whole, risk=limit)})


def released_under_doubt(data: SelectionData, rule: Rule, gammas: Sequence[float]) -> list[UnderDoubt]:
    """Values the rule would still release were the odds of measuring off by each factor either way."""
    division = Division(data, merge_groups(data, rule))
    limits = [division.limits(replace(rule, gamma=gamma)) for gamma in gammas]
    return [UnderDoubt(float(g), division.reach(each, rule).released) for g, each in zip(gammas, limits, strict=True)]


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
    """How many candidates stay released whichever fold of patients the decision does without; no fit is repeated."""
    others = [decide(each, rule).released for each in without_each_fold(data, fold)]
    return stability_of(decide(data, rule).released, others)
