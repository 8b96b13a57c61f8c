"""Who may talk to the page: this machine's browser, under this machine's name, with the token of this start.

The server listens on the loopback address only. The Host check keeps a foreign site from reaching it under its own
name (DNS rebinding); the Origin check keeps pages on other ports of this machine, to which the browser would send
the cookie, from writing; the policy lets the page load nothing but its own files.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# The report is a file that anyone may have written: it runs as if from nowhere and can reach nothing.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
LARGEST_BODY = 64 * 1024  # bytes; a decision with the longest comment is far smaller
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """What one start of the server answers to."""

    port: int
    token: str
    reviewers: Mapping[str, str] = field(default_factory=dict)  # token -> name; with them, `token` opens nothing

    @property
    def hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    @property
    def cookie(self) -> str:
        return f"safeimpute_{self.port}"  # browsers share cookies between ports

    @property
    def address(self) -> str:
        return self.address_with(self.token)

    @property
    def addresses(self) -> dict[str, str]:
        return {name: self.address_with(token) for token, name in self.reviewers.items()}

    def address_with(self, token: str) -> str:
        return f"http://{self.hosts[0]}/?token={token}"

    def whose(self, token: str) -> str | None:
        """The reviewer a token belongs to, empty where the page has none; None for a token it does not know."""
        found = None
        for known, name in (self.reviewers or {self.token: ""}).items():
            if secrets.compare_digest(token.encode(errors="replace"), known.encode()):
                found = name
        return found


def new_access(port: int, reviewers: Sequence[str] = ()) -> Access:
    return Access(port, secrets.token_urlsafe(32), {secrets.token_urlsafe(32): name for name in reviewers})


class _TooLarge(Exception):
    """More was sent than the page ever sends."""


class Guard:
    """Refuses every request that is not the reviewer's own, before anything else sees it."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        answer = self._answer(scope)
        try:
            await (answer or self.app)(scope, _limited(receive), _with_headers(send))
        except _TooLarge:
            await _too_large()(scope, receive, _with_headers(send))

    def _answer(self, scope: Scope) -> Response | None:
        """The guard's own response, or None to let the request through."""
        headers = Headers(scope=scope)
        if headers.get("host") not in self.access.hosts:
            return _refused("This address is not served here.", HTTPStatus.MISDIRECTED_REQUEST)
        if scope["path"] == "/" and scope["method"] == "GET" and scope["query_string"]:
            return self._first_visit(scope)
        who = self.access.whose(cookie_parser(headers.get("cookie", "")).get(self.access.cookie, ""))
        if who is None:
            return _refused("Open the address that safeimpute serve printed; it carries this start's token.")
        if scope["method"] not in ("GET", "HEAD") and headers.get("origin") != f"http://{headers['host']}":
            return _refused("Only the page itself may send this.")
        told = headers.get("content-length", "0")
        if not told.isascii() or not told.isdecimal() or len(told) > 9 or int(told) > LARGEST_BODY:
            return _too_large()
        scope.setdefault("state", {})["reviewer"] = who
        return None

    def _first_visit(self, scope: Scope) -> Response:
        """Trade the printed token for a cookie, and take it out of the address."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if self.access.whose(given) is None:
            return _refused("The token is wrong. Open the address that safeimpute serve printed.")
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(self.access.cookie, given, httponly=True, samesite="strict", path="/")
        return answer


def _refused(why: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> Response:
    return PlainTextResponse(f"{why}\n", status)


def _too_large() -> Response:
    return _refused("More was sent than the page ever sends.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def _limited(receive: Receive) -> Receive:
    """The body as it comes in, up to a limit, whatever length was announced."""
    taken = 0

    async def receiving() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > LARGEST_BODY:
            raise _TooLarge
        return message

    return receiving


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in {"content-security-policy": PAGE_POLICY, **HEADERS}.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
