"""Pooled draws on simulated cohorts whose truth is known, through the whole program."""

import numpy as np
import pytest

from safeimpute.evaluation.completions import COMPLETE, DRAWN
from safeimpute_lab.studies.draws.study import Cell, run_cell

COHORTS = 14


@pytest.mark.full
def test_pooled_draws_cover_where_covariates_decide_and_fail_where_values_do() -> None:
    """The cohorts of the study stand in docs/evidence.md; a few here would show a broken draw."""
    lines = [run_cell(Cell("covariates", 120, number)) for number in range(COHORTS)]
    for quantity, truth in (("mean", 7.0), ("slope", 0.5)):
        found = [line["ways"][DRAWN][quantity] for line in lines]
        off = np.array([each["estimate"] - truth for each in found])
        assert np.mean([each["covers"] for each in found]) > 0.75
        assert abs(off.mean()) < 3 * np.mean([each["se"] for each in found]) / np.sqrt(COHORTS)
        assert 0.6 < off.std(ddof=1) / np.mean([each["se"] for each in found]) < 1.5, "neither too sure nor too wide"
    complete = [line["ways"][COMPLETE]["mean"]["covers"] for line in lines]
    assert np.mean(complete) < 0.5, "complete cases must fail here, or the cohorts show nothing"
    assert 0.85 < np.mean([line["value_coverage"]["0.9"] for line in lines]) < 0.94
    value_driven = [run_cell(Cell("value", 120, number)) for number in range(4)]
    assert np.mean([line["ways"][DRAWN]["mean"]["covers"] for line in value_driven]) < 0.6
    assert all(line["needed"] < -0.3 for line in value_driven), "unmeasured values lie below the draws"
    mended = [line["delta"]["-0.6"]["mean"]["covers"] for line in value_driven]
    assert np.mean(mended) > 0.7
