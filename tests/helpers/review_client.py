"""A client that holds the token of a review page served in-process."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from safeimpute.web.decisions import DecisionLog, log_beside
from safeimpute.web.guard import Access
from safeimpute.web.run_data import RunData

__all__ = ["ACCESS", "BASE", "TestClient", "app_over", "reviewing"]

pytest.importorskip("httpx", reason="testing the review page needs httpx: pip install httpx")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would rather have httpx's successor
    from starlette.testclient import TestClient

from fastapi import FastAPI

from safeimpute.web.app import Review, create_app

ACCESS = Access(port=8123, token="a-token")
BASE = "http://127.0.0.1:8123"


def app_over(run: RunData) -> FastAPI:
    review = Review(run, DecisionLog(log_beside(run.folder), run.identity))
    return create_app(run.folder, [review], ACCESS)


@contextmanager
def reviewing(run: RunData) -> Iterator[TestClient]:
    """The page as the reviewer's own browser sees it."""
    with TestClient(app_over(run), base_url=BASE, headers={"origin": BASE}) as client:
        client.get(f"/?token={ACCESS.token}")
        yield client
