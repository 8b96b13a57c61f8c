"""Checking the promise on a user's own data before believing it: achieved share against the level, and by group."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from safeimpute.evaluation.evaluate import (
    EvaluationTerms,
    ReleaseSummary,
    evaluation_terms,
    release_at,
    release_together,
)
from safeimpute.evaluation.metrics import MeanSe, mean_se
from safeimpute.evaluation.trials import Trial, Trials, draws
from safeimpute.settings import OverName, Settings
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import BoolArray

FEWEST_RELEASED = 20  # a share of fewer released values says nothing about a group
AVERAGE_ONLY = "The level is kept over all released values together, not within each group."


class AuditedLevel(ReleaseSummary):
    """A level, and whether what was achieved lies within it."""

    holds: bool  # mean fdp and, over several splits, the pooled share at most the level + 3 SE


class AuditedGroup(TypedDict):
    """One group at one level; shares are null where too little was released."""

    group: str
    released: float
    fdp: MeanSe | None
    power: MeanSe | None


class GroupsAtLevel(TypedDict):
    """All groups at one level."""

    fdr: float
    rows: list[AuditedGroup]


class Audit(TypedDict):
    """Achieved shares at every level, over all values and per group."""

    levels: list[AuditedLevel]
    groups: list[GroupsAtLevel]
    note: str


class AuditReport(EvaluationTerms, Audit):
    """An audit with what was asked, as audit.json holds it."""

    effort: str  # what a light fit did with less; empty where nothing was spared


def audit(
    trials: Sequence[Trial],
    tolerance: Tolerance,
    alphas: Sequence[float],
    groups: Mapping[str, BoolArray],
    repartitions: int = 1,
) -> Audit:
    """Achieved FDP and power at every level, and per group (a mask over all visits) at each level."""
    return {
        "levels": [judged_level(release_at(trials, tolerance, alpha, repartitions), alpha) for alpha in alphas],
        "groups": [
            {"fdr": alpha, "rows": _in_groups(trials, tolerance, alpha, groups, repartitions)} for alpha in alphas
        ],
        "note": AVERAGE_ONLY,
    }


def judged_level(row: ReleaseSummary, alpha: float) -> AuditedLevel:
    """Whether what was achieved lies within the level."""
    se = row["fdp"]["se"]
    holds = (row["fdp"]["mean"] or 0.0) <= alpha + 3 * (se or 0.0)
    if se is not None:
        holds = holds and (row["pooled"] or 0.0) <= alpha + 3 * se
    return {**row, "holds": holds}


def _in_groups(
    trials: Sequence[Trial], tolerance: Tolerance, alpha: float, groups: Mapping[str, BoolArray], repartitions: int
) -> list[AuditedGroup]:
    """Each group's share of risky values among its released ones, and of good ones released; means over splits."""
    collected: dict[str, list[tuple[float, float, float]]] = {name: [] for name in groups}
    for trial in trials:
        counts = np.zeros((len(groups), 3))
        number = 0
        for draw in draws(trial, repartitions):
            number += 1
            risky, released = draw.loss(tolerance), draw.release(tolerance, alpha).released
            for place, member in enumerate(groups.values()):
                there = member[draw.tested]
                out = released & there
                counts[place] += np.sum(risky * out), out.sum(), np.sum((1.0 - risky) * there)
        for name, (found, out_of_all, good) in zip(groups, counts, strict=True):
            # Over all draws together: a draw that releases nothing to a small group would count as free of error.
            shares = found / max(out_of_all, 1.0), (out_of_all - found) / max(good, 1.0)
            collected[name].append((*shares, out_of_all / number))
    return [_described(name, np.array(values)) for name, values in collected.items() if values]


def _described(name: str, values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> AuditedGroup:
    released = float(values[:, 2].mean())
    enough = released >= FEWEST_RELEASED
    return {
        "group": name,
        "released": released,
        "fdp": mean_se(values[:, 0].tolist()) if enough else None,
        "power": mean_se(values[:, 1].tolist()) if enough else None,
    }


class LabsAudit(EvaluationTerms):
    """The audit of several labs: what was asked, all labs together at every level, and each lab's own."""

    over: OverName
    levels: list[AuditedLevel]
    labs: dict[str, AuditReport]


def audited_together(
    settings: Settings, labs: dict[str, AuditReport], trials: Trials, alphas: Sequence[float], repartitions: int = 1
) -> LabsAudit:
    """Every lab's audit, and whether the release over all of them lies within each level."""
    first = next(iter(labs.values()))
    return {
        **evaluation_terms(settings, first["splits"], first["split"]),
        "over": settings.over,
        "levels": [judged_level(release_together(trials, alpha, repartitions), alpha) for alpha in alphas],
        "labs": labs,
    }
