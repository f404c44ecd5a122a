"""The process: first line, a port in use, a package that is missing."""

import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from nvmesim.cli.main import run_command
from nvmesim.ui.answer import designs_in, with_designs
from nvmesim.ui.app import create_app
from tests.children import child
from tests.ui.conftest import SMALL


def test_the_first_line_is_an_address_that_answers():
    command = [sys.executable, "-m", "nvmesim", "ui", "--no-browser"]
    with child(command, stdout=subprocess.PIPE, text=True) as app:
        address = app.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        assert "Design a server" in httpx.get(address, timeout=60).text
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
