"""No hidden target may reach an edge, a feature, a prediction or a risk."""

import numpy as np
import pytest
from safeimpute.selection.pipeline import score_split, split_for
from safeimpute.systems.presets import Lesson, PaperSettings, Plan, PresetName, score_visits

from safeimpute.records.arrays import VisitArrays
from safeimpute.selection.claims import Claim
from safeimpute.splits.roles import Role, hide, split_patients, split_visits
from safeimpute.systems.paper.event_graph import GraphSettings, build_graph
from safeimpute.systems.paper.gcn import GcnSettings
from safeimpute.tolerance import Tolerance


def plan(preset: PresetName) -> Plan:
    return Plan(preset, Tolerance(absolute=1.0), seed=0, paper=PaperSettings(gcn=GcnSettings(epochs=30)))


@pytest.fixture
def roles(cohort_arrays: VisitArrays) -> np.ndarray:
    return split_visits(~np.isnan(cohort_arrays.target_values), np.random.default_rng(0), test_fraction=0.2)


def scrambled(arrays: VisitArrays, rows: np.ndarray) -> VisitArrays:
    values = arrays.target_values.copy()
    values[rows] = np.random.default_rng(9).uniform(100, 200, rows.sum())
    return arrays.with_target(values)


@pytest.mark.parametrize("new_patients", [False, True])
def test_hidden_targets_change_no_weight_and_no_scope(cohort_arrays: VisitArrays, new_patients: bool) -> None:
    claim = Claim(new_patients, unmeasured=True)
    split = split_for(claim, cohort_arrays, seed=0, test_fraction=0.2)
    hidden = np.isin(split.roles, (Role.CALIBRATION, Role.TEST))
    one, other = (
        score_split(arrays, split, claim, plan("best"), plausible=(3.0, 20.0))
        for arrays in (cohort_arrays, scrambled(cohort_arrays, hidden))
    )
    assert one.weight.tobytes() == other.weight.tobytes()
    assert one.weight.std() > 0
    assert list(one.outside) == list(other.outside)
    for name, outside in one.outside.items():
        np.testing.assert_array_equal(outside, other.outside[name])


@pytest.mark.parametrize("preset", ["paper", "best"])
def test_calibration_and_test_targets_change_nothing_to_the_byte(
    cohort_arrays: VisitArrays, roles: np.ndarray, preset: PresetName
) -> None:
    hidden = np.isin(roles, (Role.CALIBRATION, Role.TEST))
    one = score_visits(hide(cohort_arrays, roles), plan(preset))
    other = score_visits(hide(scrambled(cohort_arrays, hidden), roles), plan(preset))
    for name in ("value", "risk", "spread", "no_evidence", "features"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def test_validation_targets_change_no_edge_and_no_feature(
    cohort_arrays: VisitArrays, roles: np.ndarray
) -> None:
    changed = scrambled(cohort_arrays, roles == Role.VALIDATION)
    graphs = [
        build_graph(hide(arrays, roles), GraphSettings(), np.random.default_rng(0))
        for arrays in (cohort_arrays, changed)
    ]
    for name in ("values", "attributes"):
        assert getattr(graphs[0], name).tobytes() == getattr(graphs[1], name).tobytes()
    for relation in ("temporal", "value"):
        for part in ("first", "second", "margin"):
            one, other = (getattr(getattr(graph, relation), part) for graph in graphs)
            assert one.tobytes() == other.tobytes()


def test_training_targets_change_no_edge(cohort_arrays: VisitArrays, roles: np.ndarray) -> None:
    changed = scrambled(cohort_arrays, roles == Role.TRAINING)
    graphs = [
        build_graph(hide(arrays, roles), GraphSettings(), np.random.default_rng(0))
        for arrays in (cohort_arrays, changed)
    ]
    for relation in ("temporal", "value"):
        one, other = (getattr(graph, relation) for graph in graphs)
        np.testing.assert_array_equal(one.first, other.first)
        np.testing.assert_array_equal(one.second, other.second)


def test_split_by_patient_nothing_of_other_patients_trains(cohort_arrays: VisitArrays) -> None:
    """Targets of calibration and test patients, context included, reach only their own patient's visits."""
    observed = ~np.isnan(cohort_arrays.target_values)
    roles, group = split_patients(
        cohort_arrays.patient, observed, np.random.default_rng(0), test_fraction=0.2
    )
    learn = np.isin(group, (Role.TRAINING, Role.VALIDATION))
    patient = cohort_arrays.patient[(group == Role.TEST) & (roles == Role.CONTEXT)][0]
    changed = scrambled(cohort_arrays, observed & (cohort_arrays.patient == patient))
    lesson = Lesson(learn, group == Role.TRAINING)
    one, other = (score_visits(hide(a, roles), plan("best"), lesson) for a in (cohort_arrays, changed))
    elsewhere = cohort_arrays.patient != patient
    for name in ("value", "risk", "spread"):
        assert getattr(one, name)[elsewhere].tobytes() == getattr(other, name)[elsewhere].tobytes(), name
    assert (one.value[~elsewhere] != other.value[~elsewhere]).any()
