"""The review page behind nginx, by the lines of docs/install.md: prefix, names, sign-in, limits, the page itself."""

import os
import re
import shutil
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from helpers.review_page import opened, sign
from helpers.review_run import Server

if TYPE_CHECKING:
    from httpx import Client
    from playwright.sync_api import Browser

pytestmark = pytest.mark.full
NGINX, CHROMIUM, OPENSSL = (shutil.which(name) for name in ("nginx", "chromium", "openssl"))
NAME, PREFIX, PASSWORD = "review.hospital.example", "/safeimpute", "a-password"
ORIGIN = f"https://{NAME}"
DOCUMENTED = Path(__file__).parents[2] / "docs/install.md"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def configuration(folder: Path, port: int, upstream: str) -> str:
    """The documented lines, with this test's ports and places."""
    (lines,) = re.findall(r"<!-- nginx -->\n```nginx\n(.*?)```", DOCUMENTED.read_text(), re.DOTALL)
    lines = lines.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("/etc/nginx/", f"{folder}/")
    lines = lines.replace("127.0.0.1:8123", upstream)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""  # else it would read the passwords as somebody else
    return f"{user} pid {folder}/pid; error_log {folder}/log; events {{}} http {{ access_log off; {places}\n{lines} }}"


@pytest.fixture(scope="module")
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """nginx before the page's server; its port."""
    if NGINX is None or OPENSSL is None:
        pytest.skip("needs nginx and openssl: apt install nginx openssl")
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    key, certificate = folder / "review.key", folder / "review.pem"
    made = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={NAME}", "-days", "2"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    hashed = subprocess.run([OPENSSL, "passwd", "-apr1", PASSWORD], check=True, capture_output=True, text=True).stdout
    (folder / "review.htpasswd").write_text(f"anna:{hashed}")
    (folder / "nginx.conf").write_text(configuration(folder, port, urlsplit(server.base).netloc))
    with subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-g", "daemon off;"], stderr=subprocess.PIPE) as process:
        try:
            for _ in range(100):
                with closing(socket.socket()) as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


@pytest.fixture
def client(proxy: int) -> "Iterator[Client]":
    """Signed in at nginx, not yet known to the page."""
    httpx = pytest.importorskip("httpx")
    word = b64encode(f"anna:{PASSWORD}".encode()).decode()
    headers = {"host": NAME, "authorization": f"Basic {word}"}
    with httpx.Client(base_url=f"https://127.0.0.1:{proxy}{PREFIX}/", verify=False, headers=headers) as client:
        yield client


def enter(client: "Client", server: Server) -> dict[str, str]:
    """Trade the token for the cookie, which is sent back by hand: the client knows another name than the page."""
    answer = client.get("", params={"token": server.token})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PREFIX}/"), answer.headers
    told = answer.headers["set-cookie"]
    assert f"path={PREFIX}/" in told.lower()
    assert "secure" in told.lower()
    assert "httponly" in told.lower()
    return {"cookie": told.partition(";")[0]}


def test_who_may_read(client: "Client", server: Server) -> None:
    assert client.get("").status_code == 403  # no token
    assert client.get("", params={"token": "guess"}).status_code == 403
    cookie = enter(client, server)
    assert client.get("", headers=cookie).status_code == 200
    assert client.get("api/run", headers=cookie).json()["missing"] > 0
    assert client.get("report", headers=cookie).status_code == 200
    unsigned = client.get("api/run", headers={**cookie, "authorization": ""})
    assert unsigned.status_code == 401
    forged = {"x-forwarded-host": "evil.example", "x-forwarded-proto": "http", "forwarded": "host=evil.example"}
    answer = client.get("", params={"token": server.token}, headers=forged)
    assert "evil" not in str(answer.headers)


def test_who_may_write(client: "Client", server: Server) -> None:
    cookie = enter(client, server)
    decision = {"imputation": 0, "kind": "comment", "reviewer": "Anna", "comment": "seen"}
    for origin in ("https://evil.example", "http://127.0.0.1:1", "null"):
        refused = client.post("api/decisions", json=decision, headers={**cookie, "origin": origin})
        assert refused.status_code == 403, origin
    assert client.post("api/decisions", json=decision, headers=cookie).status_code == 403  # none at all
    taken = client.post("api/decisions", json=decision, headers={**cookie, "origin": ORIGIN})
    assert taken.status_code == 200, taken.text
    large = {**decision, "comment": "x" * 70_000}
    assert client.post("api/decisions", json=large, headers={**cookie, "origin": ORIGIN}).status_code == 413


def test_the_page_works_through_it(proxy: int, server: Server) -> None:
    if CHROMIUM is None:
        pytest.skip("browser tests need Chromium on the path: apt install chromium")
    from playwright.sync_api import sync_playwright

    through = Server(server.process, f"{ORIGIN}{PREFIX}/?token={server.token}")
    flags = ["--no-sandbox", "--disable-background-networking", f"--host-resolver-rules=MAP {NAME} 127.0.0.1:{proxy}"]
    signed = {"ignore_https_errors": True, "http_credentials": {"username": "anna", "password": PASSWORD}}
    with sync_playwright() as engine:
        browser: Browser = engine.chromium.launch(executable_path=CHROMIUM, args=flags)
        with opened(browser, through, **signed) as page:
            assert page.url.partition("#")[0] == f"{ORIGIN}{PREFIX}/"
            page.wait_for_selector("#detail .value")
            sign(page, "Anna")
            with page.expect_response(lambda answer: answer.url.endswith("/api/decisions")) as sent:
                page.keyboard.press("r")
            assert sent.value.status == 200
        browser.close()
