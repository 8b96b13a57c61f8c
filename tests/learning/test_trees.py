"""Bagged trees: one set of bins for all folds and labels, members that learn from a bounded sample."""

from dataclasses import replace

import numpy as np
import pytest

from safeimpute.learning.trees import BaggedTrees, TreeSettings, bin_rows, fit_bagged_trees, patient_folds, train_trees

SETTINGS = TreeSettings(rounds=30, patience=30)


Table = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # matrix, label, fold, rows learnt from


@pytest.fixture(scope="module")
def table() -> Table:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(900, 4)).astype(np.float32)
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    label = np.nan_to_num(matrix[:, 0]) + 0.1 * rng.normal(size=900)
    return matrix, label, rng.integers(0, 3, 900), np.flatnonzero(rng.random(900) < 0.8)


def fit(table: Table, settings: TreeSettings = SETTINGS, sign: float = 1.0) -> tuple[BaggedTrees, np.ndarray]:
    matrix, label, fold, rows = table
    return fit_bagged_trees(bin_rows(matrix, rows), matrix, sign * label, fold, settings, seed=5)


def test_every_binned_row_is_predicted_by_the_member_that_never_saw_its_fold(table: Table) -> None:
    matrix, label, fold, rows = table
    trees, out_of_fold = fit(table)
    assert np.array_equal(np.flatnonzero(~np.isnan(out_of_fold)), rows)
    for number, member in enumerate(trees.members):
        held_out = rows[fold[rows] == number]
        assert np.array_equal(out_of_fold[held_out], member.predict(matrix[held_out]))
    assert np.corrcoef(out_of_fold[rows], label[rows])[0, 1] > 0.9


def test_bins_serve_one_label_after_another(table: Table) -> None:
    matrix, label, fold, rows = table
    binned = bin_rows(matrix, rows)
    first = fit_bagged_trees(binned, matrix, label, fold, SETTINGS, 5)[1]
    other = fit_bagged_trees(binned, matrix, -label, fold, SETTINGS, 5)[1]
    again = fit_bagged_trees(binned, matrix, label, fold, SETTINGS, 5)[1]
    assert again.tobytes() == first.tobytes()
    assert np.corrcoef(other[rows], first[rows])[0, 1] < -0.9


def test_a_bound_on_visits_samples_by_seed_and_still_predicts_everywhere(table: Table) -> None:
    bounded = replace(SETTINGS, most_visits=200, most_stopping=60)
    one, other, whole = fit(table, bounded)[1], fit(table, bounded)[1], fit(table)[1]
    assert one.tobytes() == other.tobytes()
    assert np.array_equal(np.isnan(one), np.isnan(whole))
    rows = ~np.isnan(one)
    assert not np.array_equal(one[rows], whole[rows])


def test_a_bounded_member_learns_from_no_more_than_the_bound(table: Table) -> None:
    """A leaf must hold 20 visits: of 50 there can be two leaves, of the whole table many."""
    matrix, label, fold, _ = table
    leaves = []
    for most in (50, 10_000):
        settings = replace(SETTINGS, most_visits=most, row_share=1.0)
        member = train_trees(matrix, label, fold > 0, fold == 0, settings, seed=1)
        leaves.append(max(tree["num_leaves"] for tree in member.dump_model()["tree_info"]))
    assert leaves[0] == 2
    assert leaves[1] > 5


def test_folds_keep_patients_together_where_there_are_enough() -> None:
    patient = np.repeat(np.arange(12), 4)
    fold = patient_folds(patient, 5, np.random.default_rng(0))
    assert set(fold) == set(range(5))
    assert all(len(set(fold[patient == each])) == 1 for each in range(12))
    assert set(patient_folds(np.zeros(50, np.int64), 5, np.random.default_rng(0))) == set(range(5))


def test_codes_of_levels_are_no_amounts(table: Table) -> None:
    """A category whose codes lie in no order is learnt as one split by level."""
    rng = np.random.default_rng(3)
    level = rng.integers(0, 6, 900)
    label = np.isin(level, (0, 3, 5)).astype(np.float64)
    codes = rng.permutation(40_000)[:6].astype(np.float32)[level][:, None]
    settings = replace(SETTINGS, objective="binary", metric="binary_logloss", feature_share=1.0, leaves=2)
    fold = rng.integers(0, 3, 900)
    member = train_trees(codes, label, fold > 0, fold == 0, settings, seed=1, categories=(0,))
    predicted = np.asarray(member.predict(codes))
    assert predicted[label == 1].min() > predicted[label == 0].max()


def test_stored_trees_predict_the_same_bytes(table: Table) -> None:
    trees, _ = fit(table)
    restored = BaggedTrees.from_texts(trees.texts())
    assert restored.predict(table[0]).tobytes() == trees.predict(table[0]).tobytes()
