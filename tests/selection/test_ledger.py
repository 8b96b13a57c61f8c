"""Balances per patient against their definition, written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.ledgers import drawn_entries
from safeimpute.selection import ledger
from safeimpute.selection.ledger import Entries, effective_size, keep_ledger, risk_grid


def literal_balances(entries: Entries, threshold: float, alpha: float) -> list[float]:
    """X_q(T), one patient and one visit at a time."""
    balance = [0.0] * entries.n_patients
    for i in range(len(entries.risk)):
        if entries.risk[i] <= threshold:
            balance[entries.patient[i]] += entries.weight[i] * (float(entries.risky[i]) - alpha)
    return balance


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 40), st.sampled_from([0.05, 0.1, 0.35]))
def test_equals_a_double_loop(seed: int, visits: int, alpha: float) -> None:
    entries = drawn_entries(np.random.default_rng(seed), visits, patients=7)
    thresholds = np.unique(np.r_[entries.risk, 0.35])
    kept = keep_ledger(entries, thresholds, alpha)
    for place, threshold in enumerate(thresholds):
        balance = literal_balances(entries, threshold, alpha)
        above = [max(each, 0.0) for each in balance]
        cost = sum(each**2 for each in above) / sum(above) if sum(above) > 0 else 0.0
        weights = entries.weight[entries.risk <= threshold]
        one = float(np.sum(weights**2) / np.sum(weights)) if len(weights) else 0.0
        assert kept.balance[place] == pytest.approx(sum(balance), abs=1e-9)
        assert kept.patient_cost[place] == pytest.approx(cost, abs=1e-9)
        assert kept.weight[place] == pytest.approx(weights.sum(), abs=1e-9)
        assert kept.visit_weight[place] == pytest.approx(one, abs=1e-9)


def test_a_part_at_a_time_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = drawn_entries(np.random.default_rng(3), 300, patients=40)
    grid = risk_grid(entries.risk)
    whole = keep_ledger(entries, grid, 0.1)
    monkeypatch.setattr(ledger, "AT_ONCE", 41)
    parts = keep_ledger(entries, grid, 0.1)
    for name in ("balance", "patient_cost", "weight", "visit_weight"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name))


def test_row_order_and_patient_numbers_do_not_matter() -> None:
    rng = np.random.default_rng(4)
    entries = drawn_entries(rng, 200, patients=30)
    order, numbers = rng.permutation(200), rng.permutation(30)
    moved = Entries(
        numbers[entries.patient[order]], entries.risk[order], entries.weight[order], entries.risky[order], 30
    )
    one, other = (keep_ledger(each, risk_grid(entries.risk), 0.2) for each in (entries, moved))
    np.testing.assert_allclose(one.balance, other.balance)
    np.testing.assert_allclose(one.patient_cost, other.patient_cost)


def test_no_visit_makes_an_empty_ledger() -> None:
    nobody = drawn_entries(np.random.default_rng(0), 0, patients=3)
    kept = keep_ledger(nobody, np.array([0.1, 0.2]), 0.1)
    assert not kept.balance.any()
    assert not kept.patient_cost.any()
    assert not len(keep_ledger(nobody, np.empty(0), 0.1).balance)


@given(st.lists(st.floats(0, 1), max_size=500))
def test_thresholds_increase_and_are_risks(risks: list[float]) -> None:
    grid = risk_grid(np.array(risks))
    assert len(grid) <= ledger.THRESHOLDS
    assert (np.diff(grid) > 0).all()
    assert set(grid) <= set(risks)
    if risks:
        assert grid[-1] == max(risks)


def test_effective_sizes() -> None:
    assert effective_size(np.full(40, 3.0)) == pytest.approx(40)
    assert effective_size(np.array([1.0, 0.0])) == pytest.approx(1)
    assert effective_size(np.zeros(0)) == 0.0
    entries = Entries(np.array([0, 0, 1]), np.zeros(3), np.ones(3), np.zeros(3, bool), 5)
    assert entries.worth.visits == pytest.approx(3)
    assert entries.worth.patients == pytest.approx(9 / 5)
