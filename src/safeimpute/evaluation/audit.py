"""Checking the promise on a user's own data before believing it: achieved FDP against the level, and by subgroup."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from safeimpute.evaluation.evaluate import REPARTITION_STREAM, ScoredSplit, release_scores, repartition
from safeimpute.evaluation.metrics import mean_se
from safeimpute.records.arrays import BoolArray
from safeimpute.tolerance import Tolerance

FEWEST_RELEASED = 20  # a share of fewer released values says nothing about a group
AVERAGE_ONLY = "FDR is controlled on average over all released values, not within each group."


def audit(
    results: Sequence[ScoredSplit],
    tolerance: Tolerance,
    levels: Sequence[float],
    groups: Mapping[str, BoolArray],
    repartitions: int,
) -> dict[str, Any]:
    """Achieved FDP and power at every level, and per group (a mask over all visits) at each level."""
    return {
        "levels": [_at_level(results, tolerance, level, repartitions) for level in levels],
        "groups": [_in_groups(results, tolerance, level, groups, repartitions) for level in levels],
        "note": AVERAGE_ONLY,
    }


def _at_level(
    results: Sequence[ScoredSplit], tolerance: Tolerance, level: float, repartitions: int
) -> dict[str, Any]:
    scores = [release_scores(result, tolerance, level, repartitions) for result in results]
    row = {name: mean_se([s[name] for s in scores]) for name in ("fdp", "power", "acceptance")}
    mean, se = row["fdp"]["mean"] or 0.0, row["fdp"]["se"] or 0.0
    return {"fdr": level, **row, "holds": mean <= level + 3 * se}


def _in_groups(
    results: Sequence[ScoredSplit],
    tolerance: Tolerance,
    level: float,
    groups: Mapping[str, BoolArray],
    repartitions: int,
) -> dict[str, Any]:
    """Mean over splits of each group's share of bad values among its released ones, and of good ones released."""
    collected: dict[str, list[tuple[float, float, float]]] = {name: [] for name in groups}
    for result in results:
        per_draw = _draws(result, tolerance, level, groups, repartitions)
        for name, draws in per_draw.items():
            wrong, released, good = np.sum(draws, axis=0)
            # Over all draws together: a draw that releases nothing to a small group would count as free of error.
            shares = wrong / max(released, 1.0), (released - wrong) / max(good, 1.0)
            collected[name].append((*shares, released / len(draws)))
    return {
        "fdr": level,
        "rows": [_describe(name, np.array(values)) for name, values in collected.items() if values],
    }


def _draws(
    result: ScoredSplit,
    tolerance: Tolerance,
    level: float,
    groups: Mapping[str, BoolArray],
    repartitions: int,
) -> dict[str, list[tuple[float, float, float]]]:
    rng = np.random.default_rng([result.scored.plan.seed, REPARTITION_STREAM])
    partitions = [(result.scored.split, result.tested)]
    partitions += [repartition(result, rng) for _ in range(repartitions - 1)]
    draws: dict[str, list[tuple[float, float, float]]] = {name: [] for name in groups}
    for split, tested in partitions:
        bad, released = result.bad(tolerance, tested), result.released(tolerance, level, split, tested)
        for name, member in groups.items():
            out = released & member[tested]
            draws[name].append(
                (float(np.sum(bad & out)), float(out.sum()), float(np.sum(~bad & member[tested])))
            )
    return draws


def _describe(name: str, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    released = float(values[:, 2].mean())
    enough = released >= FEWEST_RELEASED
    return {
        "group": name,
        "released": released,
        "fdp": mean_se(values[:, 0].tolist()) if enough else None,
        "power": mean_se(values[:, 1].tolist()) if enough else None,
    }
