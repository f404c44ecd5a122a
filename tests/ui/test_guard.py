"""Requests that lie: other hosts, other origins, no secret, too much, paths."""

import http.client

import pytest

from nvmesim.errors import ScenarioError
from nvmesim.ui.guard import MOST_JSON, MOST_UPLOAD
from nvmesim.ui.trust import tables_of_text
from nvmesim.ui.work import safe_name
from tests.ui.conftest import SMALL, TOKEN


def test_the_page_is_served_with_a_strict_policy(page):
    answer = page.get()
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "<script>" not in answer.text


def test_too_much_is_refused(page):
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


def test_assets_are_a_fixed_list(page):
    for name in ("../guard.py", "..%2fguard.py", "ui.py", "%2e%2e/app.py", "report.js"):
        assert page.get(f"assets/{name}").status_code == 404
    assert page.get("assets/ui.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "..", "", "a\x00b", "con\\nul", "é" * 300]
)
def test_dropped_files_have_names_of_our_own(name):
    safe = safe_name(name)
    assert safe.strip(".")
    assert safe.isascii()
    assert not set("/\\\0") & set(safe)
    assert len(safe) < 90
