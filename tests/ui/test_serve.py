"""The process: first line, a port in use, a package that is missing."""

import re
import signal
import socket
import subprocess
import sys

import httpx

from nvmesim.cli.app import run_command


def test_the_first_line_is_an_address_that_answers():
    command = [sys.executable, "-m", "nvmesim", "ui", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as app:
        try:
            address = app.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
            assert "Design a server" in httpx.get(address, timeout=60).text
        finally:
            app.send_signal(signal.SIGINT)
            assert app.wait(60) in (0, 130)


def test_a_port_in_use_is_one_line(capfd):
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
