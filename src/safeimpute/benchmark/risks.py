"""Other ways to know which values to doubt, on one split as one cell: each releases by the same rule (arrays only).

Judged beside the paper's proxy and the learned risk by what they release at the same level: Monte Carlo dropout and an
ensemble of the paper's network, draws of MICE and MIWAE, and the width of a conformal interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import torch

from safeimpute.benchmark.cells import Arrays, Cell, Study
from safeimpute.benchmark.result import packed, unpacked
from safeimpute.evaluation import metrics
from safeimpute.evaluation.evaluate import ReleaseSummary, outcome, summarise_release
from safeimpute.evaluation.metrics import MeanSe, mean_se
from safeimpute.evaluation.trials import Trial, draws
from safeimpute.foreign.ranking import rank_by_validation
from safeimpute.records.arrays import FloatArray, VisitArrays
from safeimpute.runtime.memory import peak_mib
from safeimpute.selection.calibrate import calibrate
from safeimpute.settings import Settings
from safeimpute.splits.questions import Question, draw_roles, question_of
from safeimpute.splits.streams import Stream, generator
from safeimpute.systems.paper.system import FittedPaper, fit_paper
from safeimpute.systems.protocol import Estimates, Imputation

RISKS = "risks"  # the cell's name, where others have a method's
DROPOUT, PASSES, MEMBERS, MICE_DRAWS = 0.1, 50, 5, 10
QUANTILES = (0.05, 0.95)
OUTCOMES = "outcomes"


class RiskRow(TypedDict):
    """One risk over the splits: whose values it doubts, how well it tells, what it releases at the level."""

    values: str
    mae: MeanSe
    auc: MeanSe
    release: ReleaseSummary


@dataclass(frozen=True)
class _Ground:
    """One split, and the paper's system fitted to it."""

    study: Study
    question: Question
    settings: Settings
    device: str
    paper: FittedPaper


Risk = Callable[[_Ground], Estimates]


def run_risks(study: Study, visits: VisitArrays, seed: int, device: str) -> tuple[dict[str, Any], Arrays]:
    """Every risk on one split; figures and, as arrays, what each releases over all draws."""
    settings = study.settings(visits, "paper", seed)
    question = question_of(visits, settings, draw_roles(visits, seed, study.test_fraction))
    paper = fit_paper(question.task, settings.paper, seed, device)
    ground = _Ground(study, question, settings, device, paper)
    found, outcomes = {}, []
    for name, (values, risk) in EVERY_RISK.items():
        calibrated = calibrate(question, visits.target_values, risk(ground), settings, study.plausible)
        trial = Trial(calibrated, visits.target_values, settings, {})
        error, alpha = study.tolerance, study.levels[0]
        found[name] = {
            "values": values,
            "mae": metrics.mean_absolute_error(*trial.errors()),
            "auc": metrics.auc(trial.estimates.risk_at(error)[trial.tested], trial.risky(error)),
        }
        outcomes.append([outcome(draw, error, alpha) for draw in draws(trial, study.repartitions)])
    return {"error": None, "risks": found, "peak_mib": peak_mib()}, {OUTCOMES: packed(outcomes)}


def gather_risks(cells: Sequence[Cell], study: Study) -> dict[str, RiskRow]:
    """Every risk over the splits that are there."""
    names = list(cells[0].content["risks"]) if cells else []
    return {
        name: {
            "values": cells[0].content["risks"][name]["values"],
            "mae": mean_se([cell.content["risks"][name]["mae"] for cell in cells]),
            "auc": mean_se([a for c in cells if (a := c.content["risks"][name]["auc"]) is not None]),
            "release": summarise_release(
                [unpacked(cell.arrays[OUTCOMES])[place] for cell in cells], study.levels[0]
            ),
        }
        for place, name in enumerate(names)
    }


def _proxy(ground: _Ground) -> Estimates:
    return ground.paper.estimates


def _learned(ground: _Ground) -> Estimates:
    """Learnt from the validation errors of the paper's network."""
    own, question = ground.paper.estimates, ground.question
    asked, error = question.judged | question.candidate, ground.study.tolerance
    imputation = Imputation(own.value, own.signals)
    seed = ground.settings.random_state
    return rank_by_validation(question.task, imputation, asked, error, seed, ground.device)


def _dropout(ground: _Ground) -> Estimates:
    """Gal and Ghahramani 2016: spread over passes with units dropped as in training."""
    gcn = replace(ground.settings.paper.gcn, dropout=DROPOUT)
    told = replace(ground.settings.paper, gcn=gcn)
    fitted = fit_paper(ground.question.task, told, ground.settings.random_state, ground.device)
    network, scaler, target = fitted.network, fitted.network.graph.scaler, fitted.network.graph.target
    network.network.train()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(ground.settings.random_state)
        drawn = [
            network.network(network.nodes.inputs(), network.nodes.relations)[:, target].cpu().numpy()
            for _ in range(PASSES)
        ]
    values = [scaler.in_unit(z.astype(np.float64), target) for z in drawn]
    return _doubted(ground, fitted.estimates.value, np.std(values, axis=0))


def _ensemble(ground: _Ground) -> Estimates:
    """Lakshminarayanan et al. 2017: networks that start apart; their mean, and how far they differ."""
    seed = ground.settings.random_state
    values = [ground.paper.estimates.value]
    for member in range(1, MEMBERS):
        other = fit_paper(ground.question.task, ground.settings.paper, seed + 1000 * member, ground.device)
        values.append(other.estimates.value)
    return _doubted(ground, np.mean(values, axis=0), np.std(values, axis=0))


def _mice(ground: _Ground) -> Estimates:
    """Draws of chained Bayesian regressions."""
    from safeimpute.benchmark.methods.chained import Mice

    rng = generator(ground.settings.random_state, Stream.FIT)
    task = ground.question.task
    values = [Mice(draw=True).fit(task, rng).impute(task).value for _ in range(MICE_DRAWS)]
    return _doubted(ground, np.mean(values, axis=0), np.std(values, axis=0))


def _miwae(ground: _Ground) -> Estimates:
    """The spread that draws from the latent model's conditional distribution have."""
    from safeimpute.benchmark.methods.miwae import Miwae
    from safeimpute.benchmark.methods.table import FAR

    imputer, task, seed = Miwae(ground.study.effort), ground.question.task, ground.settings.random_state
    fitted = imputer.fit(task, generator(seed, Stream.FIT), ground.device)
    value = fitted.impute(task).value
    spread = imputer.spreads(task, generator(seed, Stream.FIT), ground.device)
    labs, target = fitted.units.labs, fitted.units.target
    z = np.clip(labs.standard(value, target), -FAR, FAR)
    in_unit = (labs.in_unit(z + spread, target) - labs.in_unit(z - spread, target)) / 2
    return _doubted(ground, value, in_unit)


def _width(ground: _Ground) -> Estimates:
    """Width of a conformalised quantile interval (Romano et al. 2019) around the paper's values.

    Conformalising adds the same to every interval, which changes no ranking: the quantiles' distance ranks alike.
    """
    import lightgbm as lgb

    from safeimpute.benchmark.methods.boosted_lags import PARAMETERS, lag_features
    from safeimpute.systems.scaling import fit_scaler

    visits, training = ground.question.visits, ground.question.task.training
    scaler = fit_scaler(visits.labs, visits.lab_names, training)
    matrix, target = lag_features(visits, scaler), visits.target_values
    ends = []
    for quantile in QUANTILES:
        told = PARAMETERS | {"objective": "quantile", "alpha": quantile, "metric": "quantile"}
        told["seed"] = ground.settings.random_state
        booster = lgb.train(told, lgb.Dataset(matrix[training], target[training]), 200)
        ends.append(np.asarray(booster.predict(matrix), dtype=np.float64))
    return _doubted(ground, ground.paper.estimates.value, np.abs(ends[1] - ends[0]))


def _doubted(ground: _Ground, value: FloatArray, spread: FloatArray) -> Estimates:
    """Values ranked by a spread in units of what is allowed."""
    allowed = np.maximum(ground.study.tolerance.allowed(value), 1e-12)
    nothing = np.zeros(len(value), dtype=bool)
    return Estimates(value, spread / allowed, np.maximum(spread, 1e-12), nothing)


EVERY_RISK: dict[str, tuple[str, Risk]] = {
    "proxy risk": ("paper", _proxy),
    "learned risk": ("paper", _learned),
    "Monte Carlo dropout": ("paper, with dropout", _dropout),
    "deep ensemble": (f"mean of {MEMBERS} of paper", _ensemble),
    "draws of MICE": ("mice", _mice),
    "draws of MIWAE": ("miwae", _miwae),
    "conformal width": ("paper", _width),
}
