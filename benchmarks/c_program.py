"""Builds and runs `pools.c`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from benchmarks.models import SIGMA, Pool
from benchmarks.sample import Piece, Sample

SOURCE = Path(__file__).with_name("pools.c")


class NoCompilerError(RuntimeError):
    """There is no C compiler here, or it fails."""


def compiler() -> str | None:
    """Return the C compiler: $CC, cc, gcc or clang."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    return None


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nvmesim-bench-")


@cache
def build(model: Pool, wheel: bool) -> Path:
    """Compile *model*; NoCompilerError where it cannot be."""
    cc = compiler()
    if cc is None:
        raise NoCompilerError("no C compiler here")
    numbers = {
        "WHEEL": int(wheel), "MODEL": f"'{model.name.upper()}'", "DRIVES": model.drives,
        "SOCKETS": model.sockets, "CORES": model.cores, "POOL": model.pool,
        "CHILDREN": model.children, "CPU_PS": round(model.cpu * 1e6),
        "LINK_PS": round(model.link * 1e6), "CROSS_PS": round(model.cross * 1e6),
        "READ_PS": model.read * 1e6, "WRITE_PS": model.write * 1e6, "SIGMA": SIGMA,
    }  # fmt: skip
    out = Path(_folder().name) / f"{model.name}{int(wheel)}"
    words = [f"-D{key}={value}" for key, value in numbers.items()]
    failed = ""
    for flags in (["-O2", "-march=native"], ["-O2"]):  # not every compiler knows the first
        done = subprocess.run(
            [cc, *flags, *words, str(SOURCE), "-o", str(out), "-lm"], capture_output=True, text=True
        )
        if done.returncode == 0:
            return out
        failed = done.stderr
    raise NoCompilerError(f"{cc} fails: {failed.strip().splitlines()[-1] if failed else '?'}")


def c_heap(model: Pool, outstanding: int, warm: int) -> Piece:
    """Return the C program with a 4-ary heap."""
    return _piece(build(model, False), outstanding, warm)


def c_wheel(model: Pool, outstanding: int, warm: int) -> Piece:
    """Return the C program with a bitmapped timing wheel."""
    return _piece(build(model, True), outstanding, warm)


def _piece(program: Path, outstanding: int, warm: int) -> Piece:
    calls = 0

    def run(requests: int) -> Sample:
        nonlocal calls
        calls += 1
        words = [str(x) for x in (outstanding, warm, requests, calls)]
        line = subprocess.run([str(program), *words], capture_output=True, text=True, check=True)
        cpu_s, mean, p99, iops = map(float, line.stdout.split())
        return Sample(requests, cpu_s, mean / 1e6, p99 / 1e6, iops)

    return run
