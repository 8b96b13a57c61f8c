"""A plain prediction model for an outcome: logistic, learnt and judged across patients (NumPy only)."""

from dataclasses import dataclass

import numpy as np

from safeimpute.evaluation.metrics import auc
from safeimpute.records.arrays import BoolArray, FloatArray, IntArray

RIDGE = 1.0
STEPS = 30
FOLDS = 5
RESAMPLED = 200  # times, for standard errors


@dataclass(frozen=True)
class Performance:
    """Discrimination and calibration of predictions, each with a standard error over patients."""

    auc: tuple[float, float]
    slope: tuple[float, float]  # of the outcome's log odds on the predicted ones; 1 is right
    brier: tuple[float, float]


def predict_across(
    design: FloatArray, outcome: BoolArray, patient: IntArray, weight: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """The chance of the outcome at every row, by a model learnt from other patients."""
    fold = (rng.permutation(int(patient.max()) + 1) % FOLDS)[patient]
    chance = np.full(len(outcome), np.nan)
    for number in np.unique(fold):
        learn = fold != number
        centre, scale = design[learn].mean(axis=0), design[learn].std(axis=0)
        z = (design - centre) / np.where(scale > 0, scale, 1.0)
        z = np.column_stack([np.ones(len(z)), np.clip(z, -5.0, 5.0)])
        coefficients = fit_logit(z[learn], outcome[learn].astype(np.float64), weight[learn])
        chance[~learn] = 1.0 / (1.0 + np.exp(-z[~learn] @ coefficients))
    return chance


def fit_logit(
    design: FloatArray, outcome: FloatArray, weight: FloatArray, ridge: float = RIDGE
) -> FloatArray:
    """Coefficients of a logistic regression by Newton's steps; the first column, the constant, is not shrunk."""
    penalty = ridge * np.eye(design.shape[1])
    penalty[0, 0] = 1e-6
    coefficients = np.zeros(design.shape[1])
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(design @ coefficients, -30.0, 30.0)))
        pull = design.T @ (weight * (outcome - chance)) - penalty @ coefficients
        bend = design.T @ ((weight * chance * (1 - chance))[:, None] * design) + penalty
        step = np.linalg.solve(bend, pull)
        coefficients = coefficients + step
        if float(np.abs(step).max()) < 1e-8:
            break
    return coefficients


def judge(
    chance: FloatArray, outcome: BoolArray, patient: IntArray, rng: np.random.Generator
) -> Performance | None:
    """How well chances tell; None where only one outcome occurs."""
    if outcome.all() or not outcome.any():
        return None
    whole = np.array(_figures(chance, outcome))
    order = np.argsort(patient, kind="stable")
    _, starts = np.unique(patient[order], return_index=True)
    rows = np.split(order, starts[1:])
    again = []
    for _ in range(RESAMPLED):
        there = np.concatenate([rows[k] for k in rng.integers(len(rows), size=len(rows))])
        if outcome[there].any() and not outcome[there].all():
            again.append(_figures(chance[there], outcome[there]))
    se = np.std(np.array(again), axis=0, ddof=1) if len(again) > 1 else np.full(3, np.nan)
    pairs = [(float(a), float(b)) for a, b in zip(whole, se, strict=True)]
    return Performance(*pairs)


def _figures(chance: FloatArray, outcome: BoolArray) -> tuple[float, float, float]:
    logit = np.log(np.clip(chance, 1e-6, 1 - 1e-6) / np.clip(1 - chance, 1e-6, 1 - 1e-6))
    design = np.column_stack([np.ones(len(logit)), logit])
    slope = fit_logit(design, outcome.astype(np.float64), np.ones(len(logit)), ridge=1e-6)[1]
    return auc(chance, outcome) or 0.5, float(slope), float(np.mean((chance - outcome) ** 2))
