"""Visits by the million for the benches: arrays from a seed, needing nothing but NumPy.

Patients have a steady state, a slow drift and acute swings; labs read them through random loadings. Labs of a panel
are mostly ordered together, single results get lost, and the target is skipped more often where it looks stable.
"""

import numpy as np

from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays, mix

MEAN_VISITS = 4.95  # per patient, as in the cohort of MIMIC-IV shape
GAP_MEDIAN_DAYS, GAP_LOG_SD = 105.0, 0.9
MEMORY_DAYS = 450.0
STATES = 3  # hidden physiological states behind all labs
PANEL = 3  # labs ordered together
PANEL_SKIPPED, RESULT_LOST, TARGET_SKIPPED = 0.25, 0.03, 0.35


def big_cohort(visits: int, labs: int, seed: int = 0) -> tuple[VisitArrays, FloatArray]:
    """A cohort with one target and `labs` other labs, and the target's value at every visit."""
    rng = np.random.default_rng(seed)
    patient, time, gap = _visits(visits, rng)
    states = np.stack([_course(patient, gap, 0.8, 0.6, rng) for _ in range(STATES)], axis=1)
    truth = 7.4 + 1.3 * states[:, 0] + 0.5 * _course(patient, gap, 0.5, 0.9, rng) + rng.normal(0, 0.15, visits)
    truth = np.maximum(truth, 4.0).round(1)
    table = np.empty((visits, labs + 1))
    for lab in range(labs):
        table[:, lab + 1] = _lab(states, patient, gap, np.random.default_rng([seed, lab]))
    table[:, 1:][_unmeasured(visits, labs, rng)] = np.nan
    table[:, 0] = np.where(_skipped(table[:, 1], gap, rng), np.nan, truth)
    key = mix(np.arange(patient[-1] + 1, dtype=np.uint64))[patient]
    attributes = rng.normal(size=(patient[-1] + 1, 2))[patient].round(1)
    return VisitArrays(
        patient=patient,
        time=time,
        labs=table,
        lab_names=("target", *(f"lab {number}" for number in range(1, labs + 1))),
        target=0,
        attributes=attributes,
        attribute_names=("age", "sex"),
        patient_key=key,
        visit_key=mix(key ^ mix(time.view(np.uint64))),
    ), truth


def _visits(visits: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray, FloatArray]:
    """Patients in blocks of geometric length; days, and days since the patient's last visit."""
    new = rng.random(visits) < 1.0 / MEAN_VISITS
    new[0] = True
    patient = np.cumsum(new) - 1
    gap = np.maximum(1.0, np.rint(GAP_MEDIAN_DAYS * np.exp(GAP_LOG_SD * rng.normal(size=visits))))
    elapsed = np.cumsum(gap)
    first = np.flatnonzero(new)
    return patient, elapsed - elapsed[first][patient], gap


def _course(patient: IntArray, gap: FloatArray, steady: float, drifting: float, rng: np.random.Generator) -> FloatArray:
    """A steady level per patient plus an Ornstein-Uhlenbeck drift, walked visit number by visit number."""
    level = rng.normal(size=patient[-1] + 1)[patient]
    path, kept = rng.normal(size=len(patient)), np.exp(-gap / MEMORY_DAYS)
    fresh = np.sqrt(1.0 - kept**2)
    first = np.flatnonzero(np.diff(patient, prepend=-1))
    number = np.arange(len(patient)) - first[patient]
    order = np.argsort(number, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(number))[:-1])[1:]:
        path[rows] = kept[rows] * path[rows - 1] + fresh[rows] * path[rows]
    return np.asarray(steady * level + drifting * path)


def _lab(states: FloatArray, patient: IntArray, gap: FloatArray, rng: np.random.Generator) -> FloatArray:
    """One lab: a random reading of the states, its own course, noise; skewed every other time.

    How it reads the states is drawn first, so that cohorts of all sizes are equally hard.
    """
    loadings, skewed = rng.normal(0.0, 0.6, STATES), rng.random() < 0.5
    value = states @ loadings + _course(patient, gap, 0.6, 0.4, rng) + rng.normal(0, 0.4, len(patient))
    return np.asarray(100.0 * np.exp(0.3 * value) if skewed else 100.0 + 10.0 * value).round(1)


def _unmeasured(visits: int, labs: int, rng: np.random.Generator) -> BoolArray:
    panels = rng.random((visits, -(-labs // PANEL))) < PANEL_SKIPPED
    lost = rng.random((visits, labs)) < RESULT_LOST
    missing: BoolArray = np.repeat(panels, PANEL, axis=1)[:, :labs] | lost
    return missing


def _skipped(shown: FloatArray, gap: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Whether nobody measured the target: likelier after a short gap and where the first lab is unremarkable."""
    centre, spread = np.nanmedian(shown), np.nanstd(shown)
    remarkable = np.minimum(np.abs(np.nan_to_num((shown - centre) / spread)), 2.0)
    tendency = rng.logistic(size=len(gap)) - 0.5 * remarkable - 0.3 * np.log(gap / GAP_MEDIAN_DAYS)
    skipped: BoolArray = tendency > np.quantile(tendency, 1.0 - TARGET_SKIPPED)
    return skipped
