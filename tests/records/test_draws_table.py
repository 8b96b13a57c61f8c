import numpy as np
import polars as pl
import pytest

from safeimpute.errors import VisitsError
from safeimpute.records.draws_table import completed_long, completed_wide, draws_table, spread_over_rows


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
    assert completed_wide(frame, "lab", frame["lab"], np.array([[99.0], [8.0]]))["lab_1"].to_list() == [
        7.0,
        8.0,
    ]


def test_a_column_that_would_be_overwritten_is_refused() -> None:
    frame = pl.DataFrame({".id": [1], "lab_1": [2.0], "lab": [None]})
    with pytest.raises(VisitsError, match=r"'.id'"):
        completed_long(frame, "lab", frame["lab"], np.ones((1, 1)))
    with pytest.raises(VisitsError, match="'lab_1'"):
        completed_wide(frame, "lab", frame["lab"], np.ones((1, 1)))
