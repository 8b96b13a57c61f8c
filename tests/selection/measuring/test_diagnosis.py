"""The diagnosis of measuring: figures that mean what they say."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.learning.roles import fold_of
from safeimpute.selection.measuring.diagnosis import MeasuringDiagnosis, area_under_curve, diagnose
from safeimpute.selection.measuring.features import measuring_table
from safeimpute.selection.measuring.model import learn_measuring
from safeimpute.selection.sums import kish_size
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import Shift, simulate
from safeimpute.visits.visits import prepare_visits

FOLDS = 3


@cache
def diagnosed(shift: Shift) -> MeasuringDiagnosis:
    visits = simulate("mimic4", np.random.default_rng(4), patients=400, shift=shift).visits
    arrays = prepare_visits(visits, ColumnChoice("hba1c")).arrays
    table = measuring_table(arrays, past_only=False, calendar=True)
    measured, fold = ~np.isnan(arrays.target_values), fold_of(arrays.patient_key, 0, FOLDS)
    model = learn_measuring(table, arrays.time, fold, FOLDS, measured, ~measured, 0, calendar=True)
    found = model.weigh(table, arrays.time, fold)
    return diagnose(model, table, found.odds, found.outside, measured, measured, ~measured, arrays.patient)


def test_by_chance_there_is_nothing_to_tell() -> None:
    told = diagnosed("none")
    assert told.auc is not None
    assert 0.44 < told.auc < 0.56
    assert told.effective_visits > 0.75 * told.measured


def test_a_shift_is_seen_calibrated_and_named() -> None:
    told = diagnosed("covariate")
    assert told.auc is not None
    assert told.auc > 0.68
    assert told.effective_visits < 0.85 * told.measured
    assert 0 < told.effective_patients <= 400
    strongest = {reason.column for reason in told.reasons}
    assert strongest & {"glucose now", "days since last visit", "visit number", "days since first visit"}
    directions = {reason.column: reason.direction for reason in told.reasons}
    assert directions.get("glucose now", "lower at unmeasured visits") == "lower at unmeasured visits"
    assert told.columns[0] == "time"


@pytest.mark.parametrize("shift", ["none", "covariate"])
def test_figures_are_of_a_piece(shift: Shift) -> None:
    told = diagnosed(shift)
    assert sum(group.visits for group in told.calibration) > 1900
    predicted = [group.predicted for group in told.calibration]
    assert predicted == sorted(predicted)
    off = [abs(group.predicted - group.observed) for group in told.calibration]
    assert np.mean(off) < 0.08
    shares = [reason.share for reason in told.reasons]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1
    assert all(reason.direction for reason in told.reasons)
    assert told.outside >= 0


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_area_under_the_curve_counts_pairs(pairs: list[tuple[int, bool]]) -> None:
    chance, positive = np.array([float(s) for s, _ in pairs]), np.array([p for _, p in pairs], dtype=bool)
    high, low = chance[positive], chance[~positive]
    found = area_under_curve(chance, positive)
    if not len(high) or not len(low):
        assert found is None
    else:
        above = (high[:, None] > low).mean() + 0.5 * (high[:, None] == low).mean()
        assert found == pytest.approx(above)


def test_kish_size() -> None:
    assert kish_size(np.ones(7)) == pytest.approx(7)
    assert kish_size(np.array([1.0, 0.0, 0.0])) == pytest.approx(1)
    assert kish_size(np.empty(0)) == 0
