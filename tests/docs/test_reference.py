"""The reference says all there is, README what stands elsewhere; what pages show works."""

import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import nvmesim
from nvmesim.capture.readers.points_columns import SPELLINGS
from nvmesim.catalog import get
from nvmesim.catalog.toml import show_quantity, show_value
from nvmesim.cli.main import COMMANDS, run_command
from nvmesim.raid.levels import LEVELS
from nvmesim.raid.planner.plan import PLANNERS
from nvmesim.scenario import schema, workload_keys
from nvmesim.scenario.fields import Strict
from nvmesim.show.words import texts

DOCS = Path(__file__).parents[2] / "docs"
MODELS = [
    value
    for value in {**vars(schema), **vars(workload_keys)}.values()
    if isinstance(value, type) and issubclass(value, Strict)
]
MODELS = [model for model in MODELS if model not in (Strict, schema.Scenario)]


@pytest.fixture
def pages(monkeypatch):
    """docs/pages.py as a module."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module("pages")
    sys.modules.pop("pages")


def test_tables_units_commands_names_numbers_and_keys_are_on_their_pages(pages):
    assert set(pages.SCENARIO_TABLES.values()) == set(MODELS)
    assert all(field.description for model in MODELS for field in model.model_fields.values())
    text = pages.scenario_page()
    assert "| `outstanding` | whole number, ≥ 1, ≤ 65536 |  | Requests" in text
    assert '| `chunk` | `"64 KiB"` |' in text
    text = pages.profile_page()
    assert '| `die` | `"54 us"` | **needed** | Mean time a die is busy for one unit. |' in text
    assert "(DESIGN" not in text
    text = pages.command_page()
    for name in ("run", "calibrate", "sweep", "catalog show"):
        assert f"\n## nvmesim {name}\n" in text
    assert "--precision" in text
    text = pages.api_page()
    for name in nvmesim.__all__:
        is_module = isinstance(getattr(nvmesim, name), ModuleType)
        assert (f"`ns.{name}`" if is_module else f":: nvmesim.{name}\n") in text
    text = pages.number_page()
    stack = get("stack", "linux-io_uring")
    assert stack.wakeup_half.low
    low, high = (show_value(end, "time") for end in (stack.wakeup_half.low, stack.wakeup_half.high))
    value = show_quantity(stack, "wakeup_half")
    assert f"| `wakeup_half` | {value} | {low} to {high} | fitted |" in text
    assert "| `filesystems.ntfs` | 15000 | 12200 to 17700 | fitted |" in text
    scenario = nvmesim.Scenario.model_validate(pages.EXAMPLE)
    found = nvmesim.simulate(scenario, requests=2000, reliefs=False).to_json()
    text = (DOCS / "json-head.md").read_text("utf-8")
    said = set(re.findall(r"`([\w.…]+)`", text)) | set(re.findall(r"[.…](\w+)", text))
    assert set(found) <= said


def test_every_member_that_the_page_of_the_inside_names_is_there():
    text = (DOCS / "reference" / "inside.md").read_text("utf-8")
    listed = re.findall(r"automodule:: (\S+)\n +:members: (\S.*)", text)
    assert listed
    for module, members in listed:
        found = importlib.import_module(module)
        assert [m for m in members.split(", ") if not hasattr(found, m)] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing(tmp_path):
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("the extra docs is not installed")
    from tests.engines.test_modes import run_python

    # Extensions of Sphinx warn of each other; those are not ours.
    run_python(
        "import sys, warnings; warnings.simplefilter('ignore', DeprecationWarning);"
        "warnings.simplefilter('ignore', PendingDeprecationWarning);"
        "from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:] + "
        f"['-W', '-q', '-b', 'html', 'docs', {str(tmp_path)!r}]))"
    )
    fetched = re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"(?:https?:)?//[^\"]+\""
    )
    for page in tmp_path.rglob("*.html"):
        assert fetched.search(page.read_text("utf-8")) is None, page


ROOT = Path(__file__).parents[2]
PATTERNS = ("*.md", "docs/**/*.md", "calibration/**/*.md")
PAGES = sorted(
    page
    for pattern in PATTERNS
    for page in ROOT.glob(pattern)
    if "generated" not in page.relative_to(ROOT).parts
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """Anchors of *page*, as GitHub and MyST make them."""
    text = FENCE.sub("", page.read_text("utf-8"))
    found = re.findall(r"^#{1,6} +(.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in found}


def generated() -> set[str]:
    """Names below docs/generated that docs/pages.py writes."""
    source = (ROOT / "docs" / "pages.py").read_text("utf-8")
    names = set(re.findall(r'"([\w/-]+\.md)":', source))
    sets = (ROOT / "calibration" / "published").glob("*/report.md")
    return names | {f"published/{report.parent.name}/report.md" for report in sets}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"(https?|mailto):", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        inside = file.relative_to(ROOT / "docs") if file.is_relative_to(ROOT / "docs") else None
        if inside is not None and inside.parts[0] == "generated":
            assert "/".join(inside.parts[1:]) in generated(), (target, page)
            continue
        assert file.exists(), (target, page)
        if anchor:
            assert anchor in headings(file), (target, page)


def test_every_page_is_in_a_table_of_contents() -> None:
    docs = ROOT / "docs"
    listed = {docs / "index.md"}
    for page in docs.rglob("*.md"):
        for tree in TREE.findall(page.read_text("utf-8")):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            for entry in entries:
                listed |= set(page.parent.glob(f"{entry}.md"))
    heads = set(docs.glob("*-head.md"))  # parts of generated pages
    pages = {page for page in docs.rglob("*.md") if "generated" not in page.parts}
    assert pages - heads <= listed


README = (ROOT / "README.md").read_text("utf-8")
BEGIN, END = "<!-- scoreboard -->\n", "<!-- /scoreboard -->\n"


def overview() -> str:
    """The generated scoreboard down to its overview, with links as seen from the root."""
    board = (ROOT / "calibration/published/SCOREBOARD.md").read_text("utf-8")
    head = board.split("\n## ")[0].split("# Predicted against measured\n\n")[1]
    return re.sub(r"\]\((\S+)/report\.md\)", r"](calibration/published/\1/report.md)", head).strip()


def test_the_scoreboard_and_the_glossary_are_generated_and_commands_exist():
    shown = README.split(BEGIN)[1].split(END)[0].strip()
    assert shown == overview()
    named = set(re.findall(r"(?:^|`)\s*nvmesim ([a-z]+)", README, flags=re.M))
    assert named <= set(COMMANDS)
    assert len(named) >= 5
    text = (DOCS / "howto" / "report.md").read_text("utf-8")
    for word, meaning in texts("glossary").items():
        assert f"{word}\n: {meaning[0].upper()}{meaning[1:]}.\n" in text


def test_every_spelling_of_a_column_of_points_is_documented():
    text = (DOCS / "howto" / "calibrate.md").read_text("utf-8")
    for name, others in SPELLINGS.items():
        assert f"| `{name}` | {', '.join(others)} |" in text


FOLLOWED = [DOCS / "start.md", *sorted((DOCS / "howto").glob("*.md"))]
BLOCK = re.compile(
    r"^```(?:\{code-block\} )?(\w+)\n(?::caption: (\S+)\n\n)?(.*?)^```", re.MULTILINE | re.DOTALL
)
LONG = dict.fromkeys(("calibrate", "datasheet", "rebuild"), pytest.mark.slow)
LONG |= dict.fromkeys(("choose", "start", "what-if"), pytest.mark.long)
"""Pages whose commands take longer than a few seconds."""
MOST_LINES = 30
"""Of one extension: a drive, a RAID engine, a reader, a station."""


@dataclass(frozen=True)
class Block:
    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page.read_text("utf-8"))]


@pytest.fixture(autouse=True)
def _tables_as_they_were():
    """What a page adds to the tables of levels and planners goes when it ends."""
    before = [(table, dict(table)) for table in (LEVELS, PLANNERS)]
    yield
    for table, kept in before:
        table.clear()
        table.update(kept)


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=LONG[p.stem]) if p.stem in LONG else p for p in FOLLOWED],
    ids=lambda page: page.stem,
)
def test_a_page_can_be_followed(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = {"__name__": "__main__"}
    for block in blocks(page):
        if block.file:
            Path(block.file).write_text(block.text, "utf-8")
        elif block.language == "sh":
            for line in block.text.splitlines():
                words = shlex.split(line)
                assert words[0] == "nvmesim", line
                code = run_command(words[1:])
                said = capfd.readouterr()
                assert code == 0, (line, code, said.err, said.out[-500:])
        elif block.language == "python":
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                exec(compile(block.text, page.name, "exec"), names)


def test_the_reader_reads(tmp_path):
    """The package of the how-to, installed into a folder of its own, on a file of its tool."""
    for name in ("mytool.py", "pyproject.toml", "run.txt"):
        (block,) = [b for b in blocks(DOCS / "howto/reader.md") if b.file == name]
        (tmp_path / name).write_text(block.text, "utf-8")
    site, pip = tmp_path / "site", [sys.executable, "-m", "pip", "install", "--quiet"]
    pip += ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(site), str(tmp_path)]
    subprocess.run(pip, check=True, capture_output=True)
    command = [sys.executable, "-P", "-m", "nvmesim", "trace", "--json", "run.txt"]
    env = {**os.environ, "PYTHONPATH": str(site)}

    def trace() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    found = json.loads(trace().stdout)
    assert found["format"] == "mytool"
    assert found["ops"]["read"]["iops"] == 81234.5
    assert found["ops"]["read"]["latency_s"]["p99"] == pytest.approx(612e-6)
    (tmp_path / "run.txt").write_text("mytool results 1.0\n")
    refused = trace()
    assert refused.returncode == 2
    assert "has no IOPS and p99 in its second line" in refused.stderr


def test_extensions_are_short():
    for page, file in (
        ("drive", "my-drive.toml"),
        ("raid-engine", "my-controller.toml"),
        ("raid-level", ""),
        ("reader", "mytool.py"),
        ("station", ""),
    ):
        found = [b for b in blocks(DOCS / "howto" / f"{page}.md") if b.file == file]
        assert all(len(b.text.splitlines()) < MOST_LINES for b in found), page
        assert found, page
