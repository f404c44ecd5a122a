"""One trial: the tests of a module in a child process, with or without a mutant.

The parent collects the tests once, so that a child begins with all of them imported. There the
changed function gets its new code in place, whoever holds it; a change outside of functions is
imported anew.
"""

import importlib.machinery
import os
import resource
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, mutated

ROOT = Path(__file__).parents[2]
MEMORY = 12 << 30
"""Bytes of address space; a mutant that wants more is noticed, and the machine lives on."""
OPTIONS = ("-x", "-q", "-m", "not slow and not browser", "-p", "no:xdist", "-p", "no:cacheprovider")


def path_of(module: str) -> Path:
    return ROOT / "nvmesim" / Path(*module.split(".")).with_suffix(".py")


def unnoticed(tests: tuple[str, ...], mutant: Mutant, limit_s: int) -> bool:
    """Whether *tests* pass with *mutant*; one that needs more than *limit_s* of CPU hangs."""
    return _run(tests, mutant, limit_s)[0]


def prepare(tests: tuple[str, ...]) -> float:
    """Import *tests* and what they test; CPU seconds of a run as the source is.

    Without a pass nothing could be learned: SystemExit.
    """
    with tempfile.TemporaryFile() as said:
        kept = os.dup(1)
        os.dup2(said.fileno(), 1)
        code = pytest.main([*OPTIONS, "--collect-only", *tests])
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
    passed, seconds = _run(tests, None, 1200) if code == 0 else (False, 0.0)
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
            if mutant is not None:
                _change(mutant)
            code = int(pytest.main([*OPTIONS, *tests]))
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


def _change(mutant: Mutant) -> None:
    file = path_of(mutant.module)
    code = compile(mutated(file.read_text("utf-8"), mutant.number), str(file), "exec")
    name = f"nvmesim.{mutant.module}"
    new = {c.co_qualname: c for c in _codes(code)}
    changed = [
        f
        for f in _functions(sys.modules[name])
        if f.__code__.co_qualname in new and _differs(f.__code__, new[f.__code__.co_qualname])
    ]
    if len(changed) != 1:  # of the module itself, or of what no function holds
        _import_anew(name, code)
        return
    changed[0].__code__ = new[changed[0].__code__.co_qualname]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """All code objects in *code* that a function of a module or class has."""
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            if "<" not in part.co_qualname:  # the body of a class
                yield from _codes(part)


def _differs(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether they do different things; both are compiled from trees with the same lines."""
    return one.co_code != other.co_code or _constants(one) != _constants(other)


def _constants(code: types.CodeType) -> list[object]:
    return [
        (c.co_code, _constants(c)) if isinstance(c, types.CodeType) else (type(c), c)
        for c in code.co_consts
    ]


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    todo = list(vars(module).values())
    while todo:
        item = todo.pop()
        item = getattr(item, "__wrapped__", item)  # of a cache
        if isinstance(item, property):
            todo += [f for f in (item.fget, item.fset) if f is not None]
        elif isinstance(item, classmethod | staticmethod):
            todo.append(item.__func__)
        elif isinstance(item, types.FunctionType) and item.__module__ == module.__name__:
            yield item
        elif isinstance(item, type) and item.__module__ == module.__name__:
            todo += vars(item).values()


def _import_anew(name: str, code: types.CodeType) -> None:
    """Forget what is imported of ours; the import of *name* will yield *code*."""
    for known in [*sys.modules]:
        ours = known.split(".")[0] in ("nvmesim", "tests", "conftest")
        if ours and not known.startswith("tests.mutation"):
            del sys.modules[known]
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        return code if fullname == name else usual(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
