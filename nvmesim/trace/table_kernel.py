"""Compiled scanner of tables with a line a request: bytes in, integer columns out.

Columns are split at commas or at blanks, and counted from the left or, negative, from the right
(a command's name may hold blanks). A row counts only if every wanted column is whole.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.trace.blkparse_kernel import (
    COMMA,
    SPACE,
    ZERO,
    _blank,
    _line_end,
    _number,
    _operation,
    compiled,
)
from nvmesim.trace.tally_kernel import UNKNOWN_TIME

MAX_COLUMNS: Final = 40
QUOTE: Final = 34
MINUS: Final = 45

# What a wanted column holds.
INTEGER: Final = 0
SECONDS: Final = 1
"""A decimal as 10**-9 of its unit; further decimals are cut."""
LETTER: Final = 2
"""The first letter of a word, as upper case; the word has letters only."""
NAME: Final = 3
"""Any text, as its number among the names seen so far."""
TWO_NAMES: Final = 4
"""This column and the one behind it as one name."""
OPERATION: Final = 5
"""An RWBS field as the operation of `blkparse_kernel`."""
OPTIONAL: Final = 8
"""Added to a kind: a blank column is `UNKNOWN_TIME`."""

# Counters.
SKIPPED: Final = 0
LINES: Final = 1
OVERFLOW: Final = 2
"""Rows whose name had no room."""
N_COUNTERS: Final = 3

# Rows of the state of the names.
N_NAMES: Final = 0
N_NAME_BYTES: Final = 1
QUICK: Final = 256
"""Short words whose values are kept at hand; a power of two."""
MAX_NAMES: Final = 1 << 14
NAME_BYTES: Final = 1 << 20
_MASK: Final = (1 << 38) - 1


@compiled
def _split(buf: np.ndarray, i: int, stop: int, commas: bool, bounds: np.ndarray) -> int:
    """Bounds of the columns of a line into bounds[2, MAX_COLUMNS]; more than fit count too."""
    column = 0
    while i <= stop:
        i = _blank(buf, i, stop)
        if i >= stop and not commas:
            break
        first = i
        if commas:
            while i < stop and int(buf[i]) != COMMA:
                i += 1
        else:
            while i < stop and int(buf[i]) > SPACE:
                i += 1
        last = i
        while last > first and int(buf[last - 1]) <= SPACE:
            last -= 1
        if last - first > 1 and int(buf[first]) == QUOTE and int(buf[last - 1]) == QUOTE:
            first += 1
            last -= 1
        at = column
        if column >= MAX_COLUMNS:
            # Keep the last ones: they are counted from the right.
            for k in range(MAX_COLUMNS // 2, MAX_COLUMNS - 1):
                bounds[0, k] = bounds[0, k + 1]
                bounds[1, k] = bounds[1, k + 1]
            at = MAX_COLUMNS - 1
        bounds[0, at] = first
        bounds[1, at] = last
        column += 1
        i += 1
    return column


@compiled
def _seconds(buf: np.ndarray, i: int, stop: int, point: int) -> int:
    """The decimal that fills the bytes from *i* to *stop*, in 10**-9; -1 if it is none."""
    whole, i = _number(buf, i, stop)
    if whole < 0 or whole > 4_000_000_000:
        return -1
    value = whole * 1_000_000_000
    if i == stop:
        return value
    if int(buf[i]) != 46 and int(buf[i]) != point:
        return -1
    i += 1
    if i == stop:
        return -1
    scale = 100_000_000
    while i < stop:
        digit = int(buf[i]) - ZERO
        if digit < 0 or digit > 9:
            return -1
        value += digit * scale
        scale //= 10
        i += 1
    return value


@compiled
def _letter(buf: np.ndarray, i: int, stop: int) -> int:
    """The first letter of a word, as upper case; -1 if it is no word."""
    if i == stop:
        return -1
    for k in range(i, stop):
        byte = int(buf[k]) & 0xDF
        if byte < 65 or byte > 90:
            return -1
    return int(buf[i]) & 0xDF


@compiled
def _rwbs(buf: np.ndarray, i: int, stop: int) -> int:
    """The operation of an RWBS field; -1 if it is none."""
    if _letter(buf, i, stop) < 0 or stop - i > 10:
        return -1
    return _operation(buf, i, stop)


@compiled
def _intern(
    buf: np.ndarray,
    i: int,
    stop: int,
    table: np.ndarray,
    ends: np.ndarray,
    text: np.ndarray,
    state: np.ndarray,
) -> int:
    """The number of a name, given when first seen; -1 if there is no more room."""
    mixed = stop - i
    for k in range(i, stop):
        mixed = (mixed * 1_000_003 + int(buf[k])) & _MASK
    slot = mixed & (table.shape[0] - 1)
    while table[slot] >= 0:
        known = table[slot]
        first = ends[known - 1] if known > 0 else 0
        if ends[known] - first == stop - i:
            same = True
            for k in range(stop - i):
                if int(text[first + k]) != int(buf[i + k]):
                    same = False
                    break
            if same:
                return int(known)
        slot = (slot + 1) & (table.shape[0] - 1)
    number = state[N_NAMES]
    end = state[N_NAME_BYTES] + stop - i
    if number >= ends.shape[0] or end > text.shape[0]:
        return -1
    for k in range(stop - i):
        text[state[N_NAME_BYTES] + k] = buf[i + k]
    ends[number] = end
    table[slot] = number
    state[N_NAMES] = number + 1
    state[N_NAME_BYTES] = end
    return int(number)


@compiled
def _plain(
    buf: np.ndarray, i: int, stop: int, wanted: np.ndarray, kinds: np.ndarray, values: np.ndarray
) -> int:
    """Read a line of the plain kind in one pass; the index of its newline, or -1: look closely.

    Columns are split at commas and not padded or quoted, numbers are whole. wanted: int64[n],
    the slot of each column or -1. values: int64[2, n_slots], out: for names the bounds.
    """
    column = 0
    while column < wanted.shape[0]:
        slot = wanted[column]
        kind = kinds[slot] & 7 if slot >= 0 else -1
        first = i
        if kind in (INTEGER, SECONDS):
            value = 0
            while i < stop:
                digit = int(buf[i]) - ZERO
                if digit < 0 or digit > 9:
                    break
                value = value * 10 + digit
                i += 1
            if i == first or i - first > 18 or i >= stop:
                return -1
            if kind == SECONDS:
                if int(buf[i]) != 46 or value > 4_000_000_000:
                    return -1
                i += 1
                first = i
                scale = 1_000_000_000
                while i < stop:
                    digit = int(buf[i]) - ZERO
                    if digit < 0 or digit > 9:
                        break
                    if scale > 1:
                        value = value * 10 + digit
                        scale //= 10
                    i += 1
                if i == first or i >= stop:
                    return -1
                value *= scale
            values[0, slot] = value
        else:
            while i < stop and int(buf[i]) != COMMA and int(buf[i]) != 10:
                if int(buf[i]) <= SPACE or int(buf[i]) == QUOTE:
                    return -1
                i += 1
            if kind == TWO_NAMES and i < stop and int(buf[i]) == COMMA:
                column += 1
                i += 1
                while i < stop and int(buf[i]) > SPACE and int(buf[i]) != COMMA:
                    i += 1
            if slot >= 0:
                if i == first or kind > OPERATION:
                    return -1
                values[0, slot] = first
                values[1, slot] = i
        if i >= stop:
            return -1
        is_last = column == wanted.shape[0] - 1
        if int(buf[i]) != (10 if is_last else COMMA):
            return -1
        i += 1
        column += 1
    return i - 1


@compiled
def scan_table(
    buf: np.ndarray,
    stop: int,
    commas: bool,
    point: int,
    columns: np.ndarray,
    kinds: np.ndarray,
    widths: np.ndarray,
    out: np.ndarray,
    odd: np.ndarray,
    table: np.ndarray,
    ends: np.ndarray,
    text: np.ndarray,
    state: np.ndarray,
    counters: np.ndarray,
) -> tuple[int, int]:
    """Scan whole lines; the number of rows written and of odd lines.

    point: a byte that is a decimal point beside the dot. columns, kinds: int64[n_wanted]. widths:
    int64[2], columns of a row at least and at most. out: int64[n_wanted, room]. odd:
    int64[2, room], bounds of lines that are no rows. table: int64[2**k], -1 where empty. ends:
    int64[n], end of each name in text. state: int64[2]. counters: int64[N_COUNTERS], added to.
    """
    bounds = np.zeros((2, MAX_COLUMNS), np.int64)
    values = np.zeros((2, columns.shape[0]), np.int64)
    wanted = np.full(widths[0] if commas and widths[0] == widths[1] else 0, -1, np.int64)
    for k in range(columns.shape[0]):
        if wanted.shape[0]:
            wanted[columns[k]] = k
    quick = np.zeros((3, QUICK), np.int64)
    row = 0
    n_odd = 0
    i = 0
    while i < stop:
        line = i
        end = _plain(buf, i, stop, wanted, kinds, values) if wanted.shape[0] else -1
        if end >= 0:
            good = True
            for k in range(columns.shape[0]):
                value = values[0, k]
                kind = kinds[k] & 7
                if kind >= LETTER:
                    first = value
                    size = values[1, k] - first
                    key = size
                    # Words of up to seven bytes are looked up by their bytes as a number.
                    for j in range(first, first + min(size, 7)):
                        key = key * 256 + int(buf[j])
                    mixed = (key ^ (key >> 24) ^ (key >> 48)) & 0xFFFFFF
                    slot = ((mixed * 0x9E3779 >> 20) + k * 37) & (QUICK - 1)
                    if size <= 7 and quick[0, slot] == key and quick[1, slot] == k:
                        value = quick[2, slot]
                    else:
                        if kind == LETTER:
                            value = _letter(buf, first, first + size)
                        elif kind == OPERATION:
                            value = _rwbs(buf, first, first + size)
                        else:
                            value = _intern(buf, first, first + size, table, ends, text, state)
                        if size <= 7 and value >= 0:
                            quick[0, slot] = key
                            quick[1, slot] = k
                            quick[2, slot] = value
                good &= value >= 0
                out[k, row] = value
            if good:
                counters[LINES] += 1
                row += 1
                i = end + 1
                continue
        end = _line_end(buf, i, stop)
        i = end + 1
        width = _split(buf, line, end, commas, bounds)
        if width == 0 or (width == 1 and bounds[0, 0] == bounds[1, 0]):
            continue
        counters[LINES] += 1
        good = widths[0] <= width <= widths[1]
        if good:
            for k in range(columns.shape[0]):
                at = columns[k]
                if at < 0:
                    at += min(width, MAX_COLUMNS)
                first, last = bounds[0, at], bounds[1, at]
                kind = kinds[k] & 7
                value = -1
                if first == last and kinds[k] >= OPTIONAL:
                    value = UNKNOWN_TIME
                elif kind == INTEGER:
                    value, behind = _number(buf, first, last)
                    if behind != last:
                        value = -1
                elif kind == SECONDS:
                    value = _seconds(buf, first, last, point)
                elif kind == LETTER:
                    value = _letter(buf, first, last)
                elif kind == OPERATION:
                    value = _rwbs(buf, first, last)
                else:
                    if kind == TWO_NAMES:
                        last = bounds[1, at + 1]
                    if last > first:
                        value = _intern(buf, first, last, table, ends, text, state)
                        if value < 0:
                            counters[OVERFLOW] += 1
                out[k, row] = value
                if value == -1:
                    good = False
                    break
        if good:
            row += 1
        elif n_odd < odd.shape[1]:
            odd[0, n_odd] = line
            odd[1, n_odd] = end
            n_odd += 1
        else:
            counters[SKIPPED] += 1
    return row, n_odd
