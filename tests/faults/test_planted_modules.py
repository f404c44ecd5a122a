"""What lies in the current folder is not run: modules under known names, settings of Numba."""

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.children import unmeasured

NAMES = (
    "nvmesim", "numpy", "numba", "polars", "json", "asyncio", "multiprocessing", "concurrent",
    "uvicorn", "starlette", "dask", "distributed", "sitecustomize", "usercustomize", "webbrowser",
)  # fmt: skip
PROGRAM = "import sys; sys.path.remove(''); from nvmesim.cli import main; main()"
"""As the installed command begins: the current folder is not on the path."""
COMMANDS = {
    "run": "run two.toml",
    "sweep": "sweep two.toml --over drives.0.count=2,3 --workers 2 -o table.csv",
    "choose": "choose goal.toml --workers 2",
    "calibrate": "calibrate points.csv -o drive.toml",
    "ui": "ui --no-browser",
}
GOAL = """
scenario = "two.toml"
[candidates]
"drives.0.count" = [2, 3]
[constraints]
iops = "10k/s"
[objective]
minimize = "drives"
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_what_lies_in_the_current_folder_is_not_run(
    command: str, files: dict[str, Path], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n", "utf-8")
    (tmp_path / "goal.toml").write_text(GOAL, "utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *COMMANDS[command].split()], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as process:  # fmt: skip
        if command == "ui":
            assert process.stdout is not None
            assert any("http://127.0.0.1" in line for line in process.stdout)
            os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate(timeout=120)[0]
    assert not mark.exists(), mark.read_text("utf-8")
    assert process.returncode in (0, 1, -signal.SIGKILL), said


ASK = """
{first}
from nvmesim.engine.compiled import kernel_draws
from numba.core import config
config.reload_config()  # as its compiler does
import yaml
print(config.DISABLE_JIT, int(config.OPT), yaml.safe_load("1"))
"""
FILES = {
    "no compilation": "disable_jit: 1\n",
    "no YAML": "a: [",
    "ten to the ninth": "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefghi")),
}


def settings(folder: Path, first: str = "", **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(first=first)], cwd=folder, text=True,
        env={**unmeasured(), **variables}, capture_output=True, timeout=120,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("what", FILES)
def test_the_file_of_a_stranger_is_not_read(what, tmp_path):
    (tmp_path / ".numba_config.yaml").write_text(FILES[what])
    assert settings(tmp_path) == "0 3 1"


def test_variables_are_the_users_own(tmp_path):
    assert settings(tmp_path, NUMBA_OPT="1") == "0 1 1"


def test_a_numba_that_was_there_before_is_left_as_it_is(tmp_path):
    """It also shows that the file counts, if nobody prevents it."""
    (tmp_path / ".numba_config.yaml").write_text(FILES["no compilation"])
    assert settings(tmp_path, first="import numba") == "1 3 1"
