"""Readers of blkparse text: the default form, with ``-t``, and fields printed by ``-f``.

Source: blkparse(1), blktrace 1.2.0 blkparse_fmt.c. The latency is D to C, as btt's D2C (on md and
dm devices Q to the last C). Times count from the start of the trace, sectors are 512 B always.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import chunks
from nvmesim.capture.notes import Notes
from nvmesim.capture.readers.block import blkparse_kernel as kernel
from nvmesim.capture.readers.block.blkparse_fields import (
    MAJOR,
    MAX_COLUMNS,
    OP,
    Layout,
    find_layout,
    scan_columns,
    whole_lines,
)
from nvmesim.capture.requests.block import Block
from nvmesim.capture.requests.pairing import Events, Pairer
from nvmesim.capture.requests.table import requests_capture
from nvmesim.capture.text import Head, Source

FORMAT: Final = "blkparse"
SHORTEST_LINE: Final = 24
"""Bytes of an event line at least, ``1,1 1 1 0.0 1 D R 1+1[]``; bounds the events of a chunk."""
MAX_ODD_LINES: Final = 100_000
SHORTEST_FIELDS: Final = 8
SMALL: Final = 1 << 20
N_THREADS: Final = 2

_EVENT = re.compile(
    rb"^[ \t]*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[A-Zm]{1,2}\s+\S+(\s+\d+ \+ \d+|\s|$)", re.M
)
_PLAIN = re.compile(
    rb"^[ \t]*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[QDC]\s+\S+\s+\d+ \+ \d+ [(\[]", re.M
)
_SUMMARY = re.compile(
    rb"\s*$|CPU ?\d+ \(|Total \(|Throughput \(|Events \(|Input file |"
    rb"\s+(Reads? |Writes? |IO unplugs|Read depth|PC |(Allocation|Dispatch|Completion) wait)"
)
_SKIPS = re.compile(rb"Skips: [\d,.']+ forward \(([\d,.']{1,30})")


def sniff(head: Head) -> bool:
    """True if *head* holds blkparse events in a form read here."""
    text = head.text.encode()
    return bool(_EVENT.search(text)) or find_layout(text) is not None


def read(source: Source) -> Capture:
    """Read blkparse text; CaptureError if it holds no whole request."""
    return requests_capture(source, FORMAT, blocks)


def blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """The requests of *source* in batches, in order of completion."""
    pairer = Pairer()
    head = source.head.text.encode()
    layout = None if _PLAIN.search(head) else find_layout(head)
    whole = chunks(source)
    batches = (
        _default_events(whole, notes, pairer)
        if layout is None
        else _field_events(whole, notes, layout)
    )
    yield from paired_blocks(batches, notes, device_name, pairer)


def device_name(device: int) -> str:
    """``maj,min`` of a device id as blkparse prints it; 0 is a device that was not printed.

    >>> device_name((259 << 20) | 1)
    '259,1'
    """
    return f"{device >> 20},{device & (2**20 - 1)}" if device else "device"


def paired_blocks(
    batches: Iterable[Events],
    notes: Notes,
    name: Callable[[int], str],
    pairer: Pairer | None = None,
) -> Iterator[Block]:
    """Pair *batches* of events into blocks; *name* turns a device id into its name."""
    pairer = pairer or Pairer()
    for events in batches:
        rows = pairer.feed(events)
        if rows.shape[1]:
            yield Block(rows, [name(i) for i in pairer.device_ids])
    pairer.finish(notes)


class _Scanned(NamedTuple):
    events: Events
    odd: list[bytes]
    """Lines that are not events: summary or damage."""
    counters: np.ndarray


def _scan(data: np.ndarray, start: int, stop: int, commands: np.ndarray) -> _Scanned:
    room = (stop - start) // SHORTEST_LINE + 1
    rows = np.empty((room, 4), np.int64)
    codes = np.empty((2, room), np.uint8)
    odd = np.empty((2, MAX_ODD_LINES), np.int64)
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    n, n_odd = kernel.scan_default(data, start, stop, commands, rows, codes, odd, counters)
    lines = [data[a:b].tobytes() for a, b in odd[:, :n_odd].T.tolist()]
    return _Scanned(Events(rows[:n], codes[:, :n]), lines, counters)


def _halves(data: np.ndarray) -> list[tuple[int, int]]:
    """Bounds of two parts of *data* that end at a newline, or of one if it is small."""
    if data.size < SMALL:
        return [(0, data.size)]
    middle = whole_lines(data[: data.size // 2])
    return [(0, middle), (middle, data.size)] if middle else [(0, data.size)]


def _default_events(source: Iterator[np.ndarray], notes: Notes, pairer: Pairer) -> Iterator[Events]:
    """Events of the default form; a chunk is scanned on two threads while the last is paired."""
    waiting: list[Future[_Scanned]] = []
    odd = _OddLines()
    with ThreadPoolExecutor(N_THREADS) as pool:
        for data in source:
            started = [
                pool.submit(_scan, data, a, b, pairer.command_devices) for a, b in _halves(data)
            ]
            for future in waiting:
                yield odd.count(future.result(), notes)
            waiting = started
        for future in waiting:
            yield odd.count(future.result(), notes)
    odd.report(notes)


_STEPS: Final = "flush steps and commands without sectors (not in the table)"


class _OddLines:
    """Counts what is neither an event nor a line of the summary."""

    def __init__(self) -> None:
        self.lost = 0
        self.bookkeeping = 0

    def count(self, scanned: _Scanned, notes: Notes) -> Events:
        notes.skipped += int(scanned.counters[kernel.SKIPPED])
        self.bookkeeping += int(scanned.counters[kernel.BOOKKEEPING])
        for line in scanned.odd:
            skips = _SKIPS.match(line)
            if skips:
                # Thousands are separated as the locale has it.
                self.lost += int(re.sub(rb"\D", b"", skips[1])[:15] or b"0")
            elif not _SUMMARY.match(line):
                notes.skipped += 1
        return scanned.events

    def report(self, notes: Notes) -> None:
        notes.say(self.lost, "events lost by blktrace (Skips): counts and depths are too low")
        notes.say(self.bookkeeping, _STEPS)


def _field_events(source: Iterator[np.ndarray], notes: Notes, layout: Layout) -> Iterator[Events]:
    """Events of an ``-f`` form; a last line without its end may be cut and is left out."""
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    roles = np.array(layout.roles, np.int64)
    unit = 512 if layout.in_bytes else 1
    bounds = np.empty((2, MAX_COLUMNS), np.int64)
    for data in source:
        stop = whole_lines(data)
        notes.skipped += int(stop < data.size)
        room = stop // SHORTEST_FIELDS + 1
        rows = np.empty((room, 4), np.int64)
        codes = np.empty((2, room), np.uint8)
        n = scan_columns(data, 0, stop, layout.commas, roles, unit, bounds, rows, codes, counters)
        yield Events(rows[:n], codes[:, :n])
    notes.skipped += int(counters[kernel.SKIPPED])
    notes.say(int(counters[kernel.BOOKKEEPING]), _STEPS)
    if layout.roles[OP] < 0:
        notes.warnings.append("no RWBS column: reads and writes are not told apart; print %d too")
    if layout.roles[MAJOR] < 0:
        notes.warnings.append("no device column: all events are taken as one device's; print %D")
