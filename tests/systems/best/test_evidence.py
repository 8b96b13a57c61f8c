import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.records.arrays import VisitArrays
from safeimpute.records.history import NONE
from safeimpute.records.own_visits import nearest_own_visits
from safeimpute.splits.roles import Task, hide, split_visits
from safeimpute.systems.best.course import Kriging, Variances, fit_kriging, krige
from safeimpute.systems.best.evidence import (
    Evidence,
    EvidenceSettings,
    EvidenceSource,
    fit_evidence,
    read_evidence,
)
from safeimpute.systems.best.panel import profiles
from safeimpute.systems.best.record import read_record


@pytest.fixture(scope="module")
def task(cohort_arrays: VisitArrays) -> Task:
    roles = split_visits(~np.isnan(cohort_arrays.target_values), np.random.default_rng(0), test_fraction=0.2)
    return hide(cohort_arrays, roles)


@pytest.fixture(scope="module", params=[False, True], ids=["both ways", "past only"])
def source(request: pytest.FixtureRequest, task: Task) -> EvidenceSource:
    settings = EvidenceSettings(past_only=request.param, own_each_way=3, analogues=4)
    return fit_evidence(task, settings, np.random.default_rng(1))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.integers(0, 3), st.integers(0, 3)
)
def test_nearest_own_visits_agree_with_a_search_by_hand(rows, before, after) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    patient = np.array([row[0] for row in rows], dtype=np.int64)
    observed = np.array([row[1] for row in rows], dtype=bool)
    found = nearest_own_visits(patient, observed, before, after)
    for i in range(len(rows)):
        own = [j for j in range(len(rows)) if patient[j] == patient[i] and observed[j] and j != i]
        earlier, later = [j for j in own if j < i][::-1][:before], [j for j in own if j > i][:after]
        expected = earlier + [NONE] * (before - len(earlier)) + later + [NONE] * (after - len(later))
        assert found[i].tolist() == expected


def test_kriging_equals_the_gaussian_conditional_mean() -> None:
    time = np.array([0.0, 30.0, 45.0, 200.0])
    target = np.array([1.0, np.nan, -0.5, 0.3])
    design = np.column_stack([np.ones(4), [0.2, -0.1, 0.4, 0.0]])
    model = Kriging(Variances(0.5, 0.8, 90.0, 0.3), np.array([0.1, 0.7]))
    own = nearest_own_visits(np.zeros(4, np.int64), ~np.isnan(target), 3, 3)
    kriged = krige(model, design, target, time, own)
    for visit in range(4):
        others = [j for j in (0, 2, 3) if j != visit]
        gaps = np.abs(time[others][:, None] - time[others])
        among = 0.5 + 0.8 * np.exp(-gaps / 90) + 0.3 * np.eye(len(others))
        to_visit = 0.5 + 0.8 * np.exp(-np.abs(time[others] - time[visit]) / 90)
        residual = target[others] - design[others] @ model.coefficients
        mean = design[visit] @ model.coefficients + to_visit @ np.linalg.solve(among, residual)
        variance = 1.6 - to_visit @ np.linalg.solve(among, to_visit)
        assert kriged.mean[visit] == pytest.approx(mean)
        assert kriged.deviation[visit] == pytest.approx(np.sqrt(variance))


def test_kriging_finds_the_regression_and_the_memory_it_was_simulated_with() -> None:
    rng = np.random.default_rng(3)
    patients, each, memory = 400, 8, 100.0
    patient = np.repeat(np.arange(patients), each)
    time = np.cumsum(rng.exponential(40.0, (patients, each)), axis=1)
    drift = np.stack([_ornstein_uhlenbeck(row, memory, rng) for row in time]).ravel()
    design = np.column_stack([np.ones(len(patient)), rng.standard_normal(len(patient))])
    target = 0.8 * design[:, 1] + drift + 0.3 * rng.standard_normal(len(patient))
    own = nearest_own_visits(patient, np.ones(len(patient), bool), 6, 6)
    fitted = fit_kriging(design, target, time.ravel(), own, rng)
    assert fitted.coefficients[1] == pytest.approx(0.8, abs=0.05)
    assert fitted.variances.memory_days == pytest.approx(memory, rel=0.5)
    assert fitted.variances.drifting + fitted.variances.steady == pytest.approx(1.0, rel=0.35)
    assert fitted.variances.noise == pytest.approx(0.09, abs=0.06)
    kriged = krige(fitted, design, target, time.ravel(), own)
    standardised = (target - kriged.mean) / kriged.deviation
    assert np.std(standardised) == pytest.approx(1.0, abs=0.07)


def _ornstein_uhlenbeck(time, memory, rng):
    level = [rng.standard_normal()]
    for gap in np.diff(time):
        keep = np.exp(-gap / memory)
        level.append(keep * level[-1] + np.sqrt(1 - keep**2) * rng.standard_normal())
    return np.array(level)


def test_no_row_sees_its_own_target(task: Task, source: EvidenceSource) -> None:
    before = read_evidence(task.visits, source).matrix
    rng = np.random.default_rng(5)
    for row in rng.choice(np.flatnonzero(task.training), 20, replace=False):
        target = task.visits.target_values.copy()
        target[row] *= 1.5
        after = read_evidence(task.visits.with_target(target), source).matrix
        assert after[row].tobytes() == before[row].tobytes()
        neighbours = task.visits.patient == task.visits.patient[row]
        assert (
            neighbours.sum() == 1
            or not np.array_equal(after[neighbours], before[neighbours], equal_nan=True)
            or (source.settings.past_only and row == np.flatnonzero(neighbours)[-1])
        )


def test_a_patient_reads_the_same_without_the_other_patients(task: Task, source: EvidenceSource) -> None:
    whole = read_evidence(task.visits, source).matrix
    some = task.visits.patient % 3 == 1
    assert read_evidence(task.visits.take(some), source).matrix.tobytes() == whole[some].tobytes()


@pytest.mark.parametrize("block_visits", [1, 7, 100])
def test_reading_in_blocks_of_patients_changes_no_byte(
    task: Task, source: EvidenceSource, block_visits: int
) -> None:
    whole, blocks = (
        read_evidence(task.visits, source),
        read_evidence(task.visits, source, "cpu", block_visits),
    )
    assert blocks.names == whole.names
    for one, other in zip(per_visit(whole), per_visit(blocks), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def per_visit(evidence: Evidence) -> list[np.ndarray]:
    parts = vars(evidence.kriged).values(), vars(evidence.analogues).values()
    return [evidence.matrix, evidence.target, evidence.own, *parts[0], *parts[1]]


def test_columns_of_the_labs_are_found_again(task: Task, source: EvidenceSource) -> None:
    evidence = read_evidence(task.visits, source)
    others = task.visits.labs[:, task.visits.other_labs]
    assert np.array_equal(np.isnan(evidence.labs("now")), np.isnan(others))
    assert not np.isnan(evidence.labs("filled")[~np.isnan(others)]).any()
    assert evidence.attributes.shape == task.visits.attributes.shape
    for place, lab in enumerate(task.visits.other_labs):
        name = f"{task.visits.lab_names[lab]} trend"
        assert evidence.labs("trend")[:, place].tobytes() == evidence[name].tobytes()


def test_a_large_table_is_learnt_from_some_patients(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safeimpute.systems.best.evidence.VISITS_TO_LEARN", 300)
    settings = EvidenceSettings(panel_visits=40, log_labs=())
    small = fit_evidence(task, settings, np.random.default_rng(0))
    again = fit_evidence(task, settings, np.random.default_rng(0))
    whole = fit_evidence(task, EvidenceSettings(panel_visits=10_000, log_labs=()), np.random.default_rng(0))
    assert small.kriging.coefficients.tobytes() == again.kriging.coefficients.tobytes()
    assert small.units.labs.centre != pytest.approx(whole.units.labs.centre, rel=1e-12)
    assert small.units.labs.centre == pytest.approx(whole.units.labs.centre, rel=0.1)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_analogues_are_the_nearest_of_the_panel_found_by_hand(task: Task, source: EvidenceSource) -> None:
    evidence, panel = read_evidence(task.visits, source), source.panel
    profile = profiles(read_record(task.visits, source.units, past_only=source.settings.past_only))
    for row in range(0, len(task.visits), 29):
        by_value, by_trend = (
            np.sqrt(np.nanmean((ours[row] - theirs) ** 2, axis=1))
            for ours, theirs in ((profile.values, panel.values), (profile.trends, panel.trends))
        )
        strength = np.maximum(by_value, by_trend) / panel.radius
        strength[panel.patient == profile.patient[row]] = np.inf
        strength[np.isnan(strength) | (strength > 1)] = np.inf
        nearest = np.argsort(strength, kind="stable")[: source.settings.analogues]
        expected = nearest[np.isfinite(strength[nearest])]
        found = evidence.analogues.panel[row]
        assert np.array_equal(found[found != NONE], expected)


def test_later_visits_matter_unless_only_the_past_counts(task: Task, source: EvidenceSource) -> None:
    whole = read_evidence(task.visits, source)
    early = task.visits.time <= np.median(task.visits.time)
    cut = read_evidence(task.visits.take(early), source)
    same = cut.matrix.tobytes() == whole.matrix[early].tobytes()
    assert same == source.settings.past_only
    assert any("next" in name for name in whole.names) != source.settings.past_only


def test_own_summary_leaves_the_visit_out(task: Task, source: EvidenceSource) -> None:
    evidence = read_evidence(task.visits, source)
    target, patient = evidence.target, task.visits.patient
    rows = np.arange(len(patient))
    for row in rows[::17]:
        others = (patient == patient[row]) & (rows != row) & ~np.isnan(target)
        if source.settings.past_only:
            others &= rows < row
        assert evidence["own targets"][row] == others.sum()
        if others.any():
            assert evidence["own mean"][row] == pytest.approx(target[others].mean(), abs=1e-6)
        if others.sum() > 1:
            assert evidence["own spread"][row] == pytest.approx(target[others].std(), abs=1e-3)


def test_analogues_are_other_patients_within_the_radius(task: Task, source: EvidenceSource) -> None:
    evidence = read_evidence(task.visits, source)
    visit, place = np.nonzero(evidence.analogues.panel != NONE)
    assert len(visit) > 100
    key = task.visits.patient_key.view(np.int64)
    assert not np.any(source.panel.patient[evidence.analogues.panel[visit, place]] == key[visit])
    assert np.all(evidence.analogues.value_distance[visit, place] <= source.panel.radius)
    distance = np.nan_to_num(evidence.analogues.value_distance, nan=np.inf)
    assert np.all(np.isfinite(distance).sum(axis=1) == (evidence.analogues.panel != NONE).sum(axis=1))


def test_the_panel_is_a_bounded_sample_of_training_visits(task: Task) -> None:
    settings = EvidenceSettings(panel_visits=40)
    panel = fit_evidence(task, settings, np.random.default_rng(0)).panel
    assert len(panel.target) == 40
    assert not np.isnan(panel.target).any()


def test_nothing_is_known_of_a_visit_without_labs_and_visible_targets(
    task: Task, source: EvidenceSource
) -> None:
    labs = task.visits.labs.copy()
    lonely = task.visits.patient == 3
    labs[lonely] = np.nan
    emptied = dataclasses.replace(task.visits, labs=labs)
    nothing = read_evidence(emptied, source).nothing_known
    assert nothing[lonely].all()
    assert not nothing[task.training & ~lonely & (np.isfinite(labs).sum(axis=1) > 1)].any()
