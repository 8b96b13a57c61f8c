"""Other ways to know which values to doubt, on one split as one cell: each releases by the same rule (arrays only).

Judged beside the paper's proxy and the learned risk by what they release at the same level: Monte Carlo dropout and an
ensemble of the paper's network, draws of MICE and MIWAE, and the width of a conformal interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import torch

from safeimpute.evaluation import metrics
from safeimpute.evaluation.evaluate import ReleaseSummary, outcome, summarise_release
from safeimpute.evaluation.metrics import MeanSe, mean_se
from safeimpute.evaluation.trials import Trial, draws
from safeimpute.foreign.ranking import rank_by_validation
from safeimpute.learning.paper.system import FittedPaper, fit_paper
from safeimpute.learning.protocol import Estimates, Imputation
from safeimpute.machine.resources import peak_mib
from safeimpute.model.fit import calibrate
from safeimpute.selection.questions import Question, draw_roles, question_of
from safeimpute.settings import Settings
from safeimpute.visits.arrays import FloatArray, Stream, VisitArrays, generator
from safeimpute_lab.benchmark.cells import Arrays, Cell, Study
from safeimpute_lab.benchmark.result import packed, unpacked

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
class _SelectionData:
    """One split, and the paper's system fitted to it."""

    study: Study
    question: Question
    settings: Settings
    device: str
    paper: FittedPaper


Risk = Callable[[_SelectionData], Estimates]


def run_risks(study: Study, visits: VisitArrays, seed: int, device: str) -> tuple[dict[str, Any], Arrays]:
    """Every risk on one split; figures and, as arrays, what each releases over all draws."""
    settings = study.settings(visits, "paper", seed)
    question = question_of(visits, settings, draw_roles(visits, seed, study.test_fraction))
    paper = fit_paper(question.task, settings.paper, seed, device)
    data = _SelectionData(study, question, settings, device, paper)
    found, outcomes = {}, []
    for name, (values, risk) in EVERY_RISK.items():
        calibrated = calibrate(question, visits.target_values, risk(data), settings, study.plausible)
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
            "release": summarise_release([unpacked(cell.arrays[OUTCOMES])[place] for cell in cells], study.levels[0]),
        }
        for place, name in enumerate(names)
    }


def _proxy(data: _SelectionData) -> Estimates:
    return data.paper.estimates


def _learned(data: _SelectionData) -> Estimates:
    """Learnt from the validation errors of the paper's network."""
    own, question = data.paper.estimates, data.question
    asked, error = question.judged | question.candidate, data.study.tolerance
    imputation = Imputation(own.value, own.signals)
    seed = data.settings.random_state
    return rank_by_validation(question.task, imputation, asked, error, seed, data.device)


def _dropout(data: _SelectionData) -> Estimates:
    """Gal and Ghahramani 2016: spread over passes with units dropped as in training."""
    gcn = replace(data.settings.paper.gcn, dropout=DROPOUT)
    told = replace(data.settings.paper, gcn=gcn)
    fitted = fit_paper(data.question.task, told, data.settings.random_state, data.device)
    network, scaler, target = fitted.network, fitted.network.graph.scaler, fitted.network.graph.target
    network.network.train()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(data.settings.random_state)
        drawn = [
            network.network(network.nodes.inputs(), network.nodes.relations)[:, target].cpu().numpy()
            for _ in range(PASSES)
        ]
    values = [scaler.in_unit(z.astype(np.float64), target) for z in drawn]
    return _doubted(data, fitted.estimates.value, np.std(values, axis=0))


def _ensemble(data: _SelectionData) -> Estimates:
    """Lakshminarayanan et al. 2017: networks that start apart; their mean, and how far they differ."""
    seed = data.settings.random_state
    values = [data.paper.estimates.value]
    for member in range(1, MEMBERS):
        other = fit_paper(data.question.task, data.settings.paper, seed + 1000 * member, data.device)
        values.append(other.estimates.value)
    return _doubted(data, np.mean(values, axis=0), np.std(values, axis=0))


def _mice(data: _SelectionData) -> Estimates:
    """Draws of chained Bayesian regressions."""
    from safeimpute_lab.methods.chained import Mice

    rng = generator(data.settings.random_state, Stream.FIT)
    task = data.question.task
    values = [Mice(draw=True).fit(task, rng).impute(task).value for _ in range(MICE_DRAWS)]
    return _doubted(data, np.mean(values, axis=0), np.std(values, axis=0))


def _miwae(data: _SelectionData) -> Estimates:
    """The spread that draws from the latent model's conditional distribution have."""
    from safeimpute_lab.methods.miwae import Miwae
    from safeimpute_lab.methods.table import FAR

    imputer, task, seed = Miwae(data.study.effort), data.question.task, data.settings.random_state
    fitted = imputer.fit(task, generator(seed, Stream.FIT), data.device)
    value = fitted.impute(task).value
    spread = imputer.spreads(task, generator(seed, Stream.FIT), data.device)
    labs, target = fitted.units.labs, fitted.units.target
    z = np.clip(labs.standard(value, target), -FAR, FAR)
    in_unit = (labs.in_unit(z + spread, target) - labs.in_unit(z - spread, target)) / 2
    return _doubted(data, value, in_unit)


def _width(data: _SelectionData) -> Estimates:
    """Width of a conformalised quantile interval (Romano et al. 2019) around the paper's values.

    Conformalising adds the same to every interval, which changes no ranking: the quantiles' distance ranks alike.
    """
    import lightgbm as lgb

    from safeimpute.learning.scaling import fit_scaler
    from safeimpute_lab.methods.boosted_lags import PARAMETERS, lag_features

    visits, training = data.question.visits, data.question.task.training
    scaler = fit_scaler(visits.labs, visits.lab_names, training)
    matrix, target = lag_features(visits, scaler), visits.target_values
    ends = []
    for quantile in QUANTILES:
        told = PARAMETERS | {"objective": "quantile", "alpha": quantile, "metric": "quantile"}
        told["seed"] = data.settings.random_state
        booster = lgb.train(told, lgb.Dataset(matrix[training], target[training]), 200)
        ends.append(np.asarray(booster.predict(matrix), dtype=np.float64))
    return _doubted(data, data.paper.estimates.value, np.abs(ends[1] - ends[0]))


def _doubted(data: _SelectionData, value: FloatArray, spread: FloatArray) -> Estimates:
    """Values ranked by a spread in units of what is allowed."""
    allowed = np.maximum(data.study.tolerance.allowed(value), 1e-12)
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
