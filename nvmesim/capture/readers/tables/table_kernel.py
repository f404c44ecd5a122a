"""Compiled scanner of tables with a line a request: bytes in, integer columns out.

Columns are split at commas or at blanks, and counted from the left or, negative, from the right
(a command's name may hold blanks). A row counts only if every wanted column is whole.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.capture.readers.block.blkparse_kernel import (
    COMMA,
    NEWLINE,
    RETURN,
    SPACE,
    ZERO,
    _blank,
    _line_end,
    _number,
    _operation,
    compiled,
    inlined,
)
from nvmesim.capture.readers.block.words_kernel import (
    COMMAS,
    NEWLINES,
    below,
    billionths,
    length,
    marks_of,
    whole_number,
)
from nvmesim.capture.requests.tally_kernel import UNKNOWN_TIME

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
QUICK_BITS: Final = 9
QUICK: Final = 1 << QUICK_BITS
"""Short words whose values are kept at hand, a column."""
NO_KEY: Final = np.uint64(0)
MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: the top bits of a product are well mixed (Knuth, 6.4)."""
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
def intern(
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
    while table[slot] > 0:
        known = table[slot] - 1
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
    table[slot] = number + 1
    state[N_NAMES] = number + 1
    state[N_NAME_BYTES] = end
    return int(number)


@compiled
def _short_word(
    words: np.ndarray, i: int, kind: int, ends_line: bool, slot: int, quick: np.ndarray
) -> tuple[int, int, np.uint64, int]:
    """Look up the word at *i* of the wanted column *slot* by its bytes.

    What is known of it or -1, where it ends, its key and the key's place in *quick*; the key is 0
    if the word fills eight bytes or is none.
    """
    word = words[i]
    marks = marks_of(word, NEWLINES if ends_line else COMMAS)
    if kind == TWO_NAMES:
        marks &= marks - np.uint64(1)
    mask = below(marks)
    size = length(mask)
    if marks == 0 or size == 0 or (kind == TWO_NAMES and ends_line):
        return -1, -1, NO_KEY, 0
    key = word & (mask >> np.uint64(7))
    at = int(np.int64((key * MIXER) >> np.uint64(64 - QUICK_BITS)))
    code = int(np.int64(quick[slot, 1, at])) if quick[slot, 0, at] == key else -1
    return code, i + size, key, at


@compiled
def _long_word(buf: np.ndarray, i: int, stop: int, kind: int) -> int:
    """Index behind the word at *i*, or -1 if it holds what needs a closer look."""
    first = i
    commas = int(kind == TWO_NAMES)
    while i < stop and int(buf[i]) != 10:
        byte = int(buf[i])
        if byte == COMMA:
            if commas == 0:
                break
            commas -= 1
        elif byte <= SPACE or byte == QUOTE:
            return -1
        i += 1
    return -1 if i == first or i >= stop or commas else i


@inlined
def _plain(
    buf: np.ndarray,
    words: np.ndarray,
    i: int,
    stop: int,
    wanted: np.ndarray,
    kinds: np.ndarray,
    quick: np.ndarray,
    table: np.ndarray,
    ends: np.ndarray,
    text: np.ndarray,
    state: np.ndarray,
    out: np.ndarray,
    row: int,
) -> int:
    """Read a line of the plain kind in one pass into *out*; its end, or -1: look closely.

    Columns are split at commas, with a blank behind or none, and not quoted; numbers are whole.
    wanted: int64[n], the slot of each column or -1. quick: uint64[n_slots, 2, QUICK], the bytes
    of words seen and what they mean. The others as in `scan_table`.
    """
    column = 0
    n_columns = wanted.shape[0]
    while column < n_columns:
        if i >= words.shape[0]:
            return -1
        if column > 0 and int(buf[i]) == SPACE:
            i += 1
        slot = wanted[column]
        kind = kinds[slot] & 7 if slot >= 0 else NAME
        if kind == INTEGER:
            value, i = whole_number(words, i)
            if value < 0:
                return -1
            out[slot, row] = value
        elif kind == SECONDS:
            value, i = whole_number(words, i)
            if value < 0 or value > 4_000_000_000 or int(buf[i]) != 46:
                return -1
            part, i = billionths(buf, words, i + 1)
            if part < 0:
                return -1
            out[slot, row] = value * 1_000_000_000 + part
        else:
            behind = column + (2 if kind == TWO_NAMES else 1)
            code, after, key, at = -1, -1, NO_KEY, 0
            if slot >= 0 and i < words.shape[0]:
                code, after, key, at = _short_word(words, i, kind, behind == n_columns, slot, quick)
            if code < 0:
                after = _long_word(buf, i, stop, kind)
                if after < 0:
                    return -1
                if slot >= 0:
                    if kind == LETTER:
                        code = _letter(buf, i, after)
                    elif kind == OPERATION:
                        code = _rwbs(buf, i, after)
                    else:
                        code = intern(buf, i, after, table, ends, text, state)
                    if code < 0:
                        return -1
                    if key != NO_KEY:
                        quick[slot, 0, at] = key
                        quick[slot, 1, at] = np.uint64(code)
            if slot >= 0:
                out[slot, row] = code
            column = behind - 1
            i = after
        column += 1
        if i >= stop or (column < n_columns and int(buf[i]) != COMMA):
            return -1
        i += int(column < n_columns)
    if int(buf[i]) == RETURN and i + 1 < stop:
        i += 1
    return i if int(buf[i]) == NEWLINE else -1


@compiled
def scan_table(
    buf: np.ndarray,
    words: np.ndarray,
    stop: int,
    commas: bool,
    point: int,
    columns: np.ndarray,
    kinds: np.ndarray,
    widths: np.ndarray,
    wanted: np.ndarray,
    bounds: np.ndarray,
    out: np.ndarray,
    odd: np.ndarray,
    table: np.ndarray,
    ends: np.ndarray,
    text: np.ndarray,
    state: np.ndarray,
    quick: np.ndarray,
    counters: np.ndarray,
) -> tuple[int, int]:
    """Scan whole lines; the number of rows written and of odd lines.

    words: of `words_of`. point: a byte that is a decimal point beside the dot. columns, kinds:
    int64[n_wanted]. widths: int64[2], columns of a row at least and at most. wanted: int64[width],
    the slot of each column or -1; empty if lines are not of the plain kind. bounds:
    int64[2, MAX_COLUMNS], scratch. out: int64[n_wanted, room]. odd: int64[2, room], bounds of
    lines that are no rows. table: int64[2**k], zero at first: numbers of names and 1. ends:
    int64[n], end of each name in text. state: int64[2]. quick: uint64[n_wanted, 2, QUICK], zero at
    first: words seen and what they mean. counters: int64[N_COUNTERS], added to.
    """
    row = 0
    n_odd = 0
    i = 0
    while i < stop:
        line = i
        end = -1
        if wanted.shape[0]:
            end = _plain(
                buf, words, i, stop, wanted, kinds, quick, table, ends, text, state, out, row
            )
        if end >= 0:
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
                        value = intern(buf, first, last, table, ends, text, state)
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
