"""The compiled loop as machine code: from disk if an earlier run left it, else compiled now.

Numba is needed only to compile (`kernel_object`, 15 s, once); what it made is kept as an object
file, which LLVM links into this process in 3 ms. Its name holds what it depends on: the text of
every file of the loop, the processor with its features, Numba and LLVM. So it is never stale, and
what was made for one processor is never run by another.

With NUMBA_DISABLE_JIT or NUMBA_BOUNDSCHECK set, the loop is Numba's own (`kernel.advance`): there
it can raise.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from nvmesim import code_cache
from nvmesim.array_types import Ints
from nvmesim.engine.compiled.kernel_state import ARRAY_WORDS, ENTRY, ROWS, EngineRun, Net, Room

Loop = Callable[[EngineRun, Room, int, int], int]
"""Called with (run, room, completions, until_ps), returns a status: see `kernel.advance`."""

KEPT: Final = 16
"""Object files that stay in the folder: of several processors, or states of the sources."""
CHECKS: Final = ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK")
"""Numba's own switches, in the environment: each makes the loop slow, and able to raise."""

_HERE: Final = Path(__file__).parent
_INT64: Final = np.dtype(np.int64)
_compiling = threading.Lock()
_linked: list[Any] = []  # what LLVM must keep while the function is in use


def loop_of(net: Net) -> Loop:
    """Return the loop for an engine that runs *net*."""
    if _checks():
        from nvmesim.engine.compiled import kernel

        return lambda run, room, completions, until: int(
            kernel.advance(net, run, room, completions, until)
        )
    return _Native(net)


def is_compiled() -> bool:
    """True if machine code of the present sources for this processor is on disk."""
    return _checks() or _kept() is not None


def _checks() -> bool:
    """True if the environment asks for a loop without compiling, or with bounds checked."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in CHECKS)


class _Native:
    """The function, and the table of the arrays of one engine that it works on."""

    def __init__(self, net: Net) -> None:
        with _compiling:
            self._call = _function()
        n_net, n_run = len(Net._fields), len(EngineRun._fields)
        self._table = np.zeros((n_net + n_run + len(Room._fields), ARRAY_WORDS), np.int64)
        self._known: list[Ints | None] = [None] * len(self._table)
        self._first = n_net
        for i, (name, array) in enumerate(zip(Net._fields, net, strict=True)):
            self._put(i, name, array)
        self._names = EngineRun._fields + Room._fields
        self._returned = ctypes.c_int64()
        self._arguments = (
            ctypes.addressof(self._returned), None, self._table.__array_interface__["data"][0]
        )  # fmt: skip

    def _put(self, i: int, name: str, array: Ints) -> None:
        # raw memory from here on: nobody else would notice another type or layout
        known, fits = self._known[i], True
        if known is None or known.shape != array.shape:
            row = ROWS.get(name, ())
            if row or array.ndim > 1:
                fits = all(n in (None, m) for n, m in zip(row, array.shape[1:], strict=True))
            self._table[i, 1 : 1 + array.ndim] = array.shape
        if array.dtype != _INT64 or not array.flags.c_contiguous or not fits:
            raise TypeError(f"{name} is {array.dtype}{array.shape}, not int64[n, {ROWS.get(name)}]")
        self._table[i, 0] = array.__array_interface__["data"][0]
        self._known[i] = array  # as long as its address is in use

    def __call__(self, run: EngineRun, room: Room, completions: int, until: int) -> int:
        for i, array in enumerate(chain(run, room), start=self._first):
            if array is not self._known[i]:
                self._put(i, self._names[i - self._first], array)
        self._call(*self._arguments, completions, until)
        return self._returned.value


@cache
def _function() -> Any:
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine_here())
    engine.add_object_file(llvm.ObjectFileRef.from_data(_object()))
    engine.finalize_object()
    _linked.append(engine)
    words = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2
    return ctypes.CFUNCTYPE(ctypes.c_int32, *words)(engine.get_function_address(ENTRY))


def _object() -> bytes:
    """Return the object file from disk; compile and keep it if there is none."""
    found = _kept()
    if found is not None:
        return found
    from nvmesim.engine.compiled.kernel_object import object_code

    made = object_code(machine_here())
    code_cache.save(_file_name(), made, keep=KEPT)
    return made


def _kept() -> bytes | None:
    return code_cache.load(_file_name())


@cache
def _file_name() -> str:
    return f"loop-{sources()}.o"


def sources() -> str:
    """Return a key that changes with anything that the machine code depends on."""
    import llvmlite

    numba = find_spec("numba")
    version = Path(numba.origin).with_name("_version.py") if numba and numba.origin else None
    digest = hashlib.sha256(repr((llvmlite.__version__, *processor())).encode())
    for path in [*loop_files(), *([version] if version else [])]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def loop_files() -> list[Path]:
    """Return the files that the loop is made of."""
    folder = _HERE
    package = folder.parents[1]
    others = [package / "rng.py", package / "network" / "network.py"]
    contract = folder.parent / "contract.py"
    return [*sorted(folder.glob("kernel*.py")), contract, Path(__file__), *others]


@cache
def machine_here() -> Any:
    """LLVM's view of this processor, with the options that Numba takes."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    reloc = "static" if target.name.startswith("x86") else "default"
    cpu, features = processor()
    return target.create_target_machine(
        cpu=cpu, features=features, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )


@cache
def processor() -> tuple[str, str]:
    """Return the name and the features of this processor, as LLVM has them."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
