"""Small cohorts shared by tests; every one is seeded."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, settings

from safeimpute.records.arrays import VisitArrays
from safeimpute.records.simulate import simulate
from safeimpute.records.visits import ColumnChoice, prepare_visits
from safeimpute.runtime.memory import VARIABLE as CEILING

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def no_ceiling_left_behind() -> None:
    """A ceiling on memory belongs to the process: one that a command set does not reach the next test."""
    os.environ.pop(CEILING, None)


@pytest.fixture(scope="session")
def cohort() -> pl.DataFrame:
    """150 simulated patients with about five visits each."""
    return simulate("mimic4", np.random.default_rng(11), patients=150).visits


@pytest.fixture(scope="session")
def cohort_arrays(cohort: pl.DataFrame) -> VisitArrays:
    return prepare_visits(cohort, ColumnChoice("hba1c")).arrays


@pytest.fixture(scope="session")
def clinical_data() -> Path:
    """The folder of open clinical data, or a skip that says how to name it."""
    folder = os.environ.get("SAFEIMPUTE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set SAFEIMPUTE_DATA to the folder of open clinical data to run this test")
    return Path(folder)
