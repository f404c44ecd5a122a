"""The notebooks: short cells, no outputs in git, and every cell runs."""

import ast
import importlib
import importlib.util
import json
from pathlib import Path

import pytest

from tests.notebooks.conftest import NOTEBOOKS

BOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))
MOST_LINES = 9


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
