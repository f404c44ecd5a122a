"""The process: its address, and work that takes too long, too much, or that nobody wants."""

import errno
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from nvmesim.cli.main import run_command
from nvmesim.ui import jobs
from nvmesim.ui.answer import designs_in, with_designs
from nvmesim.ui.app import create_app
from nvmesim.ui.guard import tables_of_text
from nvmesim.ui.jobs import Jobs, Scratch
from tests.children import child, until
from tests.faults.conftest import CODE
from tests.ui.conftest import SMALL


def stopped(page):
    """A design whose process is alive and does nothing; its number."""
    job = page.api.jobs.start("refine", {"tables": tables_of_text(SMALL)})
    until(lambda: job.worker is not None)
    number = job.worker._process.pid
    os.kill(number, signal.SIGSTOP)
    return job.id, number


def test_a_first_look_is_bounded_in_time(page, monkeypatch):
    monkeypatch.setattr(jobs, "FIRST_S", 0.01)
    job = page.post("api/design", {"toml": SMALL}).json()["job"]
    assert page.wait(job, "failed")["error"] == jobs.TOO_LONG
    monkeypatch.undo()
    assert page.news(page.post("api/design", {"toml": SMALL}).json()["job"])["html"]


def test_work_that_does_not_listen_or_dies_ends_with_one_sentence(page):
    job, number = stopped(page)
    began = time.monotonic()
    page.post(f"api/job/{job}/cancel", {})
    page.wait(job, "cancelled")
    assert time.monotonic() - began < 10 * jobs.GRACE_S
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    job, number = stopped(page)
    os.kill(number, signal.SIGKILL)
    assert page.wait(job, "failed")["error"] == jobs.DIED


def test_a_process_that_was_killed_is_replaced_before_it_is_missed(page):
    pool = page.api.jobs

    def at_hand():
        until(lambda: len(pool._idle) >= jobs.IDLE)
        return {worker._process.pid for worker in pool._idle}

    pool.warm()
    before = at_hand()
    job, number = stopped(page)
    page.post(f"api/job/{job}/cancel", {})
    page.wait(job, "cancelled")
    now = at_hand()
    assert number in before - now
    assert len(now) == jobs.IDLE


def test_memory_is_bounded(page, monkeypatch):
    """A child that may hold next to nothing says so; the app goes on."""
    page.api.jobs.warm()  # else one that it starts now for later tests had as little
    until(lambda: len(page.api.jobs._idle) >= jobs.IDLE)
    monkeypatch.setenv("NVMESIM_MAX_MEMORY", "1000")
    small = Jobs(page.api._folder)
    try:
        job = small.start("refine", {"tables": tables_of_text(SMALL)})
        until(lambda: job.state != "running")
        assert job.state == "failed"
        assert "--max-memory" in job.to_json()["error"]
    finally:
        small.close()


def test_a_process_that_has_grown_is_not_used_again(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "LARGEST", 1)
    pool = Jobs(tmp_path)
    try:
        pool.warm()
        assert pool._idle == []
    finally:
        pool.close()


def test_an_app_that_still_warms_ends_at_once(tmp_path):
    """Its process is stopped where it stands: nobody waits for what it loads."""
    pool = Jobs(tmp_path)
    warming = threading.Thread(target=pool.warm, daemon=True)
    warming.start()
    until(lambda: pool._warming is not None and pool._warming.worker is not None)
    os.kill(pool._warming.worker._process.pid, signal.SIGSTOP)
    pool.close()
    warming.join(60)
    assert not warming.is_alive()
    assert pool._idle == []


def test_a_process_whose_app_was_killed_in_the_middle_of_a_line_ends():
    command = [sys.executable, "-P", "-m", "nvmesim.ui.work"]
    with child(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as work:
        work.stdin.write(b'{"do": "refi')
        work.stdin.close()
        assert work.wait(120) == 0


def test_what_a_killed_app_left_is_swept_by_the_next(tmp_path, monkeypatch):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", CODE, "ui", "--no-browser"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as app:
        try:
            until(lambda: list(tmp_path.glob("nvmesim-ui-*/lock")))
            (left,) = tmp_path.glob("nvmesim-ui-*")
            monkeypatch.setattr(jobs.tempfile, "tempdir", str(tmp_path))
            other = Scratch()
            assert left.is_dir(), "its app lives"
        finally:
            app.kill()
    Scratch().remove()
    assert not left.exists()
    assert other.path.is_dir()
    other.remove()


def test_where_nothing_can_be_locked_nothing_is_swept(tmp_path, monkeypatch):
    """Whether its app lives is not known there."""

    def refused(*_):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(jobs.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", refused)
    first, second = Scratch(), Scratch()
    assert first.path.is_dir()
    second.remove()
    first.remove()


def test_the_first_line_is_an_address_and_a_port_in_use_is_one_line(capfd):
    command = [sys.executable, "-m", "nvmesim", "ui", "--no-browser"]
    with child(command, stdout=subprocess.PIPE, text=True) as app:
        address = app.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        assert "Design a server" in httpx.get(address, timeout=60).text
        app.send_signal(signal.SIGINT)
        assert app.wait(60) in (0, 130)
    capfd.readouterr()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run_command(["ui", "--no-browser", "--port", str(port)]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert f"port {port} cannot be used" in said


def test_without_its_packages_the_hint_names_what_works(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "nvmesim.ui.serve", raising=False)
    assert run_command(["ui", "--no-browser"]) == 2
    assert "pip install" in capfd.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "<html></html>", '<script type="application/json" id="designs">[]</script>',
             '<script type="application/json" id="designs">{"a": 1}</script>'],
)  # fmt: skip
def test_a_file_without_designs_is_one_line(text, tmp_path, capfd):
    file = tmp_path / "page.html"
    file.write_text(text, "utf-8")
    assert run_command(["ui", "--no-browser", str(file)]) == 2
    assert "holds no design" in capfd.readouterr().err
    assert run_command(["ui", "--no-browser", str(tmp_path / "gone.html")]) == 2


def test_a_shared_file_opens_with_its_designs(tmp_path):
    file = tmp_path / "page.html"
    texts = [SMALL.replace("one drive", "</script><b>"), SMALL]
    file.write_text(with_designs("<main></main>", texts), "utf-8")
    assert designs_in(file) == texts
    app = create_app("secret", 1, designs_in(file))
    assert app.state.api.opened == texts
    app.state.api.close()
