"""What the same errors would have released otherwise: at other levels and tolerances, or had the odds been off.

To look at, not to promise: a level chosen after looking has no promise of its own. Odds: if the true odds of being
unmeasured differ from the modelled ones by a factor of at most gamma either way, a patient's balance is at most the sum
of w_i 1{risk_i <= T} (gamma (1 - alpha) 1{risky_i} - alpha / gamma 1{not risky_i}).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from safeimpute.records.arrays import FloatArray
from safeimpute.selection.bh import ROUNDING
from safeimpute.selection.cutoff import average_cutoff
from safeimpute.selection.ledger import Entries, below, per_patient, risk_grid, size_biased
from safeimpute.selection.release import Ground, Rule, bound_at, decide, entries_of
from safeimpute.splits.enough import enough
from safeimpute.tolerance import Tolerance, parse_tolerance

LEVELS = tuple(round(0.01 * step, 2) for step in range(1, 51))
TOLERANCE_FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
FIRST_STEP = 8  # thresholds tried at once


@dataclass(frozen=True)
class UnderDoubt:
    """What would still be released if an unseen reason changed the odds by so much."""

    gamma: float
    released: int


@dataclass(frozen=True)
class Reach:
    """How far up the risk a level reaches, and how many candidates that lets through."""

    level: float
    cutoff: float | None  # None: nowhere
    released: int
    bound: int  # with the rule's confidence at most so many of them are risky, whichever level is picked


@dataclass(frozen=True)
class AtTolerance:
    """What every level would release at one tolerance."""

    tolerance: Tolerance
    typed: str  # as a user would type it
    reaches: tuple[Reach, ...]


def tolerances_around(own: Tolerance) -> list[tuple[Tolerance, str]]:
    """Multiples of the run's tolerance, itself among them, with what a user would type for each."""
    typed = [_scaled(own, factor) for factor in TOLERANCE_FACTORS]
    return [
        (own if factor == 1.0 else parse_tolerance(text), text)
        for factor, text in zip(TOLERANCE_FACTORS, typed, strict=True)
    ]


def _scaled(tolerance: Tolerance, factor: float) -> str:
    share, absolute = f"{100 * tolerance.share * factor:.4g}%", f"{tolerance.absolute * factor:.4g}"
    if tolerance.share and tolerance.absolute:
        return f"{share} or {absolute}"
    return share if tolerance.share else absolute


def reaches(
    ground: Ground, rule: Rule, levels: Sequence[float], *, bounded: bool = True
) -> tuple[Reach, ...]:
    """At each level how many values the average rule would release; under claim `visits` p-values decide instead.

    One rule speaks for all groups. Where not `bounded`, nothing better is said than that all of them may be risky.
    """
    ground = replace(ground, cell=None)
    found = _by_p_values(ground, rule, levels) if rule.claim == "visits" else _by_ledger(ground, levels)
    return tuple(
        Reach(
            level,
            None if np.isnan(cutoff) else cutoff,
            released,
            bound_at(ground, rule, cutoff, rule.confidence).risky if bounded and released else released,
        )
        for level, (cutoff, released) in zip(levels, found, strict=True)
    )


def _by_ledger(ground: Ground, levels: Sequence[float]) -> list[tuple[float, int]]:
    inside = ground.inside
    grid = risk_grid(ground.risk[inside & (ground.judged | ground.candidate)])
    candidates = np.sort(ground.risk[inside & ground.candidate])
    return [
        (cutoff, 0 if np.isnan(cutoff) else int(np.searchsorted(candidates, cutoff, side="right")))
        for cutoff in average_cutoffs(entries_of(ground), grid, levels).tolist()
    ]


def _by_p_values(ground: Ground, rule: Rule, levels: Sequence[float]) -> list[tuple[float, int]]:
    """All levels from one sort: Benjamini-Hochberg releases a candidate from its adjusted p-value on."""
    from scipy.stats import false_discovery_control

    tested = decide(ground, replace(rule, alpha=max(levels), promise="average")).p_value
    there = np.isfinite(tested)
    risk = ground.risk[ground.candidate][there]
    adjusted = false_discovery_control(tested[there]) if there.any() else tested[there]
    found = []
    for level in levels:
        through = risk[adjusted <= level * (1.0 + ROUNDING)]
        found.append((float(through.max()) if len(through) else np.nan, len(through)))
    return found


def average_cutoffs(entries: Entries, thresholds: FloatArray, levels: Sequence[float]) -> FloatArray:
    """What the average rule gives at each level, at a small part of its cost; NaN where no threshold keeps the level.

    A threshold can be safe only where the risky weight below it is at most the level's share, and a lower level never
    reaches further than a higher one: so only thresholds just below those two bounds are tried.
    """
    present, patient = np.unique(entries.patient, return_inverse=True)
    there = replace(entries, patient=patient, n_patients=len(present))
    weight = below(there.risk, there.weight, thresholds)
    risky = below(there.risk, there.weight * there.risky, thresholds)
    found, reach = np.full(len(levels), np.nan), len(thresholds)
    worth = there.worth
    for place in np.argsort(levels)[::-1]:
        if not enough(worth, levels[place]):
            break
        possible = np.flatnonzero(risky[:reach] - levels[place] * weight[:reach] <= ROUNDING * weight[:reach])
        end = int(possible[-1]) + 1 if len(possible) else 0
        found[place] = _last_safe(there, thresholds[:end], levels[place])
        if np.isnan(found[place]):
            break
        reach = int(np.searchsorted(thresholds, found[place], side="right"))
    return found


def _last_safe(entries: Entries, thresholds: FloatArray, alpha: float) -> float:
    """The cut-off, looked for from the largest threshold down in growing steps."""
    end, step = len(thresholds), FIRST_STEP
    while end > 0:
        start = max(0, end - step)
        cutoff = average_cutoff(entries, thresholds[start:end], alpha)
        if cutoff.risk is not None:
            return cutoff.risk
        end, step = start, 2 * step
    return np.nan


def released_under_doubt(
    entries: Entries,
    thresholds: FloatArray,
    candidate_risk: FloatArray,
    alpha: float,
    gammas: Sequence[float],
) -> list[UnderDoubt]:
    """Released candidates for each factor, by the average rule."""
    return [
        UnderDoubt(
            float(gamma), int(np.sum(candidate_risk <= _cutoff_in_doubt(entries, thresholds, alpha, gamma)))
        )
        for gamma in gammas
    ]


def _cutoff_in_doubt(entries: Entries, thresholds: FloatArray, alpha: float, gamma: float) -> float:
    """The average rule's cut-off against the worst balance that odds off by `gamma` allow; -inf for none."""
    cost = np.where(entries.risky, gamma * (1.0 - alpha), -alpha / gamma)
    balance = per_patient(entries, entries.weight * cost, thresholds)
    size = per_patient(entries, entries.weight, thresholds)
    total = size.sum(axis=0)
    heavy = per_patient(entries, np.square(entries.weight), thresholds).sum(axis=0)
    visit = np.divide(heavy, total, out=np.zeros_like(total), where=total > 0)
    correction = size_biased(np.maximum(balance, 0.0)) + (1.0 - alpha) * gamma * visit
    safe = np.flatnonzero((total > 0.0) & (balance.sum(axis=0) + correction <= 0.0))
    return float(thresholds[safe[-1]]) if len(safe) else -np.inf
