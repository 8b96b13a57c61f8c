from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from safeimpute.errors import SafeImputeError
from safeimpute.tolerance import parse_tolerance
from safeimpute.visits.imputations import COLUMNS, SPARK_TYPES, imputation_table

ANY = arrays(np.float64, 4, elements=st.floats(allow_nan=True, allow_infinity=True))


def table(**changes: Any) -> pl.DataFrame:
    given: dict[str, Any] = {
        "subject": pl.Series(["a", "a", "b", "c"]),
        "time": pl.Series([0.0, 1.0, 0.0, 5.0]),
        "lab": "hba1c",
        "unit": "%",
        "value": np.array([7.0, 6.5, 8.0, np.nan]),
        "half_width": np.array([0.5, np.inf, np.nan, 0.5]),
        "risk": np.array([0.1, 0.2, 0.7, np.nan]),
        "cutoff": np.array([0.3, 0.3, np.nan, np.nan]),
        "p_value": np.full(4, np.nan),
        "released": np.array([True, True, False, False]),
        "reason": np.array(["", "", "risk above cut-off", "no evidence"]),
    }
    return imputation_table(**given | changes)


def test_the_columns_and_what_they_hold() -> None:
    found = table()
    expected = "subject_id time lab unit value lower upper risk cutoff p_value released reason"
    assert COLUMNS == tuple(expected.split()) == tuple(found.columns)
    assert found["value"].to_list() == [7.0, 6.5, 8.0, None]
    assert found["lower"].to_list() == [6.5, None, None, None]
    assert found["upper"].to_list() == [7.5, None, None, None]
    assert found["cutoff"].to_list() == [0.3, 0.3, None, None]
    assert found["p_value"].to_list() == [None] * 4
    assert found["reason"].to_list() == ["", "", "risk above cut-off", "no evidence"]
    assert found["unit"].to_list() == ["%"] * 4


def test_a_visit_without_a_value_has_no_band_and_takes_none_from_the_others() -> None:
    found = table(tolerance=parse_tolerance("limits 6.8 7.5"))
    assert found["band"].to_list() == ["6.8 to below 7.5", "below 6.8", "7.5 or more", None]


def test_an_empty_table_and_an_unknown_unit_keep_their_types() -> None:
    none = np.zeros(0)
    empty = table(
        subject=pl.Series([], dtype=pl.Int64),
        time=pl.Series([], dtype=pl.Date),
        unit=None,
        value=none,
        half_width=none,
        risk=none,
        cutoff=none,
        p_value=none,
        released=np.zeros(0, bool),
        reason=np.zeros(0, np.str_),
    )
    assert empty.schema["subject_id"] == pl.Int64
    assert empty.schema["time"] == pl.Date
    kinds = {"string": pl.String, "double": pl.Float64, "boolean": pl.Boolean}
    for whole in (empty, table(unit=None)):
        assert {name: whole.schema[name] for name in SPARK_TYPES} == {
            name: kinds[kind] for name, kind in SPARK_TYPES.items()
        }


@given(ANY, ANY, ANY, ANY, ANY)
def test_no_nan_and_no_infinity_ever(value: Any, half_width: Any, risk: Any, cutoff: Any, p_value: Any) -> None:
    withheld = np.zeros(4, bool)
    found = table(value=value, half_width=half_width, risk=risk, cutoff=cutoff, p_value=p_value, released=withheld)
    for name in ("value", "lower", "upper", "risk", "cutoff", "p_value"):
        assert found[name].drop_nulls().is_finite().all()
    finite = np.isfinite(value)
    assert found["value"].drop_nulls().to_list() == value[finite].tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_released_value_that_is_no_number_is_our_fault(value: float) -> None:
    with pytest.raises(SafeImputeError, match=r"^1 values of 'hba1c' were released") as caught:
        table(value=np.array([7.0, value, 8.0, 9.0]))
    assert caught.value.exit_code == 1
