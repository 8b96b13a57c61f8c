"""A patient who stands in the table twice is refused; a like one is not."""

import numpy as np
import polars as pl
import pytest

from safeimpute.errors import VisitsError
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.visits import prepare_visits


def test_a_copy_under_another_identifier_is_refused_by_count(cohort: pl.DataFrame) -> None:
    copied = cohort.filter(
        pl.col("subject_id").is_in(cohort["subject_id"].unique(maintain_order=True).head(20).implode())
    )
    twice = pl.concat([cohort, copied.with_columns(pl.col("subject_id") + 1_000_000)])
    with pytest.raises(VisitsError, match=r"patients have the same times and lab values") as refused:
        prepare_visits(twice, ColumnChoice("hba1c"))
    assert "1000" not in str(refused.value)


def test_one_changed_value_makes_another_patient(cohort: pl.DataFrame) -> None:
    rng = np.random.default_rng(0)
    other = cohort.with_columns(
        pl.col("subject_id") + 1_000_000, (pl.col("time") + pl.lit(rng.random(len(cohort)))).alias("time")
    )
    assert prepare_visits(pl.concat([cohort, other]), ColumnChoice("hba1c")).patients == 300


def test_short_records_may_agree_by_chance() -> None:
    table = pl.DataFrame(
        {"subject_id": range(40), "time": [0.0] * 40, "hba1c": [6.0, 7.0] * 20, "glucose": [100.0, 150.0] * 20}
    )
    assert prepare_visits(table, ColumnChoice("hba1c", exclude=("glucose",))).patients == 40
