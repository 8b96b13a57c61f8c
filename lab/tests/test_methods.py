"""One suite over every registered method: what any imputer must do, whatever it is and however briefly it trained."""

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from safeimpute.errors import VisitsError
from safeimpute.learning.roles import Role, Task, hide, split_visits
from safeimpute.settings import BestSettings
from safeimpute.visits.arrays import FloatArray, VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits
from safeimpute_lab.methods.best import BestImputer, visible_targets
from safeimpute_lab.methods.outside import OutsideMissing
from safeimpute_lab.registry import METHODS, make_imputer

PEERS = {name for name, method in METHODS.items() if method.module.endswith(".peers")}  # test_peers.py
EFFORT = 0.001  # every method takes at least one round of training
SLOW = {"csdi", "hyperimpute", "gain"}  # seconds per fit even so: `make test-full`
HEAVY = {"grape", "transformer", "saits", "diffputer"} | SLOW  # their hard cases too
ONE_TABLE = {"missforest", "hyperimpute", "gain", "tdm", "grape"}  # complete the table they were fitted on, no other
FILL_HOLES_ALONE = {"tdm"}  # moves the missing values only, so that visible ones come back as they are
LEARN_IN_FOLDS = {"best"}  # of patients: one patient is too few, which is said before any work
HARDSHIPS = ("all-missing and constant labs", "one patient", "no other lab")


def methods(later: set[str]) -> pytest.MarkDecorator:
    """Every method, those in `later` only in the full suite; one that cannot run here is skipped and says why."""
    marks = {name: [pytest.mark.full] if name in later else [] for name in METHODS if name not in PEERS}
    for name, held in marks.items():
        if missing := METHODS[name].missing():
            held.append(pytest.mark.skip(reason=f"{name} needs {', '.join(missing)}"))
    return pytest.mark.parametrize("name", [pytest.param(name, marks=held) for name, held in marks.items()])


@cache
def table() -> pl.DataFrame:
    return simulate("mimic4", np.random.default_rng(3), patients=24).visits


@cache
def visits() -> VisitArrays:
    return prepare_visits(table(), ColumnChoice("hba1c")).arrays


def task_of(arrays: VisitArrays) -> Task:
    return hide(arrays, roles_of(arrays))


def roles_of(arrays: VisitArrays) -> np.ndarray:
    return split_visits(~np.isnan(arrays.target_values), np.random.default_rng(0), test_fraction=0.2)


def imputed(name: str, task: Task) -> FloatArray:
    try:
        return make_imputer(name, EFFORT).fit(task, np.random.default_rng(5)).impute(task).value
    except OutsideMissing as absent:
        pytest.skip(str(absent))


@cache
def usual(name: str) -> FloatArray:
    return imputed(name, task_of(visits()))


@methods(later=SLOW)
def test_every_visit_gets_a_finite_value(name: str) -> None:
    assert usual(name).shape == (len(visits()),)
    assert np.isfinite(usual(name)).all()


@methods(later=SLOW)
def test_hidden_targets_change_nothing(name: str) -> None:
    """Also: the same seed gives the same bytes."""
    changed = visits().target_values.copy()
    changed[np.isin(roles_of(visits()), (Role.CALIBRATION, Role.TEST))] = 1e6
    assert imputed(name, task_of(visits().with_target(changed))).tobytes() == usual(name).tobytes()


@methods(later=HEAVY)
def test_validation_targets_are_read_by_those_that_stop_alone(name: str) -> None:
    """So the others can be given them to learn from, and lose nothing in the comparison."""
    if METHODS[name].stops or name in LEARN_IN_FOLDS:  # folds need no validation: all that is visible is an input
        pytest.skip(f"{name} reads them")
    task = task_of(visits())
    assert task.validation.any()
    unseen = replace(task, validation_target=np.full(len(visits()), np.nan))
    assert imputed(name, unseen).tobytes() == usual(name).tobytes()


@methods(later=HEAVY)
def test_unsorted_rows_and_columns_come_back_in_order(name: str) -> None:
    shuffled = table().sample(fraction=1.0, shuffle=True, seed=7).select(sorted(table().columns))
    arrays = prepare_visits(shuffled, ColumnChoice("hba1c")).arrays
    assert imputed(name, task_of(arrays)).tobytes() == usual(name).tobytes()


@methods(later=SLOW)
def test_no_visit_is_given_its_own_target_back(name: str) -> None:
    task = task_of(visits())
    own = task.visits.target_values[task.training]
    given_back = np.mean(np.isclose(usual(name)[task.training], own, rtol=0, atol=1e-4))
    assert (given_back < 0.5) == (name not in FILL_HOLES_ALONE)


@methods(later=SLOW)
def test_a_visible_target_does_not_decide_its_own_imputation(name: str) -> None:
    """A fitted method imputes a table in which one visible target was changed: at that visit nothing may move."""
    if name in ONE_TABLE:
        pytest.skip(f"{name} completes the table it was fitted on")
    task = task_of(visits())
    changed = task.visits.target_values.copy()
    row = int(np.flatnonzero(task.training)[3])
    changed[row] *= 1.5
    fitted = make_imputer(name, EFFORT).fit(task, np.random.default_rng(5))
    before, after = (
        fitted.impute(each).value[row] for each in (task, replace(task, visits=task.visits.with_target(changed)))
    )
    assert after == pytest.approx(before, rel=1e-5)


@methods(later=HEAVY)
@pytest.mark.parametrize("hardship", HARDSHIPS)
def test_hard_tables(name: str, hardship: str) -> None:
    arrays = visits()
    labs, others = arrays.labs.copy(), arrays.other_labs
    if hardship == "all-missing and constant labs":
        labs[:, others[0]] = np.nan
        labs[:, others[1]] = 100.0
    elif hardship == "no other lab":
        labs[:, others] = np.nan
    changed = replace(arrays, labs=labs)
    if hardship == "one patient":
        changed = replace(
            arrays,
            patient=np.zeros(len(arrays), np.int64),
            patient_key=np.full(len(arrays), arrays.patient_key[0]),
            time=np.arange(len(arrays), dtype=np.float64) * 30.0,
        )
        if name in LEARN_IN_FOLDS:
            with pytest.raises(VisitsError, match="visits of 1 patients"):
                imputed(name, task_of(changed))
            return
    assert np.isfinite(imputed(name, task_of(changed))).all()


def test_as_one_method_among_others_it_sees_validation_targets_too(cohort_arrays: VisitArrays) -> None:
    roles = split_visits(~np.isnan(cohort_arrays.target_values), np.random.default_rng(0), test_fraction=0.3)
    task = hide(cohort_arrays, roles)
    visible = visible_targets(task)
    seen = np.isin(roles, (Role.TRAINING, Role.VALIDATION))
    assert np.array_equal(~np.isnan(visible.target_values), seen)
    imputation = BestImputer(BestSettings(folds=3)).fit(task, np.random.default_rng(1)).impute(task)
    assert np.isfinite(imputation.value).all()
    test = roles == Role.TEST
    error = np.abs(imputation.value - cohort_arrays.target_values)[test].mean()
    spread = np.abs(cohort_arrays.target_values - np.nanmean(task.visits.target_values))[test].mean()
    assert error < 0.9 * spread
