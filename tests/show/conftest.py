"""A real browser for pages that are meant for one."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=8000",
    # Whatever a page tried to load would fail, and be told in the log.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--v=0",
)
WAIT_S = 90


@dataclass(frozen=True)
class Seen:
    """A page after its scripts have run."""

    dom: str
    console: list[str]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Open a page in headless Chromium; return its DOM and its console."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed: the page was not opened")

    def open_page(html: str, *flags: str) -> Seen:
        folder: Path = tmp_path_factory.mktemp("page")
        (folder / "page.html").write_text(html, encoding="utf-8")
        command = [program, *QUIET, f"--user-data-dir={folder / 'profile'}", *flags]
        done = subprocess.run(
            [*command, "--dump-dom", (folder / "page.html").as_uri()],
            capture_output=True, text=True, timeout=WAIT_S, check=True,
        )  # fmt: skip
        return Seen(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])

    return open_page
