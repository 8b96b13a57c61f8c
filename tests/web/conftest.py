"""The small run, and the page over a copy of it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.review_run import shared_run

if TYPE_CHECKING:
    from helpers.review_client import TestClient
    from safeimpute.web.run_data import RunData


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_run(tmp_path_factory)


@pytest.fixture
def own_folder(run_folder: Path, tmp_path: Path) -> Path:
    """A copy whose log of decisions belongs to one test."""
    return Path(shutil.copytree(run_folder, tmp_path / "run"))


@pytest.fixture
def run(own_folder: Path) -> "RunData":
    from safeimpute.web.run_data import read_run

    return read_run(own_folder)


@pytest.fixture
def client(run: "RunData") -> "Iterator[TestClient]":
    from helpers.review_client import reviewing

    with reviewing(run) as client:
        yield client
