"""From a ledger to a cut-off, on average and with confidence."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.ledgers import drawn_entries
from safeimpute.records.arrays import FloatArray
from safeimpute.selection.cutoff import (
    Cutoff,
    average_cutoff,
    confident_cutoff,
    log_wealth,
    predicted_stake,
)
from safeimpute.selection.ledger import Entries, keep_ledger, risk_grid


def many(seed: int, patients: int = 300) -> tuple[Entries, FloatArray]:
    entries = drawn_entries(np.random.default_rng(seed), 5 * patients, patients)
    return entries, risk_grid(entries.risk)


def both(entries: Entries, grid: FloatArray, alpha: float) -> tuple[Cutoff, Cutoff]:
    return average_cutoff(entries, grid, alpha), confident_cutoff(entries, grid, alpha, 0.9)


def changed(entries: Entries, weight: float = 1.0, risky: bool | None = None) -> Entries:
    errors = entries.risky if risky is None else np.full(len(entries.risk), risky)
    return Entries(entries.patient, entries.risk, weight * entries.weight, errors, entries.n_patients)


def test_the_share_at_the_cutoff_lies_below_the_level_by_what_one_patient_could_cost() -> None:
    for seed, alpha in itertools.product(range(5), (0.1, 0.2, 0.35)):
        entries, grid = many(seed)
        cutoff = average_cutoff(entries, grid, alpha)
        assert cutoff.risk is not None
        assert cutoff.share is not None
        below = entries.risk <= cutoff.risk
        share = np.average(entries.risky[below], weights=entries.weight[below])
        assert cutoff.share == pytest.approx(share)
        kept = keep_ledger(entries, np.array([cutoff.risk]), alpha)
        margin = kept.patient_cost[0] + (1 - alpha) * kept.visit_weight[0]
        assert share <= alpha - margin / kept.weight[0] + 1e-12


def test_every_larger_threshold_would_cost_too_much() -> None:
    entries, grid = many(1)
    cutoff = average_cutoff(entries, grid, 0.2)
    assert cutoff.risk is not None
    larger = keep_ledger(entries, grid[grid > cutoff.risk], 0.2)
    assert len(larger.balance)
    assert (larger.balance + 2.0 * larger.patient_cost + larger.visit_weight > 0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.floats(0.05, 0.6), st.floats(0.05, 0.6))
def test_a_higher_level_releases_no_less_on_average(seed: int, one: float, other: float) -> None:
    entries, grid = many(seed, patients=60)
    low, high = (average_cutoff(entries, grid, each).risk for each in sorted((one, other)))
    assert low is None or (high is not None and high >= low)


def test_confidence_costs_something_and_less_with_more_patients() -> None:
    shares = []
    for patients in (150, 3000):
        entries, grid = many(2, patients)
        average, confident = both(entries, grid, 0.2)
        assert average.risk is not None
        assert confident.risk is not None
        assert 0 < confident.risk <= average.risk
        shares.append(confident.risk / average.risk)
    assert shares[0] <= shares[1]


def test_more_confidence_releases_no_more() -> None:
    entries, grid = many(3)
    risks = [confident_cutoff(entries, grid, 0.2, each).risk or 0.0 for each in (0.6, 0.9, 0.99)]
    assert risks == sorted(risks, reverse=True)
    assert risks[1] > 0


def test_everything_good_is_released_and_everything_risky_is_not() -> None:
    entries, grid = many(4)
    for cutoff in both(changed(entries, risky=False), grid, 0.2):
        assert cutoff.risk == grid[-1]
    for cutoff in both(changed(entries, risky=True), grid, 0.2):
        assert cutoff.risk is None


def test_the_scale_of_the_weights_and_patients_without_visits_do_not_matter() -> None:
    entries, grid = many(5)
    emptier = Entries(entries.patient, entries.risk, entries.weight, entries.risky, entries.n_patients + 50)
    for one, scaled, more in zip(
        both(entries, grid, 0.2),
        both(changed(entries, weight=7.0), grid, 0.2),
        both(emptier, grid, 0.2),
        strict=True,
    ):
        assert one.risk is not None
        assert one.risk == scaled.risk == more.risk


def test_one_patient_with_nearly_all_the_weight_decides_nothing() -> None:
    """It is good at every visit; the others, who err as their risks say, would never be released so far."""
    entries, grid = many(6)
    heavy = Entries(
        np.r_[entries.patient, np.full(200, 300)],
        np.r_[entries.risk, np.linspace(0, 1, 200)],
        np.r_[entries.weight, np.full(200, 0.02 * entries.weight.sum())],
        np.r_[entries.risky, np.zeros(200, bool)],
        301,
    )
    assert confident_cutoff(heavy, grid, 0.2, 0.9).risk is None


def test_no_visit_gives_no_cutoff() -> None:
    nobody = drawn_entries(np.random.default_rng(0), 0, patients=3)
    for cutoff in both(nobody, risk_grid(nobody.risk), 0.2):
        assert cutoff.risk is None
        assert cutoff.visits == 0


def test_what_is_staked_reads_no_error() -> None:
    entries, grid = many(7)
    for place in (5, len(grid) - 1):
        stakes = {
            predicted_stake(changed(entries, risky=each), grid, place, 0.2, 0.9) for each in (True, False)
        }
        assert len(stakes) == 1
        assert stakes.pop() > 0


def test_wealth_is_fair_at_the_boundary_exactly() -> None:
    """Over all draws of four patients whose balance is 0.9 or -0.1 with a mean of zero, it stays at 1 on average."""
    mean = 0.0
    for risky in itertools.product((True, False), repeat=4):
        chance = math.prod(0.1 if each else 0.9 for each in risky)
        balance = np.array([0.9 if each else -0.1 for each in risky])
        mean += chance * math.exp(log_wealth(balance, 0.7))
    assert mean == pytest.approx(1.0)


def test_a_patient_who_costs_more_than_was_staked_ruins() -> None:
    assert log_wealth(np.array([-0.1] * 100 + [2.0]), 0.5) == -math.inf
    assert log_wealth(np.array([-0.1] * 100), 0.5) == pytest.approx(100 * math.log(1.05))
