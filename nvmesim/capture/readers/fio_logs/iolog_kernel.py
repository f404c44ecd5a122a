"""Compiled scanner of fio's iolog: bytes in, columns out; a line is read from its right."""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.capture.readers.block.blkparse_kernel import (
    RETURN,
    SPACE,
    TAB,
    _line_end,
    _number,
    compiled,
)

NOTHING: Final = -1
"""An action that does nothing to a drive: add, open, close."""
READ: Final = 0
WRITE: Final = 1
OTHER: Final = 2
"""trim, sync, datasync."""
WAIT: Final = 3
DAMAGED: Final = 4

# Rows of the output.
TIME: Final = 0
ACTION: Final = 1
OFFSET: Final = 2
LENGTH: Final = 3
FILE: Final = 4
N_COLUMNS: Final = 5
MISSING: Final = -1

# Counters.
SKIPPED: Final = 0
LINES: Final = 1
OVERFLOW: Final = 2
"""Rows whose name had no room."""
N_COUNTERS: Final = 3

# Rows of the state of the names.
N_NAMES: Final = 0
N_NAME_BYTES: Final = 1
MAX_NAMES: Final = 1 << 14
NAME_BYTES: Final = 1 << 20
_MASK: Final = (1 << 38) - 1

ACTIONS: Final = np.zeros((9, 8), np.uint8)
"""Words of fio's iolog, padded with zeros."""
for _row, _word in enumerate(
    (b"read", b"write", b"trim", b"sync", b"wait", b"add", b"open", b"close")
):
    ACTIONS[_row, : len(_word)] = np.frombuffer(_word, np.uint8)
ACTIONS[8] = np.frombuffer(b"datasync", np.uint8)
MEANINGS: Final = np.array(
    [READ, WRITE, OTHER, OTHER, WAIT, NOTHING, NOTHING, NOTHING, OTHER], np.int64
)


@compiled
def _action(buf: np.ndarray, first: int, stop: int) -> int:
    """Action of the word at *first*, or `DAMAGED` if it is none of fio's."""
    size = stop - first
    if size < 3 or size > 8:
        return DAMAGED
    for row in range(ACTIONS.shape[0]):
        if size < 8 and ACTIONS[row, size] != 0:
            continue
        same = True
        for k in range(size):
            if ACTIONS[row, k] != buf[first + k]:
                same = False
                break
        if same:
            return int(MEANINGS[row])
    return DAMAGED


@compiled
def _before(buf: np.ndarray, first: int, stop: int) -> int:
    """Where the word that ends at *stop* starts."""
    while stop > first and int(buf[stop - 1]) != SPACE:
        stop -= 1
    return stop


@compiled
def _digits(buf: np.ndarray, first: int, stop: int, most: int) -> int:
    """The number that fills the bytes from *first* to *stop*, of at most so many digits; or -1."""
    if stop - first > most:
        return -1
    value, behind = _number(buf, first, stop)
    return value if behind == stop else -1


@compiled
def _tail(buf: np.ndarray, first: int, stop: int) -> tuple[int, int, int, int]:
    """Action, offset, length (-1 where missing) of a line, and where the action's word starts."""
    at = _before(buf, first, stop)
    action = _action(buf, at, stop)
    if action != DAMAGED:
        return action, MISSING, MISSING, at
    last = _digits(buf, at, stop, 18)
    if last < 0 or at <= first:
        return DAMAGED, MISSING, MISSING, at
    behind = at - 1
    middle = _before(buf, first, behind)
    action = _action(buf, middle, behind)
    if action != DAMAGED:
        return action, last, MISSING, middle
    offset = _digits(buf, middle, behind, 18)
    if offset < 0 or middle <= first or stop - at > 15:
        return DAMAGED, MISSING, MISSING, at
    front = _before(buf, first, middle - 1)
    return _action(buf, front, middle - 1), offset, last, front


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
def scan_iolog(
    buf: np.ndarray,
    stop: int,
    out: np.ndarray,
    table: np.ndarray,
    ends: np.ndarray,
    text: np.ndarray,
    state: np.ndarray,
    counters: np.ndarray,
) -> int:
    """Scan whole lines ``[time ]file action[ offset[ length]]``; the number of rows written.

    out: int64[N_COLUMNS, room]. table, ends, text, state: as in `iolog_requests.Names`.
    counters: int64[N_COUNTERS], added to; a line that is none of these is skipped.
    """
    row = 0
    i = 0
    same_first, same_stop, same_file = 0, 0, -1
    while i < stop:
        first = i
        end = _line_end(buf, i, stop)
        i = end + 1
        while end > first and int(buf[end - 1]) == RETURN:
            end -= 1
        blank = True
        for k in range(first, end):
            byte = int(buf[k])
            if byte != SPACE and (byte < TAB or byte > RETURN):
                blank = False
                break
        if blank:
            continue
        counters[LINES] += 1
        action, offset, length, at = _tail(buf, first, end)
        # In front of the action there is a blank, and a name before it.
        if action == DAMAGED or at - 1 <= first:
            counters[SKIPPED] += 1
            continue
        time, name = _number(buf, first, at - 1)
        if time < 0 or name - first > 18 or name >= at - 2 or int(buf[name]) != SPACE:
            time = MISSING
            name = first
        else:
            name += 1
        size = at - 1 - name
        same = same_file >= 0 and same_stop - same_first == size
        if same:
            for k in range(size):
                if buf[name + k] != buf[same_first + k]:
                    same = False
                    break
        if not same:
            same_file = intern(buf, name, at - 1, table, ends, text, state)
            same_first, same_stop = name, at - 1
            if same_file < 0:
                counters[OVERFLOW] += 1
                continue
        out[TIME, row] = time
        out[ACTION, row] = action
        out[OFFSET, row] = offset
        out[LENGTH, row] = length
        out[FILE, row] = same_file
        row += 1
    return row
