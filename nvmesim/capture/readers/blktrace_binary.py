"""Reader of blktrace's own files: one a CPU, ``<device>.blktrace.<cpu>``, merged by time here.

Source: linux/include/uapi/linux/blktrace_api.h, struct blk_io_trace version 7 (kernel 2.6.23 on).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers import blkparse_kernel as kernel
from nvmesim.capture.readers.blkparse import (
    FLUSH_STEPS,
    STEPS,
    from_zero,
    paired_blocks,
)
from nvmesim.capture.requests import FLUSH, OTHER, READ, WRITE
from nvmesim.capture.requests.kernel_cache import compiled
from nvmesim.capture.requests.pairing import Events
from nvmesim.capture.requests.table import Block, requests_capture
from nvmesim.capture.text import Head, Source

MAGIC: Final = {"little": b"tae", "big": b"eat"}
"""The magic 0x65617400 without its low byte, which is the version."""
VERSION: Final = 7
MAGIC_7: Final = 0x65617407
RECORD: Final = 48
BINARY_CHUNK: Final = 4 << 20

# struct blk_io_trace, byte offsets.
TIME_AT, SECTOR_AT, BYTES_AT, ACTION_AT, DEVICE_AT, PDU_AT = 8, 16, 24, 28, 36, 46

# enum blktrace_act and blktrace_cat.
_LETTERS: Final = np.frombuffer(b"\0Q\0\0\0\0RDC", np.uint8)
"""What blkparse calls the actions that pairing needs: 1 queue, 6 requeue, 7 issue, 8 complete."""
CATEGORIES: Final = 16
READ_BIT, WRITE_BIT, FLUSH_BIT = 1, 2, 4
PASSTHROUGH_BIT, NOTIFY_BIT, DISCARD_BIT = 1 << 9, 1 << 10, 1 << 13

_NAME = re.compile(r"(.+\.blktrace\.)\d+$")


def sniff(head: Head) -> bool:
    """True if *head* starts with a record, of any version and byte order."""
    return _order(head) is not None


def _order(head: Head) -> str | None:
    """The byte order of the machine that traced, None if this is not a blktrace file."""
    start = head.raw[:4]
    if len(head.raw) < RECORD:
        return None
    if start[1:] == MAGIC["little"] and start[0] < 32:
        return "little"
    return "big" if start[:3] == MAGIC["big"] and start[3:] < b"\x20" else None


def parts(path: Path, asked: Collection[Path] = ()) -> tuple[Path, ...]:
    """*path* and the files of the device's other CPUs beside it; without them pairs are lost."""
    match = _NAME.match(path.name)
    if match is None:
        return (path,)
    others = (p for p in path.parent.glob("*.blktrace.*") if p != path and p.is_file())
    same = [p for p in others if (m := _NAME.match(p.name)) and m[1] == match[1]]
    return (path, *sorted(p for p in same if p.stat().st_size))


def read(source: Source) -> Capture:
    """Read a device's blktrace files; CaptureError if they hold no whole request."""
    start, order = source.head.raw[:4], _order(source.head)
    if order is None:
        raise source.error("is not a blktrace file", "give what blktrace wrote, one file a CPU")
    version = start[0] if order == "little" else start[3]
    if version != VERSION:
        raise source.error(
            f"is blktrace of version {version}, where {VERSION} is known",
            "print it with that version's blkparse and give the text",
        )
    return requests_capture(source, "blktrace", binary_blocks, version="7")


def binary_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """The requests of all CPUs' files in batches, in order of completion."""
    found = source.parts if len(source.parts) > 1 else parts(source.path)
    files = [
        _binary_events(source if path == source.path else Source(path, (), source.on_read), notes)
        for path in found
    ]
    yield from paired_blocks(from_zero(_merged(files)), notes)


@compiled
def _word(buf: np.ndarray, at: int, size: int, big: bool) -> int:
    """The number of *size* bytes at *at*, the highest first if *big*; -1: it leaves int64."""
    value = 0
    for k in range(size):
        byte = int(buf[at + k] if big else buf[at + size - 1 - k])
        if k == 0 and size == 8 and byte > 127:
            return -1
        value = value * 256 + byte
    return value


@compiled
def _operation(categories: int) -> int:
    if categories & (DISCARD_BIT | PASSTHROUGH_BIT):
        return OTHER
    if categories & WRITE_BIT:
        return WRITE
    if categories & READ_BIT:
        return READ
    return FLUSH if categories & FLUSH_BIT else OTHER


@compiled
def scan_records(
    buf: np.ndarray, big: bool, events: np.ndarray, codes: np.ndarray, counters: np.ndarray
) -> tuple[int, int]:
    """Scan binary records; the number of events written and of bytes used up.

    events: int64[room, 4], codes: uint8[2, room], counters: as in `blkparse_kernel.scan_events`.
    Bytes that start no record are passed over up to the next magic and count as one skip.
    """
    i = row = 0
    lost = False
    size = buf.shape[0]
    while i + RECORD <= size:
        if _word(buf, i, 4, big) != MAGIC_7:
            counters[kernel.SKIPPED] += not lost
            lost = True
            i += 1
            continue
        lost = False
        following = i + RECORD + _word(buf, i + PDU_AT, 2, big)
        if following > size:
            break
        action = _word(buf, i + ACTION_AT, 4, big)
        categories = action >> CATEGORIES
        kind = 0 if categories & NOTIFY_BIT else action & 0xFFFF
        letter = int(_LETTERS[kind]) if kind < _LETTERS.shape[0] else 0
        time = _word(buf, i + TIME_AT, 8, big)
        sector = _word(buf, i + SECTOR_AT, 8, big)
        n = _word(buf, i + BYTES_AT, 4, big) // 512
        if letter:
            if time < 0 or time > kernel.MAX_SECONDS * 10**9:
                counters[kernel.SKIPPED] += 1
            elif n == 0 or sector < 0 or sector > kernel.MAX_SECTOR:
                counters[kernel.BOOKKEEPING] += letter != 81
            else:
                events[row, 0] = time
                events[row, 1] = _word(buf, i + DEVICE_AT, 4, big)
                events[row, 2] = sector
                events[row, 3] = n
                codes[0, row] = letter
                codes[1, row] = _operation(categories)
                row += 1
        i = following
    return row, i


def _binary_events(source: Source, notes: Notes) -> Iterator[Events]:
    """Events of one CPU's file, a chunk at a time."""
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    big = _order(source.head) == "big"
    carried = b""
    with source.open() as file:
        while data := file.read(BINARY_CHUNK):
            buf = np.frombuffer(carried + data, np.uint8)
            room = buf.size // RECORD + 1
            rows = np.empty((room, 4), np.int64)
            codes = np.empty((2, room), np.uint8)
            n, used = scan_records(buf, big, rows, codes, counters)
            carried = buf[used:].tobytes()
            if n:
                yield Events(rows[:n], codes[:, :n])
    notes.skipped += int(counters[kernel.SKIPPED])
    if carried:
        notes.skipped += 1
    notes.say(int(counters[kernel.BOOKKEEPING]), FLUSH_STEPS, STEPS)


def _merged(files: list[Iterator[Events]]) -> Iterator[Events]:
    """Events of several files by time, holding one chunk of each."""
    held: list[Events | None] = [next(file, None) for file in files]
    while chunks := [chunk for chunk in held if chunk is not None]:
        # Nothing earlier than this can still come from a file that goes on.
        limit = min(int(chunk.rows[:, 0].max()) for chunk in chunks)
        rows, codes = [], []
        for i, chunk in enumerate(held):
            if chunk is None:
                continue
            take = chunk.rows[:, 0] <= limit
            rows.append(chunk.rows[take])
            codes.append(chunk.codes[:, take])
            rest = Events(chunk.rows[~take], chunk.codes[:, ~take])
            held[i] = next(files[i], None) if take.all() else rest
        merged = np.concatenate(rows)
        order = np.argsort(merged[:, 0], kind="stable")
        yield Events(merged[order], np.concatenate(codes, axis=1)[:, order])
