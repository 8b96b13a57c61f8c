"""Groups within which the level holds: how visits are told apart, and how small groups are merged."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.errors import OptionError
from safeimpute.selection.enough import EffectiveSize, attribute_groups, enough, require_groups
from safeimpute.selection.groups import Grouping, make_grouping, merge_cells, own_values, shown_grouping
from safeimpute.selection.sums import kish_size
from safeimpute.visits.arrays import FloatArray, VisitArrays


def visits(patients: int = 40, seed: int = 0) -> VisitArrays:
    """Up to six visits each; a third of the targets measured; sex, age and a ward of four levels."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(patients), rng.integers(1, 7, patients))
    n = len(patient)
    time = np.concatenate([np.sort(rng.choice(1000, np.sum(patient == p), replace=False)) for p in range(patients)])
    target = np.where(rng.random(n) < 0.4, rng.normal(7, 1, n), np.nan)
    sex = rng.integers(0, 2, patients)[patient]
    return VisitArrays(
        patient=patient,
        time=time.astype(np.float64),
        labs=np.column_stack([target, rng.normal(size=n)]),
        lab_names=("hba1c", "ldl"),
        target=0,
        attributes=np.column_stack([rng.uniform(20, 90, patients)[patient], sex == 0, sex == 1]).astype(float),
        attribute_names=("age", "sex=F", "sex=M"),
        patient_key=patient.astype(np.uint64),
        visit_key=np.arange(n, dtype=np.uint64),
    )


def test_own_values_leave_the_visit_itself_out() -> None:
    table = visits()
    measured = ~np.isnan(table.target_values)
    for row in range(len(table)):
        same = table.patient == table.patient[row]
        others = measured & same & (np.arange(len(table)) != row)
        assert own_values(table, past_only=False)[row] == others.sum()
        assert own_values(table, past_only=True)[row] == np.sum(others & (table.time < table.time[row]))


def test_own_values_wait_until_they_are_known() -> None:
    table = visits(seed=3)
    rng = np.random.default_rng(1)
    known = table.time[:, None] + rng.integers(0, 300, table.labs.shape)
    late = replace(table, known=known.astype(np.float64))
    measured = ~np.isnan(table.target_values)
    found = own_values(late, past_only=True)
    for row in range(len(table)):
        there = measured & (table.patient == table.patient[row]) & (np.arange(len(table)) != row)
        assert found[row] == np.sum(there & (known[:, 0] <= table.time[row]))


@pytest.mark.parametrize("limits", [(), (5.7, 6.5)])
def test_what_is_shown_by_value_is_what_a_level_within_values_holds_in(limits: tuple[float, ...]) -> None:
    table, value = visits(), np.random.default_rng(4).normal(6, 1, len(visits()))
    promised = make_grouping(("value",), table, value, limits, past_only=False)
    assert shown_grouping(table, value, limits, past_only=False).dimensions[0] == promised.dimensions[0]
    if limits:
        assert promised.dimensions[0].edges == limits


def test_a_cells_own_target_does_not_move_it() -> None:
    table, value = visits(), np.random.default_rng(5).normal(7, 1, len(visits()))
    grouping = make_grouping(["value", "history", "sex"], table, value, past_only=False)
    before = grouping.cells(table, value)
    row = int(np.flatnonzero(~np.isnan(table.target_values))[0])
    changed = table.target_values.copy()
    changed[row] = 99.0
    assert grouping.cells(table.with_target(changed), value)[row] == before[row]
    changed[row] = np.nan  # as if nobody had measured it
    assert grouping.cells(table.with_target(changed), value)[row] == before[row]


def test_labels_and_state_survive_storing() -> None:
    table, value = visits(), np.linspace(5, 10, len(visits()))
    grouping = make_grouping(["value", "sex", "age"], table, value, [6.5, 8], past_only=True)
    again = Grouping.from_state(grouping.state())
    assert again == grouping
    assert np.array_equal(again.cells(table, value), grouping.cells(table, value))
    assert grouping.dimensions[0].labels[:3] == ("under 6.5", "6.5 to under 8", "8 or more")
    assert attribute_groups(table) == ("age", "sex")
    assert "sex F" in grouping.label(int(grouping.cells(table, value)[np.flatnonzero(table.attributes[:, 1])[0]]))


@pytest.mark.parametrize(
    ("name", "said"), [("hba1c", "is the target"), ("ldl", "is a lab"), ("ward", "no attribute 'ward'")]
)
def test_groups_that_cannot_be_told_are_refused(name: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        require_groups([name], visits())


def test_missing_attributes_are_a_group_of_their_own() -> None:
    table = visits()
    attributes = table.attributes.copy()
    attributes[:5] = np.nan
    table = replace(table, attributes=attributes)
    value = np.zeros(len(table))
    for name in ("sex", "age"):
        grouping = make_grouping([name], table, value, past_only=False)
        assert grouping.label(int(grouping.cells(table, value)[0])) == f"{name} unknown"


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.2, 0.5]))
def test_merged_groups_are_large_enough_or_one(seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 400))
    cell, patient, weight = rng.integers(0, 9, n), rng.integers(0, 60, n), rng.exponential(1.0, n) + 0.1
    merged = merge_cells(cell, patient, weight, alpha, np.arange(9))
    assert sorted(each for members in merged.cells.values() for each in members) == list(range(9))
    group = merged.of(cell)
    assert merged.of(np.array([99]))[0] == -1
    for number in merged.cells:
        rows = group == number
        effective_size = EffectiveSize(kish_size(weight[rows]), kish_size(_sums(patient[rows], weight[rows])))
        assert enough(effective_size, alpha) or len(merged.cells) == 1


def _sums(patient: np.ndarray, weight: FloatArray) -> FloatArray:
    return np.bincount(patient, weight).astype(np.float64) if len(patient) else np.empty(0)
