"""Intervals in the JSON of every command are whole: none of zero width, none of chance alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SMALL

DATA = Path(__file__).parent / "data"
GOAL = """
scenario = "server.toml"
[candidates]
"drives.0.count" = [1, 2]
[constraints]
iops = "50k/s"
[objective]
minimize = "drives"
"""
LEAST = 0.05
"""Width of an interval of IOPS by its value: the error of the model is wider, chance narrower."""
COMMANDS = {
    "run": ["run", "server.toml"],
    "best": ["best", "server.toml", "--p99", "1ms"],
    "choose": ["choose", "goal.toml", "--workers", "1"],
    "compare": ["compare", "server.toml", "--set", "workload.0.outstanding=8"],
    "sweep": ["sweep", "server.toml", "--over", "workload.0.outstanding=1,4", "--workers", "1"],
    "sensitivity": ["sensitivity", "server.toml", "--requests", "2000", "--workers", "1"],
    "diagnose": ["diagnose", "server.toml", str(DATA / "qd4.json"), "--workers", "1"],
    "size": ["size", "--iops", "3M"],
    "validate": ["validate", "interfaces"],
}


def intervals(tree: Any, path: str = "") -> Iterator[tuple[str, float, float, float]]:
    """Where, value, low and high of all that has ends: `value`, `x` beside `x_low`, pairs."""
    if isinstance(tree, list):
        for i, item in enumerate(tree):
            yield from intervals(item, f"{path}.{i}")
    if not isinstance(tree, dict):
        return
    for key, item in tree.items():
        yield from intervals(item, f"{path}.{key}")
        ends = tree.get(f"{key}_low"), tree.get(f"{key}_high")
        if isinstance(item, float) and None not in ends:
            yield f"{path}.{key}", item, *ends
    if {"value", "low", "high"} <= set(tree) and None not in (tree["low"], tree["high"]):
        yield path, tree["value"], tree["low"], tree["high"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_a_partial_interval(command, nvmesim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("server.toml").write_text(SMALL, encoding="utf-8")
    Path("goal.toml").write_text(GOAL, encoding="utf-8")
    said = nvmesim(*COMMANDS[command], "--json")
    assert said.code in (0, 1), said.err
    found = [i for i in intervals(json.loads(said.out)) if i[1]]
    assert [path for path, _, low, high in found if not low < high] == []
    outside = [i for i in found if isinstance(i[1], float) and not i[2] <= i[1] <= i[3]]
    assert outside == []
    rates = [(path, (high - low) / value) for path, value, low, high in found if "iops" in path]
    assert [path for path, width in rates if width < LEAST] == []
    assert rates or command in ("size", "validate", "sensitivity", "diagnose")
