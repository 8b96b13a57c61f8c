"""A reduced study of the guarantee; the full one is bench/guarantee_study.py.

Each claim keeps its level and releases a useful share; the naive rule fails where theory says it must.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import guarantee_scenarios as scenarios
from guarantee_cutoffs import LongRun, cutoff_or_none
from safeimpute.selection.thresholds import risk_thresholds


def repeat(draw, repetitions=150):
    """Mean FDP, its standard error and mean power per (rule, alpha)."""
    found = {}
    for repetition in range(repetitions):
        for key, outcome in draw(np.random.default_rng([11, repetition])).items():
            found.setdefault(key, []).append((outcome.fdp, outcome.power))
    summary = {}
    for key, values in found.items():
        fdp, power = np.array(values).T
        summary[key] = fdp.mean(), fdp.std(ddof=1) / np.sqrt(len(fdp)), power.mean()
    return summary


def assert_kept(summary, rule, floors):
    for alpha, floor in zip(scenarios.ALPHAS, floors, strict=True):
        fdp, se, power = summary[rule, alpha]
        assert fdp <= alpha + 3 * se, (rule, alpha)
        assert power >= floor, (rule, alpha)


def assert_broken(summary, rule, *alphas):
    for alpha in alphas:
        fdp, se, _ = summary[rule, alpha]
        assert fdp > alpha + 3 * se, (rule, alpha)


def test_exchangeable_visits():
    assert_kept(repeat(scenarios.no_shift, 300), "ours", (0.15, 0.5, 0.85))


def test_shift_in_who_is_measured():
    summary = repeat(scenarios.measuring_shift)
    assert_broken(summary, "naive", 0.2, 0.35)
    for rule in ("ours, known weights", "ours, estimated weights"):
        assert_kept(summary, rule, (0.08, 0.30, 0.65))


@pytest.mark.parametrize(
    ("icc", "floors"), [(0.1, (0.4, 0.7, 0.9)), (0.5, (0.35, 0.65, 0.85)), (0.9, (0.3, 0.55, 0.8))]
)
def test_new_patients_with_informative_heavy_tailed_counts(icc, floors):
    summary = repeat(partial(scenarios.new_patients, icc=icc))
    assert_kept(summary, "ours", floors)
    for alpha in scenarios.ALPHAS:
        assert summary["ours", alpha][2] > summary["pooled maximum", alpha][2]
    if icc > 0.1:
        assert_broken(summary, "naive", *scenarios.ALPHAS)
        assert_broken(summary, "one visit per patient", 0.1, 0.2)


def test_visits_growing_with_risk_defeat_one_pooled_threshold_but_not_ours():
    summary = repeat(scenarios.visits_growing_with_risk, 100)
    assert_broken(summary, "pooled maximum", 0.35)
    assert_kept(summary, "ours", (0.0, 0.0, 0.0))
    assert summary["ours", 0.35][0] > 0, (
        "every visit is bad here, so only an FDP above 0 shows that ours releases"
    )


@pytest.mark.parametrize("icc", [0.1, 0.9])
def test_unmeasured_visits_of_new_patients(icc):
    summary = repeat(partial(scenarios.unmeasured_of_new_patients, icc=icc))
    assert_broken(summary, "naive", *scenarios.ALPHAS)
    assert_kept(summary, "ours, calibration patients", (0.18, 0.40, 0.70))
    assert_kept(summary, "ours, own visits", (0.20, 0.45, 0.75))


def test_value_driven_measuring_is_not_undone_by_weights_and_shows_in_the_analysis():
    summary = repeat(scenarios.value_driven_measuring)
    assert_broken(summary, "weights on x", *scenarios.ALPHAS)
    assert_kept(summary, f"gamma {scenarios.VALUE_DRIVEN:g}", (0.0, 0.03, 0.10))


def test_few_candidates_are_mostly_bad_when_released():
    outcomes = [scenarios.few_candidates(np.random.default_rng([12, r]), m=1)["BH", 0.1] for r in range(4000)]
    released, bad = sum(o.released for o in outcomes), sum(o.bad for o in outcomes)
    assert bad / len(outcomes) <= 0.1 + 3 * np.sqrt(0.09 / len(outcomes))
    assert bad / released > 0.15


@pytest.mark.parametrize(("icc", "heavy", "floor"), [(0.1, False, 0.65), (0.5, True, 0.5), (0.9, True, 0.4)])
def test_stored_cutoff_errs_in_at_most_one_of_twenty_calibrations(icc, heavy, floor):
    draw = partial(scenarios.draw_patients, icc=icc, heavy=heavy)
    long_run = LongRun.of(draw(np.random.default_rng(13), 60_000))
    repetitions, alpha, errors, power = 300, 0.2, 0, 0.0
    for repetition in range(repetitions):
        rng = np.random.default_rng([14, repetition])
        calibration, validation = draw(rng, 200), draw(rng, 200)
        cutoff = cutoff_or_none(calibration.labelled(), risk_thresholds(validation.risk, 20), alpha)
        share, released = long_run.at(cutoff)
        errors, power = errors + (share > alpha), power + released / repetitions
    assert errors / repetitions <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / repetitions)
    assert power >= floor
