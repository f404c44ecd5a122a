"""blkparse ``-f`` output: which column is what is found from the values, there is no header.

Needed are a time, an action, a sector and a count of sectors or bytes; RWBS and the device if
they are there. Columns are split at commas if the lines have several, else at blanks.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.capture.readers.block.blkparse_kernel import (
    BOOKKEEPING,
    COMMA,
    EVENTS,
    LINES,
    MAX_SECTOR,
    MAX_SECTORS,
    NEWLINE,
    SKIPPED,
    SPACE,
    UNKNOWN,
    _blank,
    _line_end,
    _number,
    _operation,
    _paired,
    _time,
    compiled,
)

MAX_COLUMNS: Final = 32
HEAD_LINES: Final = 200
AGREE: Final = 0.95
"""Share of the head's lines that must fit a column's role; the rest may be damaged."""

# What a layout's columns mean, as positions in its index vector.
TIME: Final = 0
ACTION: Final = 1
OP: Final = 2
SECTOR: Final = 3
LENGTH: Final = 4
MAJOR: Final = 5
N_ROLES: Final = 6

_TIME = re.compile(rb"\d+\.\d{6,9}$")
_ACTION = re.compile(rb"[A-Zm]{1,2}$")
_RWBS = re.compile(rb"[FRWDNASMPVE]{1,8}$")
_INTEGER = re.compile(rb"\d+$")
_DEVICE = re.compile(rb"\s*\d+,\d+\s")

Column = tuple[bytes, ...]


@dataclass(frozen=True)
class Layout:
    """Where the columns of an ``-f`` form are; -1 for what it lacks."""

    commas: bool
    roles: tuple[int, ...]
    """int[N_ROLES], column of each role."""
    in_bytes: bool
    """The length column counts bytes, not sectors."""


def find_layout(head: bytes) -> Layout | None:
    """The layout that the first lines of a file have, or None if they are not blkparse events."""
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")[:-1] if line.strip()][:HEAD_LINES]
    if len(lines) < 2:
        return None
    with_device = sum(bool(_DEVICE.match(line)) for line in lines) > AGREE * len(lines)
    commas = sum(line.count(b",") for line in lines) >= 3 * len(lines)
    rows = [_split(line, commas) for line in lines]
    width, count = Counter(len(row) for row in rows).most_common(1)[0]
    if not 5 <= width <= MAX_COLUMNS or count < len(lines) / 2:
        return None
    columns: list[Column] = list(zip(*[row for row in rows if len(row) == width], strict=True))
    return _layout(columns, commas, with_device)


def _split(line: bytes, commas: bool) -> list[bytes]:
    parts = line.split(b",") if commas else line.replace(b",", b" ").split()
    return [part.strip() for part in parts]


def _fits(column: Column, pattern: re.Pattern[bytes]) -> bool:
    return sum(bool(pattern.match(value)) for value in column) >= AGREE * len(column)


def _first(columns: list[Column], pattern: re.Pattern[bytes], taken: set[int]) -> int:
    fitting = (i for i, c in enumerate(columns) if i not in taken and _fits(c, pattern))
    return next(fitting, -1)


def _layout(columns: list[Column], commas: bool, with_device: bool) -> Layout | None:
    actions = [
        i
        for i, c in enumerate(columns)
        if _fits(c, _ACTION) and b"C" in c and (b"D" in c or b"Q" in c)
    ]
    time = _first(columns, _TIME, set())
    if time < 0 or not actions:
        return None
    op = _first(columns, _RWBS, {actions[0]})
    integers = {
        i: np.array([_integer(v) for v in c])
        for i, c in enumerate(columns)
        if _fits(c, _INTEGER) and not (with_device and i < 2)
    }
    found = _sector_and_length(integers)
    if found is None:
        return None
    sector, length, in_bytes = found
    major = 0 if with_device and not commas else -1
    return Layout(commas, (time, actions[0], op, sector, length, major), in_bytes)


def _integer(text: bytes) -> float:
    return float(text) if _INTEGER.match(text) and len(text) <= 18 else -1.0


def _sector_and_length(integers: dict[int, np.ndarray]) -> tuple[int, int, bool] | None:
    """Columns of sector and length, and whether the length is in bytes."""
    for n, sectors in integers.items():
        for b, n_bytes in integers.items():
            agree = (n_bytes == 512 * sectors) & (sectors > 0)
            if n != b and agree.sum() >= AGREE * max(int((n_bytes > 0).sum()), 1):
                rest = [i for i in integers if i not in (n, b) and i < max(n, b)]
                if rest:
                    return max(rest, key=lambda i: integers[i].max()), n, False
    if len(integers) < 2:
        return None
    sector = max(integers, key=lambda i: integers[i].max())
    after = [i for i in integers if i > sector]
    if not after:
        return None
    length = integers[after[0]]
    return sector, after[0], bool((length % 512 == 0).all() and length.max() > 0)


@compiled
def _fields(buf: np.ndarray, i: int, stop: int, commas: bool, bounds: np.ndarray) -> int:
    """Bounds of the columns of one line into bounds[2, MAX_COLUMNS]; how many there are."""
    column = 0
    while i < stop and column < MAX_COLUMNS:
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


@compiled
def scan_columns(
    buf: np.ndarray,
    start: int,
    end: int,
    commas: bool,
    roles: np.ndarray,
    unit: int,
    bounds: np.ndarray,
    events: np.ndarray,
    codes: np.ndarray,
    counters: np.ndarray,
) -> int:
    """Scan whole lines of an ``-f`` form; the number of events written.

    roles: int64[N_ROLES], columns. unit: bytes or sectors in one sector of the length column
    (512 or 1). bounds: int64[2, MAX_COLUMNS], scratch. events, codes and counters as in
    `blkparse_kernel.scan_default`.
    """
    needed = 0
    for column in roles:
        needed = max(needed, column)
    row = 0
    i = start
    while i < end:
        stop = _line_end(buf, i, end)
        width = _fields(buf, i, stop, commas, bounds)
        i = stop + 1
        counters[LINES] += 1
        if width <= needed:
            counters[SKIPPED] += width > 1 or (width == 1 and bounds[1, 0] > bounds[0, 0])
            continue
        first, last = bounds[0, roles[ACTION]], bounds[1, roles[ACTION]]
        time, behind = _time(buf, bounds[0, roles[TIME]], bounds[1, roles[TIME]])
        if time < 0 or behind != bounds[1, roles[TIME]] or last == first or last > first + 2:
            counters[SKIPPED] += 1
            continue
        counters[EVENTS] += 1
        if last != first + 1 or not _paired(int(buf[first])):
            continue
        sector = _whole(buf, bounds, roles[SECTOR])
        length = _whole(buf, bounds, roles[LENGTH])
        device = 0
        if roles[MAJOR] >= 0:
            major = _whole(buf, bounds, roles[MAJOR])
            minor = _whole(buf, bounds, roles[MAJOR] + 1)
            device = major * 2**20 + minor if 0 <= major < 4096 and 0 <= minor < 2**20 else -1
        n = length // unit
        if sector < 0 or sector > MAX_SECTOR or length < 0 or n > MAX_SECTORS or device < 0:
            counters[SKIPPED] += 1
            counters[EVENTS] -= 1
            continue
        if n == 0:
            counters[BOOKKEEPING] += int(buf[first]) != 81
            continue
        events[row, 0] = time
        events[row, 1] = device
        events[row, 2] = sector
        events[row, 3] = n
        codes[0, row] = int(buf[first])
        codes[1, row] = UNKNOWN
        if roles[OP] >= 0 and bounds[1, roles[OP]] > bounds[0, roles[OP]]:
            codes[1, row] = _operation(buf, bounds[0, roles[OP]], bounds[1, roles[OP]])
        row += 1
    return row


def whole_lines(data: np.ndarray) -> int:
    """Number of bytes of *data* up to and with its last newline."""
    ends = np.flatnonzero(data[-65536:] == NEWLINE)
    if ends.size:
        return int(max(data.size - 65536, 0) + ends[-1] + 1)
    ends = np.flatnonzero(data == NEWLINE)
    return int(ends[-1] + 1) if ends.size else 0
