"""Compiled scanner of block events as text: bytes in, event columns out, no Python per line.

A `Layout` says where blkparse, an ``-f`` form of it, perf script or ftrace have their columns.

It runs under Numba without the interpreter lock; with the JIT off it is plain (slow) Python, so
every byte goes through ``int`` first and nothing relies on wrap-around.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.capture.requests import FLUSH, OTHER, READ, UNKNOWN, WRITE
from nvmesim.capture.requests.kernel_cache import compiled

NEWLINE, RETURN, TAB, SPACE = b"\n\r\t "
PLUS_SIGN, COMMA, DOT, ZERO, COLON, UNDERSCORE = b"+,.0:_"
OPEN_BRACKET, CLOSE_BRACKET = b"[]"
MAX_DIGITS: Final = 19
LARGEST: Final = 2**63 - 1
"""Larger numbers are damage, not data."""
MAX_SECTOR: Final = 2**53
MAX_SECTORS: Final = 2**31
MAX_SECONDS: Final = 3_000_000_000
"""Epoch seconds pass; ten times as many nanoseconds would leave int64."""

# Counters. BOOKKEEPING: D and C lines without a sector range, steps of the flush sequence.
SKIPPED, BOOKKEEPING, N_COUNTERS = range(3)

# How lines split into columns: at blanks and commas, at commas, or as at blanks behind the name of
# an event, which has its time before it.
BLANKS, COMMAS, TRACE = range(3)

# What the columns mean, as positions in a vector of roles; -1 for what a form lacks. The minor
# number is behind MAJOR. PLUS: of ``sector + length``, at least here; such lines end with ``]``.
TIME, ACTION, OP, SECTOR, LENGTH, MAJOR, PLUS, N_ROLES = range(8)
MAX_COLUMNS: Final = 32


@compiled
def _blank(buf: np.ndarray, i: int, end: int) -> int:
    """Index of the next byte from *i* on that is neither space nor tab."""
    while i < end and (int(buf[i]) == SPACE or int(buf[i]) == TAB):
        i += 1
    return i


@compiled
def fits(value: int, digits: int) -> bool:
    """True if a number that was computed in int64 from so many digits did not wrap."""
    # What 19 digits add beyond 2**63 makes it negative; with the JIT off nothing wraps.
    return digits <= MAX_DIGITS and 0 <= value <= LARGEST


@compiled
def _number(buf: np.ndarray, i: int, end: int) -> tuple[int, int]:
    """The decimal at *i* and the index behind it; -1 if there is none or it is too long."""
    first = i
    value = 0
    while i < end:
        digit = int(buf[i]) - ZERO
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        i += 1
    if i == first or not fits(value, i - first):
        return -1, i
    return value, i


@compiled
def _time(buf: np.ndarray, i: int, end: int) -> tuple[int, int]:
    """Nanoseconds of ``seconds.fraction`` at *i* (1 to 9 decimals) and the index behind it."""
    seconds, i = _number(buf, i, end)
    if seconds < 0 or seconds > MAX_SECONDS or i >= end or int(buf[i]) != DOT:
        return -1, i
    first = i + 1
    fraction, i = _number(buf, first, end)
    digits = i - first
    if fraction < 0 or digits > 9:
        return -1, i
    while digits < 9:
        fraction *= 10
        digits += 1
    return seconds * 1_000_000_000 + fraction, i


@compiled
def _operation(buf: np.ndarray, i: int, stop: int) -> int:
    """Operation of an RWBS field: its first letter, or the one behind a preflush F."""
    letter = int(buf[i])
    if letter == 70:
        if stop - i == 1:
            return FLUSH
        letter = int(buf[i + 1])
        if letter == 78:
            return FLUSH
    if letter == 82:
        return READ
    if letter == 87:
        return WRITE
    return OTHER


@compiled
def _line_end(buf: np.ndarray, i: int, end: int) -> int:
    """Index of the next newline from *i* on, or *end*."""
    while i < end and int(buf[i]) != NEWLINE:
        i += 1
    return i


@compiled
def _closed(buf: np.ndarray, first: int, stop: int) -> bool:
    """True if the tail ``[process]`` or ``(elapsed) [0]`` is whole, so the line was not cut."""
    last = stop - 1
    while last > first and int(buf[last]) <= SPACE:
        last -= 1
    return int(buf[last]) == CLOSE_BRACKET


@compiled
def _paired(action: int) -> bool:
    """True if pairing needs events of this action: C, D, Q or R."""
    return action == 67 or action == 68 or action == 81 or action == 82


@compiled
def _fields(buf: np.ndarray, i: int, stop: int, commas: bool, bounds: np.ndarray, most: int) -> int:
    """Bounds of the columns of one line into bounds[2, MAX_COLUMNS]; how many, at most *most*."""
    column = 0
    while i < stop and column < most:
        i = _blank(buf, i, stop)
        bounds[0, column] = i
        while i < stop and int(buf[i]) != COMMA and (commas or int(buf[i]) > SPACE):
            i += 1
        last = i
        while last > bounds[0, column] and int(buf[last - 1]) <= SPACE:
            last -= 1
        bounds[1, column] = last
        i += 1
        if commas or last > bounds[0, column]:
            column += 1
    return column


@compiled
def _whole(buf: np.ndarray, bounds: np.ndarray, column: int) -> int:
    """The integer that a column holds and nothing else, or -1."""
    value, behind = _number(buf, bounds[0, column], bounds[1, column])
    return value if behind == bounds[1, column] else -1


_BLOCK: Final = np.frombuffer(b"block:", np.uint8)
_RQ: Final = np.frombuffer(b"block_rq_", np.uint8)
_ISSUE: Final = np.frombuffer(b"issue: ", np.uint8)
_COMPLETE: Final = np.frombuffer(b"complete: ", np.uint8)
_REQUEUE: Final = np.frombuffer(b"requeue: ", np.uint8)


@compiled
def _starts(buf: np.ndarray, i: int, end: int, word: np.ndarray) -> bool:
    """True if *word* stands at *i*."""
    if i + word.shape[0] > end:
        return False
    for k in range(word.shape[0]):  # noqa: SIM110
        if buf[i + k] != word[k]:
            return False
    return True


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
def _trace_event(buf: np.ndarray, line: int, end: int) -> tuple[int, int, int]:
    """Time (-1: damaged), blkparse's letter (0: of another event), index behind the event's name.

    The index is -1 if the line has no event. The command's name may hold anything, so this is the
    first colon that has a time before it and an event's name behind it.
    """
    for k in range(line + 2, end - 3):
        if int(buf[k]) != COLON or int(buf[k + 1]) > SPACE:
            continue
        if int(buf[k - 1]) < ZERO or int(buf[k - 1]) > 57:
            continue
        at = _blank(buf, k + 1, end)
        behind = _event_name(buf, at, end)
        if behind < 0:
            continue
        if _starts(buf, at, end, _BLOCK):
            at += _BLOCK.shape[0]
        letter = 0
        if _starts(buf, at, end, _RQ):
            at += _RQ.shape[0]
            if _starts(buf, at, end, _ISSUE):
                letter = 68
            elif _starts(buf, at, end, _COMPLETE):
                letter = 67
            elif _starts(buf, at, end, _REQUEUE):
                letter = 82
        return _time_before(buf, line, k), letter, behind
    return -1, 0, -1


@compiled
def _device(buf: np.ndarray, bounds: np.ndarray, column: int) -> int:
    """The device whose major and minor number stand at *column*, 0 if none does; -1: damaged."""
    if column < 0:
        return 0
    major, minor = _whole(buf, bounds, column), _whole(buf, bounds, column + 1)
    return major * 2**20 + minor if 0 <= major < 4096 and 0 <= minor < 2**20 else -1


@compiled
def _plus(buf: np.ndarray, bounds: np.ndarray, width: int, first: int) -> int:
    """The column that is a plus, from *first* on; -1 if there is none."""
    for column in range(first, width - 1):
        if bounds[1, column] == bounds[0, column] + 1 and int(buf[bounds[0, column]]) == PLUS_SIGN:
            return column
    return -1


@compiled
def _has_no_range(buf: np.ndarray, bounds: np.ndarray, width: int, at: int, stop: int) -> bool:
    """True if the tail in brackets stands at column *at*, or behind a sector that is there."""
    if at >= width or not _closed(buf, bounds[0, at], stop):
        return False
    if _whole(buf, bounds, at) >= 0:
        at += 1
    return at < width and int(buf[bounds[0, at]]) == OPEN_BRACKET


@compiled
def scan_events(
    buf: np.ndarray, end: int, form: int, roles: np.ndarray, unit: int, bounds: np.ndarray,
    events: np.ndarray, codes: np.ndarray, odd: np.ndarray, counters: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Scan whole lines; number of events written and of lines that are no events.

    buf: uint8[n]. roles: int64[N_ROLES], columns. unit: bytes or sectors in one sector of the
    length column (512 or 1). bounds: int64[2, MAX_COLUMNS], scratch. events: int64[room, 4], out:
    time ns, device, sector, sectors. codes: uint8[2, room], out: action letter, operation. odd:
    int64[2, room], out: bounds of lines that are no events (kept while there is room). counters:
    int64[N_COUNTERS], added to.
    """
    row = n_odd = 0
    known = max(roles[TIME], roles[ACTION], roles[OP])
    most = MAX_COLUMNS
    if form != TRACE:
        most = max(known, roles[SECTOR], roles[LENGTH], roles[MAJOR] + 1, roles[PLUS] + 2) + 1
    following = 0
    while following < end:
        line = following
        stop = _line_end(buf, line, end)
        following = stop + 1
        if form == TRACE:
            time, action, at = _trace_event(buf, line, stop)
            is_event = at >= 0
            if is_event and action == 0:
                continue
            width = _fields(buf, at, stop, False, bounds, most) if is_event and time >= 0 else 0
        else:
            width = _fields(buf, line, stop, form == COMMAS, bounds, most)
            time, action, is_event = -1, 0, False
            if width > max(roles[TIME], roles[ACTION]):
                time, behind = _time(buf, bounds[0, roles[TIME]], bounds[1, roles[TIME]])
                is_event = time >= 0 and behind == bounds[1, roles[TIME]]
                first, last = bounds[0, roles[ACTION]], bounds[1, roles[ACTION]]
                is_event = is_event and first < last <= first + 2
                action = int(buf[first]) if last == first + 1 else 1
                if roles[PLUS] >= 0:  # the default form: CPU and sequence before the time, then PID
                    for column in range(roles[MAJOR], roles[ACTION]):
                        is_number = column == roles[TIME] or _whole(buf, bounds, column) >= 0
                        is_event = is_event and is_number
        if not is_event:
            if n_odd < odd.shape[1]:
                odd[0, n_odd] = line
                odd[1, n_odd] = stop
                n_odd += 1
            else:
                counters[SKIPPED] += 1
            continue
        if width <= known:
            counters[SKIPPED] += 1
            continue
        if not _paired(action):
            continue
        sector = length = -1
        if roles[PLUS] >= 0:
            plus = _plus(buf, bounds, width, roles[PLUS])
            if plus > 0 and _closed(buf, line, stop):
                sector = _whole(buf, bounds, plus - 1)
                length = _whole(buf, bounds, plus + 1)
            elif plus < 0 and _has_no_range(buf, bounds, width, roles[PLUS] - 1, stop):
                sector = length = 0
        elif width > max(roles[SECTOR], roles[LENGTH]):
            sector = _whole(buf, bounds, roles[SECTOR])
            length = _whole(buf, bounds, roles[LENGTH])
        device = _device(buf, bounds, roles[MAJOR])
        n = length // unit
        if sector < 0 or sector > MAX_SECTOR or length < 0 or n > MAX_SECTORS or device < 0:
            counters[SKIPPED] += 1
        elif n == 0:
            counters[BOOKKEEPING] += action != 81
        else:
            events[row, 0] = time
            events[row, 1] = device
            events[row, 2] = sector
            events[row, 3] = n
            codes[0, row] = action
            codes[1, row] = UNKNOWN
            if roles[OP] >= 0 and bounds[1, roles[OP]] > bounds[0, roles[OP]]:
                codes[1, row] = _operation(buf, bounds[0, roles[OP]], bounds[1, roles[OP]])
            row += 1
    return row, n_odd
