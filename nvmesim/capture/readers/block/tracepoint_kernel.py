"""Compiled scanner of block tracepoints as perf script, ftrace and trace-cmd print them."""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.capture.readers.block.blkparse_kernel import (
    BOOKKEEPING,
    COMMA,
    DOT,
    EVENTS,
    LINES,
    MAX_SECTOR,
    MAX_SECTORS,
    PLUS,
    SKIPPED,
    SPACE,
    ZERO,
    _blank,
    _line_end,
    _number,
    _operation,
    _time,
    _token,
    compiled,
)
from nvmesim.capture.readers.block.words_kernel import starts

COLON: Final = 58
UNDERSCORE: Final = 95
CLOSE_PAREN: Final = 41
CLOSE_BRACKET: Final = 93
BLOCK: Final = np.frombuffer(b"block:", np.uint8)
RQ: Final = np.frombuffer(b"block_rq_", np.uint8)
ISSUE: Final = np.frombuffer(b"issue: ", np.uint8)
COMPLETE: Final = np.frombuffer(b"complete: ", np.uint8)
REQUEUE: Final = np.frombuffer(b"requeue: ", np.uint8)


@compiled
def _event_name(buf: np.ndarray, i: int, end: int) -> int:
    """Index behind the ``name:`` at *i*, or -1 if there is none."""
    first = i
    while i < end:
        byte = int(buf[i])
        letter = byte & 0xDF
        if (letter < 65 or letter > 90) and (byte < ZERO or byte > COLON) and byte != UNDERSCORE:
            break
        i += 1
    if i - first < 3 or i >= end or int(buf[i]) > SPACE or int(buf[i - 1]) != COLON:
        return -1
    return i


@compiled
def _time_before(buf: np.ndarray, line: int, colon: int) -> int:
    """The time in ns that ends before *colon*, or -1; it has 6 to 9 decimals."""
    i = colon
    while i > line and ZERO <= int(buf[i - 1]) <= 57:
        i -= 1
    if colon - i < 6 or i <= line + 1 or int(buf[i - 1]) != DOT:
        return -1
    i -= 1
    while i > line and ZERO <= int(buf[i - 1]) <= 57:
        i -= 1
    time, behind = _time(buf, i, colon)
    return time if behind == colon else -1


@compiled
def _letter_of(buf: np.ndarray, i: int, end: int) -> int:
    """The blkparse letter of the request event whose name's end is at *i*; 0: another one."""
    if starts(buf, i, end, ISSUE):
        return 68
    if starts(buf, i, end, COMPLETE):
        return 67
    if starts(buf, i, end, REQUEUE):
        return 82
    return 0


@compiled
def _request(
    buf: np.ndarray, i: int, end: int, events: np.ndarray, codes: np.ndarray, row: int
) -> int:
    """Read ``maj,min RWBS [bytes] (cmd) sector + n … [comm]``; n, or -1 if it is damaged."""
    major, i = _number(buf, _blank(buf, i, end), end)
    if major < 0 or major > 4095 or i >= end or int(buf[i]) != COMMA:
        return -1
    minor, i = _number(buf, i + 1, end)
    if minor < 0 or minor >= 2**20:
        return -1
    mark = _blank(buf, i, end)
    i = _token(buf, mark, end)
    letter = int(buf[mark]) if mark < end else 0
    if letter < 65 or letter > 90 or i - mark > 10:
        return -1
    codes[1, row] = _operation(buf, mark, i)
    while i < end and int(buf[i]) != CLOSE_PAREN:
        i += 1
    sector, i = _number(buf, _blank(buf, i + 1, end), end)
    i = _blank(buf, i, end)
    if sector < 0 or sector > MAX_SECTOR or i >= end or int(buf[i]) != PLUS:
        return -1
    n, i = _number(buf, _blank(buf, i + 1, end), end)
    last = end - 1
    while last > i and int(buf[last]) <= SPACE:
        last -= 1
    if n < 0 or n > MAX_SECTORS or int(buf[last]) != CLOSE_BRACKET:
        return -1
    events[row, 1] = major * 2**20 + minor
    events[row, 2] = sector
    events[row, 3] = n
    return n


@compiled
def scan_tracepoints(
    buf: np.ndarray,
    stop: int,
    events: np.ndarray,
    codes: np.ndarray,
    odd: np.ndarray,
    counters: np.ndarray,
) -> tuple[int, int]:
    """Scan whole lines; number of block_rq events and of lines that hold no event at all.

    events: int64[room, 4], codes: uint8[2, room], counters: as in `blkparse_kernel.scan_default`.
    odd: int64[2, room], bounds of lines without an event (kept while there is room).
    """
    row = 0
    n_odd = 0
    i = 0
    while i < stop:
        line = i
        end = _line_end(buf, i, stop)
        i = end + 1
        counters[LINES] += 1
        is_event = False
        # The command's name may hold anything, so look for the first colon that has a time before
        # it and an event's name behind it.
        for k in range(line + 2, end - 3):
            if int(buf[k]) != COLON or int(buf[k + 1]) > SPACE:
                continue
            if int(buf[k - 1]) < ZERO or int(buf[k - 1]) > 57:
                continue
            at = _blank(buf, k + 1, end)
            behind = _event_name(buf, at, end)
            if behind < 0:
                continue
            is_event = True
            if starts(buf, at, end, BLOCK):
                at += BLOCK.shape[0]
            letter = 0
            if starts(buf, at, end, RQ):
                letter = _letter_of(buf, at + RQ.shape[0], end)
            if letter:
                counters[EVENTS] += 1
                time = _time_before(buf, line, k)
                n = _request(buf, behind, end, events, codes, row) if time >= 0 else -1
                if n < 0:
                    counters[SKIPPED] += 1
                elif n == 0:
                    counters[BOOKKEEPING] += 1
                else:
                    events[row, 0] = time
                    codes[0, row] = letter
                    row += 1
            break
        if not is_event:
            if n_odd < odd.shape[1]:
                odd[0, n_odd] = line
                odd[1, n_odd] = end
                n_odd += 1
            else:
                counters[SKIPPED] += 1
    return row, n_odd
