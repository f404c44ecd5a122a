"""One trial: the tests of a module in a child process, with or without a mutant."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path

from tests.mutation.mutants import Mutant, mutated

ROOT = Path(__file__).parents[2]
FOREIGN = ("numpy", "scipy.stats", "scipy.optimize", "numba", "simpy", "pydantic")
"""Imported once, before the children: of ours nothing may be, since a mutant changes its import."""
MEMORY = 12 << 30
"""Bytes of address space; a mutant that wants more is noticed, and the machine lives on."""


def path_of(module: str) -> Path:
    return ROOT / "nvmesim" / Path(*module.split(".")).with_suffix(".py")


def preload() -> None:
    for name in FOREIGN:
        importlib.import_module(name)


def unnoticed(tests: tuple[str, ...], mutant: Mutant, limit_s: int) -> bool:
    """Whether *tests* pass with *mutant*; one that needs more than *limit_s* of CPU hangs."""
    return _run(tests, mutant, limit_s)[0]


def seconds_of(tests: tuple[str, ...]) -> float:
    """CPU seconds of *tests* as the source is; without a pass, nothing could be learned."""
    passed, seconds = _run(tests, None, 1200)
    if not passed:
        raise SystemExit(f"the tests fail without a change: {' '.join(tests)}")
    return seconds


def _run(tests: tuple[str, ...], mutant: Mutant | None, limit_s: int) -> tuple[bool, float]:
    said = tempfile.TemporaryFile()  # noqa: SIM115 -- the child writes to it as well
    child = os.fork()
    if child == 0:
        code = 1
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:  # a mutant may end the interpreter in any way
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            code = _tests_of_child(tests, mutant)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    passed = os.waitstatus_to_exitcode(status) == 0
    with said:
        if mutant is None and not passed:
            said.seek(0)
            print(said.read().decode("utf-8", "replace"), file=sys.stderr)
    return passed, usage.ru_utime + usage.ru_stime


def _tests_of_child(tests: tuple[str, ...], mutant: Mutant | None) -> int:
    """Import the changed module, run the tests, return their exit code."""
    if mutant is not None:
        _change_import(mutant)
    import pytest

    chosen = ["-m", "not slow and not browser", "-p", "no:xdist", "-p", "no:cacheprovider"]
    return int(pytest.main(["-x", "-q", *chosen, *tests]))


def _change_import(mutant: Mutant) -> None:
    name, file = f"nvmesim.{mutant.module}", path_of(mutant.module)
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        if fullname != name:
            return usual(self, fullname)
        return compile(mutated(file.read_text("utf-8"), mutant.number), str(file), "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
