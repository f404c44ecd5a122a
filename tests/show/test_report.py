"""The HTML page: complete, self-contained, safe whatever the input calls itself or came by mail."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command
from nvmesim.show.blocks import Line
from nvmesim.show.page import document
from nvmesim.show.page import html as as_html
from nvmesim.show.report import fragment, page
from tests.show.report_example import result

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&</title></style>\u202e\x1b[31m"


class Elements(HTMLParser):
    """Every start tag with its attributes, and the text of the page without scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self._inside = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        if not self._inside:
            self.text.append(data)


def body(html):
    """*html* without its scripts."""
    return re.sub(r"<script.*?</script>", "", html, flags=re.S)


@pytest.fixture(scope="module")
def plain_page():
    return page(result(8), scenario_text='name = "x"\n', changes=("drives.0.count=8",))


@pytest.fixture(scope="module")
def hostile_page():
    bad = result(8, name=HOSTILE, text=HOSTILE, warnings=(HOSTILE,))
    drives = tuple(dataclasses.replace(d, name=HOSTILE) for d in bad.resolved.drives)
    members = tuple(dataclasses.replace(m, name=HOSTILE + m.name) for m in bad.members)
    stations = tuple(dataclasses.replace(s, name=HOSTILE + s.name) for s in bad.stations)
    resolved = dataclasses.replace(bad.resolved, drives=drives)
    bad = dataclasses.replace(bad, resolved=resolved, members=members, stations=stations)
    return page(bad, scenario_text=f'name = "{HOSTILE}"', changes=(HOSTILE,))


def test_every_section_is_there_and_the_answer_is_text(plain_page):
    headings = re.findall(r"<section id=\"[a-z-]+\"><h2>(.*?)</h2>", body(plain_page))
    assert headings == [
        "What would help, and what would not", "The server under this load", "Charts", "Latency",
        "Parts under this load", "Drives, per request", "Assumed", "Where this comes from", "Words",
    ]  # fmt: skip
    text = " ".join(Elements(plain_page).text)
    for words in ("624k", "620k to 628k", "The dies are 94 % busy", "+31.0 %", "drives.0.count=8"):
        assert words in text
    assert plain_page.count("window.vegaEmbed") == 1
    assert plain_page.count('class="chart"') == plain_page.count('type="application/json"') == 6


def test_nothing_is_loaded(plain_page, hostile_page):
    for html in (plain_page, hostile_page):
        for tag, attributes in Elements(html).tags:
            assert tag not in ("link", "iframe", "object", "embed", "img", "base"), tag
            assert not {"src", "srcset", "data", "xlink:href"} & attributes.keys(), tag
            assert attributes.get("href", "#").startswith("#"), tag
        assert "@import" not in html
        assert "default-src 'none'" in html


def test_each_page_draws_its_own_nonce():
    pages = [document("t", [Line("text")]) for _ in range(2)]
    nonces = [re.findall(r"nonce[=-]['\"]?([\w-]{20,})", html) for html in pages]
    for found in nonces:
        assert len(found) == 3  # of the policy and of two scripts
        assert len(set(found)) == 1
    assert nonces[0] != nonces[1]


def test_hostile_texts_become_text(hostile_page):
    elements = Elements(hostile_page)
    assert "alert(1)" in " ".join(elements.text)
    scripts = [attributes for tag, attributes in elements.tags if tag == "script"]
    assert all("nonce" in a or a.get("type") == "application/json" for a in scripts)
    assert "unsafe-eval" not in hostile_page.split("</head>")[0]
    assert all(not k.startswith("on") for _, a in elements.tags for k in a)
    assert "\u202e" not in hostile_page
    assert "\x1b" not in hostile_page


def test_bare_results_have_a_page_and_notebooks_a_fragment():
    whole = result(1, 1)
    stop = dataclasses.replace(whole.bottleneck, reliefs=(), bounds={})
    bare = dataclasses.replace(whole, read=None, curve=(), resolved=None, warnings=(),
                               assumptions=(), bottleneck=stop)  # fmt: skip
    html = body(page(bare))
    assert 'class="nvmesim-server"' not in html
    assert "What would help" not in html
    assert "Assumed" not in html
    shown = result(8)._repr_html_()
    assert shown == f"<div>{as_html(fragment(result(8)))}</div>"
    assert "<svg" in shown
    assert "<script" not in shown


@pytest.mark.browser
def test_hostile_texts_do_nothing_in_a_browser(browser, hostile_page):
    # `alert` would block the page; an error handler would leave a mark in the DOM.
    seen = browser(hostile_page)
    assert len(re.findall(r'<svg [^>]*class="marks"', seen.dom)) == 6
    elements = Elements(seen.dom)
    assert "alert(1)" in " ".join(elements.text)
    assert not [tag for tag, _ in elements.tags if tag == "img"]
    assert not seen.console


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


def holds(browser, path: Path) -> str:
    """Open the page; hold that nothing of the input ran or became an element."""
    seen = browser(path.read_text("utf-8"))
    text = re.sub(r"<script.*?</script>", "", seen.dom, flags=re.S)
    assert not re.search(r"<html[^>]*data-fell", seen.dom)
    assert "<img" not in text
    attributes = {name for _, found in Elements(text).tags for name in found}
    assert "fell" not in attributes  # of a text that left its attribute
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
