"""The requests of fio's iolog, by the compiled scanner: its table and its counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture, Conditions, Measurement, Op, OpResult
from nvmesim.capture.lines import NEWLINE, ahead, chunks, whole_lines
from nvmesim.capture.notes import Notes
from nvmesim.capture.readers.fio_logs import iolog_kernel as kernel
from nvmesim.capture.requests import pairing_kernel as pairs
from nvmesim.capture.requests.block import Block
from nvmesim.capture.requests.table import counted_table
from nvmesim.capture.requests.tally_kernel import UNKNOWN_TIME
from nvmesim.capture.requests.timed import STEP_NS
from nvmesim.capture.text import Source

SHORTEST_LINE: Final = 5
"""``a add``; bytes, without its end."""
NS_PER_US: Final = 1000
MAX_TIME_US: Final = 10**13
MAX_LENGTH: Final = 2**40
OPS: Final[tuple[Op, ...]] = ("read", "write")


@dataclass
class Names:
    """Names seen so far; the kernel adds to them, so one scan at a time."""

    table: np.ndarray = field(default_factory=lambda: np.zeros(4 * kernel.MAX_NAMES, np.int64))
    """Numbers of names and 1, by hash; 0: free."""
    ends: np.ndarray = field(default_factory=lambda: np.zeros(kernel.MAX_NAMES, np.int64))
    """End of each name in `text`."""
    text: np.ndarray = field(default_factory=lambda: np.zeros(kernel.NAME_BYTES, np.uint8))
    state: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))
    known: list[str] = field(default_factory=list)

    def listed(self, count: int) -> list[str]:
        """The first *count* names."""
        for number in range(len(self.known), count):
            first = int(self.ends[number - 1]) if number else 0
            raw = self.text[first : int(self.ends[number])].tobytes()
            self.known.append(raw.decode("utf-8", "replace"))
        return self.known


@dataclass
class _Tally:
    """Counts of one pass over the file, by operation."""

    rows: int = 0
    count: list[int] = field(default_factory=lambda: [0, 0])
    bytes: list[int] = field(default_factory=lambda: [0, 0])
    sizes: set[int] = field(default_factory=set)
    files: set[int] = field(default_factory=set)
    first_ns: int | None = None
    last_ns: int = 0

    def add(self, block: Block) -> None:
        """Count the requests of *block*."""
        rows = block.rows
        if not rows.shape[1]:
            return
        self.rows += rows.shape[1]
        size, issue = rows[pairs.OUT_BYTES], rows[pairs.OUT_ISSUE]
        for k in range(2):
            mine = rows[pairs.OUT_OP] == k
            self.count[k] += int(mine.sum())
            self.bytes[k] += int(size[mine].sum())
        if len(self.sizes) < 2:
            self.sizes.update((int(size.min()), int(size.max())))
        self.files.update(np.flatnonzero(np.bincount(rows[pairs.OUT_DEVICE])).tolist())
        first = int(issue.min())
        self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
        self.last_ns = max(self.last_ns, int(issue.max()))


def read_iolog(source: Source, version: int) -> Capture:
    """Read an iolog of *version* 2 or 3; CaptureError if it holds no read and no write."""
    tally, notes = _Tally(), Notes()
    table = counted_table(source, partial(blocks, version=version), notes, tally)
    if not tally.rows:
        raise source.error(
            f"is an iolog without a read or write ({notes.skipped} lines skipped)",
            "repeat the capture",
        )
    warnings = ["an iolog has no latencies: arrivals only"]
    if version == 2:
        warnings.append("version 2 has no times: only its wait lines space the requests")
    warnings += notes.warnings
    if notes.skipped:
        warnings.append(f"{notes.skipped} lines skipped: damaged or cut off")
    return Capture(
        file=source.path,
        format="fio-iolog",
        version=f"iolog {version}",
        measurements=(_measurement(tally),),
        rows=tally.rows,
        skipped=notes.skipped,
        requests=table,
        warnings=tuple(warnings),
    )


def blocks(source: Source, notes: Notes, version: int) -> Iterator[Block]:
    """The requests in batches, in the order of the file."""
    names = Names()
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    others = back = clock_ns = 0
    last = np.empty(0, np.int64)
    for out in ahead(source, _lines(source, names, counters, notes)):
        action, offset, length = out[kernel.ACTION], out[kernel.OFFSET], out[kernel.LENGTH]
        if version == 2:
            waits = (action == kernel.WAIT) & (offset >= 0) & (offset <= MAX_TIME_US)
            issue = clock_ns + np.cumsum(np.where(waits, offset * NS_PER_US, 0))
            clock_ns = int(issue[-1]) if issue.size else clock_ns
        else:
            known = (out[kernel.TIME] >= 0) & (out[kernel.TIME] <= MAX_TIME_US)
            issue = np.where(known, out[kernel.TIME] * NS_PER_US, -1)
        is_request = (action == kernel.READ) | (action == kernel.WRITE)
        good = is_request & (issue >= 0) & (offset >= 0) & (length >= 1) & (length <= MAX_LENGTH)
        notes.skipped += int(is_request.sum() - good.sum())
        others += int((action == kernel.OTHER).sum())
        times = np.concatenate((last, issue[good]))
        back += int((times[1:] - times[:-1] < -STEP_NS).sum())
        last = times[-1:]
        yield Block(_rows(out[:, good], issue[good]), names.listed(int(names.state[0])))
    notes.skipped += int(counters[kernel.SKIPPED])
    notes.say(back, "places where the time steps back by more than a second")
    notes.say(others, "trims and flushes are left out")
    notes.say(int(counters[kernel.OVERFLOW]), "lines of files beyond the room for names (left out)")


def _lines(
    source: Source, names: Names, counters: np.ndarray, notes: Notes
) -> Iterator[np.ndarray]:
    """The lines behind the header as the kernel's columns, int64[N_COLUMNS, n]."""
    is_first = True
    for chunk in chunks(source):
        data = chunk
        if data[-1] != NEWLINE:  # fio ends every line: what does not was cut off
            stop = whole_lines(data)
            notes.skipped += bool(data[stop:].tobytes().strip())
            data = data[:stop]
        if is_first and data.size:
            data = data[int(np.argmax(data == NEWLINE)) + 1 :]
            is_first = False
        out = np.empty((kernel.N_COLUMNS, data.size // (SHORTEST_LINE + 1) + 1), np.int64)
        n = kernel.scan_iolog(
            data, data.size, out, names.table, names.ends, names.text, names.state, counters
        )
        yield out[:, :n]


def _rows(out: np.ndarray, issue: np.ndarray) -> np.ndarray:
    rows = np.zeros((pairs.N_OUT, issue.size), np.int64)
    rows[pairs.OUT_ISSUE] = issue
    rows[pairs.OUT_COMPLETE] = UNKNOWN_TIME
    rows[pairs.OUT_OFFSET] = out[kernel.OFFSET]
    rows[pairs.OUT_BYTES] = out[kernel.LENGTH]
    rows[pairs.OUT_OP] = out[kernel.ACTION]
    rows[pairs.OUT_DEVICE] = out[kernel.FILE]
    return rows


def _measurement(tally: _Tally) -> Measurement:
    span_s = (tally.last_ns - (tally.first_ns or 0)) / 1e9
    rate = 1 / span_s if span_s > 0 else 0.0
    ops: dict[Op, OpResult] = {
        op: OpResult(count, n_bytes, count * rate, n_bytes * rate)
        for op, count, n_bytes in zip(OPS, tally.count, tally.bytes, strict=True)
        if count
    }
    conditions = Conditions(
        read_fraction=tally.count[0] / tally.rows,
        block_size=next(iter(tally.sizes)) if len(tally.sizes) == 1 else None,
        targets=len(tally.files),
        duration_s=span_s if span_s > 0 else None,
    )
    return Measurement("iolog", conditions, ops, source="fio iolog")
