"""Compiled scanner of blkparse text: bytes in, event columns out, no Python per line.

It runs under Numba without the interpreter lock; with the JIT off it is plain (slow) Python, so
every byte goes through ``int`` first and nothing relies on wrap-around.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

import numpy as np
from numba import config, njit

from nvmesim.capture.readers.block.kernel_cache import KernelCache

P = ParamSpec("P")
R = TypeVar("R")

NEWLINE: Final = 10
RETURN: Final = 13
SPACE: Final = 32
TAB: Final = 9
COMMA: Final = 44
DOT: Final = 46
PLUS: Final = 43
ZERO: Final = 48
OPEN_PAREN: Final = 40
OPEN_BRACKET: Final = 91
CLOSE_BRACKET: Final = 93
MAX_DIGITS: Final = 19
LARGEST: Final = 2**63 - 1
"""Larger numbers are damage, not data."""
MAX_SECTOR: Final = 2**53
MAX_SECTORS: Final = 2**31
MAX_SECONDS: Final = 3_000_000_000
"""Epoch seconds pass; ten times as many nanoseconds would leave int64."""

READ: Final = 0
WRITE: Final = 1
FLUSH: Final = 2
OTHER: Final = 3
UNKNOWN: Final = 4

SKIPPED: Final = 0
BOOKKEEPING: Final = 1
"""D and C lines without a sector range: steps of the flush sequence."""
LINES: Final = 2
EVENTS: Final = 3
N_COUNTERS: Final = 4


_OTHER_FILES: Final = ("blkparse_fields.py", "blktrace_binary.py")
_LEAN: Final[dict[str, Any]] = {"nogil": True, "_nrt": False, "error_model": "numpy"}


def kernel_files() -> list[Path]:
    """Return every file that compiled functions of the readers are in."""
    room = Path(__file__).parents[2]
    return sorted(p for p in room.rglob("*.py") if p.match("*_kernel.py") or p.name in _OTHER_FILES)


@cache
def sources() -> str:
    """Return a digest of every file that compiled functions of the readers are in.

    A function changes with those that it calls, in whichever of them they stand.
    """
    return hashlib.sha256(b"".join(path.read_bytes() for path in kernel_files())).hexdigest()


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """*function* through Numba, without the interpreter lock, kept on disk.

    It must not allocate: then references to arrays need no counting, which costs more than a line.
    """
    made: Any = njit(**_LEAN)(function)
    if not getattr(config, "DISABLE_JIT", 0):
        made._cache = KernelCache(function, sources)
    return cast(Callable[P, R], made)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """The same as a part of each caller: an array is seven arguments, which a call must copy."""
    return cast(Callable[P, R], njit(forceinline=True, **_LEAN)(function))


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
def _token(buf: np.ndarray, i: int, end: int) -> int:
    """Index behind the run of bytes at *i* that are not blank."""
    while i < end and int(buf[i]) > SPACE:
        i += 1
    return i


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
    if first >= stop or (int(buf[first]) != OPEN_BRACKET and int(buf[first]) != OPEN_PAREN):
        return False
    last = stop - 1
    while last > first and (int(buf[last]) == SPACE or int(buf[last]) == RETURN):
        last -= 1
    return int(buf[last]) == CLOSE_BRACKET


@compiled
def _digits(buf: np.ndarray, i: int) -> int:
    """The three-digit number at *i*, or a negative one if a byte is not a digit."""
    a, b, c = int(buf[i]) - ZERO, int(buf[i + 1]) - ZERO, int(buf[i + 2]) - ZERO
    if a < 0 or a > 9 or b < 0 or b > 9 or c < 0 or c > 9:
        return -1
    return a * 100 + b * 10 + c


@compiled
def _aligned_time(buf: np.ndarray, first: int, dot: int) -> int:
    """Nanoseconds of a time with 9 decimals whose point is at *dot*; -1: look closely.

    From *first* on there must be nothing but digits and blanks: CPU, sequence, seconds. blkparse
    aligns its columns, so nearly every line has its point where the line before had it.
    """
    if int(buf[dot]) != DOT or int(buf[dot + 10]) != SPACE:
        return -1
    odd = 0
    for i in range(first, dot):
        byte = int(buf[i])
        odd |= (byte != SPACE) & ((byte < ZERO) | (byte > 57))
    seconds = 0
    scale = 1
    i = dot - 1
    while i >= first and int(buf[i]) != SPACE and scale <= MAX_SECONDS:
        seconds += (int(buf[i]) - ZERO) * scale
        scale *= 10
        i -= 1
    high, middle, low = _digits(buf, dot + 1), _digits(buf, dot + 4), _digits(buf, dot + 7)
    fields = int(buf[first]) == SPACE and i > first and int(buf[i]) == SPACE
    if odd or not fields or scale == 1 or (high | middle | low) < 0 or seconds > MAX_SECONDS:
        return -1
    return seconds * 1_000_000_000 + high * 1_000_000 + middle * 1000 + low


@compiled
def _prefix(buf: np.ndarray, line: int, end: int, column: int) -> tuple[int, int, int, int]:
    """Device, time in ns, index of the action and of the time's point on the line at *line*.

    The fields are ``maj,min cpu seq time pid``. *column*: where the point was on an earlier line.
    """
    major, i = _number(buf, _blank(buf, line, end), end)
    if major < 0 or i >= end or int(buf[i]) != COMMA:
        return -1, -1, i, column
    minor, i = _number(buf, i + 1, end)
    if minor < 0 or major >= 4096 or minor >= 2**20:
        return -1, -1, i, column
    time = -1
    if line + column > i and line + column + 10 < end:
        time = _aligned_time(buf, i, line + column)
    if time >= 0:
        i = line + column + 10
    else:
        cpu, i = _number(buf, _blank(buf, i, end), end)
        sequence, i = _number(buf, _blank(buf, i, end), end)
        if cpu < 0 or sequence < 0:
            return -1, -1, i, column
        i = _blank(buf, i, end)
        column = _number(buf, i, end)[1] - line
        time, i = _time(buf, i, end)
    pid, i = _number(buf, _blank(buf, i, end), end)
    if time < 0 or pid < 0:
        return -1, -1, i, column
    return major * 2**20 + minor, time, _blank(buf, i, end), column


@compiled
def _paired(action: int) -> bool:
    """True if pairing needs events of this action: C, D, Q or R."""
    return action == 67 or action == 68 or action == 81 or action == 82


@compiled
def _among(device: int, known: np.ndarray) -> bool:
    for k in range(known.shape[0]):  # noqa: SIM110
        if known[k] == device:
            return True
    return False


@compiled
def _range(buf: np.ndarray, i: int, end: int) -> tuple[int, int, int]:
    """Sector, sectors (-1: none given, -2: damaged) and the index behind, from ``S + n``."""
    sector, i = _number(buf, i, end)
    if sector < 0:
        return -1, -1 if i < end and int(buf[i]) == OPEN_BRACKET else -2, i
    i = _blank(buf, i, end)
    if i >= end or int(buf[i]) != PLUS:
        return sector, -1 if i < end and int(buf[i]) == OPEN_BRACKET else -2, i
    n, i = _number(buf, _blank(buf, i + 1, end), end)
    if n < 0 or sector > MAX_SECTOR or n > MAX_SECTORS:
        return sector, -2, i
    return sector, n, i


@compiled
def scan_default(
    buf: np.ndarray,
    start: int,
    end: int,
    commands: np.ndarray,
    events: np.ndarray,
    codes: np.ndarray,
    others: np.ndarray,
    counters: np.ndarray,
) -> tuple[int, int]:
    """Scan whole lines of blkparse's default form; number of events and of odd lines.

    buf: uint8[n]. commands: int64[k], devices whose Q events nobody needs. events:
    int64[room, 4], out: time ns, device, sector, sectors. codes: uint8[2, room], out: action
    letter, operation. others: int64[2, room], out: bounds of lines that are not events (kept
    while there is room). counters: int64[N_COUNTERS], added to.
    """
    row = 0
    odd = 0
    column = 0
    i = start
    while i < end:
        device, time, j, column = _prefix(buf, i, end, column)
        if device < 0 or j >= end:
            stop = _line_end(buf, i, end)
            counters[LINES] += 1
            if odd < others.shape[1]:
                others[0, odd] = i
                others[1, odd] = stop
                odd += 1
            else:
                counters[SKIPPED] += 1
            i = stop + 1
            continue
        action = int(buf[j])
        after = _token(buf, j, end)
        mark = _blank(buf, after, end)
        behind = _token(buf, mark, end)
        counters[LINES] += 1
        if behind == mark or after - j > 2:
            counters[SKIPPED] += 1
            i = _line_end(buf, behind, end) + 1
            continue
        counters[EVENTS] += 1
        if after - j > 1 or not _paired(action):
            i = _line_end(buf, behind, end) + 1
            continue
        sector, n, tail = _range(buf, _blank(buf, behind, end), end)
        stop = _line_end(buf, tail, end)
        if n == -2 or not _closed(buf, _blank(buf, tail, stop), stop):
            counters[SKIPPED] += 1
            counters[EVENTS] -= 1
        elif n <= 0:
            counters[BOOKKEEPING] += action != 81
        elif action != 81 or not _among(device, commands):
            events[row, 0] = time
            events[row, 1] = device
            events[row, 2] = sector
            events[row, 3] = n
            codes[0, row] = action
            codes[1, row] = _operation(buf, mark, behind)
            row += 1
        i = stop + 1
    return row, odd
