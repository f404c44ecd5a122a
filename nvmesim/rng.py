"""Counter-based random numbers: a draw is a function of its key, never of the order of calls.

A request's key mixes (seed, replication, target of a workload group, submission number at that
target); a child's key mixes its request's key with its ordinal; a draw mixes a token's key with a
purpose. So both engines draw the same numbers, and two what-ifs share theirs (common random
numbers). Users of one target are alike, so it does not matter whose request is the n-th; numbers
over all targets would be dealt out anew when a change moves one target against another, and so
would the user's own count when it moves one user against another: both were measured to be worse.

Source of the mixing function: SplitMix64, Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014 (finaliser "variant 13").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import config, njit, uint64

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
_S16: Final = np.uint64(16)
_LOW12: Final = np.uint64(0xFFF)

CELLS: Final = 4096
"""Equally likely cells of a quantile table; the last one is divided into as many again."""
TABLE: Final = 2 * (CELLS + 1)
"""Entries of one quantile table: CELLS + 1 edges, then CELLS + 1 edges of the last cell."""


_MASK: Final = (1 << 64) - 1
_JIT_OFF: Final = bool(getattr(config, "DISABLE_JIT", False))


def plain_mix(key: int, word: int) -> int:
    """`mix` in Python integers.

    >>> plain_mix(0, 0) == mix(0, 0), plain_mix(-5, 7) == mix(-5, 7)
    (True, True)
    """
    x = (int(key) + (int(word) + 1) * int(_GOLDEN)) & _MASK
    x = ((x ^ (x >> 30)) * int(_M1)) & _MASK
    x = ((x ^ (x >> 27)) * int(_M2)) & _MASK
    x ^= x >> 31
    return x - (1 << 64) if x >> 63 else x


def plain_below(bits: int, n: int) -> int:
    """`below` in Python integers."""
    return (((int(bits) & _MASK) >> 32) * int(n)) >> 32


def plain_quantile(table: np.ndarray, row: int, bits: int) -> int:
    """`quantile` in Python integers."""
    u = int(bits) & _MASK
    cell, fraction = u >> 52, (u >> 40) & 0xFFF
    if cell == CELLS - 1:
        cell, fraction = CELLS + 1 + fraction, (u >> 28) & 0xFFF
    low, high = int(table[row, cell]), int(table[row, cell + 1])
    return low + (((high - low) * fraction) >> 12)


def _compiled(plain: Callable[..., int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: compile, or take *plain* where the JIT is off, as NumPy warns of meant wraps."""
    return lambda f: plain if _JIT_OFF else njit(cache=True, inline="always")(f)


@_compiled(plain_mix)
def mix(key, word):  # type: ignore[no-untyped-def]
    """Return int64: *key* and *word* (int64) hashed to 64 random bits."""
    x = uint64(key) + (uint64(word) + uint64(1)) * _GOLDEN
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return np.int64(x ^ (x >> _S31))


@_compiled(plain_below)
def below(bits, n):  # type: ignore[no-untyped-def]
    """Return floor(u * n) for the uniform u in *bits*; n < 2**31."""
    return np.int64(((uint64(bits) >> _S32) * uint64(n)) >> _S32)


@_compiled(plain_quantile)
def quantile(table, row, bits):  # type: ignore[no-untyped-def]
    """Return the value of the distribution in ``table[row]`` at the uniform in *bits*.

    ``table`` is int64[n, TABLE]; values between two edges are interpolated, so that the
    resolution in the upper tail is 1 / CELLS**2 (6e-8).
    """
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


def table_levels() -> npt.NDArray[np.float64]:
    """Return float64[TABLE]: the probability at each edge of a quantile table.

    >>> levels = table_levels()
    >>> float(levels[0]), float(levels[2048]), float(levels[CELLS + 1]) == 4095 / 4096
    (0.0, 0.5, True)
    """
    grid = np.arange(CELLS + 1) / CELLS
    tail = 1 - (1 - grid) / CELLS
    # the quantile of an unbounded distribution at 1 is infinite: stop half a cell before it
    top = 1 - 0.5 / CELLS**2
    levels: npt.NDArray[np.float64] = np.minimum(np.concatenate([grid, tail]), top)
    return levels
