"""Bets against a promise: rarely won while it holds, soon won when it does not."""

import numpy as np
import pytest

from safeimpute.model.betting import (
    EVERY,
    BetCalibration,
    Evidence,
    _running,
    _with_late_money,
    calibrate_bets,
    errors_evidence,
    fit_chances,
    log_odds,
    measuring_evidence,
    rank_evidence,
    share_evidence,
)
from safeimpute.visits.arrays import BoolArray, FloatArray

ALPHA, ERROR = 0.2, 0.035


def stream(
    rng: np.random.Generator, entries: int, share: float, changed: int | None = None, icc: float = 0.1
) -> tuple[np.ndarray, FloatArray, BoolArray]:
    """Entries of patients who differ in how often they go wrong; heavy weights; the share doubles at an entry."""
    patient = rng.integers(0, entries // 3, entries).astype(np.uint64)
    weight = rng.lognormal(-0.5, 0.7, entries)
    a = share * (1 / icc - 1)
    own = rng.beta(a, (1 / icc - 1) - a, entries // 3)[patient.astype(int)]
    if changed is not None:
        own[changed:] = np.minimum(2 * own[changed:], 1.0)
    return patient, weight, rng.random(entries) < own


def of(rng: np.random.Generator, entries: int, share: float, changed: int | None = None) -> FloatArray:
    patient, weight, risky = stream(rng, entries, share, changed)
    return share_evidence(patient, weight, risky, ALPHA, calibrate_bets(*stream(rng, 500, share)[1:])).wealth


def test_the_share_at_its_level_is_rarely_alarmed() -> None:
    """At the level itself, patients unlike one another, weights unlike one another, watched at every entry."""
    rng = np.random.default_rng(0)
    alarms = [of(rng, 1_000, ALPHA).max() >= -np.log(ERROR) for _ in range(300)]
    assert np.mean(alarms) <= ERROR + 2 * np.sqrt(ERROR / 300)


@pytest.mark.parametrize("calm", [0, 600])
def test_a_doubled_share_is_found_within_250_values_below_the_cutoff(calm: int) -> None:
    rng = np.random.default_rng(1)
    waits = []
    for _ in range(60):
        path = of(rng, calm + 600, ALPHA, calm)
        found = np.flatnonzero(path >= -np.log(ERROR))
        waits.append(found[0] - calm if len(found) and found[0] >= calm else 600)
    assert np.median(waits) <= 250


def test_wealth_is_a_fair_game_at_the_boundary() -> None:
    """One entry per patient at the level: the mean wealth is 1 at any fixed time, late money included."""
    rng = np.random.default_rng(2)
    bet_calibration = BetCalibration(1.0, 1.0, 4.0)
    last = []
    for _ in range(3_000):
        risky = rng.random(60) < ALPHA
        path = share_evidence(np.arange(60, dtype=np.uint64), np.ones(60), risky, ALPHA, bet_calibration).wealth
        last.append(np.exp(path[-1]))
    assert np.mean(last) == pytest.approx(1.0, abs=4 * np.std(last) / np.sqrt(len(last)))


def test_one_patient_cannot_raise_an_alarm() -> None:
    """However often the same patient goes wrong within a year."""
    patient, ones = np.zeros(500, np.uint64), np.ones(500)
    path = share_evidence(patient, ones, ones > 0, ALPHA, BetCalibration(1.0, 1.0, 4.0)).wealth
    assert path.max() < -np.log(ERROR)
    many = share_evidence(np.arange(500, dtype=np.uint64), ones, ones > 0, ALPHA, BetCalibration(1.0, 1.0, 4.0)).wealth
    assert many.max() > 50


def test_halved_measuring_is_found_and_a_little_change_is_not() -> None:
    rng = np.random.default_rng(3)

    def path(factor: float, visits: int = 400) -> FloatArray:
        odds = rng.lognormal(-0.6, 0.6, visits)
        return measuring_evidence(odds, rng.random(visits) < factor * odds / (1 + factor * odds)).wealth

    line = -np.log(0.015)
    assert np.mean([path(1.0).max() >= line for _ in range(200)]) == 0.0
    assert np.mean([path(1.25, 1_000).max() >= line for _ in range(200)]) <= 0.03
    for factor in (4.0, 0.25):
        assert np.median([np.argmax(path(factor) >= line) for _ in range(30)]) < 120
        assert all(path(factor).max() >= line for _ in range(30))


def test_drift_of_an_input() -> None:
    rng = np.random.default_rng(4)

    def path(mean: float) -> FloatArray:
        patient = rng.integers(0, 200, 600).astype(np.uint64)
        rank = np.clip(rng.random(600) + mean - 0.5, 0, 1)
        return rank_evidence(patient, rank, 0.05).wealth

    line = -np.log(0.01 / 3)
    assert np.mean([path(0.5).max() >= line for _ in range(200)]) == 0.0
    for mean in (0.7, 0.3):
        assert all(path(mean).max() >= line for _ in range(20))


def test_errors_that_double_are_found_and_a_quarter_more_is_not() -> None:
    rng = np.random.default_rng(6)

    def path(times: float, values: int = 500) -> FloatArray:
        chance = rng.beta(2, 5, values)
        odds = times * chance / (1 - chance)
        patient = rng.integers(0, values // 3, values).astype(np.uint64)
        own = rng.lognormal(0, 0.4, values // 3)[patient.astype(int)]  # patients differ beyond their risk
        return errors_evidence(patient, chance, rng.random(values) < own * odds / (1 + own * odds)).wealth

    line = -np.log(0.015)
    assert np.mean([path(1.0).max() >= line for _ in range(200)]) <= 0.01
    assert np.mean([path(1.1).max() >= line for _ in range(200)]) <= 0.03
    waits = [np.argmax(np.r_[path(3.0) >= line, True]) for _ in range(40)]  # a share of 0.25 becomes one of 0.5
    assert np.median(waits) < 250


def test_a_line_in_log_odds() -> None:
    rng = np.random.default_rng(7)
    chance = rng.beta(2, 5, 20_000)
    line = 0.5 + 0.7 * log_odds(chance)
    assert fit_chances(chance, rng.random(20_000) < 1 / (1 + np.exp(-line))) == pytest.approx((0.5, 0.7), abs=0.06)
    assert fit_chances(chance[:3], np.zeros(3, dtype=bool)) == (0.0, 1.0)


def test_where_the_rise_began() -> None:
    falling, rising = -0.01 * np.arange(100), -1.0 + 0.1 * np.arange(80)
    path = np.r_[falling, rising]
    assert Evidence(_with_late_money(path), path).began == pytest.approx(100, abs=1)
    assert Evidence(np.empty(0), np.empty(0)).began == 0


def test_late_money_is_what_it_says() -> None:
    path = np.random.default_rng(5).normal(0, 0.2, 170).cumsum()
    known = np.r_[0.0, path]
    for place in (0, 99, 100, 169):
        entered = range(place // EVERY + 1)
        money = sum(np.exp(path[place] - known[EVERY * m]) / ((m + 1) * (m + 2)) for m in entered)
        money += 1 / (len(entered) + 1)
        assert _with_late_money(path)[place] == pytest.approx(np.log(money))


def test_running_sums() -> None:
    before, until = _running(np.array([3, 1, 3, 3], np.uint64), np.array([1.0, 5.0, 2.0, 4.0]))
    assert before.tolist() == [0.0, 0.0, 1.0, 3.0]
    assert until.tolist() == [1.0, 5.0, 3.0, 7.0]
