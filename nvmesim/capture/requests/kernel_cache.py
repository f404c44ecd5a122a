"""Compiled functions of the readers, and where they are kept: in files of ours, not Numba's own.

Numba's cache unpickles, which executes, what it finds in a folder that it does not check, stops
with the pickle's own error at a damaged file, and with RuntimeError where no folder can be written.
Here it is given a cache that does none of that: one file a function and signature, in the folder
of `nvmesim.code_cache`. The name holds all that the code depends on, so that versions, Pythons and
processors share a folder.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

import numba
from numba import njit
from numba.core import caching as _caching
from numba.core import compiler as _compiler
from numba.core import config
from numba.core import serialize as _serialize

from nvmesim import code_cache

P = ParamSpec("P")
R = TypeVar("R")

caching: Any = _caching  # Numba has no types
compiler: Any = _compiler
serialize: Any = _serialize

KEPT: Final = 512
"""Files that stay in the folder: of several processors, Pythons, or states of the sources."""
_FLAGS: Final = ("BOUNDSCHECK", "OPT", "DEBUGINFO_DEFAULT")
"""Numba's own switches that change what it compiles, and that its key of a function leaves out."""


class KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """Cache that a dispatcher of Numba asks before it compiles *function*, and fills afterwards."""

    def __init__(self, function: Callable[..., Any], sources: Callable[[], str]) -> None:
        # Numba's own __init__ looks for a folder, and raises if it finds none
        self._py_func, self._sources, self._cache_path = function, sources, None
        self.enable()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function, None if it is not on disk or cannot be used."""
        try:
            target_context.refresh()
            name = self._file_name(sig, target_context.codegen())
            data = code_cache.load(name)
            if data is None:
                return None
            rebuild = compiler.CompileResult._rebuild
            return rebuild(target_context, *pickle.loads(data))
        except Exception as error:  # whatever it is, compiling does without
            code_cache.unusable(error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled function."""
        if data.library.has_dynamic_globals:  # it points into this process's memory
            return
        try:
            name = self._file_name(sig, data.codegen)
            code_cache.save(name, serialize.dumps(data._reduce()), keep=KEPT)
        except Exception as error:
            code_cache.unusable(error)

    def flush(self) -> None:
        """Do nothing: names tell what is stale."""

    def _file_name(self, sig: Any, codegen: Any) -> str:
        place = (self._py_func.__module__, self._py_func.__qualname__)
        flags = tuple(getattr(config, name, None) for name in _FLAGS)
        versions = (numba.__version__, sys.implementation.cache_tag)
        key = (place, flags, versions, self._sources(), self._index_key(sig, codegen))
        return f"reader-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.nbc"


_LEAN: Final[dict[str, Any]] = {"nogil": True, "_nrt": False, "error_model": "numpy"}


def kernel_files() -> list[Path]:
    """Return every file that compiled functions of the readers are in."""
    return sorted(Path(__file__).parent.glob("*.py"))


@cache
def sources() -> str:
    """Return a digest of every file that compiled functions of the readers are in.

    A function changes with those that it calls, in whichever of them they stand.
    """
    return hashlib.sha256(b"".join(path.read_bytes() for path in kernel_files())).hexdigest()


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """*function* through Numba, without the interpreter lock, kept on disk.

    It must not allocate: then references to arrays need no counting, which costs more than a line.
    """
    made: Any = njit(**_LEAN)(function)
    if not getattr(config, "DISABLE_JIT", 0):
        made._cache = KernelCache(function, sources)
    return cast(Callable[P, R], made)
