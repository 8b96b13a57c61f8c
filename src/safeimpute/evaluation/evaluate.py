"""Hide known values, impute, release, score: what a preset achieves on a user's own data (arrays only)."""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from safeimpute.errors import OptionError
from safeimpute.evaluation import metrics
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.runtime.progress import Progress, silent
from safeimpute.selection.claims import Claim
from safeimpute.selection.pipeline import Scored, Split, release, score_split, split_for
from safeimpute.splits.roles import Role
from safeimpute.systems.presets import Plan
from safeimpute.tolerance import Tolerance

TEST_FRACTION = 0.2
REPARTITION_STREAM = 14


@dataclass(frozen=True)
class ScoredSplit:
    """One split, fitted and scored, with the truth: everything a release at any level can be judged from."""

    scored: Scored
    truth: FloatArray  # target of every visit that has one, NaN elsewhere
    tested: IntArray  # the candidates whose truth is known
    seconds: float
    unmeasured: bool = False  # tested where nobody measured, against a truth known from elsewhere

    @property
    def value(self) -> FloatArray:
        return self.scored.scores.value

    def risk(self, tolerance: Tolerance) -> FloatArray:
        return self.scored.scores.risk_at(tolerance)

    def bad(self, tolerance: Tolerance, rows: IntArray) -> BoolArray:
        return tolerance.risky(self.value[rows], self.truth[rows])

    def released(
        self, tolerance: Tolerance, alpha: float, split: Split | None = None, tested: IntArray | None = None
    ) -> BoolArray:
        """Which tested visits a release lets through, calibrated as the split says."""
        candidates = self.tested if tested is None else tested
        return release(self.scored, tolerance, alpha, candidates, self.truth, split).released


def score_splits(
    arrays: VisitArrays,
    plan: Plan,
    claim: Claim,
    splits: int,
    test_fraction: float = TEST_FRACTION,
    truth: FloatArray | None = None,
    plausible: tuple[float, float] | None = None,
    progress: Progress = silent,
) -> list[ScoredSplit]:
    """Independent splits, seeded one after the other.

    With `truth` (of every visit) the unmeasured visits are the test and nothing measured is held out.
    """
    results = []
    for number in range(splits):
        stage = f"split {number + 1} of {splits}"
        start = time.perf_counter()
        seeded = replace(plan, seed=plan.seed + number)
        split = split_for(claim, arrays, seeded.seed, 0.0 if truth is not None else test_fraction)
        scored = score_split(arrays, split, claim, seeded, plausible, _staged(progress, stage))
        tested = split.rows(Role.TEST) if truth is None else scored.candidates()
        if truth is not None and split.group is not None:
            tested = tested[split.group[tested] == Role.TEST]
        measured = arrays.target_values
        known = measured if truth is None else np.where(np.isnan(measured), truth, measured)
        results.append(ScoredSplit(scored, known, tested, time.perf_counter() - start, truth is not None))
    return results


def _staged(progress: Progress, stage: str) -> Progress:
    return lambda part, share: progress(f"{stage}: {part}", share)


def summarise(
    results: Sequence[ScoredSplit], tolerance: Tolerance, levels: Sequence[float], repartitions: int = 1
) -> dict[str, Any]:
    """Accuracy, release at every level, ranking of the risk, cost: means over splits with standard errors."""
    tested = [(r.value[r.tested], r.truth[r.tested]) for r in results]
    areas = [metrics.auc(r.risk(tolerance)[r.tested], r.bad(tolerance, r.tested)) for r in results]
    stages = {
        name: _mean([r.scored.scores.seconds.get(name, 0.0) for r in results])
        for name in ("graph", "fit", "risk")
    }
    return {
        "imputation": {
            "mae": metrics.mean_se([metrics.mean_absolute_error(*pair) for pair in tested]),
            "rmse": metrics.mean_se([metrics.root_mean_squared_error(*pair) for pair in tested]),
        },
        "release": [_release_at(results, tolerance, level, repartitions) for level in levels],
        "risk_auc": metrics.mean_se([area for area in areas if area is not None]),
        "seconds": {**stages, "total": _mean([r.seconds for r in results])},
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "repartitions": repartitions,
    }


def _release_at(
    results: Sequence[ScoredSplit], tolerance: Tolerance, level: float, repartitions: int
) -> dict[str, Any]:
    per_split = [release_scores(r, tolerance, level, repartitions) for r in results]
    with_errors = [scores for scores in per_split if scores["mae"] is not None]
    return {
        "fdr": level,
        **{name: metrics.mean_se([s[name] for s in per_split]) for name in ("fdp", "power", "acceptance")},
        **{name: metrics.mean_se([s[name] for s in with_errors]) for name in ("mae", "rmse")},
        "splits_released": len(with_errors),
    }


def release_scores(
    result: ScoredSplit, tolerance: Tolerance, level: float, repartitions: int = 1
) -> dict[str, Any]:
    """Scores of one fit's release, averaged over re-partitions of its calibration and test visits.

    The first partition is the split itself. Further ones redraw calibration and test from their union without
    replacement: each is as good a split of the same fit.
    """
    rng = np.random.default_rng([result.scored.plan.seed, REPARTITION_STREAM])
    draws = [_score_release(result, tolerance, level, result.scored.split, result.tested)]
    for _ in range(repartitions - 1):
        draws.append(_score_release(result, tolerance, level, *repartition(result, rng)))
    released = [draw for draw in draws if draw["mae"] is not None]
    averaged = {name: _mean([draw[name] for draw in draws]) for name in ("fdp", "power", "acceptance")}
    errors = {
        name: _mean([draw[name] for draw in released]) if released else None for name in ("mae", "rmse")
    }
    return {**averaged, **errors}


def repartition(result: ScoredSplit, rng: np.random.Generator) -> tuple[Split, IntArray]:
    """Exchange calibration and test at random: visits, or whole patients where patients were split."""
    split = result.scored.split
    if split.group is None:
        if result.unmeasured:
            raise OptionError(
                "who is measured cannot be drawn again: unmeasured visits have no other partition. "
                "Leave --repartitions at 1 with --truth, or simulate further cohorts."
            )
        union = np.concatenate([split.rows(Role.CALIBRATION), split.rows(Role.TEST)])
        roles = split.roles.copy()
        roles[union] = rng.permutation(roles[union])
        return Split(roles), np.flatnonzero(roles == Role.TEST)
    patient = result.scored.arrays.patient
    patients = np.concatenate([split.patients(patient, role) for role in (Role.CALIBRATION, Role.TEST)])
    drawn = rng.permutation(patients)[: len(split.patients(patient, Role.CALIBRATION))]
    moved = np.isin(patient, patients)
    group = np.where(moved, np.where(np.isin(patient, drawn), Role.CALIBRATION, Role.TEST), split.group)
    scored_rows = np.isin(split.roles, (Role.CALIBRATION, Role.TEST))
    roles = np.where(scored_rows, group, split.roles).astype(np.int8)
    tested = np.flatnonzero((roles == Role.UNMEASURED) & (group == Role.TEST)) if result.unmeasured else None
    return Split(roles, group.astype(np.int8)), np.flatnonzero(
        roles == Role.TEST
    ) if tested is None else tested


def _score_release(
    result: ScoredSplit, tolerance: Tolerance, level: float, split: Split, tested: IntArray
) -> dict[str, Any]:
    value, truth = result.value[tested], result.truth[tested]
    bad = result.bad(tolerance, tested)
    released = result.released(tolerance, level, split, tested)
    out = {
        "fdp": metrics.false_discovery_proportion(bad, released),
        "power": metrics.power(bad, released),
        "acceptance": float(released.mean()) if len(released) else 0.0,
    }
    if not released.any():
        return {**out, "mae": None, "rmse": None}
    return {
        **out,
        "mae": metrics.mean_absolute_error(value[released], truth[released]),
        "rmse": metrics.root_mean_squared_error(value[released], truth[released]),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
