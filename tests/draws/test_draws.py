"""Draws of a fitted table: seeded, within range, wider where errors are, for every missing value."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import safeimpute
from helpers.scored_cohorts import KEYS, cohort_of, fit_visits, fitted_cohort
from safeimpute import SafeImputer
from safeimpute.draws.drawing import draws_of, learn_predictive
from safeimpute.errors import OptionError, VisitsError
from safeimpute.model.filling import (
    completed_long,
    completed_wide,
    draw_values,
    draws_table,
    predictive_of,
    spread_over_rows,
)
from safeimpute.visits.examples import simulate


@pytest.fixture(scope="module")
def fitted() -> tuple[SafeImputer, pl.DataFrame]:
    return fitted_cohort()


def test_every_missing_value_is_drawn(fitted: tuple[SafeImputer, pl.DataFrame]) -> None:
    imputer, visits = fitted
    table = imputer.draws(visits, 5)
    assert table.columns == ["subject_id", "time", "lab", "unit", "draw", "value"]
    missing = visits.filter(pl.col("hba1c").is_null()).select(KEYS).sort(KEYS)
    for number in range(1, 6):
        assert table.filter(draw=number).select(KEYS).sort(KEYS).equals(missing)
    assert table["value"].is_between(3, 20).all(), "the catalogue's range"
    assert table.equals(imputer.impute(visits, draws=5))
    assert isinstance(imputer.draws(visits.to_pandas(), 2), pd.DataFrame)


def test_the_first_of_many_draws_are_those_of_few(fitted: tuple[SafeImputer, pl.DataFrame]) -> None:
    imputer, visits = fitted
    few, many = imputer.draws(visits, 2), imputer.draws(visits, 6)
    assert many.filter(pl.col("draw") <= 2).equals(few)
    assert many.filter(draw=1)["value"].to_list() != many.filter(draw=2)["value"].to_list()


def test_draws_are_as_far_off_as_imputations_are(fitted: tuple[SafeImputer, pl.DataFrame]) -> None:
    """Against the truth nobody measured: centred on it, and intervals of draws hold it as often as they say."""
    imputer, visits = fitted
    truth = simulate("mimic4", np.random.default_rng(3), patients=250).truth
    drawn = draw_values(imputer.labs_["hba1c"], 60)
    rows = imputer.impute(visits).select(KEYS)
    known = rows.join(truth, on=KEYS, how="left", maintain_order="left")["hba1c"].to_numpy()
    low, high = np.quantile(drawn, [0.05, 0.95], axis=1)
    assert 0.83 < np.mean((low <= known) & (known <= high)) < 0.97
    assert abs(drawn.mean() - known.mean()) < 0.12
    spread = drawn.std(axis=1)
    wide = spread > np.median(spread)
    error = np.abs(imputer.impute(visits)["value"].to_numpy() - known)
    assert error[wide].mean() > 1.2 * error[~wide].mean()


def test_delta_moves_every_draw_within_the_range(fitted: tuple[SafeImputer, pl.DataFrame]) -> None:
    imputer, visits = fitted
    plain, moved = (imputer.draws(visits, 2, delta=delta)["value"].to_numpy() for delta in (0.0, 1.5))
    assert moved == pytest.approx(np.minimum(plain + 1.5, 20.0))


def test_completed_tables_for_mice(fitted: tuple[SafeImputer, pl.DataFrame]) -> None:
    imputer, visits = fitted
    long, wide = imputer.to_mice(visits, 3), imputer.to_mice(visits, 3, form="wide")
    assert long.columns == [".imp", ".id", *visits.columns]
    assert long.filter(pl.col(".imp") == 0).drop(".imp", ".id").equals(visits)
    assert long.group_by(".imp").len().sort(".imp")["len"].to_list() == [len(visits)] * 4
    third = long.filter(pl.col(".imp") == 3)
    assert third[".id"].to_list() == list(range(1, len(visits) + 1))
    assert third["hba1c"].null_count() == 0
    assert third["hba1c"].to_list() == wide["hba1c_3"].to_list()
    measured = visits["hba1c"].is_not_null()
    assert third.filter(measured)["hba1c"].to_list() == visits.filter(measured)["hba1c"].to_list()
    joined = visits.select(KEYS).with_columns(third["hba1c"]).join(imputer.draws(visits, 3).filter(draw=3), on=KEYS)
    assert joined["hba1c"].to_list() == joined["value"].to_list()
    with pytest.raises(OptionError, match="long, or wide"):
        imputer.to_mice(visits, 3, form="tall")  # type: ignore[arg-type]


@pytest.mark.parametrize("draws", [0, 1001])
def test_a_number_of_draws_that_makes_no_sense_is_refused(fitted: tuple[SafeImputer, pl.DataFrame], draws: int) -> None:
    imputer, visits = fitted
    with pytest.raises(OptionError, match="1 to 1,000"):
        imputer.draws(visits, draws)


def test_a_loaded_model_draws_the_same(
    fitted: tuple[SafeImputer, pl.DataFrame], tmp_path_factory: pytest.TempPathFactory
) -> None:
    imputer, visits = fitted
    folder = tmp_path_factory.mktemp("drawn") / "model"
    imputer.save(folder)
    again = SafeImputer.load(folder).draws(visits, 2)
    assert again["value"].to_numpy() == pytest.approx(imputer.draws(visits, 2)["value"].to_numpy(), rel=1e-6)


def test_errors_of_a_patient_hang_together(fitted: tuple[SafeImputer, pl.DataFrame]) -> None:
    imputer, visits = fitted
    imputer.draws(visits, 1)
    told = predictive_of(imputer.labs_["hba1c"]).dependence
    assert 0.1 < told.steady + told.drifting < 1, "levels drift in this cohort"


def test_without_a_system_that_can_impute_again(cohort: pl.DataFrame) -> None:
    """The claim `visits` set measured visits aside: their errors serve."""
    imputer = fit_visits(cohort_of(250), "visits")
    predictive = learn_predictive(imputer.labs_["hba1c"].calibrated, None, (3.0, 20.0), 0)
    drawn = draws_of(predictive, 3, 0)
    assert drawn.shape == (len(imputer.labs_["hba1c"].calibrated.candidates), 3)
    assert ((drawn >= 3) & (drawn <= 20)).all()


def test_the_public_pool_takes_them(fitted: tuple[SafeImputer, pl.DataFrame]) -> None:
    imputer, visits = fitted
    wide = imputer.to_mice(visits, 5, form="wide")
    columns = [wide[f"hba1c_{number}"] for number in range(1, 6)]
    found = safeimpute.pool(
        [each.mean() for each in columns], [each.var() / len(each) for each in columns], df=len(visits) - 1
    )
    assert found.lower < found.estimate < found.upper
    assert 0 < found.fmi < 1


def test_draws_one_below_the_other() -> None:
    drawn = np.array([[1.0, 10.0], [2.0, 20.0]])
    table = draws_table(pl.Series(["a", "b"]), pl.Series([3, 4]), "hba1c", None, drawn)
    assert table["subject_id"].to_list() == ["a", "b", "a", "b"]
    assert table["draw"].to_list() == [1, 1, 2, 2]
    assert table["value"].to_list() == [1.0, 2.0, 10.0, 20.0]
    assert table["unit"].null_count() == 4


def test_rows_of_one_visit_share_its_draw() -> None:
    per_row = spread_over_rows(np.array([[5.0], [6.0]]), np.array([1, 2]), np.array([0, 1, 1, 2]))
    assert per_row[:, 0].tolist()[1:] == [5.0, 5.0, 6.0]
    assert np.isnan(per_row[0, 0])
    assert np.isnan(spread_over_rows(np.empty((0, 2)), np.empty(0, np.int64), np.array([0, 1]))).all()


def test_measured_values_are_never_replaced() -> None:
    frame = pl.DataFrame({"id": [1, 2], "lab": [7.0, None]})
    long = completed_long(frame, "lab", frame["lab"], np.array([[99.0], [8.0]]))
    assert long.columns == [".imp", ".id", "id", "lab"]
    assert long["lab"].to_list() == [7.0, None, 7.0, 8.0]
    assert completed_wide(frame, "lab", frame["lab"], np.array([[99.0], [8.0]]))["lab_1"].to_list() == [7.0, 8.0]


def test_a_column_that_would_be_overwritten_is_refused() -> None:
    frame = pl.DataFrame({".id": [1], "lab_1": [2.0], "lab": [None]})
    with pytest.raises(VisitsError, match=r"'.id'"):
        completed_long(frame, "lab", frame["lab"], np.ones((1, 1)))
    with pytest.raises(VisitsError, match="'lab_1'"):
        completed_wide(frame, "lab", frame["lab"], np.ones((1, 1)))
