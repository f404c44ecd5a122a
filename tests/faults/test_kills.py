"""kill -9 at any moment: files are whole or not there, and what was there before stays."""

import random
import time
import tomllib
import urllib.request
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nvmesim as ns
from nvmesim.study.validate.published import new_set

BEFORE = "what was there before"
FEW, MANY = 1, 100
pytestmark = pytest.mark.long
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
    if path.suffix == ".fio":
        return text.endswith("\n") and "[global]" in text
    tables = tomllib.loads(text)
    return tables.get("kind") == "drive" or {"server", "drives"} <= tables.keys()


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


WRITING = {
    # what is written, and the command before it
    "run": (("r.html", "r.parquet"), "run {scenario} --report {0} --requests {1}"),
    "calibrate": (("p.toml", "p.html"), "calibrate {points} -o {0} --report {1}"),
    "validate": (("v.html",), "validate {folder}/set --report {0}"),
    "best": (("b.html",), "best {scenario} --p99 1ms --report {0}"),
}


@pytest.mark.parametrize(
    ("what", "kills"),
    [("run", FEW), *(pytest.param(w, MANY, marks=pytest.mark.slow) for w in WRITING)],
)
def test_files_are_whole(what, kills, files, start, tmp_path):
    new_set(tmp_path / "set")
    names, command = WRITING[what]
    outputs = [tmp_path / name for name in names]
    arguments = command.format(*outputs, folder=tmp_path, **files).split()
    kill_at_random(start, arguments, outputs, kills, seed=1)


@pytest.mark.parametrize("kills", KILLS)
def test_ui(start, kills):
    """Nothing of a killed app is in the way of the next one."""
    roll = random.Random(7)
    for _ in range(kills):
        child = start("ui", "--no-browser")
        time.sleep(3 * roll.random())
        child.kill()
        child.communicate(timeout=60)
    child = start("ui", "--no-browser")
    try:
        address = child.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=120) as answer:
            assert answer.status == 200
    finally:
        child.kill()
        child.communicate(timeout=60)


@pytest.mark.parametrize("kills", KILLS)
def test_two_sweeps_on_one_cache_of_which_one_is_killed(files, start, tmp_path, kills):
    over = "workload.outstanding=1..12"
    roll = random.Random(8)

    def arguments(name):
        return ["sweep", files["scenario"], "--over", over, "-o", tmp_path / name, "--workers", "1",
                "--resume"]  # fmt: skip

    for _ in range(kills):
        one, two = start(*arguments("a.parquet")), start(*arguments("b.parquet"))
        time.sleep(1 + 3 * roll.random())
        two.kill()
        two.communicate(timeout=60)
        assert ended(one) == 0
    assert ended(start(*arguments("b.parquet"))) == 0
    whole = ns.sweep(files["scenario"], {"workload.outstanding": "1..12"}, cache=False, workers=1)
    for name in ("a.parquet", "b.parquet"):
        assert_frame_equal(pl.read_parquet(tmp_path / name), whole)
