"""Requests as no browser sends them, byte by byte: each is refused, and the app goes on."""

import contextlib
import http.client
import json
import re
import socket

import pytest

from nvmesim.errors import ScenarioError
from nvmesim.ui.guard import MOST_JSON, MOST_UPLOAD, tables_of_text
from nvmesim.ui.work import safe_name
from tests.ui.conftest import SMALL, TOKEN

SECRET = f"/{TOKEN}/"


def told(page, text: str | bytes) -> bytes:
    """What the app answers to these bytes; PORT stands for its own."""
    data = text.encode() if isinstance(text, str) else text
    found = b""
    with socket.create_connection(("127.0.0.1", page.port), timeout=60) as line:
        # it hangs up on what it does not want to read, perhaps before all is sent
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            line.sendall(data.replace(b"PORT", str(page.port).encode()))
        with contextlib.suppress(ConnectionResetError):
            while part := line.recv(65536):
                found += part
    return found


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return int(found[1]) if found else 0  # hung up: that is a refusal, too


def get(path: str, *headers: str, version: str = "1.1") -> str:
    lines = [f"GET {path} HTTP/{version}", *headers, "Connection: close", "", ""]
    return "\r\n".join(lines)


def post(path: str, body: str, *headers: str, length: object = None) -> str:
    lines = [
        f"POST {path} HTTP/1.1", "Host: 127.0.0.1:PORT", *headers,
        f"Content-Length: {len(body) if length is None else length}", "Connection: close", "", body,
    ]  # fmt: skip
    return "\r\n".join(lines)


HERE = "Host: 127.0.0.1:PORT"
OWN = "Origin: http://127.0.0.1:PORT"
READING = {
    "a name that resolves to this machine": get(SECRET, "Host: evil.example:PORT"),
    "that name in the address": get(f"http://evil.example{SECRET}", "Host: evil.example"),
    "that name without a port": get(SECRET, "Host: evil.example"),
    "an address of the other protocol": get(SECRET, "Host: [::1]:PORT"),
    "no host": get(SECRET),
    "no host, as of old": get(SECRET, version="1.0"),
    "the host without its port": get(SECRET, "Host: 127.0.0.1"),
    "another port": get(SECRET, "Host: 127.0.0.1:1"),
    "a dot behind the name": get(SECRET, "Host: localhost.:PORT"),
    "a number that means the same": get(SECRET, "Host: 2130706433:PORT"),
    "every address": get(SECRET, "Host: 0.0.0.0:PORT"),
    "a user before the name": get(SECRET, "Host: 127.0.0.1:PORT@evil.example"),
    "the right host second": get(SECRET, "Host: evil.example", HERE),
    "a proxy's word for it": get(SECRET, "Host: evil.example", "X-Forwarded-Host: 127.0.0.1:PORT"),
    "the origin of nothing": get(SECRET, HERE, "Origin: null"),
    "the same name over TLS": get(SECRET, HERE, "Origin: https://127.0.0.1:PORT"),
    "the origin of another port": get(SECRET, HERE, "Origin: http://127.0.0.1:1"),
    "an origin that begins alike": get(SECRET, HERE, "Origin: http://127.0.0.1:PORT.evil.example"),
    "the right origin first": get(SECRET, HERE, "Origin: http://evil.example", OWN),
    "another site, by the browser": get(SECRET, HERE, "Sec-Fetch-Site: cross-site"),
    "the same site, by the browser": get(SECRET, HERE, "Sec-Fetch-Site: same-site"),
    "no secret": get("/design", HERE),
    "less than the secret": get(f"/{TOKEN[:-1]}/design", HERE),
    "more than the secret": get(f"/{TOKEN}x/design", HERE),
    "dots": get("/%2e%2e/design", HERE),
    "the secret in the query": get(f"/?{TOKEN}", HERE),
    "the secret in a header": get("/", HERE, f"Authorization: Bearer {TOKEN}"),
    "the secret behind two slashes": get(f"/{SECRET}", HERE),
    "the secret in the second place": get(f"/x{SECRET}", HERE),
    "the secret reached by dots": get(f"/x/..{SECRET}", HERE),
    "bytes that are not text": get("/%ff%fe/", HERE),
    "half a character": get("/%ed%a0%80/", HERE),
    "a NUL": get(f"/{TOKEN}%00/", HERE),
}


@pytest.mark.parametrize("how", READING)
def test_nothing_is_read(page, how):
    answer = told(page, READING[how])
    assert status(answer) in (0, 400, 403, 404, 421), answer[:200]
    assert b"<html" not in answer
    assert TOKEN.encode() not in answer


SMALL_DESIGN = json.dumps({"toml": ""})
WRITING = {
    "no origin, as of a program": post(f"{SECRET}api/design", SMALL_DESIGN),
    "across sites": post(f"{SECRET}api/design", SMALL_DESIGN, OWN, "Sec-Fetch-Site: cross-site"),
    "another origin": post(f"{SECRET}api/design", SMALL_DESIGN, "Origin: http://evil.example"),
    "a form of another page": post(
        f"{SECRET}api/design", SMALL_DESIGN, "Origin: null", "Content-Type: text/plain"
    ),
    "an upload of another page": post(f"{SECRET}api/upload?name=x", "x", "Origin: http://evil"),
    "a cancel of another page": post(f"{SECRET}api/job/x/cancel", "", "Origin: http://evil"),
    "less than none": post(f"{SECRET}api/design", SMALL_DESIGN, OWN, length=-1),
    "a length with a sign": post(f"{SECRET}api/design", SMALL_DESIGN, OWN, length="+13"),
    "a length of another script": post(f"{SECRET}api/design", SMALL_DESIGN, OWN, length="1²"),
    "a length without end": post(f"{SECRET}api/design", SMALL_DESIGN, OWN, length="9" * 40),
    "more than is allowed": post(f"{SECRET}api/upload?name=x", "x", OWN, length=65 << 20),
    "two lengths": post(f"{SECRET}api/design", SMALL_DESIGN, OWN, "Content-Length: 1"),
    "a length and chunks": post(
        f"{SECRET}api/design", "0\r\n\r\nGET / HTTP/1.1\r\n\r\n", OWN, "Transfer-Encoding: chunked"
    ),
    "a GET that would change": get(f"{SECRET}api/design", HERE, OWN),
    "another method": post(f"{SECRET}api/design", "{}", OWN).replace("POST", "DELETE", 1),
}


@pytest.mark.parametrize("how", WRITING)
def test_nothing_is_changed(page, how):
    before = dict(page.api.jobs._jobs), dict(page.api._files)
    answer = told(page, WRITING[how].encode("latin-1"))
    assert status(answer) in (0, 400, 403, 404, 405, 413, 422), answer[:300]
    assert (dict(page.api.jobs._jobs), dict(page.api._files)) == before


def test_chunks_count_and_too_much_is_refused(page):
    lines = [f"POST {SECRET}api/design HTTP/1.1", HERE, OWN, "Transfer-Encoding: chunked"]
    head = "\r\n".join([*lines, "Connection: close", "", ""])
    chunk = f"{1 << 20:x}\r\n{'x' * (1 << 20)}\r\n"
    assert status(told(page, f"{head}{chunk * 4}0\r\n\r\n")) in (0, 413)
    assert status(told(page, f"{head}2\r\n{{}}\r\n0\r\n\r\n")) == 200
    much = b" " * (MOST_JSON + 1)
    assert page.post("api/design", much).status_code == 413
    raw = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    raw.putrequest("POST", f"/{TOKEN}/api/upload")
    raw.putheader("Origin", page.origin)
    raw.putheader("Content-Length", str(MOST_UPLOAD + 1))
    raw.endheaders(b"x")
    said = raw.getresponse()
    assert said.status == 413
    assert b"64 MiB" in said.read()
    raw.close()


def test_a_body_that_never_comes_holds_up_nobody(page):
    head = f"POST {SECRET}api/design HTTP/1.1\r\n{HERE}\r\n{OWN}\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection(("127.0.0.1", page.port), timeout=6) as line:
        line.sendall(head.replace("PORT", str(page.port)).encode())
        assert page.get().status_code == 200


def test_jobs_are_not_guessed_assets_are_a_fixed_list_and_truth_is_answered(page):
    for name in ("1", "..", "%2e%2e", "x" * 5000, "' or 1=1"):
        assert page.get(f"api/job/{name}").status_code in (400, 404)
    for name in ("../guard.py", "..%2fguard.py", "ui.py", "%2e%2e/app.py", "report.js"):
        assert page.get(f"assets/{name}").status_code == 404
    assert page.get("assets/ui.js").headers["content-type"].startswith("text/javascript")
    assert status(told(page, get(SECRET, HERE))) == 200
    before = set(page.api.jobs._jobs)
    assert status(told(page, post(f"{SECRET}api/design", SMALL_DESIGN, OWN))) == 200
    assert set(page.api.jobs._jobs) - before


@pytest.mark.parametrize("name", ["", "drive", "compare", "choose"])
def test_the_secret_does_not_leave(page, name):
    """No page names another host, none tells one where it came from, and its policy is strict."""
    answer = page.get(name)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    assert TOKEN not in answer.text
    assert "location" not in answer.headers
    assert not re.search(r'(src|href|action)="(https?:)?//', answer.text)
    assert "<script>" not in answer.text


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"1e999"])
def test_what_is_no_object_is_one_sentence(page, body):
    answer = page.post("api/design", body)
    assert answer.status_code == 422
    assert answer.json() == {"error": "a JSON object is needed"}


@pytest.mark.parametrize(
    "line",
    [
        'drives = [{ profile = "../../etc/drive.toml" }]',
        'drives = [{ profile = { extends = "/etc/passwd" } }]',
        'drives = [{ profile = "C:\\\\drive.toml" }]',
        'workload = { fio = "job.fio" }',
        'workload = { fio = "--filename=/etc/passwd" }',
        'workload = [{ trace = "/var/log/trace" }]',
        'server = { stack = "./stack.toml" }',
        'volume = { raid = "raid5", engine = "a/b" }',
    ],
)
def test_no_path_is_opened(page, line, tmp_path):
    with pytest.raises(ScenarioError, match="opens no files"):
        tables_of_text(line)
    answer = page.post("api/design", {"toml": line})
    assert "opens no files" in answer.json()["error"]


def test_a_control_takes_no_path_either(page):
    for key in ("drives.profile", "server.sockets.cpu", "server.stack", "volume.engine"):
        body = {"toml": SMALL, "set": {key: "/etc/passwd.toml"}}
        said = page.post("api/design", body).json()["error"]
        assert "opens no files" in said, key
    said = page.post("api/design", {"toml": SMALL, "set": {"workload.0.trace": "x"}}).json()
    assert "opens no files" in said["error"]


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "..", "", "a\x00b", "con\\nul", "é" * 300]
)
def test_dropped_files_have_names_of_our_own(name):
    safe = safe_name(name)
    assert safe.strip(".")
    assert safe.isascii()
    assert not set("/\\\0") & set(safe)
    assert len(safe) < 90
