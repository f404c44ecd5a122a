"""A real JupyterLab server and a real browser that looks at it."""

import importlib.util
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS, CAPTURES = ROOT / "notebooks", ROOT / "calibration" / "local-disk"
START_S = 90
RAN = re.compile(r"\[(\d+|\*)\]")
IDLE = re.compile(r"\| Idle$")
ERROR = "Traceback (most recent call last)"
RUN_S = 400


@dataclass
class Server:
    """A JupyterLab server."""

    folder: Path
    port: int
    token: str

    def address(self, notebook: str) -> str:
        return f"http://127.0.0.1:{self.port}/lab/tree/{notebook}?token={self.token}&reset"


@dataclass
class Lab:
    """A notebook that is open in the browser."""

    page: object
    port: int
    elsewhere: list[str] = field(default_factory=list)
    """Addresses that the page asked for and that are not the server's."""

    def run_all(self, cells: int) -> None:
        """Run every cell and wait for the last of *cells*."""
        for _ in range(5):
            self.page.locator(".jp-NotebookPanel .jp-Cell").first.click()
            self.page.get_by_role("menuitem", name="Run", exact=True).first.click()
            self.page.get_by_text("Run All Cells", exact=True).first.click()
            # What is asked before the kernel is connected is dropped by JupyterLab.
            self.page.wait_for_timeout(1500)
            ask = self.page.locator("dialog", has_text="Select Kernel")
            if ask.count():
                ask.get_by_role("button", name="Select", exact=True).click()
                continue
            if self.page.locator(".jp-CodeCell .jp-InputPrompt", has_text=RAN).count():
                break
        last = self.page.locator(".jp-CodeCell .jp-InputPrompt", has_text=f"[{cells}]:")
        # After an error the cells below it are not run.
        ended = last.or_(self._errors())
        ended.first.wait_for(timeout=RUN_S * 1000, state="attached")

    def errors(self) -> list[str]:
        return self._errors().all_inner_texts()

    def _errors(self):
        return self.page.locator(".jp-OutputArea-output", has_text=ERROR)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """JupyterLab in a folder of its own, with the notebooks and their captures."""
    if importlib.util.find_spec("jupyterlab") is None:
        pytest.skip("JupyterLab is not installed: no notebook was opened in it")
    home = tmp_path_factory.mktemp("lab")
    folder, port, token = home / "notebooks", free_port(), secrets.token_hex(16)
    # Cells that are out of sight are drawn as well.
    settings = home / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    own = {f"JUPYTER_{k}_DIR": str(home / k) for k in ("CONFIG", "DATA", "RUNTIME")}
    env = os.environ | own | {
        "JUPYTER_TOKEN": token, "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "IPYTHONDIR": str(home / "ipython"),
        "XDG_CACHE_HOME": str(home / "cache"), "JUPYTER_PREFER_ENV_PATH": "1",
    }  # fmt: skip
    shutil.copytree(NOTEBOOKS, folder)
    shutil.copytree(CAPTURES, folder / "captures", ignore=shutil.ignore_patterns("logs"))
    command = [sys.executable, "-P", "-m", "jupyterlab", str(folder), "--no-browser",
               f"--port={port}"]  # fmt: skip
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with (home / "log").open("w") as log:
        started = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            _wait(started, port, token, home / "log")
            yield Server(folder, port, token)
        finally:
            started.terminate()
            started.wait(30)


def _wait(started, port, token, log):
    limit = time.monotonic() + START_S
    while not _answers(port, token):
        assert started.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < limit, log.read_text()[-2000:]
        time.sleep(0.3)


def _answers(port, token):
    try:
        address = f"http://127.0.0.1:{port}/api/status?token={token}"
        with urllib.request.urlopen(address, timeout=5) as answer:
            return "kernels" in json.load(answer)
    except (OSError, urllib.error.URLError, ValueError):
        return False


@pytest.fixture
def open_notebook(server, chromium):
    """Open a notebook of the server's folder; whatever else is asked for fails, and is noted."""
    contexts = []

    def open_it(name: str) -> Lab:
        context = chromium.new_context(viewport={"width": 1280, "height": 1100})
        contexts.append(context)
        page = context.new_page()
        lab = Lab(page, server.port)

        def only_here(route):
            if route.request.url.startswith((f"http://127.0.0.1:{server.port}/", "data:", "blob:")):
                route.continue_()
            else:
                lab.elsewhere.append(route.request.url)
                route.abort()

        page.route("**/*", only_here)
        page.goto(server.address(name))
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for(timeout=START_S * 1000)
        page.get_by_text(IDLE).first.wait_for(timeout=START_S * 1000)
        return lab

    yield open_it
    for context in contexts:
        context.close()
