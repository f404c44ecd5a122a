"""Reader of blktrace's own files: one a CPU, ``<device>.blktrace.<cpu>``, merged by time here.

Source: linux/include/uapi/linux/blktrace_api.h, struct blk_io_trace version 7 (kernel 2.6.23 on).
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers import blkparse
from nvmesim.capture.requests import FLUSH, OTHER, READ, WRITE
from nvmesim.capture.requests.pairing import Events
from nvmesim.capture.requests.table import Block, requests_capture
from nvmesim.capture.text import Head, Source

MAGIC: Final = b"tae"
"""The magic 0x65617400 without its low byte, which is the version."""
BIG: Final = b"eat\x07"
"""The same, and the version, of a big-endian machine."""
VERSION: Final = 7
_FIELDS: Final = {
    "magic": "u4", "sequence": "u4", "time": "u8", "sector": "u8", "bytes": "u4", "action": "u4",
    "pid": "u4", "device": "u4", "cpu": "u4", "error": "u2", "more": "u2",
}  # fmt: skip
"""struct blk_io_trace; so many bytes of something else are behind a record."""
RECORD: Final = 48
BINARY_CHUNK: Final = 4 << 20

# enum blktrace_act and blktrace_cat.
_LETTERS: Final = np.frombuffer(b"\0Q\0\0\0\0RDC", np.uint8)
"""What blkparse calls the actions that pairing needs: 1 queue, 6 requeue, 7 issue, 8 complete."""
READ_BIT, WRITE_BIT, FLUSH_BIT = 1, 2, 4
PASSTHROUGH_BIT, NOTIFY_BIT, DISCARD_BIT = 1 << 9, 1 << 10, 1 << 13

_NAME = re.compile(r"(.+\.blktrace\.)\d+$")


def sniff(head: Head) -> bool:
    """True if *head* starts with a record, of any version and byte order."""
    start = head.raw[:4]
    is_ours = (start[1:] == MAGIC and start[0] < 32) or start == BIG
    return is_ours and len(head.raw) >= RECORD


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
    start = source.head.raw[:4]
    if not sniff(source.head):
        raise source.error("is not a blktrace file", "give what blktrace wrote, one file a CPU")
    if start == BIG:
        raise source.error("is of a big-endian machine", "print it with blkparse, give the text")
    if start[0] != VERSION:
        raise source.error(
            f"is blktrace of version {start[0]}, where {VERSION} is known",
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
    yield from blkparse.paired_blocks(blkparse.from_zero(_merged(files)), notes)


def _records(data: bytes, notes: Notes) -> tuple[np.ndarray, int]:
    """The whole records of *data* by their fields, and the number of bytes used up.

    Bytes that start no record are passed over up to the next magic and count as one skip.
    """
    magic = bytes([VERSION]) + MAGIC
    at, last, starts = 0, len(data) - RECORD, []
    while at <= last:
        if not data.startswith(magic, at):
            notes.skipped += 1
            found = data.find(magic, at)
            at = found if 0 <= found <= last else last + 1
            continue
        more = data[at + RECORD - 2 : at + RECORD]
        following = at + RECORD + int.from_bytes(more, "little")
        if following > len(data):
            break
        starts.append(at)
        at = following
    kind = np.dtype([(name, f"<{number}") for name, number in _FIELDS.items()])
    where = np.array(starts, np.int64)[:, None] + np.arange(RECORD)
    return np.frombuffer(data, np.uint8)[where].view(kind)[:, 0], at


def _scan(records: np.ndarray, notes: Notes) -> tuple[Events, int]:
    """The events among *records* that pairing needs, and how many steps have no sectors."""
    categories = records["action"].astype(np.int64) >> 16
    kind = np.where(categories & NOTIFY_BIT, 0, records["action"] & 0xFFFF)
    letter = np.where(kind < _LETTERS.size, _LETTERS[np.minimum(kind, _LETTERS.size - 1)], 0)
    sectors, sector = records["bytes"] // 512, records["sector"]
    is_late = records["time"] > blkparse.MAX_SECONDS * 10**9
    is_step = ~is_late & ((sectors == 0) | (sector > blkparse.MAX_SECTOR))
    notes.skipped += int(((letter > 0) & is_late).sum())
    steps = int(((letter > 0) & is_step & (letter != ord("Q"))).sum())
    good = (letter > 0) & ~is_late & ~is_step
    columns = (records["time"], records["device"], sector, sectors)
    bits = ((DISCARD_BIT | PASSTHROUGH_BIT, OTHER), (WRITE_BIT, WRITE), (READ_BIT, READ),
            (FLUSH_BIT, FLUSH))  # fmt: skip
    op = np.select([categories & bit > 0 for bit, _ in bits], [code for _, code in bits], OTHER)
    rows = np.stack([column[good].astype(np.int64) for column in columns], axis=1)
    return Events(rows, np.stack([letter[good], op[good]]).astype(np.uint8)), steps


def _binary_events(source: Source, notes: Notes) -> Iterator[Events]:
    steps = 0
    carried = b""
    with source.open() as file:
        while data := file.read(BINARY_CHUNK):
            data = carried + data
            records, used = _records(data, notes)
            carried = data[used:]
            events, more = _scan(records, notes)
            steps += more
            if len(events):
                yield events
    notes.skipped += bool(carried)
    notes.say(steps, blkparse.FLUSH_STEPS, blkparse.STEPS)


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
