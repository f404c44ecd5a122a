"""Counter-based random numbers: a draw is a function of its key, never of the order of calls.

A request's key mixes (seed, replication, target of a workload group, submission number at that
target); a child's key mixes its request's key with its ordinal; a draw mixes a token's key with a
purpose. So both engines draw the same numbers, and two what-ifs share theirs (common random
numbers). Users of one target are alike, so it does not matter whose request is the n-th; numbers
over all targets would be dealt out anew when a change moves one target against another, and so
would the user's own count when it moves one user against another: both were measured to be worse.

These are the draws in Python's integers; `engine.compiled.kernel_draws` has them for the kernel.

Source of the mixing function: SplitMix64, Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014 (finaliser "variant 13").
"""

from typing import Final

import numpy as np
import numpy.typing as npt

CELLS: Final = 4096
"""Equally likely cells of a quantile table; the last one is divided into as many again."""
TABLE: Final = 2 * (CELLS + 1)
"""Entries of one quantile table: CELLS + 1 edges, then CELLS + 1 edges of the last cell."""
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


def mix(key: int, word: int) -> int:
    """*key* and *word* hashed to 64 random bits, as an int64.

    >>> mix(0, 0), mix(-5, 7) == mix((1 << 64) - 5, 7)
    (-2152535657050944081, True)
    """
    x = (int(key) + (int(word) + 1) * _GOLDEN) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    x ^= x >> 31
    return x - (1 << 64) if x >> 63 else x


def below(bits: int, n: int) -> int:
    """Return floor(u * n) for the uniform u in *bits*; n < 2**31.

    >>> below(-1, 6), below(0, 6)
    (5, 0)
    """
    return (((int(bits) & _MASK) >> 32) * int(n)) >> 32


def quantile(table: np.ndarray, row: int, bits: int) -> int:
    """Return the value of the distribution in ``table[row]`` at the uniform in *bits*.

    ``table`` is int64[n, TABLE]; values between two edges are interpolated, so that the
    resolution in the upper tail is 1 / CELLS**2 (6e-8).

    >>> quantile(np.arange(TABLE)[None] * 4096, 0, 1 << 51)
    2048
    """
    u = int(bits) & _MASK
    cell, fraction = u >> 52, (u >> 40) & 0xFFF
    if cell == CELLS - 1:
        cell, fraction = CELLS + 1 + fraction, (u >> 28) & 0xFFF
    low, high = int(table[row, cell]), int(table[row, cell + 1])
    return low + (((high - low) * fraction) >> 12)


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
    return np.asarray(np.minimum(np.concatenate([grid, tail]), top))
