"""The predictive distribution on made-up errors whose law is known."""

import numpy as np
import pytest

from safeimpute.draws.pooling import pool
from safeimpute.draws.predictive import (
    INDEPENDENT,
    Dependence,
    Errors,
    Predictive,
    Said,
    Standard,
    band_edges,
    chances,
    fit_dependence,
    hide_together,
    learn_law,
)
from safeimpute.learning.scaling import Scaler
from safeimpute.visits.arrays import FloatArray, IntArray, VisitArrays

PLAIN = Scaler(np.array([False]), np.zeros(1), np.zeros(1), np.ones(1))
LOG = Scaler(np.array([True]), np.full(1, 0.1), np.zeros(1), np.ones(1))
FREE = Standard(PLAIN, -np.inf, np.inf)


def said(z: FloatArray, spread: FloatArray, x: FloatArray) -> Said:
    return Said(z, spread, np.column_stack([np.ones(len(z)), x]))


def made(n: int, seed: int, bias: float = 0.4, slope: float = 0.3) -> Errors:
    """Errors with a bias, a slope on what the table shows, twice as wide where the spread says so; skewed."""
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal(n), rng.standard_normal(n)
    spread = np.where(rng.random(n) < 0.5, 0.5, 1.0)
    error = bias + slope * x + spread * (rng.exponential(1.0, n) - 1.0)
    return Errors(said(z, spread, x), z + error, np.ones(n), np.arange(n))


def test_what_errors_hold_is_learnt() -> None:
    errors = made(4000, 1)
    law = learn_law(errors, band_edges(errors))
    assert law.left == pytest.approx([0.4, 0.3], abs=0.06)
    rng = np.random.default_rng(2)
    n = 20_000
    there = said(np.zeros(n), np.full(n, 1.0), np.zeros(n))
    drawn = law.values(there, rng.standard_normal(n), (-np.inf, np.inf), rng)
    assert drawn.mean() == pytest.approx(0.4, abs=0.08)
    assert drawn.std() == pytest.approx(1.0, abs=0.08)
    skewness = float(np.mean((drawn - drawn.mean()) ** 3) / drawn.std() ** 3)
    assert 1.4 < skewness < 2.6, "an exponential has 2, a bell curve 0"


def test_draws_keep_to_what_is_possible() -> None:
    errors = made(2000, 3)
    law, rng, n = learn_law(errors, band_edges(errors)), np.random.default_rng(4), 5000
    there = said(np.zeros(n), np.full(n, 1.0), np.zeros(n))
    drawn = law.values(there, rng.standard_normal(n), (-0.2, 1.0), rng)
    assert drawn.min() >= -0.2
    assert drawn.max() <= 1.0
    free = law.values(there, rng.standard_normal(n), (-np.inf, np.inf), rng)
    inside = free[(free > -0.2) & (free < 1.0)]
    assert np.quantile(drawn, [0.25, 0.5, 0.75]) == pytest.approx(np.quantile(inside, [0.25, 0.5, 0.75]), abs=0.06)


def test_weights_decide_whom_the_errors_stand_for() -> None:
    errors = made(4000, 5, slope=0.0)
    far = np.arange(4000) % 2 == 0
    moved = Errors(errors.said, errors.truth + far, np.where(far, 3.0, 1.0), errors.patient)
    assert learn_law(moved, band_edges(moved)).left[0] == pytest.approx(0.4 + 0.75, abs=0.06)


def test_measured_values_lie_evenly_in_their_distribution() -> None:
    errors, fresh = made(3000, 6), made(3000, 7)
    chance = chances(learn_law(errors, band_edges(errors)), fresh)
    assert np.abs(np.quantile(chance, [0.1, 0.5, 0.9]) - [0.1, 0.5, 0.9]).max() < 0.03


def test_few_errors_do_not_make_draws_too_sure() -> None:
    """With many columns and few visits, fitted errors are too small; those of other folds show it."""
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        known = np.column_stack([np.ones(80), rng.standard_normal((80, 12))])
        z = rng.standard_normal(80)
        made_up = Errors(Said(z, np.ones(80), known), z + rng.standard_normal(80), np.ones(80), np.arange(80))
        predictive = _predictive(made_up, made_up.said, np.arange(80))
        inside.append(predictive.coverage(np.arange(80) % 5)["0.9"])
    assert 0.86 < np.mean(inside) < 0.95


def _predictive(errors: Errors, there: Said, patient: IntArray, tied: Dependence = INDEPENDENT) -> Predictive:
    alone = np.zeros(len(there.z), dtype=bool)
    return Predictive(FREE, errors, there, patient, np.linspace(0.0, 1000.0, len(alone)), alone, tied, INDEPENDENT)


def test_pooled_intervals_of_a_mean_cover() -> None:
    """Half of the patients unmeasured; the mean of all, from draws, against the population's."""
    covered, widths = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, error = rng.standard_normal(160), rng.exponential(1.0, 160) - 1.0
        truth, measured = 0.5 * x + error, rng.random(160) < 1 / (1 + np.exp(-x))
        z = 0.3 * x - 0.2  # an imputer that is biased and shrinks
        weight = np.exp(-x[measured])
        all_said = said(z, np.ones(160), x)
        errors = Errors(all_said.at(measured), truth[measured], weight, np.arange(int(measured.sum())))
        predictive = _predictive(errors, all_said.at(~measured), np.arange(int((~measured).sum())))
        means, variances = [], []
        for number in range(8):
            full = truth.copy()
            full[~measured] = predictive.draw(np.random.default_rng([seed, number]))
            means.append(full.mean())
            variances.append(full.var(ddof=1) / 160)
        found = pool(means, variances, df=159)
        covered.append(found.lower <= 0 <= found.upper)
        widths.append(found.upper - found.lower)
    assert 0.915 < np.mean(covered) < 0.985
    assert np.mean(widths) < 0.6, "not by being wide: 0.35 with nothing missing"


def test_logarithms_come_back_positive_and_within_range() -> None:
    standard = Standard(LOG, 0.0, 50.0)
    low, high = standard.limits
    assert low == -np.inf
    assert high == pytest.approx(np.log(50.0))
    assert standard.back(np.array([-9.0, 0.0, 99.0])) == pytest.approx([np.exp(-9.0), 1.0, 50.0])
    assert standard.spread(np.array([10.0]), np.array([2.0])) == pytest.approx([0.2])


def test_draws_have_the_correlation_asked_for() -> None:
    patients = 40_000
    patient, time = np.repeat(np.arange(patients), 3), np.tile([0.0, 50.0, 250.0], patients)
    told = Dependence(steady=0.2, drifting=0.5, memory_days=100.0)
    table = told.normals(patient, time, np.random.default_rng(0)).reshape(-1, 3)
    expected = 0.2 + 0.5 * np.exp(-np.array([50.0, 200.0, 250.0]) / 100.0)
    found = np.asarray(np.corrcoef(table.T))[[0, 1, 0], [1, 2, 2]]
    assert np.abs(found - expected).max() < 0.02
    assert abs(table.std() - 1) < 0.01


@pytest.mark.parametrize("told", [Dependence(0.3, 0.4, 120.0), Dependence(0.0, 0.6, 60.0), INDEPENDENT])
def test_the_fit_finds_the_correlation(told: Dependence) -> None:
    rng = np.random.default_rng(1)
    patient = np.repeat(np.arange(3000), 5)
    time = np.cumsum(rng.uniform(10, 150, len(patient)))
    found = fit_dependence(told.normals(patient, time, rng), patient, time)
    gaps = np.array([30.0, 100.0, 300.0])

    def at(each: Dependence) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(each.steady + each.drifting * np.exp(-gaps / each.memory_days))

    assert np.abs(at(found) - at(told)).max() < 0.06


def test_too_few_pairs_count_as_independent() -> None:
    assert fit_dependence(np.ones(10), np.arange(10), np.arange(10.0)) == INDEPENDENT


def test_values_are_hidden_together(cohort_arrays: VisitArrays) -> None:
    before = cohort_arrays.labs.copy()
    some, hidden, truth = hide_together(cohort_arrays, np.random.default_rng(2))
    visible = ~np.isnan(some.target_values)
    assert not (hidden & visible).any()
    assert np.isfinite(truth[hidden]).all()
    assert (np.bincount(some.patient[hidden]) >= 2).any(), "several of one patient"
    left = np.bincount(some.patient[visible], minlength=int(some.patient.max()) + 1)
    assert 0 < (left == 0).sum() < len(left), "of some patients everything, of others a part"
    assert np.array_equal(before, cohort_arrays.labs, equal_nan=True)
