"""The layers of the house: one list in pyproject.toml, README and docs; no circles; no crowds."""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nvmesim"
MOST_MODULES = 15
"""Of one folder."""
TOP = {
    "__init__", "__main__", "array_types", "code_cache", "drawing", "errors", "files", "limits",
    "numba_config", "rng", "units", "version", "warning",
}  # fmt: skip


def contract() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    first, *_ = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return first["layers"]


@pytest.mark.parametrize("page", ["README.md", "docs/design.md"])
def test_pages_have_the_layers_of_the_contract(page):
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert " > ".join(f"`{layer}`" for layer in contract()) in text


def test_every_room_is_in_the_contract():
    listed = {room.strip() for layer in contract() for room in layer.split("|")}
    rooms = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert rooms | (TOP - {"__init__", "__main__"}) == listed


def test_nothing_else_lies_at_the_top():
    assert {p.stem for p in PACKAGE.glob("*.py")} == TOP


def test_no_folder_is_crowded():
    counts = Counter(p.parent for p in PACKAGE.rglob("*.py") if p.name != "__init__.py")
    assert {str(d): n for d, n in counts.items() if n > MOST_MODULES} == {}


def imports() -> dict[str, set[str]]:
    """Module -> modules of the package that it imports anywhere, also for types only."""
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for name, path in paths.items():
        targets = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= {m if m in paths else node.module for m in inner}
            elif isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
        found[name] = targets & paths.keys()
    return found


def test_no_circles():
    graph = imports()
    graph.pop("nvmesim")  # its names are looked up when they are used, for types here
    while True:
        leaves = {m for m, uses in graph.items() if not uses & graph.keys()}
        if not leaves:
            break
        for module in leaves:
            del graph[module]
    assert re.sub(r"nvmesim\.", "", str(sorted(graph))) == "[]"
