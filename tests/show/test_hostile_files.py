"""Files that came by mail, through the commands, into pages in a real browser: nothing may run.

Every text that a file can hold and a page can show is an attempt to break out: of text, of an
attribute, of the JSON inside a script tag, of a title.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command

FELL = "document.documentElement.dataset.fell=1"
BAD = (
    f"\" fell=1 ' fell=2 </script><script>{FELL}</script><img src=x onerror={FELL}>"
    f"'\"&{{{{7*7}}}}</title></style><svg onload={FELL}>"
)
FILE = f"<img src=x onerror={FELL}>"
LOCAL = Path(__file__).parents[2] / "calibration" / "local-disk"
PROFILE = f'kind = "drive"\nextends = "samsung-980pro-1tb"\nname = {json.dumps(BAD)}\n'
SCENARIO = """
name = {bad}
[server]
stack = "linux-io_uring"
[[server.sockets]]
cpu = {{ name = {bad}, cores = 8, threads_per_core = 2, ghz = 3.9, lanes = 48 }}
[[adapters]]
name = {bad}
kind = "switch"
link = "pcie4 x16"
socket = 0
[[drives]]
profile = "drive.toml"
count = 2
behind = {bad}
link = "pcie4 x4"
[[volume]]
name = {bad}
raid = "raid1"
engine = "linux-md"
[[workload]]
name = {bad}
block_size = "4 KiB"
read = 0.7
threads = 2
outstanding = 4
[run]
requests = 2000
"""


def captures(folder: Path) -> list[str]:
    """fio reports whose every name is hostile."""
    found = []
    for depth in (1, 4, 16):
        table = json.loads((LOCAL / f"randread_qd{depth}.json").read_text("utf-8"))
        table["fio version"] = f"fio-3.33{BAD}"
        for job in table["jobs"]:
            job["jobname"] = BAD
            job["job options"].update(name=BAD, filename=f"/dev/{BAD}")
        for disk in table.get("disk_util", []):
            disk["name"] = BAD
        path = folder / f"qd{depth}{FILE}.json"
        path.write_text(json.dumps(table))
        found.append(str(path))
    return found


class Attributes(HTMLParser):
    """The names of all attributes in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}


def holds(browser, path: Path) -> str:
    """Open the page; hold that nothing of the input ran or became an element."""
    seen = browser(path.read_text("utf-8"))
    text = re.sub(r"<script.*?</script>", "", seen.dom, flags=re.S)
    assert not re.search(r"<html[^>]*data-fell", seen.dom)
    assert "<img" not in text
    attributes = Attributes()
    attributes.feed(text)
    assert "fell" not in attributes.names  # of a text that left its attribute
    assert "onload=" not in re.sub(r"(?:&lt;|onload=document)[^<]*", "", text)
    assert not [line for line in seen.console if "Error" in line]
    return text


@pytest.mark.browser
def test_a_scenario_by_mail(browser, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drive.toml").write_text(PROFILE)
    scenario = tmp_path / f"{FILE}.toml"
    scenario.write_text(SCENARIO.format(bad=json.dumps(BAD)))
    assert run_command(["run", scenario.name, "--report", "run.html"]) == 0
    assert "&lt;img src=x" in holds(browser, tmp_path / "run.html")


@pytest.mark.browser
@pytest.mark.slow
def test_captures_by_mail(browser, tmp_path: Path) -> None:
    page = tmp_path / "calibrated.html"
    arguments = ["calibrate", *captures(tmp_path), "--name", BAD, "--report", str(page)]
    assert run_command(arguments) == 0
    assert "&lt;" in holds(browser, page)
