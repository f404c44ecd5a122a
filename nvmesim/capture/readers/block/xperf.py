"""xperf's dump of an ETW trace (``xperf -i x.etl -o y.csv -a dumper``), disk events only.

The header gives the columns of each kind of event; newer builds have a CPU column, so nothing is
taken by position. The time is that of completion, the issue is ElapsedTime earlier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from nvmesim.capture.lines import NEWLINE, ahead, chunks
from nvmesim.capture.notes import Notes
from nvmesim.capture.readers.block import xperf_kernel as kernel
from nvmesim.capture.readers.block.blkparse_fields import whole_lines
from nvmesim.capture.readers.block.words_kernel import words_of
from nvmesim.capture.requests.block import Block
from nvmesim.capture.requests.timed import Timed, sane_rows, timed_rows
from nvmesim.capture.text import Head, Source

NS_PER_US: Final = 1000
NEEDED: Final = ("TimeStamp", "ByteOffset", "IOSize", "ElapsedTime", "DiskNum")
"""In the kernel's order."""
KINDS: Final = ("DiskRead", "DiskWrite")
MAX_US: Final = 10**15
MAX_DISKS: Final = 1024
SHORTEST_EVENT: Final = 24
"""``DiskRead,1,0x1,0x1,1,1`` and its end."""
_HEADER = re.compile(r"^[ \t]*(DiskRead|DiskWrite),\s*TimeStamp\s*,.*$", re.M)


def is_xperf(head: Head) -> bool:
    """True if *head* is of an xperf dump that has disk events."""
    return "BeginHeader" in head.text and bool(_HEADER.search(head.text))


def xperf_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of the dump, in the order of the file: that of their completions."""
    return timed_rows(_batches(source, notes), notes)


def _columns(source: Source) -> dict[str, list[str]]:
    """Column names of DiskRead and DiskWrite events, as the header has them."""
    found = {
        match[1]: [name.strip() for name in match[0].split(",")]
        for match in _HEADER.finditer(source.head.text)
    }
    for kind, names in found.items():
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise source.error(
                f"its header lacks {', '.join(missing)} for {kind}", "dump with xperf -a dumper"
            )
    return found


def _batches(source: Source, notes: Notes) -> Iterator[Timed]:
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    start: int | None = None
    disks = 0
    for out in ahead(source, _events(source, counters, notes)):
        complete, took = out[kernel.TIME], out[kernel.TOOK]
        disks = max(disks, int(out[kernel.DISK].max(initial=0)) + 1)
        complete = np.minimum(complete, MAX_US + 1) * NS_PER_US
        found = Timed(
            issue=complete - np.minimum(took, MAX_US) * NS_PER_US,
            complete=complete,
            op=out[kernel.OP],
            bytes=out[kernel.SIZE],
            offset=out[kernel.OFFSET],
            device=out[kernel.DISK],
            names=[f"disk{number}" for number in range(min(disks, MAX_DISKS))],
        )
        good = sane_rows(found, latency=True)
        good &= (found.device < MAX_DISKS) & (out[kernel.TIME] <= MAX_US)
        notes.skipped += int((~good).sum())
        found = found.where(good)
        if start is None and found.issue.size:
            start = int(found.issue.min())
        yield found.since(start or 0)
    notes.skipped += int(counters[kernel.SKIPPED])
    # The dump's own header names the event once.
    notes.say(max(int(counters[kernel.FLUSHES]) - 1, 0), "flushes (not in the table)")


def _events(source: Source, counters: np.ndarray, notes: Notes) -> Iterator[np.ndarray]:
    """Disk events as the kernel's columns, int64[N_COLUMNS, n]."""
    positions = np.zeros((len(KINDS), kernel.N_NEEDED), np.int64)
    for kind, names in _columns(source).items():
        positions[KINDS.index(kind)] = [names.index(name) for name in NEEDED]
    for data in chunks(source):
        # A last line without its end may be cut within a number.
        stop = data.size if data[-1] == NEWLINE else whole_lines(data)
        notes.skipped += int(stop < data.size)
        out = np.empty((kernel.N_COLUMNS, stop // SHORTEST_EVENT + 1), np.int64)
        with np.errstate(over="ignore"):
            n = kernel.scan_xperf(data, words_of(data), stop, positions, out, counters)
        yield out[:, :n]
