"""Readers of block tracepoints as text: perf script, ftrace, and CSV printed by bpftrace.

All three carry block_rq_issue and block_rq_complete: device, RWBS, sector, sectors.
Source: linux/include/trace/events/block.h (6.1, and 6.18 with an ioprio field).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers.block import blkparse_kernel as kernel
from nvmesim.capture.readers.block.blkparse import (
    STEPS,
    TRACE,
    OtherLines,
    from_zero,
    paired_blocks,
    text_events,
)
from nvmesim.capture.readers.table_rows import (
    INTEGER,
    LETTER,
    OPERATION,
    OPTIONAL,
    ColumnNames,
    Shape,
    TableColumn,
    table_batches,
)
from nvmesim.capture.requests.codes_kernel import UNKNOWN
from nvmesim.capture.requests.pairing import Events
from nvmesim.capture.requests.table import Block, requests_capture
from nvmesim.capture.text import Head, Source

FORMAT: Final = "tracepoints"

_BLOCK = re.compile(r"\d\.\d{6,9}: +(block:)?block_rq_(issue|complete): +\d+,\d+ ")
_CSV_HEADER = re.compile(r"^ts_ns,ev,.*sector.*$", re.M)
_CSV_ROW = re.compile(r"^\d{6,19},[DCQR],\d{1,4},\d{1,7},\d+,\d+,[A-Z]+.*$", re.M)
_QUIET = re.compile(rb"\s*#|Attaching |\s*$|ts_ns,|cpus=\d|version = ")
_LOST = re.compile(rb"CPU:\d+ \[LOST (\d{1,15}) EVENTS\]|[Ll]ost (\d{1,15}) events")
_COLUMNS: Final = {
    "ts_ns": INTEGER, "ev": LETTER, "dev_major": INTEGER, "dev_minor": INTEGER,
    "sector": INTEGER, "nr_sector": INTEGER, "rwbs": OPERATION | OPTIONAL,
}  # fmt: skip
LOST: Final = "events lost by the tracer: counts and depths are too low"
LETTERS: Final = tuple(ord(letter) for letter in "QDCR")


def sniff(head: Head) -> bool:
    """True if *head* holds block events of perf script, ftrace or a bpftrace CSV."""
    text = head.text
    if "block_rq_" in text:
        return bool(_BLOCK.search(text))
    return bool(_CSV_HEADER.search(text) or _CSV_ROW.search(text))


def read(source: Source) -> Capture:
    """Read block tracepoints; CaptureError if they hold no whole request."""
    head = source.head.text
    if _BLOCK.search(head):
        name = "perf-script" if re.search(r": +block:block_rq", head) else "ftrace"
        return requests_capture(source, name, block_blocks)
    return requests_capture(source, "bpftrace-csv", csv_blocks)


def block_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of block_rq_* events, in order of completion."""
    other_lines = OtherLines(_QUIET, _LOST)
    events = text_events(source, notes, TRACE, other_lines)
    yield from paired_blocks(from_zero(events), notes)
    notes.say(other_lines.lost, LOST)


def csv_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of a CSV with a line an event, in order of completion."""
    yield from paired_blocks(from_zero(_csv_events(source, notes)), notes)


def _csv_shape(source: Source) -> Shape:
    header = _CSV_HEADER.search(source.head.text)
    row = _CSV_ROW.search(source.head.text)
    names = header[0].strip().split(",") if header else list(_COLUMNS)
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise source.error(
            f"its CSV header lacks {', '.join(missing)}", "print " + ",".join(_COLUMNS)
        )
    wanted = {name: TableColumn(names.index(name), kind) for name, kind in _COLUMNS.items()}
    width = len(names) if header or row is None else row[0].count(",") + 1
    return Shape(wanted, least=width, most=width)


def _csv_events(source: Source, notes: Notes) -> Iterator[Events]:
    steps = 0
    other_lines = OtherLines(_QUIET, _LOST)
    shape = _csv_shape(source)
    for batch in table_batches(source, shape, ColumnNames(), notes, other_lines):
        c = batch.columns
        sane = (c["sector"] <= kernel.MAX_SECTOR) & (c["nr_sector"] <= kernel.MAX_SECTORS)
        sane &= (c["dev_major"] < 4096) & (c["dev_minor"] < 2**20)
        sane &= (c["ts_ns"] <= kernel.MAX_SECONDS * 10**9) & np.isin(c["ev"], LETTERS)
        notes.skipped += int((~sane).sum())
        ranged = sane & (c["nr_sector"] > 0)
        steps += int((sane & ~ranged).sum())
        device = c["dev_major"] * 2**20 + c["dev_minor"]
        rows = np.stack([c["ts_ns"], device, c["sector"], c["nr_sector"]], axis=1)
        operation = np.where(c["rwbs"] < 0, UNKNOWN, c["rwbs"])
        codes = np.stack([c["ev"], operation]).astype(np.uint8)
        if ranged.any():
            yield Events(np.ascontiguousarray(rows[ranged]), np.ascontiguousarray(codes[:, ranged]))
    notes.say(steps, STEPS)
    notes.say(other_lines.lost, LOST)
