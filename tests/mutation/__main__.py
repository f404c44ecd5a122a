"""``python -m tests.mutation [GROUP…] [--each N] [--seed S]``: a table, and who survived.

By default a sample of the mutants of each module is tried; ``--each 0`` tries all.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import os
import random
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import Mutant, mutated, sites

ROOT = Path(__file__).parents[2]
KERNEL_CHECK = "tests/mutation/check_kernel.py"


@dataclass(frozen=True)
class Group:
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    jit: bool = True
    limit_s: int = 120
    """CPU time; a mutant that takes longer is caught: it hangs."""


GROUPS = {
    "planner": Group(
        ("model.raid_row", "model.raid_parity", "model.raid_map", "model.raid_geometry",
         "model.raid_plan", "model.raid_merge", "model.raid_pieces", "model.raid_policy"),
        ("tests/raid/test_row.py", "tests/raid/test_map.py", "tests/raid/test_geometry.py",
         "tests/raid/test_merge.py", "tests/raid/test_table.py", "tests/raid/test_rebuild.py",
         "tests/raid/test_md_cases.py"),
    ),
    "kernel": Group(("engine.kernel",), (KERNEL_CHECK,), jit=False),
    "fit": Group(
        ("fit.points", "fit.families", "fit.classes", "fit.tail", "fit.search", "fit.bootstrap"),
        ("tests/fit/test_points.py", "tests/fit/test_families.py", "tests/fit/test_bootstrap.py",
         "tests/fit/test_trace_fit.py", "nvmesim/fit"),
    ),
}  # fmt: skip


def path_of(module: str) -> Path:
    return ROOT / "nvmesim" / Path(*module.split(".")).with_suffix(".py")


def attempt(group: Group, mutant: Mutant) -> bool:
    """Whether a test noticed *mutant*."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (group.limit_s, group.limit_s))
        _run_tests(group, mutant)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != 0


def _run_tests(group: Group, mutant: Mutant) -> None:
    """In the child: import the changed module, run the tests, leave with their exit code."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    name, file = f"nvmesim.{mutant.module}", path_of(mutant.module)
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        if fullname != name:
            return usual(self, fullname)
        return compile(mutated(file.read_text("utf-8"), mutant.number), str(file), "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    import pytest

    code = 1
    try:  # a mutant may end the interpreter in any way
        code = int(pytest.main(["-x", "-q", "-m", "not slow", "-p", "no:xdist", *group.tests]))
    finally:
        os._exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutation")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], default=list(GROUPS))
    parser.add_argument("--each", type=int, default=12, help="mutants a module, 0: all")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for name in asked.groups:
        group = GROUPS[name]
        os.environ["NUMBA_DISABLE_JIT"] = "0" if group.jit else "1"
        for module in group.modules:
            found = list(sites(module, path_of(module).read_text("utf-8")))
            chosen = found
            if asked.each and len(found) > asked.each:
                chosen = sorted(
                    random.Random(asked.seed).sample(found, asked.each), key=lambda m: m.number
                )
            caught = 0
            for mutant in chosen:
                noticed = attempt(group, mutant)
                caught += noticed
                if not noticed:
                    print(f"         survived  {mutant}", flush=True)
            print(f"{name:8} {module:22} {caught} of {len(chosen)} noticed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
