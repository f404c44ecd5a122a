"""Counter-based random numbers: a draw is a function of its key, never of the order of calls.

A request's key mixes (seed, replication, workload group, submission number in the group); a child's
key mixes its request's key with its ordinal; a draw mixes a token's key with a purpose. So both
engines draw the same numbers, and two what-ifs share theirs (common random numbers).

Source of the mixing function: SplitMix64, Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014 (finaliser "variant 13").
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit, uint64

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


@njit(cache=True, inline="always")
def mix(key, word):  # type: ignore[no-untyped-def]
    """Return int64: *key* and *word* (int64) hashed to 64 random bits."""
    x = uint64(key) + (uint64(word) + uint64(1)) * _GOLDEN
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return np.int64(x ^ (x >> _S31))


@njit(cache=True, inline="always")
def below(bits, n):  # type: ignore[no-untyped-def]
    """Return floor(u * n) for the uniform u in *bits*; n < 2**31."""
    return np.int64(((uint64(bits) >> _S32) * uint64(n)) >> _S32)


@njit(cache=True, inline="always")
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


def table_levels() -> np.ndarray:
    """Return float64[TABLE]: the probability at each edge of a quantile table.

    >>> levels = table_levels()
    >>> float(levels[0]), float(levels[2048]), float(levels[CELLS + 1]) == 4095 / 4096
    (0.0, 0.5, True)
    """
    grid = np.arange(CELLS + 1) / CELLS
    tail = 1 - (1 - grid) / CELLS
    # the quantile of an unbounded distribution at 1 is infinite: stop half a cell before it
    top = 1 - 0.5 / CELLS**2
    return np.minimum(np.concatenate([grid, tail]), top)
