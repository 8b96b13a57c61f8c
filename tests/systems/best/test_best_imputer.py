import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load, save

from safeimpute.records.arrays import VisitArrays
from safeimpute.records.history import NONE
from safeimpute.splits.roles import Role, Roles, Task, hide, split_visits
from safeimpute.systems.best.attention import AttentionSettings
from safeimpute.systems.best.blend import GRID, BlendFit, BlendImputer, BlendSettings, FittedBlend, _simplex
from safeimpute.systems.best.evidence import EvidenceSettings
from safeimpute.systems.best.explain import explain
from safeimpute.systems.trees import patient_folds

QUICK = AttentionSettings(width=16, heads=2, epochs=6, patience=3)


@pytest.fixture(scope="module")
def roles(cohort_arrays: VisitArrays) -> Roles:
    return split_visits(~np.isnan(cohort_arrays.target_values), np.random.default_rng(0), test_fraction=0.3)


@pytest.fixture(scope="module")
def task(cohort_arrays: VisitArrays, roles: Roles) -> Task:
    return hide(cohort_arrays, roles)


@pytest.fixture(scope="module", params=[False, True], ids=["both ways", "past only"])
def fit(request: pytest.FixtureRequest, task: Task) -> BlendFit:
    return fit_quickly(task, past_only=request.param)


def fit_quickly(
    task: Task, *, past_only: bool = False, attention: AttentionSettings | None = QUICK
) -> BlendFit:
    settings = BlendSettings(EvidenceSettings(past_only=past_only), folds=3, attention=attention)
    return BlendImputer(settings).fit_whole(task, np.random.default_rng(7))


def as_task(visits: VisitArrays) -> Task:
    return Task(visits, np.full(len(visits), np.nan))


def test_is_more_accurate_than_the_mean_and_the_patient_mean(
    cohort_arrays: VisitArrays, roles: Roles, task: Task, fit: BlendFit
) -> None:
    test = roles == Role.TEST
    truth = cohort_arrays.target_values[test]
    value = fit.fitted.impute(task).value
    assert np.isfinite(value).all()
    own_mean = np.nan_to_num(fit.evidence["own mean"])
    patient_mean = fit.evidence.source.units.labs.in_unit(own_mean, task.visits.target)
    error, by_patient = (np.abs(each[test] - truth).mean() for each in (value, patient_mean))
    assert error < by_patient
    assert error < 0.85 * np.abs(truth - np.nanmean(task.visits.target_values)).mean()


def test_same_seed_gives_the_same_bytes(task: Task) -> None:
    one, other = (fit_quickly(task).fitted.impute(task) for _ in range(2))
    assert one.value.tobytes() == other.value.tobytes()
    assert all(one.signals[name].tobytes() == other.signals[name].tobytes() for name in one.signals)


def test_a_visit_never_depends_on_its_own_target(task: Task, fit: BlendFit) -> None:
    before = fit.fitted.impute(task).value
    for row in np.flatnonzero(task.training)[::60]:
        target = task.visits.target_values.copy()
        target[row] += 3.0
        after = fit.fitted.impute(as_task(task.visits.with_target(target))).value
        assert after[row].tobytes() == before[row].tobytes()


def test_a_frozen_model_gives_a_patient_the_same_bytes_in_any_table(task: Task, fit: BlendFit) -> None:
    whole = fit.fitted.impute(task).value
    some = task.visits.patient % 4 == 2
    alone = fit.fitted.impute(as_task(task.visits.take(some))).value
    assert alone.tobytes() == whole[some].tobytes()


def test_deleting_later_visits_changes_nothing_when_only_the_past_counts(task: Task, fit: BlendFit) -> None:
    whole = fit.fitted.impute(task)
    early = task.visits.time <= np.median(task.visits.time)
    cut = fit.fitted.impute(as_task(task.visits.take(early)))
    same = cut.value.tobytes() == whole.value[early].tobytes()
    assert same == fit.fitted.source.settings.past_only


def test_a_stored_model_imputes_the_same_bytes(task: Task, fit: BlendFit) -> None:
    arrays, plain = fit.fitted.state()
    stored = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    restored = FittedBlend.from_state(load(stored), json.loads(json.dumps(plain)))
    one, other = fit.fitted.impute(task), restored.impute(task)
    assert one.value.tobytes() == other.value.tobytes()
    assert list(one.signals) == list(other.signals)


def test_weights_are_convex_and_beat_each_part_where_they_were_chosen(task: Task, fit: BlendFit) -> None:
    weights = fit.fitted.weights
    assert sum(weights.values()) == pytest.approx(1.0)
    assert min(weights.values()) >= 0
    truth = np.where(task.training, task.visits.target_values, task.validation_target)
    signals, unit = fit.out_of_sample.signals, fit.fitted.source.units.labs
    blended = np.nanmean(np.abs(fit.out_of_sample.value - truth))
    for name in weights:
        part = unit.in_unit(signals["z"] + signals[f"{name} apart"], task.visits.target)
        assert blended <= np.nanmean(np.abs(part - truth)) + 1e-9


def test_simplex_lists_every_way_to_share_the_grid() -> None:
    points = _simplex(3)
    assert np.all(points.sum(axis=1) == GRID)
    assert len({tuple(point) for point in points.tolist()}) == (GRID + 2) * (GRID + 1) // 2


def test_training_visits_are_judged_by_parts_that_never_saw_the_patient(task: Task, fit: BlendFit) -> None:
    seen = fit.imputation.value
    assert seen.tobytes() == fit.fitted.impute(task).value.tobytes()
    honest = fit.out_of_sample.value
    truth = task.visits.target_values
    rows = task.training
    assert np.abs(honest - truth)[rows].mean() > np.abs(seen - truth)[rows].mean()
    assert np.array_equal(honest[~rows], seen[~rows])


def test_explanation_names_visits_that_carried_the_value(task: Task, fit: BlendFit) -> None:
    rows = np.flatnonzero(~task.training)[:40]
    support = explain(fit.fitted, fit.evidence, rows)
    patient, target = task.visits.patient, task.visits.target_values
    own = support.own
    assert own.any()
    assert (~own).any()
    assert np.array_equal(patient[support.source[own]], patient[support.visit[own]])
    assert support.target[own] == pytest.approx(target[support.source[own]])
    assert support.gap_days[own] == pytest.approx(
        (task.visits.time[support.source] - task.visits.time[support.visit])[own]
    )
    assert np.isnan(support.gap_days[~own]).all()
    totals = np.bincount(support.visit, support.weight)
    assert support.weight.min() >= 0
    assert totals.max() <= 1 + 1e-6
    if fit.fitted.source.settings.past_only:
        assert support.gap_days[own].max() < 0


def test_explanation_without_attention_uses_the_kriging_weights(task: Task) -> None:
    fit = fit_quickly(task, attention=None)
    rows = np.flatnonzero((fit.evidence.own != NONE).any(axis=1))[:20]
    support = explain(fit.fitted, fit.evidence, rows)
    assert np.bincount(support.visit, support.weight)[rows] == pytest.approx(1.0)


def test_folds_keep_patients_together_where_there_are_enough() -> None:
    patient = np.repeat(np.arange(12), 4)
    fold = patient_folds(patient, 5, np.random.default_rng(0))
    assert set(fold) == set(range(5))
    assert all(len(set(fold[patient == each])) == 1 for each in range(12))
    assert set(patient_folds(np.zeros(50, np.int64), 5, np.random.default_rng(0))) == set(range(5))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_table_without_other_labs_or_attributes_is_imputed(cohort_arrays: VisitArrays) -> None:
    bare = dataclasses.replace(
        cohort_arrays,
        labs=cohort_arrays.labs[:, [cohort_arrays.target]],
        lab_names=("hba1c",),
        target=0,
        attributes=np.empty((len(cohort_arrays), 0)),
        attribute_names=(),
    )
    roles = split_visits(~np.isnan(bare.target_values), np.random.default_rng(0))
    task = hide(bare, roles)
    assert np.isfinite(fit_quickly(task).fitted.impute(task).value).all()
