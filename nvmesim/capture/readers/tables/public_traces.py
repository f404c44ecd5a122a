"""Readers of published block traces: a line a request, recognised by their columns.

Sources: the READMEs of MSR Cambridge (SNIA 388), Alibaba block traces 2020, Tencent CBS (SNIA
27917), K5cloud 2018, SYSTOR '17 (SNIA 4928), SPC trace file format 1.0.1, the replayer of
huaicheng.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers.tables.table_rows import (
    INTEGER,
    LETTER,
    NAME,
    OPTIONAL,
    SECONDS,
    TWO_NAMES,
    ColumnNames,
    Shape,
    TableColumn,
    table_batches,
)
from nvmesim.capture.requests.table import Block, requests_capture
from nvmesim.capture.requests.tally_kernel import UNKNOWN_TIME
from nvmesim.capture.requests.timed import Timed, sane_rows, timed_rows
from nvmesim.capture.text import Head, Source

FORMAT: Final = "public-trace"
SECTOR: Final = 512
MAX_SECTOR: Final = 2**53
MAX_SECTORS: Final = 2**32
MAX_US: Final = 4 * 10**15
MAX_TICKS: Final = 4 * 10**16
"""us, or 100 ns since the start: the most that is not an overflow in ns."""
HEAD_LINES: Final = 50
READ: Final = ord("R")
WRITE: Final = ord("W")

_JOINT = re.compile(r'"?[ \t]*,[ \t]*"?')
"""Between the two names of `TWO_NAMES`."""
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class TraceLayout:
    """One trace format: how to know it, its columns, and what they mean."""

    name: str
    sniff: re.Pattern[str]
    shape: Shape
    header: str
    """First column's name where a header line may stand."""
    times: Callable[[Columns, int], tuple[np.ndarray, np.ndarray | None]]
    """Issue and completion in ns, given the first row's time in the file's unit."""
    latency: bool
    in_sectors: str = ""
    """Which of ``offset`` and ``size`` count sectors: their first letters."""
    device: str = ""
    """Text before the device's name."""
    letters: tuple[int, int] = (READ, WRITE)
    """Words for read and write."""
    caveat: str = ""
    """Assumptions about the columns, said as a warning."""
    unanswered: str = ""
    """A column that is blank in rows that are right and have no answer."""


def _seconds(columns: Columns, start: int) -> tuple[np.ndarray, None]:
    return columns["time"] - start, None


def _micros(columns: Columns, start: int) -> tuple[np.ndarray, None]:
    return (np.clip(columns["time"], 0, MAX_US) - min(start, MAX_US)) * 1000, None


def _msr_times(columns: Columns, start: int) -> tuple[np.ndarray, np.ndarray]:
    # FILETIME in ns would leave int64: the start goes off first.
    issue = np.clip(columns["time"] - start, -MAX_TICKS, MAX_TICKS) * 100
    return issue, issue + np.minimum(columns["response"], 10**12) * 100


def _systor_times(columns: Columns, start: int) -> tuple[np.ndarray, np.ndarray]:
    issue = columns["time"] - start
    return issue, issue + columns["response"]


def _whole_seconds(columns: Columns, start: int) -> tuple[np.ndarray, None]:
    return (np.minimum(columns["time"], 4 * 10**9) - min(start, 4 * 10**9)) * 10**9, None


def _milliseconds(columns: Columns, start: int) -> tuple[np.ndarray, None]:
    return (columns["time"] - start) // 1000, None


def _shape(least: int, most: int | None = None, **columns: tuple[int, int]) -> Shape:
    wanted = {name: TableColumn(*column) for name, column in columns.items()}
    return Shape(wanted, least, most or least)


LAYOUTS: Final = (
    TraceLayout(
        "msr-cambridge",
        re.compile(r'^"?\d{17,18}"?,[^,]*,\d+,"?(?:Read|Write)"?,\d+,\d+,\d+\s*$', re.M | re.I),
        _shape(7, time=(0, INTEGER), device=(1, TWO_NAMES), op=(3, LETTER), offset=(4, INTEGER),
               size=(5, INTEGER), response=(6, INTEGER)),
        "Timestamp",
        _msr_times,
        latency=True,
    ),
    TraceLayout(
        "alibaba",
        re.compile(r"^\d+,[RW],\d+,\d+,\d{15,17}\s*$", re.M),
        _shape(5, device=(0, NAME), op=(1, LETTER), offset=(2, INTEGER), size=(3, INTEGER),
               time=(4, INTEGER)),
        "device_id",
        _micros,
        latency=False,
    ),
    TraceLayout(
        "tencent-cbs",
        re.compile(r"^1\d{9},\d+,\d+,[01],\d+\s*$", re.M),
        _shape(5, time=(0, INTEGER), offset=(1, INTEGER), size=(2, INTEGER), op=(3, INTEGER),
               device=(4, NAME)),
        "Timestamp",
        _whole_seconds,
        latency=False,
        in_sectors="os",
        letters=(0, 1),
    ),
    TraceLayout(
        "k5cloud",
        re.compile(r"^\d+,\d+\.\d+,[RW],\d+,\d+\s*$", re.M),
        _shape(5, device=(0, NAME), time=(1, SECONDS), op=(2, LETTER), offset=(3, INTEGER),
               size=(4, INTEGER)),
        "ID",
        _seconds,
        latency=False,
    ),
    TraceLayout(
        "systor17",
        re.compile(r"^(?:Timestamp,Response,IOType,LUN|\d+\.\d+,\d+\.\d+,[RW],\d+,\d+,\d+\s*$)",
                   re.M),
        _shape(6, time=(0, SECONDS), response=(1, SECONDS | OPTIONAL), op=(2, LETTER | OPTIONAL),
               device=(3, NAME), offset=(4, INTEGER), size=(5, INTEGER)),
        "Timestamp",
        _systor_times,
        latency=True,
        device="lun",
        unanswered="response",
    ),
    TraceLayout(
        "spc",
        re.compile(r"^\d{1,4},\d+,\d+,[RWrw],\d+\.\d+(?:,.*)?\s*$", re.M),
        _shape(5, 64, device=(0, NAME), offset=(1, INTEGER), size=(2, INTEGER), op=(3, LETTER),
               time=(4, SECONDS)),
        "ASU",
        _seconds,
        latency=False,
        in_sectors="o",
        device="asu",
    ),
    TraceLayout(
        "replayer",
        re.compile(r"^\d+\.\d+,\d+,\d+,\d+,[01]\s*$", re.M),
        _shape(5, time=(0, SECONDS), device=(1, NAME), offset=(2, INTEGER), size=(3, INTEGER),
               op=(4, INTEGER)),
        "timestamp",
        _milliseconds,
        latency=False,
        device="disk",
        letters=(1, 0),
        caveat="its last column is taken as 1 reads, 0 writes, its first as ms",
    ),
)  # fmt: skip


def find_layout(head: Head) -> TraceLayout | None:
    """The layout that a line near the start has, or None."""
    text = "\n".join(head.text.split("\n", HEAD_LINES + 1)[:HEAD_LINES])
    return next((layout for layout in LAYOUTS if layout.sniff.search(text)), None)


def sniff(head: Head) -> bool:
    """True if *head* is of a published trace."""
    return find_layout(head) is not None


def read(source: Source) -> Capture:
    """Read a trace with a line a request; CaptureError if it holds none."""
    layout = find_layout(source.head)
    if layout is None:
        raise source.error("is not a trace with a line a request", "give the trace as published")

    def blocks(source: Source, notes: Notes) -> Iterator[Block]:
        return timed_rows(_batches(source, layout, notes), notes)

    return requests_capture(source, layout.name, blocks)


def _batches(source: Source, layout: TraceLayout, notes: Notes) -> Iterator[Timed]:
    """Sane rows of the trace; the others are counted."""
    names = ColumnNames()
    if layout.caveat:
        notes.warnings.append(layout.caveat)
    start: int | None = None
    unanswered = 0
    header = layout.header.encode()

    def is_header(line: bytes) -> bool:
        return line.split(b",")[0].strip().strip(b'"') == header

    for batch in table_batches(source, layout.shape, names, notes, is_header):
        columns = batch.columns
        if layout.unanswered:
            answered = columns[layout.unanswered] != UNKNOWN_TIME
            unanswered += int((~answered).sum())
            columns = {name: values[answered] for name, values in columns.items()}
        if columns["time"].size == 0:
            continue
        if start is None:
            start = int(columns["time"][0])
        found = _timed(columns, layout, start, names.known)
        good = sane_rows(found, latency=layout.latency)
        notes.skipped += int((~good).sum())
        yield found.where(good)
    notes.say(unanswered, "requests without a response (left out)")


def _timed(columns: Columns, layout: TraceLayout, start: int, names: list[str]) -> Timed:
    issue, complete = layout.times(columns, start)
    offset, size, op = columns["offset"], columns["size"], columns["op"]
    if "o" in layout.in_sectors:
        offset = np.minimum(offset, MAX_SECTOR) * SECTOR
    if "s" in layout.in_sectors:
        size = np.minimum(size, MAX_SECTORS) * SECTOR
    read, write = layout.letters
    return Timed(
        issue=issue,
        complete=np.full(issue.size, UNKNOWN_TIME) if complete is None else complete,
        op=np.where(op == write, 1, np.where(op == read, 0, 4)),
        bytes=size,
        offset=offset,
        device=columns["device"],
        names=[layout.device + _JOINT.sub(".", name) for name in names],
    )
