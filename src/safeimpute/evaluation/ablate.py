"""The paper's two ablation tables on any data: parts of the network, and parts of the risk."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from safeimpute.evaluation.evaluate import ScoredSplit, release_scores, score_splits
from safeimpute.evaluation.metrics import mean_absolute_error, mean_se, root_mean_squared_error
from safeimpute.records.visits import Visits
from safeimpute.runtime.progress import Progress, silent
from safeimpute.selection.claims import Claim
from safeimpute.settings import Config
from safeimpute.systems.presets import PaperSettings

FULL = "paper's system"


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


def risk_variants(scored: Sequence[ScoredSplit]) -> dict[str, list[ScoredSplit]]:
    """The same fits ranked by instability alone, and by the proxy risk."""

    def by_instability(split: ScoredSplit) -> ScoredSplit:
        scores = replace(split.scored.scores, risk=split.scored.scores.signals["instability"])
        return replace(split, scored=replace(split.scored, scores=scores))

    return {"instability alone": [by_instability(split) for split in scored], "proxy risk": list(scored)}


def ablate(
    visits: Visits,
    config: Config,
    splits: int,
    test_fraction: float,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Both tables on the same splits."""

    def scored(name: str, settings: PaperSettings) -> list[ScoredSplit]:
        plan = replace(config.plan(), preset="paper", paper=settings)
        return score_splits(
            visits.arrays,
            plan,
            Claim(),
            splits,
            test_fraction,
            progress=lambda part, share: progress(f"{name}, {part}", share),
        )

    imputer = {name: scored(name, chosen) for name, chosen in imputer_variants(config.paper).items()}
    risk = risk_variants(scored("release", config.paper))
    return {
        "target": config.target,
        "tolerance": config.tolerance,
        "fdr": config.fdr,
        "splits": splits,
        "imputer": {name: _accuracy(runs) for name, runs in imputer.items()},
        "risk": {name: _release(runs, config) for name, runs in risk.items()},
    }


def _accuracy(scored: Sequence[ScoredSplit]) -> dict[str, Any]:
    pairs = [(s.value[s.tested], s.truth[s.tested]) for s in scored]
    return {
        "mae": mean_se([mean_absolute_error(*pair) for pair in pairs]),
        "rmse": mean_se([root_mean_squared_error(*pair) for pair in pairs]),
    }


def _release(scored: Sequence[ScoredSplit], config: Config) -> dict[str, Any]:
    per_split = [release_scores(s, config.allowed_error, config.fdr) for s in scored]
    names = ("fdp", "power", "acceptance", "mae", "rmse")
    return {name: mean_se([s[name] for s in per_split if s[name] is not None]) for name in names}
