"""The notebooks: short cells, no outputs in git, and every cell runs."""

import ast
import importlib
import importlib.util
import json
import shutil
import time
import warnings
from pathlib import Path

import pytest

from tests.notebooks.conftest import CAPTURES, NOTEBOOKS

BOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))
MOST_LINES = 9
LONGEST_S = 120


def cells(book, kind="code"):
    found = json.loads(book.read_text("utf-8"))["cells"]
    return ["".join(c["source"]) for c in found if c["cell_type"] == kind]


def test_the_stories_are_there():
    assert [b.name[:2] for b in BOOKS] == [f"{n:02}" for n in range(1, 9)]


@pytest.mark.parametrize("book", BOOKS, ids=lambda b: b.stem[:2])
def test_cells_are_short_and_outputs_stripped(book):
    found = json.loads(book.read_text("utf-8"))
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert len({c["id"] for c in found["cells"]}) == len(found["cells"])
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            assert len(cell["source"]) <= MOST_LINES
            ast.parse("".join(cell["source"]))
    assert cells(book, "markdown")[0].startswith(f"# {int(book.name[:2])}. ")
    assert len(cells(book, "markdown")) >= 4


def shown(value):
    """Render as a notebook would."""
    for how in ("_repr_mimebundle_", "_repr_html_"):
        if hasattr(value, how):
            assert getattr(value, how)() is not None
            return
    repr(value)


def run_cell(text, names):
    tree = ast.parse(text)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, "<cell>", "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        if value is not None:
            shown(value)


@pytest.mark.slow
@pytest.mark.parametrize("book", BOOKS, ids=lambda b: b.stem[:2])
def test_every_cell_runs_in_time(book, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(CAPTURES, tmp_path / "captures", ignore=shutil.ignore_patterns("logs"))
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    names = {"__name__": "__main__", "display": shown}
    has_widgets = importlib.util.find_spec("ipywidgets") is not None
    for text in cells(book):
        if "ipywidgets" in text and not has_widgets:
            continue
        with warnings.catch_warnings():
            if "ipywidgets" in text:
                warnings.simplefilter("ignore")
            run_cell(text, names)
    assert time.monotonic() - started < LONGEST_S


def test_notebooks_use_public_names_only():
    """`import nvmesim as ns` is all that a stranger needs."""
    for book in BOOKS:
        for text in cells(book):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom):
                    assert not (node.module or "").startswith("nvmesim"), book.name
                if isinstance(node, ast.Import):
                    assert all(not a.name.startswith("nvmesim.") for a in node.names), book.name


def test_a_page_of_a_notebook_has_pictures_and_tables(monkeypatch, tmp_path):
    """No chart is the text "alt.Drawing(...)", no frame a dump."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    pages = importlib.import_module("notebook_pages")
    book = tmp_path / "small.ipynb"
    frame = "pl.DataFrame({'drives': [2, 4], 'iops': [1.2e6, 2.1e6]})"
    sources = ["import nvmesim as ns\nimport polars as pl", f"ns.charts.scaling({frame}, 'drives')",
               f"ns.table({frame})"]  # fmt: skip
    found = [{"cell_type": "code", "source": [s]} for s in sources]
    book.write_text(json.dumps({"cells": found}))
    text = pages.page(book)
    assert "Drawing(" not in text.replace("```python", "")
    assert text.count("<svg") == 1
    assert "2.1M" in text


@pytest.mark.slow
def test_the_built_pages_of_all_notebooks_have_pictures(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    pages = importlib.import_module("notebook_pages").all_pages(tmp_path)
    assert len(pages) == len(BOOKS)
    for name, text in pages.items():
        assert "alt.Drawing" not in text, name
