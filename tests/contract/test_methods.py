"""One suite over every registered method: what any imputer must do, whatever it is."""

import numpy as np
import pytest

from safeimpute.imputers.protocol import Imputation
from safeimpute.imputers.registry import METHODS, make_imputer
from safeimpute.records.arrays import VisitArrays
from safeimpute.records.simulate import simulate
from safeimpute.records.visits import ColumnChoice, prepare_visits
from safeimpute.splits import Role, Task, hide, split_visits

available = [name for name, method in METHODS.items() if not method.missing()]


@pytest.fixture(scope="module")
def arrays() -> VisitArrays:
    visits = simulate("mimic4", np.random.default_rng(3), patients=50).visits
    return prepare_visits(visits, ColumnChoice("hba1c")).arrays


def split(arrays: VisitArrays) -> np.ndarray:
    return split_visits(~np.isnan(arrays.target_values), np.random.default_rng(0), test_fraction=0.2)


def imputed(name: str, task: Task) -> Imputation:
    return make_imputer(name).fit(task, np.random.default_rng(5)).impute(task)


@pytest.mark.parametrize("name", available)
def test_every_visit_gets_a_finite_value_in_order(name: str, arrays: VisitArrays) -> None:
    value = imputed(name, hide(arrays, split(arrays))).value
    assert value.shape == (len(arrays),)
    assert np.isfinite(value).all()


@pytest.mark.parametrize("name", available)
def test_hidden_targets_change_nothing(name: str, arrays: VisitArrays) -> None:
    roles = split(arrays)
    changed = arrays.target_values.copy()
    changed[np.isin(roles, (Role.CALIBRATION, Role.TEST))] = 1e6
    one = imputed(name, hide(arrays, roles)).value
    other = imputed(name, hide(arrays.with_target(changed), roles)).value
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", available)
def test_same_seed_same_bytes(name: str, arrays: VisitArrays) -> None:
    task = hide(arrays, split(arrays))
    assert imputed(name, task).value.tobytes() == imputed(name, task).value.tobytes()


@pytest.mark.parametrize("name", available)
@pytest.mark.parametrize("hardship", ["all-missing lab", "constant lab", "one patient", "no other lab"])
def test_hard_tables(name: str, hardship: str, arrays: VisitArrays) -> None:
    from dataclasses import replace

    labs = arrays.labs.copy()
    other = arrays.other_labs[0]
    if hardship == "all-missing lab":
        labs[:, other] = np.nan
    elif hardship == "constant lab":
        labs[:, other] = 100.0
    elif hardship == "no other lab":
        labs[:, arrays.other_labs] = np.nan
    changed = replace(arrays, labs=labs)
    if hardship == "one patient":
        changed = replace(
            arrays,
            patient=np.zeros(len(arrays), np.int64),
            patient_key=np.full(len(arrays), arrays.patient_key[0]),
            time=np.arange(len(arrays)) * 30.0,
        )
    assert np.isfinite(imputed(name, hide(changed, split(changed))).value).all()
