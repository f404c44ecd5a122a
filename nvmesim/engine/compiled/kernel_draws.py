"""How the loop's functions are compiled, and the draws of `nvmesim.rng`: the same numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import config, njit, uint64

from nvmesim import rng
from nvmesim.rng import CELLS

# Nothing here allocates; counting references to arrays that others own would cost 10 to 25 %.
# Nothing divides by zero either: `Network.check` has seen to it.
# What is compiled is typed by Numba from its arguments; Numba has no types for mypy, and signatures
# would only move the complaint to the decorator. So those functions, no others, say no-untyped-def.
LEAN: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
compiled: Any = njit(**LEAN)
inlined: Any = njit(forceinline=True, **LEAN)
part: Any = njit(inline="always", **LEAN)
"""For the body of `entry`'s function: compiled once, as a part of it."""
entry: Any = njit(nogil=True, **LEAN)
"""For the loop where it checks bounds; else its machine code is made by `kernel_object`."""

_M1: Final = np.uint64(0xBF58476D1CE4E5B9)
_M2: Final = np.uint64(0x94D049BB133111EB)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_S27: Final = np.uint64(27)
_S30: Final = np.uint64(30)
_S31: Final = np.uint64(31)
_S32: Final = np.uint64(32)
_S52: Final = np.uint64(52)
_S40: Final = np.uint64(40)
_S28: Final = np.uint64(28)
_LOW12: Final = np.uint64(0xFFF)


def _compiled(plain: Any) -> Any:
    """Decorator: compile, or take *plain* where the JIT is off, as NumPy warns of meant wraps."""
    off = getattr(config, "DISABLE_JIT", False)
    return lambda f: plain if off else njit(inline="always")(f)


@_compiled(rng.mix)
def mix(key, word):
    """As `rng.mix`."""
    x = uint64(key) + (uint64(word) + uint64(1)) * _GOLDEN
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return np.int64(x ^ (x >> _S31))


@_compiled(rng.below)
def below(bits, n):
    """As `rng.below`."""
    return np.int64(((uint64(bits) >> _S32) * uint64(n)) >> _S32)


@_compiled(rng.quantile)
def quantile(table, row, bits):
    """As `rng.quantile`."""
    u = uint64(bits)
    cell = np.int64(u >> _S52)
    if cell < CELLS - 1:
        fraction = np.int64((u >> _S40) & _LOW12)
        low = table[row, cell]
        return low + (((table[row, cell + 1] - low) * fraction) >> 12)
    cell = CELLS + 1 + np.int64((u >> _S40) & _LOW12)
    fraction = np.int64((u >> _S28) & _LOW12)
    low = table[row, cell]
    return low + (((table[row, cell + 1] - low) * fraction) >> 12)
