"""Subgroups: every visit counted once per attribute, few errors not averaged, names kept as they are."""

import numpy as np
import polars as pl

from safeimpute.evaluation.subgroups import Outcome, describe_subgroups
from safeimpute.records.visits import ColumnChoice, Visits, prepare_visits

LEVELS = ("a", "b=c", None)


def _visits() -> Visits:
    rows = 240
    patient = np.arange(rows) // 4
    table = pl.DataFrame(
        {
            "subject_id": patient,
            "time": np.arange(rows) % 4,
            "target": np.where(np.arange(rows) % 2, np.nan, np.cos(np.arange(rows) * 1.7)),
            "other": np.sin(np.arange(rows)),
            "age": 30.0 + patient,
            "site": [LEVELS[p % 3] for p in patient],
            "flag": (patient % 2).astype(float),
        }
    ).with_columns(pl.col("target").fill_nan(None))
    return prepare_visits(table, ColumnChoice("target"))


def _outcome(visits: Visits) -> Outcome:
    measured = ~np.isnan(visits.arrays.target_values)
    candidates, validation = np.flatnonzero(~measured), np.flatnonzero(measured)[::3]
    error = np.arange(len(validation), dtype=float)
    return Outcome(candidates, candidates % 3 == 0, validation, error, error > 20)


def test_groups_partition_the_visits() -> None:
    visits = _visits()
    outcome = _outcome(visits)
    described = {entry["title"]: entry["groups"] for entry in describe_subgroups(visits, outcome)}
    assert list(described) == ["age", "flag", "site"]  # everyone has four visits: no grouping by visit count
    for title in ("age", "flag"):
        assert sum(group["missing"] for group in described[title]) == len(outcome.candidates)
        assert sum(group["released"] for group in described[title]) == outcome.released.sum()
        assert sum(group["validation_visits"] for group in described[title]) == len(outcome.validation)
    assert [group["group"] for group in described["age"]] == ["under 50", "50 to under 65", "65 and over"]
    assert [group["group"] for group in described["site"]] == ["a", "b=c"]
    known = sum(group["missing"] for group in described["site"])
    assert known == np.sum(visits.arrays.patient[outcome.candidates] % 3 != 2)


def test_error_of_a_group_is_its_own_mean() -> None:
    visits = _visits()
    outcome = _outcome(visits)
    flag = visits.arrays.attributes[:, visits.arrays.attribute_names.index("flag")]
    groups = next(e["groups"] for e in describe_subgroups(visits, outcome) if e["title"] == "flag")
    member = flag[outcome.validation] == 1
    assert groups[1]["mae"] == outcome.error[member].mean()
    assert groups[1]["risky"] == outcome.risky[member].mean()


def test_few_errors_are_not_averaged() -> None:
    visits = _visits()
    full = _outcome(visits)
    few = Outcome(full.candidates, full.released, full.validation[:5], full.error[:5], full.risky[:5])
    for entry in describe_subgroups(visits, few):
        assert all(group["mae"] is None and group["risky"] is None for group in entry["groups"])
