"""Worlds made to break the rules: what no sample shows, what cannot be ranked, what stands on one patient."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray
from safeimpute_lab.studies.guarantee.cohorts import BY_KEY
from safeimpute_lab.studies.guarantee.worlds import World, draw_world

Attack = Callable[[np.random.Generator, int], World]


def _world(
    patient: IntArray, risk: FloatArray, risky: BoolArray, chance: FloatArray, rng: np.random.Generator
) -> World:
    measured = rng.random(len(patient)) < chance
    count = np.bincount(patient)[patient]
    return World(patient, risk, risky, measured, (1 - chance) / chance, int(patient.max()) + 1, count)


def _even(rng: np.random.Generator, patients: int) -> tuple[IntArray, FloatArray]:
    patient = np.repeat(np.arange(patients), 1 + rng.poisson(5.0, patients))
    return patient, rng.random(len(patient)) / 2


def unseen_heavy(rng: np.random.Generator, patients: int) -> World:
    """One patient in 200 has 100 visits, all risky at every risk; the others hardly ever err."""
    heavy = rng.random(patients) < 0.005
    count = np.where(heavy, 100, 1 + rng.poisson(5.0, patients))
    patient = np.repeat(np.arange(patients), count)
    risk = rng.random(len(patient)) / 2
    risky = heavy[patient] | (rng.random(len(patient)) < 0.02)
    return _world(patient, risk, risky, np.full(len(patient), 0.5), rng)


def unseen_minority(rng: np.random.Generator, patients: int) -> World:
    """Five patients in 100 are measured at one visit in six and nearly always risky, at every risk."""
    patient, risk = _even(rng, patients)
    few = (rng.random(patients) < 0.05)[patient]
    risky = rng.random(len(patient)) < np.where(few, 0.95, 0.02)
    return _world(patient, risk, risky, np.where(few, 1 / 6, 0.5), rng)


def just_above(alpha: float) -> Attack:
    """Risks that say nothing, and a share a tenth above the level: nothing may be released, nothing can tell."""

    def draw(rng: np.random.Generator, patients: int) -> World:
        patient, risk = _even(rng, patients)
        risky = rng.random(len(patient)) < 1.1 * alpha
        return _world(patient, risk, risky, np.full(len(patient), 0.5), rng)

    return draw


def equal_risks(rng: np.random.Generator, patients: int) -> World:
    """One risk for all, and a share of 0.08."""
    patient, risk = _even(rng, patients)
    risky = rng.random(len(patient)) < 0.08
    return _world(patient, np.full_like(risk, 0.3), risky, np.full(len(patient), 0.5), rng)


def whole_patients(rng: np.random.Generator, patients: int) -> World:
    """Either all visits of a patient are risky or none; heavy-tailed counts; risks that say little."""
    count = np.minimum(1 + np.floor(2 * rng.pareto(1.3, patients)), 200).astype(np.int64)
    patient = np.repeat(np.arange(patients), count)
    level = rng.random(patients)
    risky = (rng.random(patients) < 0.25 * level)[patient]
    risk = np.clip(level[patient] * 0.25 + 0.02 * rng.standard_normal(len(patient)), 0.0, 1.0)
    return _world(patient, risk, risky, np.full(len(patient), 0.5), rng)


def whole_above(rng: np.random.Generator, patients: int) -> World:
    """Whole patients err, a tenth more of them than the level 0.1 bears, and the risks say nothing."""
    patient, risk = _even(rng, patients)
    risky = (rng.random(patients) < 0.11)[patient]
    return _world(patient, risk, risky, np.full(len(patient), 0.5), rng)


def heavy_above(rng: np.random.Generator, patients: int) -> World:
    """The same with heavy-tailed counts of visits."""
    count = np.minimum(1 + np.floor(2 * rng.pareto(1.5, patients)), 100).astype(np.int64)
    patient = np.repeat(np.arange(patients), count)
    risky = (rng.random(patients) < 0.11)[patient]
    return _world(patient, rng.random(len(patient)) / 2, risky, np.full(len(patient), 0.5), rng)


def rarely_above(rng: np.random.Generator, patients: int) -> World:
    """Visits measured once in fifty or nearly always, a share a tenth above the level 0.1 at all of them."""
    patient, risk = _even(rng, patients)
    risky = rng.random(len(patient)) < 0.11
    return _world(patient, risk, risky, 1.0 / (1.0 + np.exp(1.0 + 1.5 * rng.standard_normal(len(patient)))), rng)


def one_patient(rng: np.random.Generator, patients: int) -> World:
    """One patient of the table has as many visits as all others together, and none is risky."""
    patient, risk = _even(rng, patients)
    risky = rng.random(len(patient)) < 2 * risk
    many = len(patient)
    patient = np.r_[patient, np.full(many, patients)]
    risk, risky = np.r_[risk, rng.random(many) / 2], np.r_[risky, np.zeros(many, dtype=bool)]
    return _world(patient, risk, risky, np.full(len(patient), 0.5), rng)


def boasting_risk(rng: np.random.Generator, patients: int) -> World:
    """Risks that rank well and are all ten times too small."""
    patient, risk = _even(rng, patients)
    risky = rng.random(len(patient)) < 2 * risk
    return _world(patient, risk / 10, risky, np.full(len(patient), 0.5), rng)


def coarse_risks(rng: np.random.Generator, patients: int) -> World:
    """Covariate shift with risks in tenths: at 0.05 even the smallest threshold lies a little above the level."""
    world = draw_world(BY_KEY["covariate"], rng, patients)
    return replace(world, risk=np.ceil(10.0 * world.risk) / 10.0)


def blind_weights(rng: np.random.Generator, patients: int) -> World:
    """Measuring follows something that the risk sees and the weights do not: everybody seems measured alike."""
    patient, _ = _even(rng, patients)
    x, unseen = rng.standard_normal(len(patient)), rng.standard_normal(len(patient))
    hard = 2.0 * x + 1.2 * unseen - 1.1
    error = np.sqrt(0.5) * (rng.standard_normal(patients)[patient] + rng.standard_normal(len(patient)))
    world = _world(patient, ndtr(hard), np.asarray(hard + error > 0.0), 1.0 / (1.0 + np.exp(1.2 * unseen)), rng)
    return replace(world, weight=np.full(len(patient), np.mean(~world.measured) / np.mean(world.measured)))


ATTACKS: dict[str, Attack] = {
    "unseen heavy": unseen_heavy,
    "unseen minority": unseen_minority,
    "just above 0.1": just_above(0.1),
    "equal risks": equal_risks,
    "whole patients": whole_patients,
    "one patient": one_patient,
    "boasting risk": boasting_risk,
    "coarse risks": coarse_risks,
    "blind weights": blind_weights,
    "whole above 0.1": whole_above,
    "heavy above 0.1": heavy_above,
    "rarely above 0.1": rarely_above,
}
