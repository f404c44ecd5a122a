"""Compiled scanner of xperf's dump: the lines of disk events among all the others."""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.capture.readers.block.blkparse_kernel import (
    COMMA,
    SPACE,
    TAB,
    ZERO,
    _blank,
    _number,
    compiled,
)
from nvmesim.capture.readers.block.words_kernel import line_end, starts

# Rows of the positions and of the output.
TIME: Final = 0
OFFSET: Final = 1
SIZE: Final = 2
TOOK: Final = 3
DISK: Final = 4
N_NEEDED: Final = 5
OP: Final = 5
N_COLUMNS: Final = 6

# Counters.
SKIPPED: Final = 0
FLUSHES: Final = 1
N_COUNTERS: Final = 2

DISK_WORD: Final = np.frombuffer(b"Disk", np.uint8)
READ_WORD: Final = np.frombuffer(b"Read", np.uint8)
WRITE_WORD: Final = np.frombuffer(b"Write", np.uint8)
FLUSH_WORD: Final = np.frombuffer(b"Flush", np.uint8)
STAMP_WORD: Final = np.frombuffer(b"TimeStamp", np.uint8)
MAX_HEX: Final = 15
"""Hexadecimal digits of what fits int64."""
READ: Final = 0
WRITE: Final = 1
FLUSH: Final = 2
OTHER: Final = -1


@compiled
def _kind(buf: np.ndarray, i: int, end: int) -> tuple[int, int]:
    """Event that the word at *i* names, and the index of the comma behind it."""
    if not starts(buf, i, end, DISK_WORD):
        return OTHER, i
    i += 4
    kind = OTHER
    if starts(buf, i, end, READ_WORD):
        kind = READ
    elif starts(buf, i, end, WRITE_WORD):
        kind = WRITE
    elif starts(buf, i, end, FLUSH_WORD):
        kind = FLUSH
    i = _blank(buf, i + (4 if kind == READ else 5), end)
    if i >= end or int(buf[i]) != COMMA:
        return OTHER, i
    return kind, i


@compiled
def _hexadecimal(buf: np.ndarray, i: int, stop: int) -> int:
    """The number ``0x…`` that fills the bytes from *i* to *stop*, or -1."""
    if stop - i < 3 or stop - i > MAX_HEX + 2 or int(buf[i]) != ZERO or int(buf[i + 1]) != 120:
        return -1
    value = 0
    for k in range(i + 2, stop):
        byte = int(buf[k])
        digit = byte - ZERO
        if digit < 0 or digit > 9:
            digit = (byte & 0xDF) - 55
            if digit < 10 or digit > 15:
                return -1
        value = value * 16 + digit
    return value


@compiled
def _event(
    buf: np.ndarray, i: int, end: int, kind: int, positions: np.ndarray, out: np.ndarray, row: int
) -> bool:
    """Read the columns behind the comma at *i*; whether all that are needed are whole."""
    column = 0
    needed = N_NEEDED
    while needed and i < end:
        first = _blank(buf, i + 1, end)
        i = first
        while i < end and int(buf[i]) != COMMA:
            i += 1
        column += 1
        for k in range(N_NEEDED):
            if positions[kind, k] == column:
                last = i
                while last > first and int(buf[last - 1]) <= SPACE:
                    last -= 1
                if k in (OFFSET, SIZE):
                    value = _hexadecimal(buf, first, last)
                else:
                    value, behind = _number(buf, first, last)
                    if behind != last:
                        value = -1
                if value < 0:
                    return False
                out[k, row] = value
                needed -= 1
    out[OP, row] = kind
    return needed == 0


@compiled
def scan_xperf(
    buf: np.ndarray,
    words: np.ndarray,
    stop: int,
    positions: np.ndarray,
    out: np.ndarray,
    counters: np.ndarray,
) -> int:
    """Scan whole lines; the number of disk events written.

    words: of `words_kernel.words_of`. positions: int64[2, N_NEEDED], where reads and writes have
    their columns; 0: the header has no such event. out: int64[N_COLUMNS, room], in us and bytes.
    counters: int64[N_COUNTERS], added to; a disk event that is not whole is skipped.
    """
    row = 0
    i = 0
    while i < stop:
        first = i
        while first < stop and (int(buf[first]) == SPACE or int(buf[first]) == TAB):
            first += 1
        end = line_end(buf, words, first, stop)
        i = end + 1
        kind, comma = _kind(buf, first, end)
        if kind == FLUSH:
            counters[FLUSHES] += 1
        if (kind != READ and kind != WRITE) or positions[kind, TIME] == 0:
            continue
        if starts(buf, _blank(buf, comma + 1, end), end, STAMP_WORD):  # the header
            continue
        if _event(buf, comma, end, kind, positions, out, row):
            row += 1
        else:
            counters[SKIPPED] += 1
    return row
