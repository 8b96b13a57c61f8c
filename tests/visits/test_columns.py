from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest

from safeimpute.errors import VisitsError
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.visits import Visits, prepare_visits

PATIENTS, EACH = 40, 6


def table(**columns: Any) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    rows = PATIENTS * EACH
    start: dict[str, Any] = {
        "subject_id": np.repeat(np.arange(PATIENTS), EACH),
        "time": np.tile(np.arange(EACH) * 30.0, PATIENTS),
        "hba1c": np.where(np.arange(rows) % 4, rng.normal(7, 1, rows), np.nan),
    }
    return pl.DataFrame(start | columns).with_columns(pl.col("hba1c").fill_nan(None))


def read(frame: pl.DataFrame, **choice: Any) -> Visits:
    return prepare_visits(frame, ColumnChoice("hba1c", **choice))


GROWING = np.tile(np.arange(EACH, dtype=float), PATIENTS)  # varies within a patient
FIXED = np.repeat(np.arange(PATIENTS, dtype=float) + 40, EACH)
ONCE = np.where(GROWING == 2, FIXED, np.nan)  # nobody has it twice


@pytest.mark.parametrize("name", ["age", "Age", "AGE_YEARS", "age_at_visit", "sex", "Gender", "RACE", "ethnicity"])
def test_telling_names_are_attributes_even_if_they_vary(name: str) -> None:
    visits = read(table(**{name: GROWING}))
    assert visits.attributes == (name,)
    assert visits.roles[name].role == "attribute"
    assert visits.roles[name].reason == "its name says so"
    assert visits.roles[name].otherwise == f"--labs {name}, --exclude {name} leaves it out"
    named = read(table(**{name: GROWING}), labs=(name,))
    assert named.labs == tuple(sorted(("hba1c", name)))


@pytest.mark.parametrize("name", ["agent_level", "dosage", "sexual_hormone", "aged", "bandage"])
def test_names_that_only_look_alike_say_nothing(name: str) -> None:
    assert name in read(table(**{name: GROWING})).labs


def test_a_lab_nobody_has_twice_is_a_lab() -> None:
    visits = read(table(ferritin=ONCE, height=FIXED))
    assert visits.labs == ("ferritin", "hba1c")
    assert visits.attributes == ("height",)
    assert visits.roles["ferritin"].reason == "a number that no patient has at two visits"
    assert visits.roles["height"].reason == "a number that never varies within a patient"


def test_one_patient_with_two_equal_values_makes_it_an_attribute() -> None:
    twice = ONCE.copy()
    twice[3] = twice[2]
    assert read(table(height=twice)).attributes == ("height",)
    twice[3] += 1
    assert "height" in read(table(height=twice)).labs


def test_two_rows_of_one_visit_are_one_value() -> None:
    frame = table(ferritin=ONCE)
    assert "ferritin" in read(pl.concat([frame, frame])).labs


def test_with_one_visit_each_numbers_are_labs_and_telling_names_attributes() -> None:
    frame = table(age=FIXED, ferritin=ONCE).filter(pl.col("time") == 60)
    visits = read(frame)
    assert visits.labs == ("ferritin", "hba1c")
    assert visits.attributes == ("age",)


def test_every_column_has_a_role_and_a_reason() -> None:
    rows = PATIENTS * EACH
    frame = table(
        glucose=GROWING,
        weight=[f"{value:.0f}" for value in GROWING],
        height=FIXED,
        site=["A", "B", "C"] * (rows // 3),
        ward=[f"ward {i % 24}" for i in range(rows)],
        note=[f"free text {i}" for i in range(rows)],
        born=[date(1950, 1, 1 + i % 28) for i in range(rows)],
        written=[f"2024-01-{1 + i % 24:02}" for i in range(rows)],
        tags=[[i] for i in range(rows)],
        empty=[None] * rows,
        secret=GROWING,
        glucose__known=GROWING,
        glucose__drawn=GROWING,
    )
    visits = read(frame, exclude=("secret",))
    assert set(visits.roles) == set(frame.columns) - {"subject_id", "time"}
    assert list(visits.roles) == sorted(visits.roles)
    assert {name: each.role for name, each in visits.roles.items()} == {
        "hba1c": "target",
        "glucose": "lab",
        "weight": "lab",
        "height": "attribute",
        "site": "attribute",
        "ward": "high_cardinality",
        "note": "ignored",
        "born": "ignored",
        "written": "ignored",
        "tags": "ignored",
        "empty": "ignored",
        "secret": "ignored",
        "glucose__known": "clock",
        "glucose__drawn": "clock",
    }
    assert visits.roles["site"].reason == "a category of 3 levels"
    assert visits.roles["glucose"].reason == "a number that varies within patients"
    assert visits.roles["note"].otherwise == "--attributes note makes every entry a category"
    assert "24 different entries" in visits.roles["ward"].reason
    assert all(each.reason for each in visits.roles.values())
    ignored = {"note", "born", "written", "tags", "empty", "secret", "glucose__known", "glucose__drawn"}
    assert set(visits.ignored) == ignored
    assert visits.ignored["written"] == visits.ignored["born"] == "a date"


def test_named_columns_say_so() -> None:
    visits = read(table(a=FIXED, b=GROWING, c=["x", "y"] * (PATIENTS * EACH // 2)), labs=("a",), attributes=("b", "c"))
    assert visits.roles["a"].reason == "named as a lab"
    assert visits.roles["b"].reason == visits.roles["c"].reason == "named as an attribute"


def test_a_date_named_as_an_attribute_is_refused_and_not_dropped_silently() -> None:
    frame = table(born=[date(1950, 1, 1)] * (PATIENTS * EACH))
    with pytest.raises(VisitsError, match=r"'born' \(attribute\) holds Date"):
        read(frame, attributes=("born",))
