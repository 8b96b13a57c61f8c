"""The plain part of who gets measured: coefficients found again, absences and levels counted, rows independent."""

import numpy as np
import pytest

from safeimpute.selection.measuring.features import MeasuringTable
from safeimpute.selection.measuring.model import Logistic, fit_logistic
from safeimpute.visits.arrays import FloatArray

N = 4_000


def table_of(matrix: FloatArray, high_cardinality: tuple[int, ...] = ()) -> MeasuringTable:
    names = tuple(f"column {place}" for place in range(matrix.shape[1]))
    return MeasuringTable(matrix.astype(np.float32), names, high_cardinality, names, np.ones(len(matrix), np.int64))


def fit(table: MeasuringTable, label: FloatArray) -> Logistic:
    return fit_logistic(table, label, np.arange(len(label)), np.random.default_rng(0))


def drawn(logit: FloatArray, seed: int = 1) -> FloatArray:
    return (np.random.default_rng(seed).random(len(logit)) < 1 / (1 + np.exp(-logit))).astype(np.float64)


@pytest.fixture(scope="module")
def amounts() -> FloatArray:
    return np.random.default_rng(0).normal(50.0, 10.0, (N, 9))


def test_the_effects_of_a_simulation_are_found_again(amounts: FloatArray) -> None:
    effect = (amounts[:, 0] - 50) / 10 - 0.5 * (amounts[:, 3] - 50) / 10 - 0.4
    found = fit(table_of(amounts), drawn(effect))
    assert found.coefficients[0] == pytest.approx(-0.4, abs=0.12)
    assert found.coefficients[1] == pytest.approx(1.0, abs=0.12)
    assert found.coefficients[4] == pytest.approx(-0.5, abs=0.12)
    assert np.abs(found.coefficients[[2, 3, 5, 6]]).max() < 0.12
    assert np.argsort(-found.importance(9))[:2].tolist() == [0, 3]
    assert found.importance(9).sum() == pytest.approx(1)


def test_absence_is_an_effect_of_its_own(amounts: FloatArray) -> None:
    matrix = amounts.copy()
    gone = np.random.default_rng(4).random(N) < 0.4
    matrix[gone, 2] = np.nan
    found = fit(table_of(matrix), drawn(np.where(gone, 1.5, -1.0)))
    logit = found.logit(table_of(matrix).matrix)
    assert logit[gone].mean() - logit[~gone].mean() == pytest.approx(2.5, abs=0.3)
    assert int(np.argmax(found.importance(9))) == 2
    assert found.absent.sum() == 1, "columns that are always there have no absence"


def test_small_levels_of_a_high_cardinality_column_keep_their_weight(amounts: FloatArray) -> None:
    """Forty sites in codes without order, one of which is hardly ever measured: its odds must be near the truth."""
    rng = np.random.default_rng(5)
    site = rng.integers(0, 40, N)
    codes = rng.permutation(60_000)[:40].astype(np.float64)[site]
    label = drawn(np.where(site == 7, 2.0, -1.0))
    table = table_of(np.column_stack([amounts, codes]), high_cardinality=(9,))
    logit = fit(table, label).logit(table.matrix)
    assert logit[site == 7].mean() == pytest.approx(2.0, abs=0.7)
    assert logit[site != 7].mean() == pytest.approx(-1.0, abs=0.2)


def test_a_level_never_met_and_an_empty_one_count_as_none(amounts: FloatArray) -> None:
    site = np.random.default_rng(5).integers(0, 3, N).astype(np.float64)
    table = table_of(np.column_stack([amounts, site]), high_cardinality=(9,))
    found = fit(table, drawn(site - 1))
    odd = np.repeat(table.matrix[:1], 2, axis=0)
    odd[0, 9], odd[1, 9] = 99.0, np.nan
    one, other = found.logit(odd)
    assert one == other
    assert np.isfinite(one)


@pytest.mark.parametrize("high_cardinality", [(), (8,)])
def test_a_row_says_the_same_alone(amounts: FloatArray, high_cardinality: tuple[int, ...]) -> None:
    matrix = np.where(np.random.default_rng(3).random((N, 9)) < 0.2, np.nan, amounts)
    matrix[:, 8] = np.arange(N) % 30
    table = table_of(matrix, high_cardinality)
    found = fit(table, drawn(np.nan_to_num(amounts[:, 0] - 50) / 10))
    whole = found.logit(table.matrix)
    for row in range(0, N, 40):
        assert found.logit(table.matrix[row : row + 1]).tobytes() == whole[row : row + 1].tobytes()
        assert found.logit(table.matrix[row : row + 3]).tobytes() == whole[row : row + 3].tobytes()


def test_far_values_and_constant_columns_break_nothing(amounts: FloatArray) -> None:
    matrix = amounts.copy()
    matrix[:, 1] = 3.0
    matrix[0, 0] = 1e30
    found = fit(table_of(matrix), drawn((amounts[:, 5] - 50) / 10))
    assert np.isfinite(found.logit(table_of(matrix).matrix)).all()
    assert np.abs(found.logit(table_of(matrix).matrix)).max() < 30


def test_one_class_alone_breaks_nothing(amounts: FloatArray) -> None:
    found = fit(table_of(amounts[:200]), np.ones(200))
    assert np.isfinite(found.logit(table_of(amounts[:200]).matrix)).all()
