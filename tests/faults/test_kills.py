"""kill -9 at any moment: files are whole or not there, and what was there before stays."""

from __future__ import annotations

import random
import time
import tomllib
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nvmesim as ns

BEFORE = "what was there before"
FEW, MANY = 3, 25
KILLS = [FEW, pytest.param(MANY, marks=pytest.mark.slow)]


def is_whole(path: Path) -> bool:
    """Whether *path* is a complete file of its kind, or as it was, or not there."""
    if not path.exists() or path.read_bytes() == BEFORE.encode():
        return True
    if path.suffix == ".parquet":
        return pl.read_parquet(path).height > 0
    text = path.read_text("utf-8")
    if path.suffix == ".html":
        return text.rstrip().endswith("</html>")
    return tomllib.loads(text)["kind"] == "drive"


def ended(child) -> int:
    """Its exit code; its pipes are read and closed."""
    child.communicate(timeout=600)
    return child.returncode


def kill_at_random(start, arguments, outputs, kills, seed):
    """Kill the command *kills* times, at moments up to the time that it needs."""
    began = time.monotonic()
    assert ended(start(*arguments)) in (0, 1)
    needs = time.monotonic() - began
    assert all(out.exists() and is_whole(out) for out in outputs)
    roll = random.Random(seed)
    for kill in range(kills):
        for out in outputs:
            if kill % 2:
                out.write_text(BEFORE)
            else:
                out.unlink(missing_ok=True)
        child = start(*arguments)
        # the last third, where files are written, more often than the start
        time.sleep(needs * (1 - roll.random() ** 2))
        child.kill()
        child.communicate(timeout=60)
        assert all(is_whole(out) for out in outputs)
    assert ended(start(*arguments)) in (0, 1)
    assert all(is_whole(out) and out.read_bytes() != BEFORE.encode() for out in outputs)


@pytest.mark.parametrize("kills", KILLS)
def test_run(files, start, tmp_path, kills):
    report, requests = tmp_path / "r.html", tmp_path / "r.parquet"
    arguments = ["run", files["scenario"], "--report", report, "--requests", requests]
    kill_at_random(start, arguments, [report, requests], kills, seed=1)


@pytest.mark.slow
def test_calibrate(files, start, tmp_path):
    profile, report = tmp_path / "p.toml", tmp_path / "p.html"
    arguments = ["calibrate", files["points"], "-o", profile, "--report", report]
    kill_at_random(start, arguments, [profile, report], MANY, seed=2)


@pytest.mark.parametrize("kills", KILLS)
def test_a_sweep_that_is_killed_again_and_again(files, start, tmp_path, kills):
    out = tmp_path / "s.parquet"
    over = "workload.outstanding=1..24"
    arguments = ["sweep", files["scenario"], "--over", over, "-o", out, "--no-cache",
                 "--workers", "2", "--resume"]  # fmt: skip
    roll = random.Random(3)
    for _ in range(kills):
        child = start(*arguments)
        time.sleep(0.5 + 3 * roll.random())
        child.kill()
        child.communicate(timeout=60)
        if out.exists():
            break
    assert ended(start(*arguments)) == 0
    whole = ns.sweep(files["scenario"], {"workload.outstanding": "1..24"}, cache=False, workers=1)
    assert_frame_equal(pl.read_parquet(out), whole)
