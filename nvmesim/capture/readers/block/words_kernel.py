"""Compiled look at eight bytes at once: decimal digits and short words of a text.

A *word* is the eight bytes at some place as one little-endian uint64, its lowest byte first in the
text. The tricks are those of Lemire, "Quickly parsing eight digits" (2018), and Warren, "Hacker's
Delight" (2nd ed., 6-1: find the first zero byte).
With the JIT off NumPy warns where unsigned numbers wrap, as they must here: see `table_rows`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.capture.readers.block.blkparse_kernel import NEWLINE, ZERO, compiled, fits

BYTES: Final = 8
LOWS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
HIGHS: Final = np.uint64(0x8080808080808080)
ZEROS: Final = np.uint64(0x3030303030303030)
"""Eight times the digit 0."""
TEN_OR_MORE: Final = np.uint64(0x7676767676767676)
"""Added to a byte of 10 or more it sets the high bit."""
COMMAS: Final = np.uint64(0x2C2C2C2C2C2C2C2C)
NEWLINES: Final = np.uint64(0x0A0A0A0A0A0A0A0A)
POWERS: Final = 10 ** np.arange(10)

_ONE = np.uint64(1)
_EIGHT = np.uint64(8)
_TEN = np.uint64(10)
_SIXTEEN = np.uint64(16)
_HALF = np.uint64(32)
_WHOLE = np.uint64(64)
_PAIRS = np.uint64(0x000000FF000000FF)
_OUTER = np.uint64(100 + (10**6 << 32))
_INNER = np.uint64(1 + (10**4 << 32))


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
def digits(word: np.uint64) -> tuple[int, int]:
    """The number that *word* starts with, and how many digits it has: 0 to 8."""
    value = word ^ ZEROS
    count = length(below(((value + TEN_OR_MORE) | value) & HIGHS))
    if count == 0:
        return 0, 0
    # Blank digits in front, then pairs, fours and all eight.
    value = value << (_WHOLE - _EIGHT * np.uint64(count))
    value = value * _TEN + (value >> _EIGHT)
    high = (value & _PAIRS) * _OUTER
    low = ((value >> _SIXTEEN) & _PAIRS) * _INNER
    return int(np.int64((high + low) >> _HALF)), count


@compiled
def starts(buf: np.ndarray, i: int, end: int, word: np.ndarray) -> bool:
    """Whether *word* stands at *i*."""
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


@compiled
def whole_number(words: np.ndarray, i: int) -> tuple[int, int]:
    """The decimal at *i* and the index behind it; -1 if there is none, or not near the end.

    Near the end, where no eight bytes are left, it is -1 as well: look closely there.
    """
    first = i
    value = 0
    while i < words.shape[0]:
        part, count = digits(words[i])
        value = value * int(POWERS[count]) + part
        i += count
        if count < BYTES:
            return (value if i > first and fits(value, i - first) else -1), i
    return -1, i


@compiled
def billionths(buf: np.ndarray, words: np.ndarray, i: int) -> tuple[int, int]:
    """The digits at *i* as the decimals of a number, in 10**-9, and the index behind; -1: none.

    Further decimals are cut.
    """
    if i >= words.shape[0]:
        return -1, i
    value, count = digits(words[i])
    value *= int(POWERS[9 - count])
    i += count
    if count < BYTES:
        return (value if count else -1), i
    scale = 1
    while i < buf.shape[0]:
        digit = int(buf[i]) - ZERO
        if digit < 0 or digit > 9:
            break
        value += digit * scale
        scale = 0
        i += 1
    return value, i
