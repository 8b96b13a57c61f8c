"""The challenge's protocol: one result of every stay and analyte is hidden, and errors are told in its range."""

import numpy as np
import polars as pl
import pytest

from safeimpute_lab.studies.dacmi import ANALYTES, _judged, _overall, hidden_cells, ranges


def draws(stays: int = 30, each: int = 6) -> pl.DataFrame:
    rng = np.random.default_rng(5)
    values = rng.normal(100.0, 10.0, (stays * each, len(ANALYTES)))
    values[rng.random(values.shape) < 0.4] = np.nan
    stay = np.repeat(np.arange(stays), each)
    columns = {name: pl.Series(values[:, k]).fill_nan(None) for k, name in enumerate(ANALYTES)}
    return pl.DataFrame({"subject_id": stay, "time": np.tile(np.arange(float(each)), stays), **columns})


def test_one_result_of_every_stay_with_enough_of_them_is_hidden() -> None:
    table = draws()
    hidden = hidden_cells(table, np.random.default_rng(1), least=3)
    for analyte in ANALYTES:
        counted = (
            table.with_columns(hidden=pl.Series(hidden[analyte]))
            .group_by("subject_id")
            .agg(
                results=pl.col(analyte).is_not_null().sum(),
                hidden=pl.col("hidden").sum(),
                measured=(pl.col("hidden") & pl.col(analyte).is_not_null()).sum(),
            )
        )
        assert counted["hidden"].to_list() == (counted["results"] >= 3).cast(int).to_list()
        assert counted["hidden"].equals(counted["measured"]), "only what was measured can be hidden"
    again = hidden_cells(table, np.random.default_rng(2), least=3)
    assert any((hidden[name] != again[name]).any() for name in ANALYTES)


def test_errors_are_told_in_the_range_of_the_stay() -> None:
    table = draws()
    hidden = hidden_cells(table, np.random.default_rng(1), least=3)["sodium"]
    truth, spread = table["sodium"].to_numpy(), ranges(table, "sodium")
    own = table.filter(pl.col("subject_id") == table["subject_id"][int(np.flatnonzero(hidden)[0])])["sodium"]
    assert spread[hidden][0] == pytest.approx(own.max() - own.min())  # type: ignore[operator]
    off = _judged(table, "sodium", hidden, truth + 0.5 * spread, None)
    assert off["n"] == hidden.sum()
    assert _overall({"labs": {"sodium": off}}) == pytest.approx(0.5)
    assert _overall({"labs": {"sodium": _judged(table, "sodium", hidden, truth, None)}}) == 0.0


def test_the_share_of_unacceptable_errors_counts_released_values_only() -> None:
    table = draws()
    hidden = hidden_cells(table, np.random.default_rng(1), least=3)["sodium"]
    truth = table["sodium"].to_numpy()
    released = hidden & (np.arange(len(hidden)) % 2 == 0)
    value = np.where(released, truth + 100.0, truth)
    found = _judged(table, "sodium", hidden, value, released)
    assert found["released"] == found["wrong"] == released.sum() > 0
    assert _judged(table, "sodium", hidden, value, hidden & ~released)["wrong"] == 0
