"""The model of measuring: odds out of fold, scope by odds, time and length of the record, columns of many levels."""

import json
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from safetensors.numpy import load, save

from safeimpute.learning.roles import fold_of
from safeimpute.selection.measuring.diagnosis import area_under_curve
from safeimpute.selection.measuring.features import MeasuringTable, measuring_table
from safeimpute.selection.measuring.model import (
    FARTHEST,
    LARGEST_ODDS,
    FoldMeasuring,
    MeasuringModel,
    Weights,
    learn_measuring,
)
from safeimpute.visits.arrays import BoolArray, FloatArray, IntArray, VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

FOLDS = 3


@dataclass(frozen=True)
class Cohort:
    """Visits, who of them was measured, and their folds."""

    arrays: VisitArrays
    table: MeasuringTable
    measured: BoolArray
    fold: IntArray

    def learn(self, *, calendar: bool = True, seed: int = 0) -> MeasuringModel:
        return learn_measuring(
            self.table, self.arrays.time, self.fold, FOLDS, self.measured, ~self.measured, seed, calendar=calendar
        )

    def weigh(self, model: MeasuringModel) -> Weights:
        return model.weigh(self.table, self.arrays.time, self.fold)


def cohort_of(arrays: VisitArrays, *, calendar: bool = True) -> Cohort:
    table = measuring_table(arrays, past_only=False, calendar=calendar)
    measured = ~np.isnan(arrays.target_values)
    return Cohort(arrays, table, measured, fold_of(arrays.patient_key, 0, FOLDS))


@cache
def shifted() -> Cohort:
    """Measured where glucose is high, gaps are long or the patient is new."""
    visits = simulate("mimic4", np.random.default_rng(4), patients=400, shift="covariate").visits
    return cohort_of(prepare_visits(visits, ColumnChoice("hba1c")).arrays)


@cache
def learnt() -> MeasuringModel:
    return shifted().learn()


def auc(cohort: Cohort, odds: FloatArray) -> float:
    found = area_under_curve(odds, ~cohort.measured)
    assert found is not None
    return found


def test_odds_tell_measured_from_unmeasured_visits() -> None:
    cohort = shifted()
    odds = cohort.weigh(learnt()).odds
    assert (odds > 0).all()
    assert auc(cohort, odds) > 0.68
    overall = np.sum(~cohort.measured) / np.sum(cohort.measured)
    assert 0.7 * overall < np.mean(odds[cohort.measured]) < 1.4 * overall, "the weighted ones stand for the others"


def state_of_fold(model: MeasuringModel, number: int) -> tuple[dict[str, bytes], object]:
    arrays, plain = model.state()
    own = {name: each.tobytes() for name, each in arrays.items() if name.startswith(f"{number}.")}
    return own, plain["folds"][number]


def test_every_visit_is_weighed_by_a_model_that_never_saw_its_patient() -> None:
    """Who of a fold was measured changes nothing in the fold's own model, and something in the others'."""
    cohort = shifted()
    own = cohort.fold == 0
    other = replace(cohort, measured=np.where(own, ~cohort.measured, cohort.measured)).learn()
    same = [state_of_fold(learnt(), number) == state_of_fold(other, number) for number in range(FOLDS)]
    assert same == [True, False, False]
    weights = cohort.weigh(learnt())
    for number, model in enumerate(learnt().folds):
        rows = cohort.fold == number
        alone = model.weigh(cohort.table.matrix[rows], cohort.arrays.time[rows], cohort.table.visits[rows])
        assert alone.odds.tobytes() == weights.odds[rows].tobytes()


def test_measuring_by_chance_is_not_predicted() -> None:
    """Odds that looked at their own visit would tell the two apart even here."""
    rng = np.random.default_rng(7)
    by_chance = replace(shifted(), measured=rng.random(len(shifted().arrays)) < 0.6)
    assert 0.44 < auc(by_chance, by_chance.weigh(by_chance.learn()).odds) < 0.56


class Fixed:
    """A member that always says the same."""

    def __init__(self, odds: list[float]) -> None:
        self.odds = np.array(odds)

    def logit(self, matrix: FloatArray) -> FloatArray:
        return np.asarray(np.log(self.odds))


def test_scope() -> None:
    """Odds far above the usual, times never met, and records far longer than any met are outside the promise."""
    usual, large = 0.5, 0.5 * LARGEST_ODDS
    members = (Fixed([usual, usual, usual, usual, 0.99 * large, 1.01 * large, 1e30]),)
    model = FoldMeasuring(members, usual, (100.0, 200.0), 8)  # type: ignore[arg-type]
    time = np.array([100.0, 200.0, 99.9, 200.1, 150.0, 150.0, 150.0])
    found = model.weigh(np.zeros((7, 1)), time, np.array([8, 9, 1, 1, 1, 1, 1]))
    assert found.outside.tolist() == [False, True, True, True, False, True, True]
    assert found.odds[4] < LARGEST_ODDS * usual < found.odds[5]
    assert np.isfinite(found.odds).all()


def test_the_reach_of_a_fold_is_that_of_the_others() -> None:
    cohort = shifted()
    visits = np.bincount(cohort.arrays.patient)[cohort.arrays.patient]
    for number, model in enumerate(learnt().folds):
        others = cohort.fold != number
        time = cohort.arrays.time[others]
        assert model.reach == (time.min(), time.max())
        assert model.most_visits == FARTHEST * visits[others].max()
    assert all(model.reach is None for model in shifted().learn(calendar=False).folds)


def test_a_high_cardinality_column_that_decides_measuring_is_used() -> None:
    """Forty sites, a third of which hardly ever measure: without the column nobody can tell."""
    rng = np.random.default_rng(1)
    arrays = shifted().arrays
    site = rng.integers(0, 40, len(arrays))
    measured = rng.random(len(arrays)) < np.where(site < 14, 0.15, 0.85)
    hidden = arrays.with_target(np.where(measured, np.nan_to_num(arrays.target_values, nan=7.0), np.nan))
    codes = rng.permutation(60_000)[:40].astype(np.float64)[site]  # codes of text say nothing by their size
    with_site = cohort_of(replace(hidden, high_cardinality=codes[:, None], high_cardinality_names=("site",)))
    without = cohort_of(hidden)
    found = [auc(cohort, cohort.weigh(cohort.learn()).odds) for cohort in (with_site, without)]
    assert found[0] > 0.8
    assert found[0] > found[1] + 0.08


def test_a_level_never_met_is_weighed_all_the_same() -> None:
    rng = np.random.default_rng(1)
    arrays = shifted().arrays
    site = rng.integers(0, 40, len(arrays)).astype(np.float64)
    cohort = cohort_of(replace(arrays, high_cardinality=site[:, None], high_cardinality_names=("site",)))
    model = cohort.learn()
    for code in (np.nan, 65_535.0):
        matrix = cohort.table.matrix.copy()
        matrix[:, -1] = code
        weights = replace(cohort, table=replace(cohort.table, matrix=matrix)).weigh(model)
        assert np.isfinite(weights.odds).all()


def test_the_model_survives_storage() -> None:
    arrays, plain = learnt().state()
    stored = save({name: np.ascontiguousarray(each) for name, each in arrays.items()})
    restored = MeasuringModel.from_state(load(stored), json.loads(json.dumps(plain, allow_nan=False)))
    assert restored.columns == learnt().columns
    before, after = shifted().weigh(learnt()), shifted().weigh(restored)
    assert before.odds.tobytes() == after.odds.tobytes()
    assert np.array_equal(before.outside, after.outside)


@pytest.mark.parametrize("workers", [1, 3])
def test_folds_learnt_side_by_side_are_the_same(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safeimpute.machine.resources.thread_count", lambda: workers)
    again = shifted().learn()
    for number in range(FOLDS):
        assert state_of_fold(again, number) == state_of_fold(learnt(), number)
