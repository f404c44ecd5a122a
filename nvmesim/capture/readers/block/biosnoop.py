"""Reader of bcc's biosnoop: a line a request, its time that of completion.

Columns by version: ``TIME(s) COMM PID DISK T SECTOR BYTES [QUE(ms)] LAT(ms)``. The command may
hold blanks, so fields are taken from the right. bpftrace's biosnoop.bt prints neither size nor
direction and whole milliseconds: it is refused with what to print instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers.table_rows import (
    INTEGER,
    LETTER,
    NAME,
    SECONDS,
    ColumnNames,
    Shape,
    TableColumn,
    table_batches,
)
from nvmesim.capture.requests.table import Block, requests_capture, rows_of, timed_rows
from nvmesim.capture.text import Head, Source

FORMAT: Final = "biosnoop"
SECTOR: Final = 512
_HEADER = re.compile(r"^[ \t]*TIME\((s|ms)\)\s+.*\bLAT\(ms\)\s*$", re.M)
_GAP = r"[ \t]{1,40}"
_ROW = re.compile(
    rf"^\d+[.,]\d+{_GAP}[^\n]{{0,64}}?{_GAP}\d+{_GAP}\S+{_GAP}[RW]\w*{_GAP}\d+{_GAP}\d+{_GAP}\d+[.,]\d+\s*",
    re.M,
)
"""Bounded repetitions: a page of blanks must not take minutes to be no row."""
MAX_SECTOR: Final = 2**53
_EXPECTED = re.compile(
    rb"\s*$|\s*TIME\(|Tracing |Detaching |WARNING|"
    rb".*\s[FDN][A-Z]*\s+(?:-1|18446744073709551615)\s"  # a flush has no sector
)
_NAMES: Final = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)"
_KINDS: Final = {
    "TIME(s)": SECONDS, "DISK": NAME, "T": LETTER, "SECTOR": INTEGER, "BYTES": INTEGER,
    "LAT(ms)": SECONDS,
}  # fmt: skip


def sniff(head: Head) -> bool:
    """True if *head* holds biosnoop's header, or rows of bcc's."""
    return bool(_HEADER.search(head.text) or _ROW.search(head.text))


def read(source: Source) -> Capture:
    """Read bcc biosnoop; CaptureError for biosnoop.bt, whose rows lack the size."""
    header = _HEADER.search(source.head.text)
    if header and (header[1] == "ms" or "BYTES" not in header[0]):
        raise source.error(
            "is biosnoop without sizes, directions and microseconds",
            "trace block_rq_issue and block_rq_complete as CSV: "
            "ts_ns,ev,dev_major,dev_minor,sector,nr_sector,rwbs",
        )
    return requests_capture(source, FORMAT, blocks)


def blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests in batches, in order of completion."""
    notes.warnings.append("biosnoop rounds latencies to 10 us or so")
    return timed_rows(_batches(source, notes), notes, has_latency=True)


def _shape(head: Head) -> Shape:
    """The columns as the header has them, from the right: a command may hold blanks."""
    header = _HEADER.search(head.text)
    names = (header[0] if header else _NAMES).split()
    if not set(_KINDS) <= set(names):
        names = _NAMES.split()
    row = None if header else _ROW.search(head.text)
    if row and re.search(r"\s\d+[.,]\d+\s+\d+[.,]\d+\s*$", row[0]):
        names.insert(-1, "QUE(ms)")
    wanted = {
        name: TableColumn(at if at == 0 else at - len(names), _KINDS[name])
        for at, name in enumerate(names)
        if name in _KINDS
    }
    return Shape(wanted, least=len(names), most=1000, commas=False, point=",")


def _batches(source: Source, notes: Notes) -> Iterator[Block]:
    others = 0
    names, shape = ColumnNames(), _shape(source.head)
    for batch in table_batches(source, shape, names, notes, lambda x: bool(_EXPECTED.match(x))):
        kind = batch.columns["T"]
        is_request = (kind == ord("R")) | (kind == ord("W"))
        others += int((~is_request).sum())
        columns = {name: values[is_request] for name, values in batch.columns.items()}
        complete, took = columns["TIME(s)"], columns["LAT(ms)"] // 1000
        offset = np.minimum(columns["SECTOR"], MAX_SECTOR) * SECTOR
        is_write = columns["T"] == ord("W")
        rows = rows_of(
            complete - took, complete, offset, columns["BYTES"], columns["DISK"], is_write
        )
        yield Block(rows, names.known)
    notes.say(others, "flushes, discards or other commands (not in the table)")
