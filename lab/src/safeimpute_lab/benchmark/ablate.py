"""The paper's two ablation tables on any data: parts of the network, and parts of the risk."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from safeimpute.evaluation.evaluate import Accuracy, ReleaseSummary, accuracy, release_at
from safeimpute.evaluation.trials import Trial, run_trials
from safeimpute.machine.progress import Progress, part_of, silent
from safeimpute.settings import PaperSettings, Settings
from safeimpute.visits.arrays import VisitArrays

FULL = "paper's system"


class Ablation(TypedDict):
    """Both tables."""

    target: str
    tolerance: float | str
    fdr: float
    splits: int
    imputer: dict[str, Accuracy]
    risk: dict[str, ReleaseSummary]


def imputer_variants(base: PaperSettings) -> dict[str, PaperSettings]:
    """One part less each; without the fallback edges, as in the paper's imputation-only comparison."""
    plain = replace(base, graph=replace(base.graph, fallback=False))
    return {
        "no temporal edges": replace(plain, graph=replace(plain.graph, use_temporal=False)),
        "no value edges": replace(plain, graph=replace(plain.graph, use_value=False)),
        "no gate": replace(plain, gcn=replace(plain.gcn, gate=False)),
        "no reconstruction": replace(plain, gcn=replace(plain.gcn, reconstruction_weight=0.0)),
        FULL: plain,
    }


def risk_variants(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The same fits ranked by instability alone, and by the proxy risk."""
    return {"instability alone": [_by_instability(trial) for trial in trials], "proxy risk": list(trials)}


def _by_instability(trial: Trial) -> Trial:
    estimates = replace(trial.estimates, risk=trial.estimates.signals["instability"], learnt_for=None)
    return replace(trial, calibrated=replace(trial.calibrated, estimates=estimates))


def ablate(
    visits: VisitArrays,
    settings: Settings,
    splits: int,
    test_fraction: float,
    device: str = "cpu",
    progress: Progress = silent,
) -> Ablation:
    """Both tables on the same splits; `settings` are of the preset paper."""

    variants = imputer_variants(settings.paper)
    fits = len(variants) + 1

    def trials(number: int, name: str, chosen: PaperSettings) -> list[Trial]:
        return run_trials(
            visits,
            replace(settings, paper=chosen),
            splits,
            test_fraction,
            device=device,
            progress=part_of(progress, number / fits, (number + 1) / fits, f"{name}, "),
        )

    imputer = {name: trials(number, name, variants[name]) for number, name in enumerate(variants)}
    risk = risk_variants(trials(fits - 1, "release", settings.paper))
    return {
        "target": settings.target,
        "tolerance": settings.tolerance,
        "fdr": settings.fdr,
        "splits": splits,
        "imputer": {name: accuracy(runs) for name, runs in imputer.items()},
        "risk": {name: release_at(runs, settings.allowed_error, settings.fdr) for name, runs in risk.items()},
    }
