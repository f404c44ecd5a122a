"""Compiled look at eight bytes at once: where a line ends, and whether a word stands at a place.

A *word* is the eight bytes at some place as one little-endian uint64, its lowest byte first in the
text. The trick is that of Warren, "Hacker's Delight" (2nd ed., 6-1: find the first zero byte).
With the JIT off NumPy warns where unsigned numbers wrap, as they must here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.capture.readers.block.blkparse_kernel import NEWLINE, compiled

BYTES: Final = 8
LOWS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
HIGHS: Final = np.uint64(0x8080808080808080)
NEWLINES: Final = np.uint64(0x0A0A0A0A0A0A0A0A)

_ONE = np.uint64(1)


def words_of(data: np.ndarray) -> np.ndarray:
    """View of uint8[n] as uint64[n - 7]: the eight bytes from each index on.

    >>> hex(words_of(np.frombuffer(b"abcdefgh", np.uint8))[0])
    '0x6867666564636261'
    """
    if data.size < BYTES:
        return np.empty(0, np.uint64)
    return np.ndarray(data.size - BYTES + 1, "<u8", data, strides=(1,))


@compiled
def below(marks: np.uint64) -> np.uint64:
    """The bits below the first one that is set; all if none is."""
    return (marks & (~marks + _ONE)) - _ONE


@compiled
def length(bits: np.uint64) -> int:
    """How many whole bytes *bits*, of `below`, covers."""
    count = 0
    # LLVM knows this loop: it becomes one instruction.
    while bits != 0:
        bits &= bits - _ONE
        count += 1
    return count >> 3


@compiled
def marks_of(word: np.uint64, pattern: np.uint64) -> np.uint64:
    """The high bits of the bytes of *word* that are as in *pattern*."""
    odd = word ^ pattern
    return ~(((odd & LOWS) + LOWS) | odd) & HIGHS


@compiled
def starts(buf: np.ndarray, i: int, end: int, word: np.ndarray) -> bool:
    """True if *word* stands at *i*."""
    if i + word.shape[0] > end:
        return False
    for k in range(word.shape[0]):  # noqa: SIM110
        if buf[i + k] != word[k]:
            return False
    return True


@compiled
def line_end(buf: np.ndarray, words: np.ndarray, i: int, stop: int) -> int:
    """Index of the next newline from *i* on, or *stop*."""
    while i < words.shape[0] and i < stop:
        count = length(below(marks_of(words[i], NEWLINES)))
        i += count
        if count < BYTES:
            return min(i, stop)
    while i < stop and int(buf[i]) != NEWLINE:
        i += 1
    return min(i, stop)
