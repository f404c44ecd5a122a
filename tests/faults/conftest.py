"""Commands as processes of their own: they are killed, starved and interrupted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nvmesim.cli.main import run_command
from nvmesim.scenario.load import to_text
from tests.children import unmeasured
from tests.servers import one_server

CODE = "from nvmesim.cli import main; main()"


LOAD = {"threads": 2, "outstanding": 4}
SCENARIO = to_text(one_server(
    "samsung-980pro-1tb", [LOAD], 2, name="two drives", volume=[{"raid": "raid1"}],
    run={"requests": 20_000},
))  # fmt: skip


POINTS = """op,block_size,jobs,iodepth,iops,lat_mean_us
randread,4 KiB,1,1,12500,80
randread,4 KiB,4,64,900000,
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A scenario and a table of points, in a folder that holds nothing else."""
    found = {"scenario": tmp_path / "two.toml", "points": tmp_path / "points.csv"}
    found["scenario"].write_text(SCENARIO, "utf-8")
    found["points"].write_text(POINTS, "utf-8")
    return found


@pytest.fixture
def start(tmp_path: Path):
    """Start ``nvmesim`` with the given arguments in that folder, with a cache of its own."""
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment = {**os.environ, **cache}

    def run(*arguments: object, limit=None) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CODE, *map(str, arguments)]
        own = environment if limit is None else {**unmeasured(), **cache}
        return subprocess.Popen(
            command, cwd=tmp_path, env=own, text=True, preexec_fn=limit,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return run


@pytest.fixture
def refused(tmp_path: Path, monkeypatch, capfd):
    """Run ``nvmesim`` in this process, see it refuse in one line, return what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments: object, with_code: int = 2) -> str:
        code = run_command([str(a) for a in arguments])
        said = capfd.readouterr().err
        assert code == with_code, (code, said)
        assert_one_line(said)
        return said

    return run


def assert_one_line(said: str) -> None:
    """The last line is the program's, and there is no traceback."""
    assert "Traceback" not in said, said
    assert said.strip().splitlines()[-1].startswith("nvmesim: "), said
