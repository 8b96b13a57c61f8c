"""Simulated visits for the study of the guarantee: each scenario draws a world and scores every rule in it.

A scenario takes a generator and returns {(rule, alpha): Outcome}. The study repeats it; the tests run fewer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from safeimpute.selection.patients import release_new_patients, release_unmeasured_of_new_patients
from safeimpute.selection.thresholds import (
    LabelledVisits,
    ScoredVisits,
    risk_thresholds,
)
from safeimpute.selection.weighted import prune, weighted_selection

from safeimpute.records.arrays import BoolArray, FloatArray, IntArray
from safeimpute.selection.bh import benjamini_hochberg
from safeimpute.selection.p_values import Scores, conformal_p_values
from safeimpute.selection.sensitivity import sensitivity_p_values

ALPHAS = (0.1, 0.2, 0.35)


@dataclass(frozen=True)
class Outcome:
    """What one repetition released."""

    released: int
    bad: int
    power: float  # share of the good candidates that was released

    @property
    def fdp(self) -> float:
        return self.bad / max(self.released, 1)


Outcomes = dict[tuple[str, float], Outcome]
Rules = dict[str, Callable[[float], BoolArray]]


def score(rules: Rules, bad: BoolArray, alphas: tuple[float, ...] = ALPHAS) -> Outcomes:
    """Apply every rule at every level to the same candidates."""
    outcomes = {}
    for name, rule in rules.items():
        for alpha in alphas:
            released = rule(alpha)
            good = int((~bad).sum())
            outcomes[name, alpha] = Outcome(
                released=int(released.sum()),
                bad=int((released & bad).sum()),
                power=int((released & ~bad).sum()) / max(good, 1),
            )
    return outcomes


def sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def with_ties(rng: np.random.Generator, risk: FloatArray) -> Scores:
    return Scores(risk, rng.random(len(risk)))


def empirical_cutoff(risk: FloatArray, bad: BoolArray, alpha: float) -> float:
    """The tempting rule: the largest calibration risk below which at most alpha of the visits are bad."""
    order = np.argsort(risk)
    share = np.cumsum(bad[order]) / np.arange(1, len(risk) + 1)
    safe = np.flatnonzero(share <= alpha)
    return float(risk[order][safe[-1]]) if len(safe) else -np.inf


# --- visits that are exchangeable, or differ in who is measured ---


def draw_visits(rng: np.random.Generator, n: int) -> tuple[FloatArray, BoolArray]:
    """Covariates and whether the imputation is bad; x1 matters too, but the risk is x0 alone."""
    x = rng.standard_normal((n, 4))
    return x, rng.random(n) < sigmoid(1.6 * x[:, 0] + 1.2 * x[:, 1] - 0.5)


def no_shift(rng: np.random.Generator, n_calibration: int = 150, m: int = 500) -> Outcomes:
    x, bad = draw_visits(rng, n_calibration + m)
    calibration, candidate = with_ties(rng, x[:n_calibration, 0]), with_ties(rng, x[n_calibration:, 0])
    known = bad[:n_calibration]
    p = conformal_p_values(candidate, calibration, known)
    rules: Rules = {
        "naive": lambda a: candidate.risk <= empirical_cutoff(calibration.risk, known, a),
        "ours": lambda a: benjamini_hochberg(p, a),
    }
    return score(rules, bad[n_calibration:])


def chance_measured(x: FloatArray, bad: BoolArray, value_driven: float) -> FloatArray:
    """Visits with high x0 and x1 are measured less; `value_driven` is an odds ratio against bad ones."""
    return sigmoid(0.3 - 0.4 * x[:, 0] - 1.0 * x[:, 1] - np.log(value_driven) * bad)


def fit_odds(x: FloatArray, measured: BoolArray) -> Callable[[FloatArray], FloatArray]:
    """Logistic regression by Newton's method; returns the odds of being unmeasured at given covariates."""
    design, beta = np.column_stack([np.ones(len(x)), x]), np.zeros(x.shape[1] + 1)
    for _ in range(12):
        fitted = sigmoid(design @ beta)
        hessian = (design * (fitted * (1 - fitted))[:, None]).T @ design + 1e-6 * np.eye(len(beta))
        beta = beta + np.linalg.solve(hessian, design.T @ (measured - fitted))
    return lambda new: np.exp(-np.column_stack([np.ones(len(new)), new]) @ beta)


def measuring_shift(rng: np.random.Generator, n: int = 2000, n_training: int = 1500) -> Outcomes:
    """Unmeasured visits are worse than measured ones; overlap by scope: |x1| <= 2 on both sides."""
    training, training_bad = draw_visits(rng, n_training)
    odds = fit_odds(training, rng.random(n_training) < chance_measured(training, training_bad, 1.0))
    x, bad = draw_visits(rng, n)
    inside = np.abs(x[:, 1]) <= 2
    x, bad = x[inside], bad[inside]
    chance = chance_measured(x, bad, 1.0)
    measured = rng.random(len(x)) < chance
    candidate, calibration = with_ties(rng, x[~measured, 0]), with_ties(rng, x[measured, 0])
    p, xi = conformal_p_values(candidate, calibration, bad[measured]), rng.random()

    def weighted(w: FloatArray) -> Callable[[float], BoolArray]:
        return lambda a: weighted_selection(
            candidate, calibration, bad[measured], w[~measured], w[measured], a, xi
        )

    rules: Rules = {
        "naive": lambda a: benjamini_hochberg(p, a),
        "ours, known weights": weighted((1 - chance) / chance),
        "ours, estimated weights": weighted(odds(x)),
    }
    return score(rules, bad[~measured])


GAMMAS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
VALUE_DRIVEN = 2.0


def _analysis(p: FloatArray, gamma: float, alpha: float) -> BoolArray:
    return benjamini_hochberg(sensitivity_p_values(p, gamma), alpha)


def value_driven_measuring(rng: np.random.Generator, n: int = 2000, n_training: int = 4000) -> Outcomes:
    """Bad visits have half the odds of being measured whatever x says: no weight on x can undo that."""
    training, training_bad = draw_visits(rng, n_training)
    seen = rng.random(n_training) < chance_measured(training, training_bad, VALUE_DRIVEN)
    odds = fit_odds(training, seen)
    x, bad = draw_visits(rng, n)
    inside = np.abs(x[:, 1]) <= 2
    x, bad = x[inside], bad[inside]
    measured = rng.random(len(x)) < chance_measured(x, bad, VALUE_DRIVEN)
    w = odds(x)
    candidate, calibration = with_ties(rng, x[~measured, 0]), with_ties(rng, x[measured, 0])
    naive = conformal_p_values(candidate, calibration, bad[measured])
    p, xi = conformal_p_values(candidate, calibration, bad[measured], w[~measured], w[measured]), rng.random()
    rules: Rules = {
        "naive": lambda a: benjamini_hochberg(naive, a),
        "weights on x": lambda a: weighted_selection(
            candidate, calibration, bad[measured], w[~measured], w[measured], a, xi
        ),
    }
    for gamma in GAMMAS:
        rules[f"gamma {gamma:g}"] = partial(_analysis, p, gamma)
    return score(rules, bad[~measured])


# --- new patients ---


@dataclass(frozen=True)
class Cohort:
    """Visits of whole patients: risk, whether bad, and a covariate that the risk ignores."""

    patient: IntArray
    risk: FloatArray
    bad: BoolArray
    x: FloatArray
    n_patients: int

    def part(self, first: int, last: int) -> "Cohort":
        """The patients numbered first … last - 1, renumbered from 0."""
        keep = (self.patient >= first) & (self.patient < last)
        return Cohort(self.patient[keep] - first, self.risk[keep], self.bad[keep], self.x[keep], last - first)

    def labelled(self, keep: BoolArray | None = None, weight: FloatArray | None = None) -> LabelledVisits:
        keep = np.ones(len(self.risk), dtype=bool) if keep is None else keep
        weight = np.ones(len(self.risk)) if weight is None else weight
        return LabelledVisits(
            self.patient[keep], self.risk[keep], weight[keep], self.n_patients, self.bad[keep]
        )

    def scored(self, keep: BoolArray | None = None, weight: FloatArray | None = None) -> ScoredVisits:
        known = self.labelled(keep, weight)
        return ScoredVisits(known.patient, known.risk, known.weight, known.n_patients)


TOLERANCE = 0.5


def draw_patients(
    rng: np.random.Generator,
    n: int,
    icc: float,
    *,
    seen_visits: int = 0,
    heavy: bool = True,
    x_effect: float = 0.0,
) -> Cohort:
    """Errors share a patient effect (intraclass correlation `icc`); sicker patients come more often.

    A patient with `seen_visits` visits in training has that much of the effect learnt away. `heavy` gives
    log-normal visit counts that grow with the patient effect; otherwise counts are Poisson and uninformative.
    Errors grow by exp(x_effect x).
    """
    effect, level = rng.standard_normal((2, n))
    spread = 0.8 * rng.standard_normal(n) + 0.6 * np.abs(effect) if heavy else 0.6
    counts = 1 + rng.poisson(np.minimum(np.exp(0.9 + spread), 150.0), n)
    patient = np.repeat(np.arange(n), counts)
    scale_effect, noise, x = rng.standard_normal((3, len(patient)))
    x = np.clip(x, -1.8, 1.8)
    scale = np.exp(0.8 * (np.sqrt(0.5) * level[patient] + np.sqrt(0.5) * scale_effect) - 0.7)
    unlearnt = np.sqrt((1 - icc) / (1 - icc + seen_visits * icc)) if seen_visits else 1.0
    error = (
        scale * np.exp(x_effect * x) * (unlearnt * np.sqrt(icc) * effect[patient] + np.sqrt(1 - icc) * noise)
    )
    return Cohort(patient, scale, np.abs(error) >= TOLERANCE, x, n)


def pooled_maximum(candidates: ScoredVisits, calibration: LabelledVisits, alpha: float) -> BoolArray:
    """Release risk <= T, T the largest t with Q / (K + 1) (sum_k B_k(t) + max_q C_q(t)) / R(t) <= alpha."""
    order = np.argsort(np.concatenate([calibration.risk, candidates.risk]), kind="stable")
    n = len(calibration.risk)
    bad = np.cumsum(
        np.concatenate([calibration.weight * calibration.bad, np.zeros(len(candidates.risk))])[order]
    )
    releases = np.cumsum(order >= n)
    largest = np.maximum.accumulate(np.where(order >= n, _running_count(candidates, order - n), 0))
    factor = candidates.n_patients / (calibration.n_patients + 1)
    safe = np.flatnonzero((factor * (bad + largest) <= alpha * releases * (1 + 1e-12)) & (releases > 0))
    limit = np.concatenate([calibration.risk, candidates.risk])[order][safe[-1]] if len(safe) else -np.inf
    return np.asarray(candidates.risk <= limit)


def _running_count(candidates: ScoredVisits, order: IntArray) -> IntArray:
    """At each place of the joint order, how many visits its patient has had so far."""
    by_risk = order[order >= 0]
    patient = candidates.patient[by_risk]
    grouped = np.argsort(patient, kind="stable")
    starts = np.searchsorted(patient[grouped], patient[grouped], side="left")
    count = np.empty(len(patient), dtype=np.int64)
    count[grouped] = np.arange(len(patient)) - starts + 1
    placed = np.zeros(len(order), dtype=np.int64)
    placed[order >= 0] = count
    return placed


def fixed_threshold(
    candidates: ScoredVisits, calibration: LabelledVisits, limit: float, alpha: float, xi: float
) -> BoolArray:
    """e-values (K + 1) / (B(t) + C_q(t)) at one t chosen without calibration errors, then pruning."""
    below = candidates.risk <= limit
    own = np.bincount(candidates.patient[below], minlength=candidates.n_patients)[candidates.patient]
    bad = (calibration.bad & (calibration.risk <= limit)).sum()
    size = candidates.n_patients / (alpha * (calibration.n_patients + 1)) * (bad + own)
    return prune(size, below, xi)


def bh_against(rng: np.random.Generator, new: Cohort, calibration: LabelledVisits) -> FloatArray:
    return conformal_p_values(with_ties(rng, new.risk), with_ties(rng, calibration.risk), calibration.bad)


def one_visit_each(rng: np.random.Generator, cohort: Cohort) -> BoolArray:
    shuffled = rng.permutation(len(cohort.risk))
    keep = np.zeros(len(cohort.risk), dtype=bool)
    keep[shuffled[np.unique(cohort.patient[shuffled], return_index=True)[1]]] = True
    return keep


def new_patients(
    rng: np.random.Generator, icc: float, n_calibration: int = 150, n_new: int = 150, heavy: bool = True
) -> Outcomes:
    """Naive: calibrated on held-out visits of the training patients, whose effect four seen visits reveal."""
    training = draw_patients(rng, n_calibration, icc, seen_visits=4, heavy=heavy)
    validation = draw_patients(rng, n_calibration, icc, heavy=heavy)
    calibration, new = (draw_patients(rng, n, icc, heavy=heavy) for n in (n_calibration, n_new))
    thresholds, xi = risk_thresholds(validation.risk, 100), rng.random()
    naive = bh_against(rng, new, training.labelled())
    one_each = bh_against(rng, new, calibration.labelled(one_visit_each(rng, calibration)))
    visits = bh_against(rng, new, calibration.labelled())
    rules: Rules = {
        "naive": lambda a: benjamini_hochberg(naive, a),
        "one visit per patient": lambda a: benjamini_hochberg(one_each, a),
        "BH over pooled visits": lambda a: benjamini_hochberg(visits, a),
        "pooled maximum": lambda a: pooled_maximum(new.scored(), calibration.labelled(), a),
        "one threshold fixed on validation": lambda a: fixed_threshold(
            new.scored(),
            calibration.labelled(),
            empirical_cutoff(validation.risk, validation.bad, 0.8 * a),
            a,
            xi,
        ),
        "ours without the pruning number": lambda a: release_new_patients(
            new.scored(), calibration.labelled(), thresholds, a, 1.0
        ),
        "ours": lambda a: release_new_patients(new.scored(), calibration.labelled(), thresholds, a, xi),
    }
    return score(rules, new.bad)


def visits_growing_with_risk(rng: np.random.Generator, n_calibration: int = 36, n_new: int = 4) -> Outcomes:
    """Patient k has 1.25^k visits, all bad, all at risk k: the case that defeats one pooled threshold."""
    n = n_calibration + n_new
    level = rng.permutation(n)
    counts = np.ceil(1.25**level).astype(int)
    risk = np.repeat(level, counts).astype(float)
    cohort = Cohort(np.repeat(np.arange(n), counts), risk, np.ones(len(risk), bool), risk, n)
    new, rest = cohort.part(0, n_new), cohort.part(n_new, n)
    thresholds, xi = np.arange(n, dtype=float), rng.random()
    rules: Rules = {
        "pooled maximum": lambda a: pooled_maximum(new.scored(), rest.labelled(), a),
        "ours": lambda a: release_new_patients(new.scored(), rest.labelled(), thresholds, a, xi),
    }
    return score(rules, new.bad)


def measure(rng: np.random.Generator, x: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Which visits are measured, and the odds of being unmeasured; larger errors are measured less."""
    chance = sigmoid(0.2 - 0.9 * x)
    return rng.random(len(x)) < chance, (1 - chance) / chance


def unmeasured_of_new_patients(
    rng: np.random.Generator, icc: float, n_calibration: int = 150, n_new: int = 150
) -> Outcomes:
    """New patients, and visits that are worse are measured less: both difficulties at once."""
    validation, old, new = (
        draw_patients(rng, n, icc, x_effect=0.5) for n in (n_calibration, n_calibration, n_new)
    )
    (measured, weight), (old_measured, old_weight) = (measure(rng, cohort.x) for cohort in (new, old))
    candidates, own = new.scored(~measured, weight), new.labelled(measured, weight)
    calibration = old.labelled(old_measured, old_weight)
    thresholds, xi = risk_thresholds(validation.risk, 100), rng.random()
    candidate, known, own_scores = (with_ties(rng, v.risk) for v in (candidates, calibration, own))
    naive = conformal_p_values(candidate, known, calibration.bad)
    rules: Rules = {
        "naive": lambda a: benjamini_hochberg(naive, a),
        "weighted pooled maximum": lambda a: pooled_maximum(candidates, calibration, a),
        "ours, calibration patients": lambda a: release_unmeasured_of_new_patients(
            candidates, own, calibration, thresholds, a, xi
        ),
        "ours, own visits": lambda a: weighted_selection(
            candidate, own_scores, own.bad, candidates.weight, own.weight, a, xi
        ),
    }
    return score(rules, new.bad[~measured])


# --- few candidates ---


def few_candidates(rng: np.random.Generator, m: int, n_calibration: int = 300) -> Outcomes:
    x, bad = draw_visits(rng, n_calibration + m)
    candidate, calibration = with_ties(rng, x[n_calibration:, 0]), with_ties(rng, x[:n_calibration, 0])
    p = conformal_p_values(candidate, calibration, bad[:n_calibration])
    return score({"BH": lambda a: benjamini_hochberg(p, a)}, bad[n_calibration:])
