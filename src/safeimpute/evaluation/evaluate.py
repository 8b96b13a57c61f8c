"""What a preset achieves on a user's own data: accuracy, release, ranking, cost, and the paper's curves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict

import numpy as np

from safeimpute.evaluation import metrics
from safeimpute.evaluation.metrics import MeanSe, mean_se
from safeimpute.evaluation.trials import Trial, Trials, draws
from safeimpute.machine.resources import peak_mib
from safeimpute.settings import OverName, Settings
from safeimpute.tolerance import Risky, Tolerance
from safeimpute.visits.arrays import BoolArray

ALPHAS = tuple(round(0.05 * step, 2) for step in range(1, 11))
TOLERANCE_FACTORS = (0.75, 1.0, 1.25, 1.5)
RISK_GROUPS = 10


class GroupShare(TypedDict):
    """One group at one level; fdp is a mean over splits, an empty release of a split counting 0."""

    fdp: MeanSe
    pooled: float | None
    acceptance: MeanSe


class ReleaseSummary(TypedDict):
    """One level: means over splits with standard errors; a split that releases nothing has fdp 0 and power 0."""

    fdr: float
    fdp: MeanSe
    precision: MeanSe  # as the paper defines it: 0, not 1, in a split that releases nothing
    power: MeanSe
    acceptance: MeanSe
    mae: MeanSe  # of released values, over splits that released
    rmse: MeanSe
    pooled: float | None  # all risky / all released, over splits and re-partitions
    exceeds: float  # share of draws whose fdp lies above the level
    splits_released: int
    groups: NotRequired[dict[str, dict[str, GroupShare]]]  # by name of the grouping, then of the group


class Accuracy(TypedDict):
    """Errors of all tested values."""

    mae: MeanSe
    rmse: MeanSe


class EvaluationSummary(TypedDict):
    """Everything `evaluate` measures."""

    imputation: Accuracy
    release: list[ReleaseSummary]
    risk_auc: MeanSe
    seconds: dict[str, float]
    peak_mib: float
    repartitions: int


class EvaluationTerms(TypedDict):
    """What an evaluation or an audit was asked for, of one lab or several."""

    target: str
    tolerance: float | str
    splits: int
    split: str
    preset: str
    claim: str
    promise: str


class Evaluated(EvaluationTerms):
    """The same with what else bears on an evaluation."""

    confidence: float
    past_only: bool
    effort: str  # what a light fit did with less; empty where nothing was spared
    n_visits: int
    n_patients: int


class LabEvaluation(Evaluated, EvaluationSummary):
    """The evaluation of one lab, as evaluation.json begins."""


class LabsEvaluation(Evaluated):
    """The evaluation of several labs: each lab's own, and the release over all of them."""

    targets: list[str]
    over: OverName
    release: list[ReleaseSummary]
    labs: dict[str, LabEvaluation]
    seconds: dict[str, float]
    peak_mib: float
    repartitions: int


@dataclass(frozen=True)
class Outcome:
    """One draw's release, counted."""

    risky: float  # a number of values, or what they cost
    released: int
    fdp: float
    power: float
    acceptance: float
    mae: float | None
    rmse: float | None

    @property
    def precision(self) -> float:
        """Share of the released values that are not risky; 0 for an empty release. Equation 55."""
        return (self.released - self.risky) / max(self.released, 1)


def evaluation_terms(settings: Settings, splits: int, split: str) -> EvaluationTerms:
    return {
        "target": settings.target,
        "tolerance": settings.tolerance,
        "splits": splits,
        "split": split,
        "preset": settings.preset,
        "claim": settings.claim,
        "promise": settings.promise,
    }


def summarise(
    trials: Sequence[Trial], tolerance: Tolerance, alphas: Sequence[float], repartitions: int = 1
) -> EvaluationSummary:
    """Accuracy, release at every level, ranking of the risk, cost: means over splits with standard errors."""
    areas = [metrics.auc(t.estimates.risk_at(tolerance)[t.tested], t.risky(tolerance)) for t in trials]
    stages = ("graph", "fit", "risk", "total")
    return {
        "imputation": accuracy(trials),
        "release": [release_at(trials, tolerance, alpha, repartitions) for alpha in alphas],
        "risk_auc": metrics.mean_se([area for area in areas if area is not None]),
        "seconds": {name: float(np.mean([t.seconds.get(name, 0.0) for t in trials])) for name in stages},
        "peak_mib": peak_mib(),
        "repartitions": repartitions,
    }


def accuracy(trials: Sequence[Trial]) -> Accuracy:
    """Errors of all tested values, released or not; of the preset paper without fallback edges where it was asked."""
    pairs = [trial.errors_alone() for trial in trials]
    return {
        "mae": metrics.mean_se([metrics.mean_absolute_error(*pair) for pair in pairs]),
        "rmse": metrics.mean_se([metrics.root_mean_squared_error(*pair) for pair in pairs]),
    }


def release_at(trials: Sequence[Trial], tolerance: Tolerance, alpha: float, repartitions: int = 1) -> ReleaseSummary:
    per_split = [[outcome(draw, tolerance, alpha) for draw in draws(trial, repartitions)] for trial in trials]
    summary = summarise_release(per_split, alpha)
    if trials and trials[0].calibrated.grouping is not None:
        summary["groups"] = groups_at(trials, tolerance, alpha, repartitions)
    return summary


def groups_at(
    trials: Sequence[Trial], tolerance: Tolerance, alpha: float, repartitions: int = 1
) -> dict[str, dict[str, GroupShare]]:
    """Every way to group, and every group of it: what was released there, and how much of it was risky."""
    counts: dict[tuple[str, str], list[list[tuple[int, int, int]]]] = {}
    for trial in trials:
        per_split: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        for draw in draws(trial, repartitions):
            risky, released = draw.loss(tolerance), draw.release(tolerance, alpha).released
            for key, member in _members(draw):
                out = released & member
                row = (np.sum(out * risky).item(), int(out.sum()), int(member.sum()))
                per_split.setdefault(key, []).append(row)
        for key, rows in per_split.items():
            counts.setdefault(key, []).append(rows)
    found: dict[str, dict[str, GroupShare]] = {}
    for (by, label), splits in counts.items():
        found.setdefault(by, {})[label] = _group_share(splits)
    return found


def _members(trial: Trial) -> Iterator[tuple[tuple[str, str], BoolArray]]:
    """Each group of each way to group as a mask over the tested visits."""
    grouping, visits = trial.calibrated.grouping, trial.calibrated.question.visits
    assert grouping is not None
    for dimension, code in grouping.codes(visits, trial.estimates.value):
        for place, label in enumerate(dimension.labels):
            member = code[trial.tested] == place
            if member.any():
                yield (dimension.name, label), member


def _group_share(splits: Sequence[Sequence[tuple[int, int, int]]]) -> GroupShare:
    released = sum(row[1] for rows in splits for row in rows)
    risky = sum(row[0] for rows in splits for row in rows)
    fdp = [float(np.mean([row[0] / max(row[1], 1) for row in rows])) for rows in splits]
    acceptance = [float(np.mean([row[1] / row[2] for row in rows])) for rows in splits]
    return {
        "fdp": metrics.mean_se(fdp),
        "pooled": risky / released if released else None,
        "acceptance": metrics.mean_se(acceptance),
    }


def summarise_release(per_split: Sequence[Sequence[Outcome]], alpha: float) -> ReleaseSummary:
    everything = [each for split in per_split for each in split]
    released = sum(each.released for each in everything)
    errors = [[each for each in split if each.mae is not None] for split in per_split]
    errors = [split for split in errors if split]
    return {
        "fdr": alpha,
        "fdp": _over(per_split, "fdp"),
        "precision": _over(per_split, "precision"),
        "power": _over(per_split, "power"),
        "acceptance": _over(per_split, "acceptance"),
        "mae": _over(errors, "mae"),
        "rmse": _over(errors, "rmse"),
        "pooled": sum(each.risky for each in everything) / released if released else None,
        "exceeds": float(np.mean([each.fdp > alpha for each in everything])) if everything else 0.0,
        "splits_released": len(errors),
    }


def outcome(trial: Trial, tolerance: Tolerance, alpha: float) -> Outcome:
    risky, released = trial.loss(tolerance), trial.release(tolerance, alpha).released
    value, truth = trial.errors()
    counted = counted_outcome(risky, released)
    if not released.any():
        return counted
    pair = value[released], truth[released]
    return replace(counted, mae=metrics.mean_absolute_error(*pair), rmse=metrics.root_mean_squared_error(*pair))


def counted_outcome(risky: Risky, released: BoolArray) -> Outcome:
    return Outcome(
        risky=np.sum(risky * released).item(),
        released=int(released.sum()),
        fdp=metrics.false_discovery_proportion(risky, released),
        power=metrics.power(risky, released),
        acceptance=float(released.mean()) if len(released) else 0.0,
        mae=None,
        rmse=None,
    )


def _over(per_split: Sequence[Sequence[Outcome]], name: str) -> MeanSe:
    return metrics.mean_se([float(np.mean([getattr(each, name) for each in split])) for split in per_split])


def release_together(trials: Trials, alpha: float, repartitions: int = 1) -> ReleaseSummary:
    """What was released over all labs at one level; errors of different labs have no common unit and are left out."""
    per_split = []
    for split in zip(*trials.values(), strict=True):
        drawn = zip(*(draws(trial, repartitions) for trial in split), strict=True)
        per_split.append([_outcome_together(each, alpha) for each in drawn])
    released = sum(any(each.released for each in split) for split in per_split)
    return {**summarise_release(per_split, alpha), "splits_released": released}


def of_all_labs(
    settings: Settings,
    labs: Mapping[str, LabEvaluation],
    trials: Trials,
    alphas: Sequence[float],
    repartitions: int = 1,
) -> LabsEvaluation:
    """What `evaluate` says of several labs: each lab's object, and the release over all of them."""
    first = next(iter(labs.values()))
    return {
        **evaluation_terms(settings, first["splits"], first["split"]),
        "confidence": first["confidence"],
        "past_only": first["past_only"],
        "effort": first["effort"],
        "n_visits": first["n_visits"],
        "n_patients": first["n_patients"],
        "targets": list(labs),
        "over": settings.over,
        "release": [release_together(trials, alpha, repartitions) for alpha in alphas],
        "labs": dict(labs),
        "seconds": {"total": sum(each["seconds"]["total"] for each in labs.values())},
        "peak_mib": peak_mib(),
        "repartitions": repartitions,
    }


def _outcome_together(labs: Sequence[Trial], alpha: float) -> Outcome:
    tolerances = [trial.settings.allowed_error for trial in labs]
    risky = [trial.loss(each) for trial, each in zip(labs, tolerances, strict=True)]
    released = [trial.release(each, alpha).released for trial, each in zip(labs, tolerances, strict=True)]
    return counted_outcome(np.concatenate(risky), np.concatenate(released))


class Curve(TypedDict):
    """The release at every level, at one tolerance."""

    absolute: float
    share: float
    limits: NotRequired[list[float]]
    points: list[ReleaseSummary]


class RiskGroup(TypedDict):
    """Tested visits of like risk: how wrong they are."""

    group: int
    score: MeanSe  # mean risk
    mae: MeanSe
    risky: MeanSe


def tolerances_around(tolerance: Tolerance) -> list[Tolerance]:
    """Multiples of a tolerance, for curves where none are given."""
    factors = TOLERANCE_FACTORS if tolerance.of_error else (1.0,)
    return [tolerance.times(factor) for factor in factors]


def fdr_power_curves(
    trials: Sequence[Trial], tolerances: Sequence[Tolerance], alphas: Sequence[float] = ALPHAS, repartitions: int = 1
) -> list[Curve]:
    """One curve per tolerance: achieved FDP, power, acceptance and errors at each level."""
    curves: list[Curve] = []
    for each in tolerances:
        points = [release_at(trials, each, alpha, repartitions) for alpha in alphas]
        curves.append({"absolute": each.absolute, "share": each.share, "points": points})
        if each.limits:
            curves[-1]["limits"] = list(each.limits)
    return curves


def risk_alignment(trials: Sequence[Trial], tolerance: Tolerance, groups: int = RISK_GROUPS) -> list[RiskGroup]:
    """Mean risk, mean absolute error and share of risky values in groups of equal size by risk, lowest first."""
    per_split = [_by_risk(trial, tolerance, groups) for trial in trials]
    return [
        {
            "group": position + 1,
            "score": mean_se([g[0] for g in group]),
            "mae": mean_se([g[1] for g in group]),
            "risky": mean_se([g[2] for g in group]),
        }
        for position, group in enumerate(zip(*per_split, strict=False))
    ]


def _by_risk(trial: Trial, tolerance: Tolerance, groups: int) -> list[tuple[float, float, float]]:
    value, truth = trial.errors()
    score = trial.estimates.risk_at(tolerance)[trial.tested]
    order = np.argsort(score, kind="stable")
    order = order[np.isfinite(score[order])]
    error, risky = np.abs(value - truth), trial.loss(tolerance)
    parts = [part for part in np.array_split(order, groups) if len(part)]
    return [(float(score[p].mean()), float(error[p].mean()), float(risky[p].mean())) for p in parts]
