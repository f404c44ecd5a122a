"""The notebooks as pages: run cell by cell, with what they print and draw.

Charts become SVG here, so that the pages need no script. A notebook that was run before, with this
version of it and of the package, is taken from the folder of its last run.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair
import vl_convert

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
CAPTURES = ROOT / "calibration" / "local-disk"
LEFT_OUT = "*Sliders: in the notebook only.*"


def all_pages(kept: Path) -> dict[str, str]:
    """Path below ``generated/`` and text of each notebook's page; runs are kept in *kept*."""
    kept.mkdir(parents=True, exist_ok=True)
    found = {}
    for book in sorted(NOTEBOOKS.glob("*.ipynb")):
        file = kept / f"{book.stem}-{digest(book)}.md"
        if not file.exists():
            file.write_text(page(book), "utf-8")
        found[f"notebooks/{book.stem}.md"] = file.read_text("utf-8")
    return found


def digest(book: Path) -> str:
    """Of all that a notebook's outputs follow from, libraries aside."""
    made_of = [book, Path(__file__), *CAPTURES.glob("*.json")]
    made_of += [f for f in (ROOT / "nvmesim").rglob("*") if f.suffix in (".py", ".toml")]
    state = hashlib.sha256()
    for file in sorted(made_of):
        state.update(file.read_bytes())
    return state.hexdigest()[:12]


def page(book: Path) -> str:
    """Run *book* in a folder of its own; its text, code and outputs as Markdown."""
    cells = json.loads(book.read_text("utf-8"))["cells"]
    parts = []
    with _away_from_here(), warnings.catch_warnings():
        warnings.simplefilter("error")
        names: dict[str, Any] = {"__name__": "__main__"}
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(source)
                continue
            parts.append(f"```python\n{source}\n```")
            parts.append(LEFT_OUT if "ipywidgets" in source else "\n\n".join(run(source, names)))
    return "\n\n".join(part for part in parts if part) + "\n"


@contextlib.contextmanager
def _away_from_here() -> Iterator[None]:
    """A folder with the captures, and a cache that nobody else has."""
    before, cache = Path.cwd(), os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(CAPTURES, Path(folder, "captures"), ignore=shutil.ignore_patterns("logs"))
        os.environ["XDG_CACHE_HOME"] = str(Path(folder, "cache"))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.pop("XDG_CACHE_HOME")
            if cache is not None:
                os.environ["XDG_CACHE_HOME"] = cache


def run(source: str, names: dict[str, Any]) -> list[str]:
    """Run a cell; what it printed, displayed, and its last value, as Markdown."""
    shown: list[str] = []
    names["display"] = lambda value: shown.append(rendered(value))
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    if printed.getvalue():
        shown.insert(0, f"```text\n{printed.getvalue().rstrip()}\n```")
    if value is not None:
        shown.append(rendered(value))
    return shown


def rendered(value: Any) -> str:
    """*value* as a notebook would show it."""
    if isinstance(value, altair.TopLevelMixin):
        shown = value._repr_mimebundle_()
        svg = shown.get("image/svg+xml") if isinstance(shown, dict) else None
        return output(svg or vl_convert.vegalite_to_svg(value.to_json()))
    if hasattr(value, "_repr_html_"):
        return output(str(value._repr_html_()))
    return f"```text\n{value!r}\n```"


def output(markup: str) -> str:
    """*markup* so that Markdown leaves it alone: no empty lines."""
    lines = (line.strip() for line in markup.splitlines())
    return '```{raw} html\n<div class="output">' + "\n".join(filter(None, lines)) + "</div>\n```"
