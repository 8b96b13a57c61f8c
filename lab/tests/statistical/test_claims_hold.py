"""The default claim end to end: real fits on cohorts in which the truth is known where nobody measured.

A reduced form of `guarantee study`: the patients of the table and as many that the fit never met.
"""

from typing import Any

import numpy as np
import pytest

from safeimpute.visits.arrays import FloatArray
from safeimpute_lab.studies.guarantee.cells import Cell, run_cell
from safeimpute_lab.studies.guarantee.rules import Summary, summarise


def releases(cells: list[dict[str, Any]], promise: str, alpha: float, who: str) -> FloatArray:
    """Risky, released and good candidates, one row a cohort."""
    rows = [
        (each["risky"], each["released"], each["good"])
        for cell in cells
        for each in cell["releases"]
        if (each["promise"], each["alpha"], each["who"]) == (promise, alpha, who)
    ]
    return np.array(rows, dtype=np.float64)


def told(cells: list[dict[str, Any]], promise: str, alpha: float, who: str) -> Summary:
    risky, released, good = releases(cells, promise, alpha, who).T
    return summarise(risky, released, good, alpha)


@pytest.mark.full
def test_one_shifted_cohort_releases_a_useful_share_near_the_level() -> None:
    """Of one cohort no exact share is promised; releasing everything would be twice the level."""
    cell = run_cell(Cell("covariate", 300, 0))
    assert cell["risky_share"] > 0.35
    assert cell["measuring_auc"] > 0.6
    for who in ("same", "new"):
        ((risky, released, good),) = releases([cell], "average", 0.2, who)
        assert risky / released <= 0.25
        assert (released - risky) / good >= 0.5
        ((risky, released, good),) = releases([cell], "confident", 0.2, who)
        assert risky / max(released, 1) <= 0.2


@pytest.mark.full
@pytest.mark.parametrize(
    ("scenario", "cohorts", "floors"),
    [
        ("covariate", 6, {0.1: 0.35, 0.2: 0.6}),
        ("clock", 6, {0.1: 0.1, 0.2: 0.3}),
        ("minority", 6, {0.1: 0.35, 0.2: 0.6}),
        ("site", 12, {0.1: 0.3, 0.2: 0.5}),  # the power of single cohorts differs most here
    ],
)
def test_over_cohorts(scenario: str, cohorts: int, floors: dict[float, float]) -> None:
    cells = [run_cell(Cell(scenario, 300, cohort)) for cohort in range(100, 100 + cohorts)]
    for alpha, floor in floors.items():
        for who in ("same", "new"):
            average = told(cells, "average", alpha, who)
            assert average.pooled <= alpha + 3 * average.pooled_se
            assert average.mean_fdp <= alpha + 3 * average.mean_fdp_se
            assert average.power >= floor
            # of six draws that exceed the level with a chance of 0.1 each, three or more do so in 1.6 % of studies
            above = releases(cells, "confident", alpha, who)
            assert np.sum(above[:, 0] > alpha * np.maximum(above[:, 1], 1)) <= 2


@pytest.mark.full
def test_a_column_left_out_would_be_caught() -> None:
    """The study can fail: where the odds ignore what decides measuring, its own bound is broken."""
    cells = [run_cell(Cell("left out", 300, cohort)) for cohort in range(100, 140)]  # fewer have too wide an error
    for who, errors in (("same", 2), ("new", 3)):
        average = told(cells, "average", 0.2, who)
        assert average.pooled > 0.2 + errors * average.pooled_se
