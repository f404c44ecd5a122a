"""The suite's claims hold with bounds checking, and with the JIT off (where NumPy sees a wrap)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nvmesim import code_cache
from nvmesim.engine.compiled import native

ROOT = Path(__file__).parents[2]

EQUALITY = "from tests.engines.test_equality import compare_seeds; print(compare_seeds(range({})))"
MUTATIONS = "from tests.engines.mutations import survive; print(survive(range({})))"


def run_python(code: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in native.CHECKS}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


@pytest.mark.long
def test_jit_off() -> None:
    run_python(EQUALITY.format(40), NUMBA_DISABLE_JIT="1")


@pytest.mark.slow  # `make test-bounds`, which CI runs, does this and more
def test_bounds_checked(tmp_path: Path) -> None:
    # Numba's cache does not know the flag: a directory of its own keeps the two apart
    code = EQUALITY.format(60) + "\n" + MUTATIONS.format(40)
    run_python(code, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))


@pytest.mark.slow
def test_many_mutations_with_the_jit_off() -> None:
    run_python(MUTATIONS.format(500), NUMBA_DISABLE_JIT="1")


def test_every_part_of_the_loop_is_in_its_key() -> None:
    """What the loop is made of decides whether the code on disk is used again."""
    files = native.loop_files()
    imported = set()
    for path in files:
        if path.stem.startswith("kernel"):
            found = re.findall(r"from (nvmesim[\w.]*) import (\w+)", path.read_text())
            # "from nvmesim import rng" names a module, other lines what is in one
            imported |= {
                f"{a}.{b}" if (ROOT / a.replace(".", "/")).is_dir() else a for a, b in found
            }
    assert imported <= {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files}


def test_the_key_changes_with_sources_and_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = native.sources()
    assert native.sources() == before
    changed = tmp_path / "kernel.py"
    changed.write_text("another loop")
    monkeypatch.setattr(native, "loop_files", lambda: [changed])
    assert native.sources() != before
    before = native.sources()
    cpu, features = native.processor()
    monkeypatch.setattr(native, "processor", lambda: (cpu, f"{features},+another"))
    assert native.sources() != before


def test_code_on_disk_is_run_without_numba_and_on_arrays_of_its_form() -> None:
    run_python(EQUALITY.format(1))  # leaves it there
    code = EQUALITY.format(1) + "\nimport sys; print(*sys.modules)"
    assert "numba" not in run_python(code).split()
    assert run_python(OTHER_ARRAYS) == "refused\n"


def test_few_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "other.o").touch()
    for i in range(native.KEPT + 3):
        code_cache.save(f"loop-{i}.o", b"code", keep=native.KEPT)
        os.utime(tmp_path / f"loop-{i}.o", (i, i))
    assert len(list(tmp_path.glob("loop-*.o"))) == native.KEPT
    assert (tmp_path / f"loop-{native.KEPT + 2}.o").exists()
    assert (tmp_path / "other.o").exists()


OTHER_ARRAYS = """
import numpy as np
import pytest
from nvmesim.engine.compiled import native
from nvmesim.engine.compiled.engine import kernel_net
from tests.engines.strategies import random_network

net = kernel_net(random_network(1))
for ops in (net.ops.astype(np.int32), net.ops.T, net.ops[:, :5].copy()):
    with pytest.raises(TypeError, match="ops is"):
        native.loop_of(net._replace(ops=ops))
print("refused")
"""
