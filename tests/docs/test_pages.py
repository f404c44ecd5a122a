"""What the documentation shows works: files are written, commands and Python run, in order."""

import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command
from nvmesim.raid.levels import LEVELS
from nvmesim.raid.planner.plan import PLANNERS
from nvmesim.show.report import GLOSSARY

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "start.md", *sorted((DOCS / "howto").glob("*.md"))]
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
    [pytest.param(p, marks=LONG[p.stem]) if p.stem in LONG else p for p in PAGES],
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


def test_the_glossary_is_that_of_the_reports():
    text = (DOCS / "howto" / "report.md").read_text("utf-8")
    for word, meaning in GLOSSARY.items():
        assert f"{word}\n: {meaning[0].upper()}{meaning[1:]}.\n" in text
