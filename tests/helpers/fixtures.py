"""Fixtures of every test, the product's and the laboratory's; small cohorts, every one seeded."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, settings

from safeimpute.machine.looks_log import VARIABLE as STATE
from safeimpute.machine.resources import VARIABLE as CEILING
from safeimpute.visits.arrays import VisitArrays
from safeimpute.visits.columns import ColumnChoice
from safeimpute.visits.examples import simulate
from safeimpute.visits.visits import prepare_visits

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def no_ceiling_left_behind() -> None:
    """A ceiling on memory belongs to the process: one that a command set does not reach the next test."""
    os.environ.pop(CEILING, None)


@pytest.fixture(scope="session", autouse=True)
def no_looks_of_the_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The log of looks is the user's: tests never write to it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(STATE, str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", autouse=True)
def own_looks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the tests of one file looked at is nothing to those of another."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(STATE, str(tmp_path_factory.mktemp("looks")))
        yield


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
