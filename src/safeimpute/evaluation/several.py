"""Several labs evaluated and audited together: each lab as alone, and the release over all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np

from safeimpute.evaluation.audit import AuditedLevel, AuditReport, judged_level
from safeimpute.evaluation.evaluate import Outcome, ReleaseSummary, counted_outcome, summarise_release
from safeimpute.evaluation.trials import Trial, draws
from safeimpute.runtime.memory import peak_mib
from safeimpute.runtime.threads import side_by_side
from safeimpute.selection.several import decide_together
from safeimpute.settings import OverName, Settings

Trials = Mapping[str, Sequence[Trial]]  # by lab; the same splits in each


def trials_of_labs(
    run: Callable[[str], list[Trial]], labs: Sequence[str], alphas: Sequence[float], visits: int
) -> dict[str, list[Trial]]:
    """Every lab's trials, several labs at once where each is small; decided together where one level is for all."""
    found = dict(zip(labs, side_by_side(run, labs, visits), strict=True))
    first = next(iter(found.values()))[0]
    return _decided_together(found, alphas) if first.settings.over == "cells" else found


def _decided_together(trials: Trials, alphas: Sequence[float]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {lab: [] for lab in trials}
    for split in zip(*trials.values(), strict=True):
        grounds = {
            lab: trial.calibrated.ground(trial.settings.allowed_error)
            for lab, trial in zip(trials, split, strict=True)
        }
        decisions = {alpha: decide_together(grounds, split[0].rule(alpha)) for alpha in alphas}
        for lab, trial in zip(trials, split, strict=True):
            found[lab].append(
                replace(trial, together={alpha: each[lab] for alpha, each in decisions.items()})
            )
    return found


def release_together(trials: Trials, alpha: float, repartitions: int = 1) -> ReleaseSummary:
    """What was released over all labs at one level; errors of different labs have no common unit and are left out."""
    per_split = []
    for split in zip(*trials.values(), strict=True):
        drawn = zip(*(draws(trial, repartitions) for trial in split), strict=True)
        per_split.append([_outcome(each, alpha) for each in drawn])
    released = sum(any(each.released for each in split) for split in per_split)
    return {**summarise_release(per_split, alpha), "splits_released": released}


def of_all_labs(
    settings: Settings,
    labs: Mapping[str, Mapping[str, Any]],
    trials: Trials,
    alphas: Sequence[float],
    repartitions: int = 1,
) -> dict[str, Any]:
    """What `evaluate` says of several labs: each lab's object, and the release over all of them."""
    first, own = next(iter(labs.values())), next(iter(trials.values()))[0].settings
    same = (
        "preset",
        "splits",
        "split",
        "claim",
        "promise",
        "confidence",
        "past_only",
        "n_visits",
        "n_patients",
    )
    return {
        **{name: first[name] for name in same},
        "target": settings.target,
        "targets": list(labs),
        "tolerance": settings.tolerance,
        "over": settings.over,
        "effort": own.best.effort_in_words if settings.preset == "best" else "",
        "release": [release_together(trials, alpha, repartitions) for alpha in alphas],
        "labs": dict(labs),
        "seconds": {"total": sum(each["seconds"]["total"] for each in labs.values())},
        "peak_mib": peak_mib(),
        "repartitions": repartitions,
    }


class LabsAudit(TypedDict):
    """The audit of several labs: what was asked, all labs together at every level, and each lab's own."""

    target: str
    tolerance: float | str
    over: OverName
    splits: int
    split: str
    preset: str
    claim: str
    promise: str
    levels: list[AuditedLevel]
    labs: dict[str, AuditReport]


def audited_together(
    settings: Settings,
    labs: dict[str, AuditReport],
    trials: Trials,
    alphas: Sequence[float],
    repartitions: int = 1,
) -> LabsAudit:
    """Every lab's audit, and whether the release over all of them lies within each level."""
    first = next(iter(labs.values()))
    return {
        "target": settings.target,
        "tolerance": settings.tolerance,
        "over": settings.over,
        "splits": first["splits"],
        "split": first["split"],
        "preset": settings.preset,
        "claim": settings.claim,
        "promise": settings.promise,
        "levels": [judged_level(release_together(trials, alpha, repartitions), alpha) for alpha in alphas],
        "labs": labs,
    }


def _outcome(labs: Sequence[Trial], alpha: float) -> Outcome:
    tolerances = [trial.settings.allowed_error for trial in labs]
    risky = [trial.risky(each) for trial, each in zip(labs, tolerances, strict=True)]
    released = [trial.release(each, alpha).released for trial, each in zip(labs, tolerances, strict=True)]
    return counted_outcome(np.concatenate(risky), np.concatenate(released))
