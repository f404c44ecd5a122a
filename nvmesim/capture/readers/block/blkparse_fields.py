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

from nvmesim.capture.readers.block import blkparse_kernel as kernel
from nvmesim.capture.readers.block.blkparse_kernel import MAX_COLUMNS, NEWLINE

HEAD_LINES: Final = 200
AGREE: Final = 0.95
"""Share of the head's lines that must fit a column's role; the rest may be damaged."""

_TIME = re.compile(rb"\d+\.\d{6,9}$")
_ACTION = re.compile(rb"[A-Zm]{1,2}$")
_RWBS = re.compile(rb"[FRWDNASMPVE]{1,8}$")
_INTEGER = re.compile(rb"\d+$")
_DEVICE = re.compile(rb"\s*\d+,\d+\s")

Column = tuple[bytes, ...]


@dataclass(frozen=True)
class Layout:
    """How lines of events split into columns, and what these are."""

    form: int
    """`BLANKS`, `COMMAS` or `TRACE` of the kernel."""
    roles: tuple[int, ...]
    """int[N_ROLES], column of each role, -1 for what it lacks."""
    in_bytes: bool = False
    """True if the length column counts bytes, not sectors."""
    has_end: bool = False
    """True if a whole line ends with ``]``, so that a last line needs no newline."""


DEFAULT: Final = Layout(kernel.BLANKS, (4, 6, 7, -1, -1, 0, 9), has_end=True)
"""``maj,min cpu sequence time pid action RWBS sector + n [process]``."""
TRACE: Final = Layout(kernel.TRACE, (-1, -1, 2, -1, -1, 0, 4))
"""``maj,min RWBS [bytes] (cmd) sector + n ... [process]`` behind an event's name."""


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
    form = kernel.COMMAS if commas else kernel.BLANKS
    return Layout(form, (time, actions[0], op, sector, length, major, -1), in_bytes)


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


def whole_lines(data: np.ndarray) -> int:
    """Number of bytes of *data* up to and with its last newline."""
    ends = np.flatnonzero(data[-65536:] == NEWLINE)
    if ends.size:
        return int(max(data.size - 65536, 0) + ends[-1] + 1)
    ends = np.flatnonzero(data == NEWLINE)
    return int(ends[-1] + 1) if ends.size else 0
