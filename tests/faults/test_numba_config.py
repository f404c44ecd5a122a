"""A file of Numba's settings in the current folder is not read, whatever it holds."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.children import unmeasured

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
