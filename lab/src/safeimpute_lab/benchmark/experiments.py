"""The paper's own experiments on one split, as one cell: ablations, curves, risk against error (arrays only)."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from safeimpute.evaluation import metrics
from safeimpute.evaluation.evaluate import Curve, ReleaseSummary, RiskGroup, outcome, risk_alignment, summarise_release
from safeimpute.evaluation.metrics import mean_se
from safeimpute.evaluation.trials import Trial, draws, run_trials
from safeimpute.machine.resources import peak_mib
from safeimpute.model.fit import fit_system
from safeimpute.tolerance import Tolerance
from safeimpute.visits.arrays import VisitArrays
from safeimpute_lab.benchmark.ablate import FULL, Ablation, imputer_variants, risk_variants
from safeimpute_lab.benchmark.cells import Arrays, Cell, Study
from safeimpute_lab.benchmark.result import packed, unpacked

EXPERIMENTS = "experiments"  # the cell's name, where others have a method's
ALONE, RISKS, CURVES = "alone", "risk_outcomes", "curve_outcomes"  # arrays of the cell


def run_experiments(study: Study, visits: VisitArrays, seed: int, device: str) -> tuple[dict[str, Any], Arrays]:
    """Everything of the paper that is about its own system: figures and arrays of one split."""
    start = time.perf_counter()
    settings = study.settings(visits, "paper", seed)
    (trial,) = run_trials(visits, settings, 1, study.test_fraction, plausible=study.plausible, device=device)
    accuracy, alone = {}, np.empty(0)
    for name, chosen in imputer_variants(settings.paper).items():
        told = replace(settings, paper=chosen)
        value = fit_system(trial.calibrated.question, told, device).estimates.value
        pair = value[trial.tested], trial.truth[trial.tested]
        accuracy[name] = {"mae": metrics.mean_absolute_error(*pair), "rmse": metrics.root_mean_squared_error(*pair)}
        alone = value if name == FULL else alone
    risks = [ranked[0] for ranked in risk_variants([trial]).values()]
    content = {
        "error": None,
        "imputer": accuracy,
        "alignment": risk_alignment([trial], study.tolerance, study.risk_groups),
        "seconds": {"total": time.perf_counter() - start},
        "peak_mib": peak_mib(),
    }
    arrays: Arrays = {
        ALONE: alone,
        RISKS: packed([_outcomes(each, study.tolerance, study.levels[0], study) for each in risks]),
        CURVES: np.stack([_curve(trial, tolerance, study) for tolerance in study.curve_tolerances]),
    }
    return content, arrays


def _curve(trial: Trial, tolerance: Tolerance, study: Study) -> np.ndarray:
    return packed([_outcomes(trial, tolerance, level, study) for level in study.curve_levels])


def _outcomes(trial: Trial, tolerance: Tolerance, alpha: float, study: Study) -> list[Any]:
    return [outcome(draw, tolerance, alpha) for draw in draws(trial, study.repartitions)]


def gather_ablation(cells: Sequence[Cell], study: Study, target: str, tolerance: float | str) -> Ablation:
    """Both ablation tables over the splits that are there."""
    names = list(cells[0].content["imputer"])
    risks = ("instability alone", "proxy risk")
    return {
        "target": target,
        "tolerance": tolerance,
        "fdr": study.levels[0],
        "splits": len(cells),
        "imputer": {
            name: {
                "mae": mean_se([cell.content["imputer"][name]["mae"] for cell in cells]),
                "rmse": mean_se([cell.content["imputer"][name]["rmse"] for cell in cells]),
            }
            for name in names
        },
        "risk": {
            name: summarise_release([unpacked(cell.arrays[RISKS])[place] for cell in cells], study.levels[0])
            for place, name in enumerate(risks)
        },
    }


def gather_curves(cells: Sequence[Cell], study: Study) -> list[Curve]:
    """Achieved FDR and power over levels, a curve per tolerance."""
    return [
        {
            "absolute": tolerance.absolute,
            "share": tolerance.share,
            "points": [_point(cells, place, level, alpha) for level, alpha in enumerate(study.curve_levels)],
        }
        for place, tolerance in enumerate(study.curve_tolerances)
    ]


def _point(cells: Sequence[Cell], place: int, level: int, alpha: float) -> ReleaseSummary:
    return summarise_release([unpacked(cell.arrays[CURVES][place])[level] for cell in cells], alpha)


def gather_alignment(cells: Sequence[Cell]) -> list[RiskGroup]:
    """Error against mean risk, groups of like place over the splits."""
    rows = zip(*(cell.content["alignment"] for cell in cells), strict=False)
    return [
        {
            "group": place + 1,
            "score": mean_se([each["score"]["mean"] for each in row]),
            "mae": mean_se([each["mae"]["mean"] for each in row]),
            "risky": mean_se([each["risky"]["mean"] for each in row]),
        }
        for place, row in enumerate(rows)
    ]
