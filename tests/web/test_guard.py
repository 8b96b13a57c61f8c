"""The page answers the reviewer's own browser and nobody else."""

import pytest

pytest.importorskip("fastapi", reason="the review page needs the extra: pip install 'safeimpute[web]'")

from helpers.review_client import ACCESS, BASE, TestClient, app_over
from safeimpute.web.guard import new_access
from safeimpute.web.run_data import RunData

PATHS = ["/", "/main.js", "/api/run", "/api/patients", "/api/patients/0", "/report", "/export/accepted.csv"]


@pytest.fixture
def stranger(run: RunData) -> TestClient:
    return TestClient(app_over(run), base_url=BASE, follow_redirects=False)


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_shown(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code == 403
    assert stranger.get(path, headers={"cookie": f"{ACCESS.cookie}=wrong"}).status_code == 403


def test_a_wrong_token_is_refused_and_the_right_one_leaves_the_address(stranger: TestClient) -> None:
    assert stranger.get("/?token=wrong").status_code == 403
    assert stranger.get("/?token=").status_code == 403
    first = stranger.get(f"/?token={ACCESS.token}")
    assert first.status_code == 303
    assert first.headers["location"] == "/"
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:80", "evil.example:8123", ""])
def test_a_foreign_host_is_refused_even_with_the_token(client: TestClient, host: str) -> None:
    for path in PATHS:
        assert client.get(path, headers={"host": host}).status_code == 421
    assert client.get(f"/?token={ACCESS.token}", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9999", "null", ""])
def test_only_the_page_itself_may_write(client: TestClient, origin: str) -> None:
    decision = {"imputation": 0, "kind": "reject", "reviewer": "Ada"}
    assert client.post("/api/decisions", json=decision, headers={"origin": origin}).status_code == 403
    assert client.post("/api/decisions", json=decision).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_forbids_foreign_code(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert ("sandbox" in policy) == (path == "/report")
    assert "unsafe" not in policy or path == "/report"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_no_interactive_documentation_is_served(client: TestClient) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert client.get(path).status_code == 404


def test_tokens_differ_between_starts() -> None:
    assert len({new_access(1).token for _ in range(50)}) == 50
    assert len(new_access(1).token) >= 32
