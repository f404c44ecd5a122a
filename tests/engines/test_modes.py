"""The suite's claims hold with bounds checking, and with the JIT off (where NumPy sees a wrap)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nvmesim.engine import kernel
from nvmesim.engine.kernel import sources

ROOT = Path(__file__).parents[2]

EQUALITY = "from tests.engines.test_equality import compare_seeds; print(compare_seeds(range({})))"
MUTATIONS = "from tests.engines.mutations import survive; print(survive(range({})))"


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_jit_off() -> None:
    run_python(EQUALITY.format(40), NUMBA_DISABLE_JIT="1")


def test_bounds_checked(tmp_path: Path) -> None:
    # Numba's cache does not know the flag: a directory of its own keeps the two apart
    code = EQUALITY.format(60) + "\n" + MUTATIONS.format(40)
    run_python(code, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))


@pytest.mark.slow
def test_many_mutations_with_the_jit_off() -> None:
    run_python(MUTATIONS.format(500), NUMBA_DISABLE_JIT="1")


def test_every_part_of_the_loop_is_in_its_key() -> None:
    """What the loop is made of decides whether the code on disk is used again."""
    engine = ROOT / "nvmesim" / "engine"
    imported = set()
    for path in engine.glob("kernel*.py"):
        imported |= set(re.findall(r"from (nvmesim[\w.]*) import", path.read_text()))
    known = {f"nvmesim.engine.{path.stem}" for path in engine.glob("kernel*.py")}
    assert imported <= known | {"nvmesim.engine.contract", "nvmesim.rng", "nvmesim.network"}


def test_the_key_changes_with_the_bounds_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sources()
    assert sources() == before
    monkeypatch.setattr(kernel.config, "BOUNDSCHECK", 1 - int(kernel.config.BOUNDSCHECK or 0))
    assert sources() != before
