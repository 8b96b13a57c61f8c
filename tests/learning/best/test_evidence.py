"""Evidence: what a record says about a visit, its own value left out; the same alone, in blocks, and in any table."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from safeimpute.learning.best.evidence import (
    Evidence,
    Source,
    learn_source,
    patient_blocks,
    read_carried,
    read_evidence,
)
from safeimpute.learning.best.record import profiles, read_record
from safeimpute.settings import BestSettings
from safeimpute.visits.arrays import NONE, VisitArrays

SETTINGS = BestSettings(own_each_way=3, analogues=4)
BLOCK = 65_536


@pytest.fixture(scope="module", params=[False, True], ids=["both ways", "past only"])
def source(request: pytest.FixtureRequest, cohort_arrays: VisitArrays) -> Source:
    return learn_source(cohort_arrays, SETTINGS, np.random.default_rng(1), past_only=request.param)


def read(visits: VisitArrays, source: Source, block_visits: int = BLOCK) -> Evidence:
    return read_evidence(visits, source, np.ones(len(visits), dtype=bool), block_visits)


def test_no_row_sees_its_own_target(cohort_arrays: VisitArrays, source: Source) -> None:
    before = read(cohort_arrays, source)
    measured = np.flatnonzero(~np.isnan(cohort_arrays.target_values))
    for row in np.random.default_rng(5).choice(measured, 20, replace=False):
        for other in (1.5 * cohort_arrays.target_values[row], np.nan):
            target = cohort_arrays.target_values.copy()
            target[row] = other
            after = read(cohort_arrays.with_target(target), source)
            assert after.matrix[row].tobytes() == before.matrix[row].tobytes()
            assert after.course[row].tobytes() == before.course[row].tobytes()
            assert after.joint[row].tobytes() == before.joint[row].tobytes()
            assert after.nothing_known[row] == before.nothing_known[row]
            neighbours = cohort_arrays.patient == cohort_arrays.patient[row]
            last = row == np.flatnonzero(neighbours)[-1]
            moved = not np.array_equal(after.matrix[neighbours], before.matrix[neighbours], equal_nan=True)
            assert moved or neighbours.sum() == 1 or (source.past_only and last)


def test_a_patient_reads_the_same_without_the_other_patients(cohort_arrays: VisitArrays, source: Source) -> None:
    whole = read(cohort_arrays, source)
    some = cohort_arrays.patient % 3 == 1
    alone = read(cohort_arrays.take(some), source)
    assert alone.matrix.tobytes() == whole.matrix[some].tobytes()
    assert alone.joint.tobytes() == whole.joint[some].tobytes()


@pytest.mark.parametrize("block_visits", [1, 7, 100])
def test_reading_in_blocks_of_patients_changes_no_byte(
    cohort_arrays: VisitArrays, source: Source, block_visits: int
) -> None:
    whole, blocks = read(cohort_arrays, source), read(cohort_arrays, source, block_visits)
    assert blocks.names == whole.names
    for name in ("matrix", "target", "course", "joint", "time", "nothing_known"):
        one, other = getattr(whole, name), getattr(blocks, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def test_some_visits_read_as_all_do(cohort_arrays: VisitArrays, source: Source) -> None:
    whole = read(cohort_arrays, source)
    wanted = np.arange(len(cohort_arrays)) % 5 == 0
    some = read_evidence(cohort_arrays, source, wanted, 50)
    assert some.matrix.tobytes() == whole.matrix[wanted].tobytes()
    assert np.array_equal(some.time, cohort_arrays.time[wanted])


def test_blocks_cut_no_patient() -> None:
    patient = np.repeat(np.arange(6), [3, 1, 5, 2, 2, 4])
    for size in (1, 2, 4, 100):
        spans = list(patient_blocks(patient, size))
        assert spans[0][0] == 0
        assert spans[-1][1] == len(patient)
        for (_, stop), (start, _) in pairwise(spans):
            assert stop == start
            assert patient[stop - 1] != patient[stop]
    assert list(patient_blocks(np.empty(0, np.int64), 5)) == [(0, 0)]


def test_later_visits_matter_unless_only_the_past_counts(cohort_arrays: VisitArrays, source: Source) -> None:
    whole = read(cohort_arrays, source)
    early = cohort_arrays.time <= np.median(cohort_arrays.time)
    cut = read(cohort_arrays.take(early), source)
    assert (cut.matrix.tobytes() == whole.matrix[early].tobytes()) == source.past_only
    assert any("next" in name for name in whole.names) != source.past_only


def test_own_summary_leaves_the_visit_out(cohort_arrays: VisitArrays, source: Source) -> None:
    evidence = read(cohort_arrays, source)
    target, patient = evidence.target, cohort_arrays.patient
    rows = np.arange(len(patient))
    for row in rows[::17]:
        others = (patient == patient[row]) & (rows != row) & ~np.isnan(target)
        if source.past_only:
            others &= rows < row
        assert evidence["own targets"][row] == others.sum()
        if others.any():
            assert evidence["own mean"][row] == pytest.approx(target[others].mean(), abs=1e-6)
        if others.sum() > 1:
            assert evidence["own spread"][row] == pytest.approx(target[others].std(), abs=1e-3)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_analogues_are_the_nearest_of_the_panel_found_by_hand(cohort_arrays: VisitArrays, source: Source) -> None:
    rows, panel = np.arange(0, len(cohort_arrays), 29), source.panel
    carried = read_carried(cohort_arrays, source, rows)
    profile = profiles(read_record(cohort_arrays, source.units, past_only=source.past_only))
    for place, row in enumerate(rows):
        by_value, by_trend = (
            np.sqrt(np.nanmean((ours[row] - theirs) ** 2, axis=1))
            for ours, theirs in ((profile.values, panel.values), (profile.trends, panel.trends))
        )
        strength = np.maximum(by_value, by_trend) / panel.radius
        strength[panel.patient == profile.patient[row]] = np.inf
        strength[np.isnan(strength) | (strength > 1)] = np.inf
        nearest = np.argsort(strength, kind="stable")[: source.analogues]
        expected = nearest[np.isfinite(strength[nearest])]
        found = carried.analogues.panel[place]
        assert np.array_equal(found[found != NONE], expected)


def test_analogues_are_other_patients_within_the_radius(cohort_arrays: VisitArrays, source: Source) -> None:
    carried = read_carried(cohort_arrays, source, np.arange(len(cohort_arrays)))
    analogues = carried.analogues
    visit, place = np.nonzero(analogues.panel != NONE)
    assert len(visit) > 100
    key = cohort_arrays.patient_key.view(np.int64)
    assert not np.any(source.panel.patient[analogues.panel[visit, place]] == key[visit])
    assert np.all(analogues.value_distance[visit, place] <= source.panel.radius)
    assert np.array_equal(np.isfinite(analogues.value_distance), analogues.panel != NONE)


def test_the_panel_is_a_bounded_sample_of_measured_visits(cohort_arrays: VisitArrays) -> None:
    settings = BestSettings(panel_visits=100)
    panel = learn_source(cohort_arrays, settings, np.random.default_rng(0), past_only=False).panel
    assert len(panel.target) == 100
    assert not np.isnan(panel.target).any()


def test_a_large_table_is_learnt_from_some_patients(
    cohort_arrays: VisitArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = learn_source(cohort_arrays, BestSettings(log_labs=()), np.random.default_rng(0), past_only=False)
    monkeypatch.setattr("safeimpute.learning.best.evidence.VISITS_TO_LEARN", 300)
    bounded = BestSettings(panel_visits=100, log_labs=())
    small, again = (learn_source(cohort_arrays, bounded, np.random.default_rng(0), past_only=False) for _ in range(2))
    assert small.course.coefficients.tobytes() == again.course.coefficients.tobytes()
    assert small.units.labs.centre != pytest.approx(whole.units.labs.centre, rel=1e-12)
    assert small.units.labs.centre == pytest.approx(whole.units.labs.centre, rel=0.1)


def test_nothing_is_known_of_a_visit_without_labs_and_visible_targets(
    cohort_arrays: VisitArrays, source: Source
) -> None:
    labs = cohort_arrays.labs.copy()
    lonely = cohort_arrays.patient == 3
    labs[lonely] = np.nan
    nothing = read(replace(cohort_arrays, labs=labs), source).nothing_known
    assert nothing[lonely].all()
    others = np.isfinite(np.delete(labs, cohort_arrays.target, axis=1)).any(axis=1)
    assert not nothing[others].any()


def test_extreme_values_of_one_patient_stay_with_that_patient(cohort_arrays: VisitArrays, source: Source) -> None:
    """Sums in fixed point may overflow for a value no laboratory reports; other patients must not notice."""
    before = read(cohort_arrays, source).matrix
    target = cohort_arrays.target_values.copy()
    row = int(np.flatnonzero(~np.isnan(target))[0])
    target[row] = 1e12
    with np.errstate(invalid="ignore"):
        after = read(cohort_arrays.with_target(target), source).matrix
    others = cohort_arrays.patient != cohort_arrays.patient[row]
    assert after[others].tobytes() == before[others].tobytes()
    assert after[row].tobytes() == before[row].tobytes()
