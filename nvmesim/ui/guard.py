"""Who may talk to the app: the page that it printed the address of, and nobody else.

The app listens on 127.0.0.1, yet every web page that the browser has open may send requests there,
and a hostile name may resolve to 127.0.0.1 (DNS rebinding). So each request must name this host and
port, carry the secret of this run in its path, and, where it changes something, come from this very
origin. Tables are made of what it sends, and no path in them is ever opened.
"""

import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nvmesim.catalog.toml import checked_toml, references
from nvmesim.errors import InputError, NvmesimError, ScenarioError
from nvmesim.scenario.load import scenario_from_dict
from nvmesim.scenario.schema import Scenario

MOST_JSON: Final = 2 << 20
"""Bytes of a request but for uploads."""
MOST_UPLOAD: Final = 64 << 20
"""Bytes of one capture that is dropped on the page."""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class TooLargeError(Exception):
    """A request has more bytes than it may have."""


class Guard:
    """Refuses what does not come from the page, and limits how much comes."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no WebSockets here
            raise ValueError("this app speaks HTTP alone")
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, _protected(send))
            return
        inner = dict(scope)
        prefix = f"/{self._token}"
        inner["path"] = scope["path"][len(prefix) :] or "/"
        inner["root_path"] = ""
        limit = MOST_UPLOAD if inner["path"] == "/api/upload" else MOST_JSON
        try:
            await self._app(inner, _limited(receive, limit), _protected(send))
        except TooLargeError:
            await _too_large(limit)(scope, receive, _protected(send))

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("this is not the host that was asked for", 421)
        first = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(first.encode(), self._token.encode()):
            return PlainTextResponse("open the address that nvmesim ui printed", 404)
        origin = headers.get("origin")
        reads = scope["method"] in ("GET", "HEAD")
        if (origin is not None or not reads) and origin not in self._origins:
            return PlainTextResponse("only the page itself may ask for this", 403)
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return PlainTextResponse("only the page itself may ask for this", 403)
        length = headers.get("content-length", "0")
        limit = MOST_UPLOAD if scope["path"].endswith("/api/upload") else MOST_JSON
        if not length.isdecimal() or len(length) > 15 or int(length) > limit:
            return _too_large(limit)
        return None


def _too_large(limit: int) -> PlainTextResponse:
    return PlainTextResponse(f"this is larger than {limit >> 20} MiB, the most that is read", 413)


def _limited(receive: Receive, limit: int) -> Receive:
    """*receive* that counts: a request may say less than it sends."""
    left = limit

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise TooLargeError
        return message

    return counted


def _protected(send: Send) -> Send:
    """*send* that adds the headers of `HEADERS` to every answer."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sent


# -- tables of what a page sends ------------------------------------------------------------------

MOST_TEXT: Final = 256 << 10
"""Characters of a scenario."""
NOWHERE: Final = Path("/nonexistent-nvmesim-ui")
"""Where relative paths would start from, should one get this far."""


def tables_of_text(text: Any) -> dict[str, Any]:
    """Return the tables in TOML *text*; ScenarioError for what is none, or names a file.

    >>> tables_of_text('[[drives]]' + chr(10) + 'profile = "hdd-7200"')
    {'drives': [{'profile': 'hdd-7200'}]}
    """
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise ScenarioError(f"a scenario is TOML text of at most {MOST_TEXT >> 10} KiB")
    try:
        tables = tomllib.loads(checked_toml(text))
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"not TOML: {' '.join(str(error).split())}") from None
    check(tables)
    return tables


def check(tables: Any) -> None:
    """Raise ScenarioError if anything in *tables* names a file."""
    for key, text in references(tables):
        raise ScenarioError(
            f"{key} names the file {text[:60]!r}; the page opens no files: give the drive on the "
            "Drive page, write the load as keys, or use nvmesim run"
        )


def scenario_of(tables: Mapping[str, Any]) -> Scenario:
    """Return the checked scenario in *tables*."""
    check(tables)
    return scenario_from_dict(tables, NOWHERE)


def problem_of(tables: Mapping[str, Any]) -> str:
    """Return why a design with *tables* cannot be, in a line; "" if it can."""
    try:
        scenario_of(tables)
    except NvmesimError as error:
        return str(error)
    return ""


def text_of(value: Any, name: str, most: int = MOST_TEXT) -> str:
    """Return *value* if it is a text that is not too long; InputError otherwise."""
    if not isinstance(value, str) or len(value) > most:
        raise InputError(f"{name}: a text of at most {most:,} characters is needed")
    return value
