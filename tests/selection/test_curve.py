"""The calibration curve of the risks: what it expects, how surely, and what it does where little is known."""

import numpy as np
import pytest

from safeimpute.selection.cutoff import Rule, find_cutoff
from safeimpute.selection.ledger import Entries, Ledger, risk_grid, sums_of
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray


def ledger_of(
    seed: int, risk: FloatArray, chance: FloatArray, asked: FloatArray | None = None, patients: int = 500
) -> Ledger:
    rng = np.random.default_rng(seed)
    entries = Entries(rng.integers(0, patients, len(risk)), risk, np.ones(len(risk)), rng.random(len(risk)) < chance)
    asked = risk if asked is None else asked
    return Ledger(entries, risk_grid(np.r_[risk, asked]), asked)


def drawn_risk(seed: int, visits: int) -> FloatArray:
    return np.asarray(np.random.default_rng([seed, 1]).beta(1.2, 4.0, visits))


@pytest.mark.parametrize("off", [0.2, 1.0, 3.0])
def test_risks_that_are_off_are_mended_by_the_errors(off: float) -> None:
    risk = drawn_risk(1, 6000)
    chance = np.clip(off * risk, 0.0, 0.95)
    found = ledger_of(1, risk, chance)
    excess, doubt = found.curve.excess(0.1)
    order = np.sort(risk)
    truth = np.array([np.sum(np.clip(off * order[order <= each], 0.0, 0.95) - 0.1) for each in found.thresholds])
    assert (np.abs(excess - truth)[20:] <= 3.5 * doubt[20:] + 10.0).all()
    assert (doubt[100:] < 0.02 * 6000).all()


def test_without_errors_to_learn_from_the_risks_speak_with_much_doubt() -> None:
    asked = drawn_risk(2, 4000)
    nobody = Entries(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, bool))
    excess, doubt = Ledger(nobody, risk_grid(asked), asked).curve.excess(0.2)
    assert doubt[-1] > 0.1 * 4000
    assert excess[-1] > np.sum(asked - 0.2), "doubt about small chances makes them larger"


def test_a_visit_is_asked_about_where_it_lies_not_where_the_measured_ones_do() -> None:
    risk = drawn_risk(3, 5000)
    harder = np.clip(2.0 * drawn_risk(4, 5000), 0.0, 0.9)
    found = ledger_of(3, risk, risk, harder)
    excess, doubt = found.curve.excess(0.2)
    truth = np.array([np.sum(harder[harder <= each] - 0.2) for each in found.thresholds])
    assert (np.abs(excess - truth) <= 4.0 * doubt + 10.0).all()
    by_weights = ledger_of(3, risk, risk, np.empty(0)).curve.excess(0.2)[0]
    assert excess[-1] > 4.0 * by_weights[-1], "the measured visits, whose weights know nothing of it, say far less"


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_handful_of_distinct_risks_is_enough(steps: int) -> None:
    risk = (np.random.default_rng(5).integers(0, steps, 3000) + 1) / (2.0 * steps)
    found = ledger_of(5, risk, 0.5 * risk)
    excess, doubt = found.curve.excess(0.3)
    truth = np.array([np.sum(0.5 * risk[risk <= each] - 0.3) for each in found.thresholds])
    assert (np.abs(excess - truth) <= 4.0 * doubt + 5.0).all()


def test_the_scale_of_the_weights_and_the_way_to_the_sums_do_not_matter() -> None:
    risk = drawn_risk(6, 900)
    one = ledger_of(6, risk, risk)
    entries = one.entries
    other = Ledger(Entries(entries.patient, risk, 8.0 * entries.weight, entries.risky), one.thresholds, one.asked)
    for mine, yours in zip(one.curve.excess(0.2), other.curve.excess(0.2), strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-9, atol=1e-7)
    np.testing.assert_array_equal(sums_of(one).curve.excess(0.2), one.curve.excess(0.2))


def test_odds_in_doubt_expect_more() -> None:
    curve = ledger_of(7, drawn_risk(7, 900), drawn_risk(7, 900)).curve
    excess = [curve.excess(0.2, gamma)[0] for gamma in (1.0, 1.2, 2.0)]
    assert (excess[0] < excess[1]).all()
    assert (excess[1] < excess[2]).all()


def test_weights_that_miss_what_the_risk_sees_do_not_break_the_level() -> None:
    """Measuring follows a column the weights know nothing of: by the count three in ten are risky at a level of two."""
    counted, released, good = np.zeros(2), np.zeros(2), 0
    for seed in range(60):
        patient, risk, risky, measured = _blind_weights(seed)
        entries = Entries(patient[measured], risk[measured], np.ones(int(measured.sum())), risky[measured])
        ledger = Ledger(entries, risk_grid(risk), risk[~measured])
        balance = ledger.visit("risky_weight") - 0.2 * ledger.visit("weight")
        by_count = ledger.thresholds[balance <= 0][-1]
        for number, cutoff in enumerate((find_cutoff(ledger, Rule("unmeasured", 0.2)).risk, by_count)):
            out = risk[~measured] <= (cutoff or 0.0)
            counted[number] += np.sum(risky[~measured] & out)
            released[number] += out.sum()
        good += int(np.sum(~risky[~measured]))
    ours, by_count = counted / released
    assert by_count > 0.28
    assert ours < 0.2
    assert (released - counted)[0] > 0.5 * good


def _blind_weights(seed: int) -> tuple[IntArray, FloatArray, BoolArray, BoolArray]:
    rng = np.random.default_rng([5, seed])
    patient = np.repeat(np.arange(300), 5)
    x, unseen = rng.standard_normal((2, len(patient)))
    chance = 1.0 / (1.0 + np.exp(-(3.0 * x + 2.0 * unseen - 1.8)))
    measured = rng.random(len(patient)) < 1.0 / (1.0 + np.exp(1.2 * unseen))
    return patient, chance, rng.random(len(patient)) < chance, measured
