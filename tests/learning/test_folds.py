"""Folds by patient, by hash: the same in every table, row order and year, and about equally large."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.errors import VisitsError
from safeimpute.learning.roles import FEWEST_MEASURED, FEWEST_PATIENTS, fold_of, require_learnable
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import patient_keys, prepare_visits, subject_names


def folds_by_subject(visits: pl.DataFrame, seed: int = 0, folds: int = 5) -> dict[str, int]:
    prepared = prepare_visits(visits, ColumnChoice("hba1c"))
    fold = fold_of(prepared.arrays.patient_key, seed, folds).tolist()
    return dict(zip(prepared.subject.cast(pl.String), fold, strict=True))


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    return simulate("mimic4", np.random.default_rng(1), patients=120).visits


def test_a_patients_visits_share_one_fold(visits: pl.DataFrame) -> None:
    arrays = prepare_visits(visits, ColumnChoice("hba1c")).arrays
    fold = fold_of(arrays.patient_key, 3, 5)
    for patient in range(120):
        assert len(set(fold[arrays.patient == patient])) == 1


def test_folds_follow_the_subject_alone(visits: pl.DataFrame) -> None:
    """Rows in another order, other patients, other values, identifiers as text: nobody moves."""
    whole = folds_by_subject(visits)
    shuffled = visits.sample(fraction=1.0, shuffle=True, seed=2).with_columns(pl.col("glucose") * 2)
    assert folds_by_subject(shuffled) == whole
    some = folds_by_subject(visits.filter(pl.col("subject_id") % 3 == 0))
    assert some == {subject: whole[subject] for subject in some}
    assert folds_by_subject(visits.with_columns(pl.col("subject_id").cast(pl.String))) == whole
    assert folds_by_subject(visits.with_columns(pl.col("subject_id").cast(pl.Float64))) == {
        f"{subject}.0": fold for subject, fold in whole.items()
    }


def test_a_whole_number_has_one_fold_beside_any_other_identifier() -> None:
    """Identifiers stored as numbers with a fraction among them are odd; they still move nobody."""
    alone, beside = (subject_names(pl.Series(each)) for each in ([1.0, 2.0], [1.0, 2.5]))
    assert alone[0] == beside[0] == "1"
    assert beside[1] == "2.5"


def test_the_seed_deals_anew(visits: pl.DataFrame) -> None:
    one, other = folds_by_subject(visits, 0), folds_by_subject(visits, 1)
    same = np.mean([one[subject] == other[subject] for subject in one])
    assert 0.05 < same < 0.4


def test_folds_are_fixed_for_all_time() -> None:
    """A model saved today meets its patients next year: these numbers may never change."""
    keys = patient_keys(pl.Series([str(number) for number in range(12)]))
    assert fold_of(keys, 0, 5).tolist() == [1, 3, 2, 3, 0, 2, 3, 4, 4, 1, 2, 4]


@given(st.integers(0, 2**63 - 1), st.integers(3, 10))
def test_folds_are_balanced(seed: int, folds: int) -> None:
    keys = patient_keys(pl.Series([f"p{number}" for number in range(2000)]))
    counts = np.bincount(fold_of(keys, seed, folds), minlength=folds)
    expected = 2000 / folds
    assert len(counts) == folds
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected)


@given(st.integers(0, 2**32))
def test_neighbouring_seeds_and_numbers_are_unrelated(seed: int) -> None:
    keys = patient_keys(pl.Series([str(number) for number in range(3000)]))
    one, other = fold_of(keys, seed, 5), fold_of(keys, seed + 1, 5)
    assert abs(np.mean(one == other) - 0.2) < 0.05
    assert abs(np.mean(one[1:] == one[:-1]) - 0.2) < 0.05


def visits_of(patients: int, each: int) -> tuple[VisitArrays, np.ndarray]:
    table = pl.DataFrame(
        {
            "subject_id": np.repeat(np.arange(patients), each),
            "time": np.tile(np.arange(each, dtype=float), patients),
            "hba1c": np.random.default_rng(0).uniform(5, 9, patients * each),
            "glucose": np.random.default_rng(1).uniform(90, 200, patients * each),
        }
    )
    arrays = prepare_visits(table, ColumnChoice("hba1c", labs=("hba1c", "glucose"))).arrays
    return arrays, fold_of(arrays.patient_key, 0, 5)


def test_too_few_to_learn_from_are_refused() -> None:
    arrays, fold = visits_of(FEWEST_PATIENTS, 4)
    visible = np.ones(len(arrays), dtype=bool)
    require_learnable("hba1c", arrays.patient, visible, fold)
    with pytest.raises(VisitsError, match=rf"'hba1c' .* {FEWEST_PATIENTS - 1} patients"):
        require_learnable("hba1c", arrays.patient, visible & (arrays.patient > 0), fold)
    few = np.arange(len(arrays)) < FEWEST_MEASURED - 1
    with pytest.raises(VisitsError, match=rf"at {FEWEST_MEASURED - 1} visits"):
        require_learnable("hba1c", arrays.patient, few, fold)
    with pytest.raises(VisitsError, match="fewer than three folds"):
        require_learnable("hba1c", arrays.patient, visible, np.minimum(fold, 1))
