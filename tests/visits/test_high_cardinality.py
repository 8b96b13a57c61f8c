from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeimpute.errors import VisitsError
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice, high_cardinality_codes, high_cardinality_levels, one_code_per_visit
from safeimpute.visits.new_visits import Reading, read_new_visits, reading_of
from safeimpute.visits.visits import Visits, prepare_visits

PATIENTS, EACH, LEVELS = 60, 6, 30
CHOICE = ColumnChoice("hba1c")


def table(levels: int = LEVELS, **columns: Any) -> pl.DataFrame:
    rng = np.random.default_rng(8)
    rows = PATIENTS * EACH
    start: dict[str, Any] = {
        "subject_id": np.repeat([f"P{i:02}" for i in range(PATIENTS)], EACH),
        "time": np.tile(np.arange(EACH) * 30.0, PATIENTS),
        "hba1c": np.where(np.arange(rows) % 4, rng.normal(7, 1, rows), np.nan),
        "glucose": rng.normal(150, 30, rows),
        "ward": [f"W{i % levels}" for i in range(rows)],
        "sex": np.repeat(rng.choice(["f", "m"], PATIENTS), EACH),
    }
    return pl.DataFrame(start | columns).with_columns(pl.col("hba1c").fill_nan(None))


def read(frame: pl.DataFrame) -> Visits:
    return prepare_visits(frame, CHOICE)


def test_text_of_many_levels_is_kept_beside_the_inputs() -> None:
    visits = read(table())
    arrays = visits.arrays
    assert arrays.high_cardinality_names == ("ward",)
    assert arrays.high_cardinality.shape == (PATIENTS * EACH, 1)
    assert visits.roles["ward"].role == "high_cardinality"
    assert "ward" not in visits.ignored
    assert visits.attributes == ("sex",)
    codes = arrays.high_cardinality[:, 0]
    assert len(np.unique(codes)) == LEVELS
    assert np.array_equal(np.unique(codes), np.arange(LEVELS))


@pytest.mark.parametrize(
    ("levels", "role"), [(20, "attribute"), (21, "high_cardinality"), (36, "high_cardinality"), (37, "ignored")]
)
def test_how_many_levels_are_too_many(levels: int, role: str) -> None:
    assert read(table(levels)).roles["ward"].role == role


def test_empty_entries_do_not_count_as_rows() -> None:
    ward = [f"W{i % 30}" if i % 2 else " " for i in range(PATIENTS * EACH)]
    ward[0] = "W0"
    odd = read(table(ward=ward)).roles["ward"]
    assert odd.role == "attribute"  # 16 levels
    many = [f"W{i % 25}" if i % 3 else None for i in range(PATIENTS * EACH)]
    assert "fewer than 10 rows" in read(table(ward=many)).ignored["ward"]


def test_what_tells_patients_apart_is_no_high_cardinality_column() -> None:
    frame = pl.concat([table(), table().with_columns(pl.col("time") + 1000)])
    number = frame["subject_id"].str.replace("P", "MRN-")
    visits = read(frame.with_columns(record_number=number))
    assert visits.arrays.high_cardinality_names == ("ward",)
    assert "tells patients apart" in visits.ignored["record_number"]


@pytest.mark.parametrize("levels", [300, 5_000])
def test_no_two_levels_share_a_code(levels: int) -> None:
    """Also in the single precision of what the measuring model is given."""
    rows = 20 * levels
    frame = pl.DataFrame(
        {
            "subject_id": np.arange(rows) // 5,
            "time": np.tile(np.arange(5.0), rows // 5),
            "hba1c": np.random.default_rng(1).normal(7, 1, rows),
            "ward": [f"W{i % levels}" for i in range(rows)],
        }
    ).with_columns(hba1c=pl.when(pl.int_range(pl.len()) % 3 > 0).then("hba1c"))
    visits = read(frame)
    assert len(np.unique(visits.arrays.high_cardinality.astype(np.float32))) == levels
    again = read_new_visits(frame, reading_of(visits, CHOICE)).arrays
    np.testing.assert_array_equal(again.high_cardinality, visits.arrays.high_cardinality)


def test_what_is_kept_of_levels_shows_no_text() -> None:
    levels = high_cardinality_levels(pl.Series(["ward 3", None, "ward 4", "ward 3"]))
    assert len(levels) == 2
    assert "ward" not in str(levels)
    assert high_cardinality_codes(pl.Series(["ward 3", "ward 4", "ward 9"]), levels).max() == 2
    assert np.isnan(high_cardinality_codes(pl.Series([None, None], dtype=pl.String), levels)).all()


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=20), st.randoms(use_true_random=False))
def test_the_same_text_has_the_same_code_in_any_table(entries: list[str | None], random: Any) -> None:
    levels = high_cardinality_levels(pl.Series(entries, dtype=pl.String))
    codes = high_cardinality_codes(pl.Series(entries, dtype=pl.String), levels)
    order = list(range(len(entries)))
    random.shuffle(order)
    shuffled = high_cardinality_codes(pl.Series([entries[i] for i in order], dtype=pl.String), levels)
    np.testing.assert_array_equal(shuffled, codes[order])
    assert np.isnan(codes).tolist() == [entry is None for entry in entries]


def test_rows_of_one_visit_give_one_code_whatever_their_order() -> None:
    visit = np.array([0, 0, 1, 2, 2])
    codes = np.array([np.nan, 5.0, np.nan, 9.0, 3.0])
    one = one_code_per_visit([codes], visit, 3)
    np.testing.assert_array_equal(one, [[5.0], [np.nan], [3.0]])
    np.testing.assert_array_equal(one_code_per_visit([codes[::-1]], visit[::-1], 3), one)


def test_columns_of_many_levels_are_part_of_the_fingerprint() -> None:
    frame = table()
    plain = read(frame)
    moved = frame.with_columns(ward=pl.col("ward").replace({"W1": "W2", "W2": "W1"}))
    renamed = frame.rename({"ward": "unit"})
    without = frame.drop("ward")
    assert len({read(each).fingerprint for each in (frame, moved, renamed, without)}) == 4
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=3).select(sorted(frame.columns, reverse=True))
    assert read(shuffled).fingerprint == plain.fingerprint


def test_tables_without_high_cardinality_columns_keep_their_fingerprint() -> None:
    """As it was before there were high-cardinality columns; folders of earlier runs name their table by it."""
    small = pl.DataFrame(
        {
            "subject_id": ["a", "a", "b", "b"],
            "time": [0.0, 1.0, 0.0, 1.0],
            "hba1c": [7.0, None, 6.5, 6.25],
            "sex": ["f", "f", "m", "m"],
        }
    )
    assert read(small).fingerprint == "abdf41821507f92ab9db92842b8f1495db6821032a374aaf9e9fd0ab8d6836b6"


def test_visits_carry_their_high_cardinality_columns_along() -> None:
    arrays = read(table()).arrays
    rows = np.arange(len(arrays)) % 3 == 0
    np.testing.assert_array_equal(arrays.take(rows).high_cardinality, arrays.high_cardinality[rows])
    hidden = arrays.with_target(np.full(len(arrays), np.nan))
    np.testing.assert_array_equal(hidden.high_cardinality, arrays.high_cardinality)
    assert hidden.high_cardinality_names == arrays.take(rows).high_cardinality_names == ("ward",)


def test_arrays_made_without_high_cardinality_columns_have_none() -> None:
    keys = np.arange(3, dtype=np.uint64)
    ids, empty = np.array([0, 0, 1]), np.empty((3, 0))
    arrays = VisitArrays(ids, np.arange(3.0), np.zeros((3, 1)), ("a",), 0, empty, (), keys, keys)
    assert arrays.high_cardinality.shape == (3, 0)
    assert arrays.take(np.array([True, False, True])).high_cardinality.shape == (2, 0)
    assert replace(arrays, labs=np.ones((3, 1))).high_cardinality.shape == (3, 0)
    with pytest.raises(ValueError, match="do not fit"):
        replace(arrays, high_cardinality=np.zeros((2, 1)), high_cardinality_names=("ward",))


def test_a_high_cardinality_column_that_is_the_target_in_words_is_refused() -> None:
    words = [None if value is None else f"{value:.1f} %" for value in table()["hba1c"].to_list()]
    words = [None if word is None else word[:1] + word[2:] for word in words]  # "71 %": no number, 40 levels or so
    with pytest.raises(VisitsError, match=r"'words' nearly fixes the target.*--exclude words"):
        read(
            pl.concat(
                [table(words=words)]
                + [table(words=words).with_columns(pl.col("time") + 1000 * step) for step in (1, 2, 3)]
            )
        )


@pytest.fixture(scope="module")
def reading() -> Reading:
    return reading_of(read(table()), CHOICE)


def test_new_visits_are_read_alike(reading: Reading) -> None:
    assert tuple(reading.high_cardinality) == ("ward",)
    assert reading.inputs == ("glucose", "hba1c", "sex", "ward")
    few = table().filter(pl.col("ward").is_in(["W3", "W4"])).with_columns(pl.col("ward") + " ")
    arrays = read_new_visits(few, reading).arrays
    fitted = read(table()).arrays
    place = np.isin(fitted.visit_key, arrays.visit_key)
    np.testing.assert_array_equal(arrays.high_cardinality, fitted.high_cardinality[place])
    assert arrays.high_cardinality_names == ("ward",)
    categorical = few.with_columns(pl.col("ward").cast(pl.Categorical))
    np.testing.assert_array_equal(
        read_new_visits(categorical, reading).arrays.high_cardinality, arrays.high_cardinality
    )


def test_levels_never_met_have_a_code_of_their_own(reading: Reading) -> None:
    moved = table().with_columns(ward=pl.lit("a new building"))
    arrays = read_new_visits(moved, reading).arrays
    assert set(np.unique(arrays.high_cardinality)) == {LEVELS}, "no level of the fit"
    assert read_new_visits(moved, reading).unknown_levels == {}


def test_a_high_cardinality_column_missing_at_scoring_is_refused_unless_declared(reading: Reading) -> None:
    frame = table().drop("ward")
    with pytest.raises(VisitsError, match=r"'ward' \(attribute of the fitted model\) is not in the table"):
        read_new_visits(frame, reading)
    assert np.isnan(read_new_visits(frame, reading, without=("ward",)).arrays.high_cardinality).all()


def test_a_reading_without_high_cardinality_columns_ignores_them() -> None:
    reading = reading_of(read(table().drop("ward")), CHOICE)
    new = read_new_visits(table(), reading)
    assert new.ignored == ("ward",)
    assert new.arrays.high_cardinality.shape == (PATIENTS * EACH, 0)
