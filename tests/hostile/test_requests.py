"""Requests nobody's page would send: answered with a refusal, never with a fault of the server; exports stay inert."""

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the review page needs the extra: pip install 'safeimpute[web]'")

from helpers.fuzzing import fuzzed
from helpers.review_client import BASE, reviewing
from helpers.review_run import shared_run
from safeimpute.visits.tables import write_csv
from safeimpute.web.app import Review, create_app
from safeimpute.web.decisions import DecisionLog
from safeimpute.web.guard import LARGEST_BODY, Access, new_access
from safeimpute.web.run_data import RunData, read_run

if TYPE_CHECKING:
    from helpers.review_client import TestClient

pytestmark = pytest.mark.surface("requests")
JSON = {"content-type": "application/json", "origin": BASE}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    folder = tmp_path_factory.mktemp("requests") / "run"
    return read_run(Path(shutil.copytree(shared_run(tmp_path_factory), folder)))


@pytest.fixture(scope="module")
def client(run: RunData) -> "Iterator[TestClient]":
    with reviewing(run) as client:
        yield client


def refused(client: "TestClient", path: str, body: bytes) -> int:
    answer = client.post(path, content=body, headers=JSON)
    assert 400 <= answer.status_code < 500, answer.text
    return int(answer.status_code)


@pytest.mark.parametrize(
    "body",
    [
        b'{"tolerance": "1", "fdr": NaN}',
        b'{"tolerance": "1", "fdr": Infinity}',
        b'{"tolerance": "1", "fdr": 1e999}',
        b'{"tolerance": NaN, "fdr": 0.2}',
        b'{"tolerance": "\\ud800", "fdr": 0.2}',
        b'{"tolerance": "nan", "fdr": 0.2}',
        b'{"tolerance": "' + b"9" * 41 + b'", "fdr": 0.2}',
        b"NaN",
        b"",
        b"[" * 20_000,
        b"\xff\xfe",
    ],
)
def test_levels_that_are_no_levels(client: "TestClient", body: bytes) -> None:
    refused(client, "/api/rerun", body)


@pytest.mark.parametrize(
    "change",
    [
        {"imputation": 10**30},
        {"imputation": -1},
        {"imputation": 1.5},
        {"imputation": float("nan")},
        {"reviewer": "\ud800"},
        {"reviewer": ""},
        {"reviewer": "x" * 81},
        {"comment": "\udfff"},
        {"comment": "x" * 2001},
        {"kind": "undo"},
        {"kind": None},
    ],
)
@pytest.mark.parametrize("path", ["/api/decisions", "/api/undo"])
def test_decisions_that_are_none(client: "TestClient", path: str, change: dict[str, Any]) -> None:
    body = {"imputation": 10**6, "kind": "reject", "reviewer": "nobody", "comment": "c"} | change
    refused(client, path, json.dumps(body).encode())


@pytest.mark.parametrize("announced", [True, False])
def test_bodies_are_limited(client: "TestClient", announced: bool) -> None:
    body = b'{"comment": "' + b"x" * LARGEST_BODY + b'"}'
    content: Any = body if announced else iter([body[:1000], body[1000:]])
    answer = client.post("/api/decisions", content=content, headers=JSON)
    assert answer.status_code in (400, 413)
    length = {"content-length": "9" * 30}
    assert client.post("/api/decisions", content=b"{}", headers=JSON | length).status_code == 413


@pytest.mark.parametrize(
    "query",
    [
        "page=1000000000000000000000000",
        "page=-1",
        "page=9223372036854775807",
        "page=nan",
        "risk_from=nan",
        "risk_to=inf",
        "value_from=-inf",
        "value_to=x",
        "release=both",
        "search=" + "x" * 201,
        "unheard=1",
    ],
)
def test_absurd_pages_of_the_list(client: "TestClient", query: str) -> None:
    assert client.get(f"/api/patients?{query}").status_code == 422


@pytest.mark.parametrize("patient", ["99999999999999999999999", "-1", "nan", "1e3", "%00", "2147483647"])
def test_absurd_patients(client: "TestClient", patient: str) -> None:
    assert 400 <= client.get(f"/api/patients/{patient}").status_code < 500


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=6),
    st.just("\ud800"),
    st.just([]),
    st.just({"a": [float("nan")]}),
)
BODIES = st.dictionaries(
    st.sampled_from(["imputation", "kind", "reviewer", "comment", "tolerance", "fdr", "x"]), VALUES, max_size=5
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


def check_any_request(client: "TestClient", path: str, body: Any, raw: bytes, query: str) -> None:
    """Whatever is sent, the answer is a page, a result or a refusal."""
    for content in (json.dumps(body).encode("utf-8", "surrogatepass"), raw):
        assert client.post(path, content=content, headers=JSON).status_code < 500
    for name in ("page", "search", "risk_from", "release", "token"):
        assert client.get("/api/patients", params={name: query}).status_code < 500
    assert client.get(f"/{quote(query)}", follow_redirects=False).status_code < 500


test_any_request, test_any_request_at_length = (
    pytest.mark.parametrize("path", ["/api/decisions", "/api/undo", "/api/rerun", "/unheard"])(each)
    for each in fuzzed(check_any_request, BODIES, st.binary(max_size=30), TEXT, few=12, many=400)
)


def test_each_reviewer_decides_under_the_name_of_the_token(run: RunData) -> None:
    access = new_access(8123, ("Anna", "Ben"))
    assert set(access.addresses) == {"Anna", "Ben"}
    log = DecisionLog(run.folder.with_name("named.sqlite"), run.identity)
    from helpers.review_client import TestClient

    with TestClient(
        create_app(run.folder, [Review(run, log)], access), base_url=BASE, headers={"origin": BASE}
    ) as page:
        assert page.get(f"/?token={access.token}", follow_redirects=False).status_code == 403
        page.get(access.addresses["Ben"])
        assert page.get("/api/run").json()["reviewer"] == "Ben"
        released = run.imputations.filter("released")["imputation"][0]
        body = {"imputation": released, "kind": "reject", "reviewer": "Anna", "comment": ""}
        assert page.post("/api/decisions", json=body).status_code == 200
    assert [row.reviewer for row in log.since(0)] == ["Ben"]


def test_a_page_without_reviewers_asks_for_a_name(client: "TestClient") -> None:
    assert client.get("/api/run").json()["reviewer"] == ""
    assert Access(1, "t").whose("t") == ""
    assert Access(1, "t").whose("\ud800") is None


FORMULAS = "=+-@\uff1d\uff0b\uff0d\uff20\u2212\ufe62\ufe63\ufe66\ufe6b"


@pytest.mark.parametrize(
    "start", ["", " ", "\n", "\r\n", "\t", "\u200b", "\ufeff", "\u3000", "x\n", "x\r", "x\n \u200b"]
)
@pytest.mark.parametrize("mark", list(FORMULAS))
def test_no_cell_of_an_export_acts_as_a_formula(start: str, mark: str) -> None:
    (cell,) = written([f"{start}{mark}1+1"])
    assert inert(cell)


def written(texts: list[str]) -> list[str]:
    buffer = io.BytesIO()
    write_csv(pl.DataFrame({"id": texts, "n": [1.0] * len(texts)}), buffer)
    return [row[0] for row in csv.reader(io.StringIO(buffer.getvalue().decode(), newline=""))][1:]


def inert(cell: str) -> bool:
    """Whether no line of a cell starts as a formula, blanks and invisible characters passed over."""
    import unicodedata

    lines = cell.replace("\r", "\n").split("\n")
    seen = ("".join(c for c in line if unicodedata.category(c)[0] not in "CZ" and not c.isspace()) for line in lines)
    return not any(line[:1] and line[0] in FORMULAS for line in seen) and cell[:1] not in ("\t", "\r", "\n")


@given(
    st.lists(
        st.text(st.characters(codec="utf-8") | st.sampled_from(FORMULAS + "\n\r\t'"), max_size=8),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_the_text_is(texts: list[str]) -> None:
    for text, cell in zip(texts, written(texts), strict=True):
        assert inert(cell)
        assert cell.replace("'", "") == text.replace("'", "")
