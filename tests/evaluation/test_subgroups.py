"""Subgroups: every visit counted once per attribute, few errors not averaged, names kept as they are."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from safeimpute.evaluation.release_profile import Judgement, describe_subgroups
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.visits import Visits, prepare_visits

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


def _judgement(visits: Visits) -> Judgement:
    measured = ~np.isnan(visits.arrays.target_values)
    candidates, judged = np.flatnonzero(~measured), np.flatnonzero(measured)
    error = np.arange(len(judged), dtype=float)
    passing, weight = judged % 4 == 0, (1 + judged % 5).astype(np.float64)
    return Judgement(candidates, candidates % 3 == 0, judged, error, error > 60, passing, weight)


def test_groups_partition_the_visits() -> None:
    visits = _visits()
    judgement = _judgement(visits)
    described = {entry["title"]: entry["groups"] for entry in describe_subgroups(visits, judgement)}
    assert list(described) == ["age", "flag", "site"]  # everyone has four visits: no grouping by visit count
    for title in ("age", "flag"):
        assert sum(group["missing"] for group in described[title]) == len(judgement.candidates)
        assert sum(group["released"] for group in described[title]) == judgement.released.sum()
        assert sum(group["judged"] for group in described[title]) == len(judgement.judged)
    assert [group["group"] for group in described["age"]] == ["under 50", "50 to under 65", "65 or more"]
    assert [group["group"] for group in described["site"]] == ["a", "b=c", "unknown"]
    known = sum(group["missing"] for group in described["site"][:-1])
    assert known == np.sum(visits.arrays.patient[judgement.candidates] % 3 != 2)


def test_error_of_a_group_is_its_own_mean() -> None:
    visits = _visits()
    judgement = _judgement(visits)
    flag = visits.arrays.attributes[:, visits.arrays.attribute_names.index("flag")]
    groups = next(e["groups"] for e in describe_subgroups(visits, judgement) if e["title"] == "flag")
    member = flag[judgement.judged] == 1
    assert groups[1]["mae"] == judgement.error[member].mean()
    assert groups[1]["risky"] == judgement.risky[member].mean()
    passing = member & judgement.passing
    weighted = np.average(judgement.risky[passing], weights=judgement.weight[passing])
    assert groups[1]["risky_passing"] == pytest.approx(weighted)


def test_few_errors_are_not_averaged() -> None:
    visits = _visits()
    full = _judgement(visits)
    few = replace(
        full,
        judged=full.judged[:5],
        error=full.error[:5],
        risky=full.risky[:5],
        passing=full.passing[:5],
        weight=full.weight[:5],
    )
    for entry in describe_subgroups(visits, few):
        for group in entry["groups"]:
            assert group["mae"] is group["risky"] is group["risky_passing"] is None
