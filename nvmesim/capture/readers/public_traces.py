"""Readers of traces with a line a request: published ones, by their columns, and biosnoop.

Of bcc's biosnoop the time is that of completion. Columns by version: ``TIME(s) COMM PID DISK T
SECTOR BYTES [QUE(ms)] LAT(ms)``. The command may hold blanks, so fields are taken from the right.
bpftrace's biosnoop.bt prints neither size nor direction and whole milliseconds: it is refused with
what to print instead.
Sources: the READMEs of MSR Cambridge (SNIA 388), Alibaba block traces 2020, Tencent CBS (SNIA
27917), K5cloud 2018, SYSTOR '17 (SNIA 4928), SPC trace file format 1.0.1.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import (
    INTEGER,
    LETTER,
    NAME,
    OPTIONAL,
    OTHER_COMMANDS,
    SECONDS,
    TWO_NAMES,
    ColumnNames,
    Columns,
    Notes,
    Shape,
    TableColumn,
    table_batches,
)
from nvmesim.capture.requests import LONGEST_NS, UNKNOWN_TIME
from nvmesim.capture.requests.table import (
    LARGEST_TIME,
    Block,
    requests_capture,
    rows_of,
    timed_rows,
)
from nvmesim.capture.text import Head, Source

FORMAT: Final = "public-trace"
SECTOR: Final = 512
MAX_SECTOR: Final = 2**53
MAX_SECTORS: Final = 2**32
HEAD_LINES: Final = 50
FILETIME_1970: Final = 116_444_736_000_000_000
"""Windows counts units of 100 ns from 1601."""
_JOINT = re.compile(r'"?[ \t]*,[ \t]*"?')
"""Between the two names of `TWO_NAMES`."""


@dataclass(frozen=True)
class TraceLayout:
    """One trace format: how to know it, its columns, and what they mean."""

    name: str
    header: str
    """First column's name where a header line may stand."""
    sniff: str
    columns: Mapping[str, int]
    """Kinds of the columns in their order; ``time`` is that of the issue, ``response`` a latency.

    An optional response is blank in rows that are right and have no answer.
    """
    unit_ns: int = 1
    """Of times."""
    epoch: int = 0
    """Time of 1970."""
    sectors: tuple[str, ...] = ()
    """Columns that count sectors."""
    device: str = ""
    """Text before the device's name."""
    read: int = ord("R")
    write: int = ord("W")
    """Words for read and write."""
    most: int = 0
    """Columns of a row at most, if there may be others behind."""

    @property
    def shape(self) -> Shape:
        """Where its columns stand."""
        found, at = {}, 0
        for name, kind in self.columns.items():
            found[name] = TableColumn(at, kind)
            at += 2 if kind == TWO_NAMES else 1
        return Shape(found, at, self.most or at)


LAYOUTS: Final = (
    TraceLayout(
        "msr-cambridge", "Timestamp",
        r'(?i)^"?\d{17,18}"?,[^,]*,\d+,"?(?:Read|Write)"?,\d+,\d+,\d+\s*$',
        {"time": INTEGER, "device": TWO_NAMES, "op": LETTER, "offset": INTEGER, "size": INTEGER,
         "response": INTEGER},
        unit_ns=100, epoch=FILETIME_1970,
    ),
    TraceLayout(
        "alibaba", "device_id", r"^\d+,[RW],\d+,\d+,\d{15,17}\s*$",
        {"device": NAME, "op": LETTER, "offset": INTEGER, "size": INTEGER, "time": INTEGER},
        unit_ns=1000,
    ),
    TraceLayout(
        "tencent-cbs", "Timestamp", r"^1\d{9},\d+,\d+,[01],\d+\s*$",
        {"time": INTEGER, "offset": INTEGER, "size": INTEGER, "op": INTEGER, "device": NAME},
        unit_ns=10**9, sectors=("offset", "size"), read=0, write=1,
    ),
    TraceLayout(
        "k5cloud", "ID", r"^\d+,\d+\.\d+,[RW],\d+,\d+\s*$",
        {"device": NAME, "time": SECONDS, "op": LETTER, "offset": INTEGER, "size": INTEGER},
    ),
    TraceLayout(
        "systor17", "Timestamp",
        r"^(?:Timestamp,Response,IOType,LUN|\d+\.\d+,\d+\.\d+,[RW],\d+,\d+,\d+\s*$)",
        {"time": SECONDS, "response": SECONDS | OPTIONAL, "op": LETTER | OPTIONAL, "device": NAME,
         "offset": INTEGER, "size": INTEGER},
        device="lun",
    ),
    TraceLayout(
        "spc", "ASU", r"^\d{1,4},\d+,\d+,[RWrw],\d+\.\d+(?:,.*)?\s*$",
        {"device": NAME, "offset": INTEGER, "size": INTEGER, "op": LETTER, "time": SECONDS},
        most=64, sectors=("offset",), device="asu",
    ),
)  # fmt: skip


def find_layout(head: Head) -> TraceLayout | None:
    """The layout that a line near the start has, or None."""
    text = "\n".join(head.text.split("\n", HEAD_LINES + 1)[:HEAD_LINES])
    return next((layout for layout in LAYOUTS if re.search(layout.sniff, text, re.M)), None)


def sniff(head: Head) -> bool:
    """True if *head* is of a published trace."""
    return find_layout(head) is not None


def read(source: Source) -> Capture:
    """Read a trace with a line a request; CaptureError if it holds none."""
    layout = find_layout(source.head)
    if layout is None:
        raise source.error("is not a trace with a line a request", "give the trace as published")

    def blocks(source: Source, notes: Notes) -> Iterator[Block]:
        has_latency = "response" in layout.columns
        return timed_rows(_batches(source, layout, notes), notes, has_latency=has_latency)

    return requests_capture(source, layout.name, blocks)


def _batches(source: Source, layout: TraceLayout, notes: Notes) -> Iterator[Block]:
    names = ColumnNames()
    start: int | None = None
    unanswered = 0
    header = layout.header.encode()

    def is_header(line: bytes) -> bool:
        return line.split(b",")[0].strip().strip(b'"') == header

    for batch in table_batches(source, layout.shape, names, notes, is_header):
        columns = batch.columns
        if "response" in columns:
            answered = columns["response"] != UNKNOWN_TIME
            unanswered += int((~answered).sum())
            columns = {name: values[answered] for name, values in columns.items()}
        if columns["time"].size == 0:
            continue
        if start is None:
            start = int(columns["time"][0])
        shown = [layout.device + _JOINT.sub(".", name) for name in names.known]
        yield Block(_rows(columns, layout, start), shown)
    notes.say(unanswered, "unanswered", "requests without a response (left out)")


def _rows(columns: Columns, layout: TraceLayout, start: int) -> np.ndarray:
    limit = LARGEST_TIME // layout.unit_ns
    # Times in ns would leave int64, were there no bounds.
    ticks, first = (
        np.clip(time - layout.epoch, -limit, limit) for time in (columns["time"], start)
    )
    issue = (ticks - first) * layout.unit_ns
    complete = np.full(issue.size, UNKNOWN_TIME)
    if "response" in columns:
        longest = LONGEST_NS // layout.unit_ns + 1
        complete = issue + np.minimum(columns["response"], longest) * layout.unit_ns
    offset, size, op = columns["offset"], columns["size"], columns["op"]
    if "offset" in layout.sectors:
        offset = np.minimum(offset, MAX_SECTOR) * SECTOR
    if "size" in layout.sectors:
        size = np.minimum(size, MAX_SECTORS) * SECTOR
    kind = np.where(op == layout.write, 1, np.where(op == layout.read, 0, 4))
    return rows_of(issue, complete, offset, size, columns["device"], kind)


_SNOOP_HEADER = re.compile(r"^[ \t]*TIME\((s|ms)\)\s+.*\bLAT\(ms\)\s*$", re.M)
_GAP = r"[ \t]{1,40}"
_SNOOP_ROW = re.compile(
    rf"^\d+[.,]\d+{_GAP}[^\n]{{0,64}}?{_GAP}\d+{_GAP}\S+{_GAP}[RW]\w*{_GAP}\d+{_GAP}\d+{_GAP}\d+[.,]\d+\s*",
    re.M,
)
"""Bounded repetitions: a page of blanks must not take minutes to be no row."""
_SNOOP_EXPECTED = re.compile(
    rb"\s*$|\s*TIME\(|Tracing |Detaching |WARNING|"
    rb".*\s[FDN][A-Z]*\s+(?:-1|18446744073709551615)\s"  # a flush has no sector
)
_SNOOP_NAMES: Final = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)"
_SNOOP_KINDS: Final = {
    "TIME(s)": SECONDS, "DISK": NAME, "T": LETTER, "SECTOR": INTEGER, "BYTES": INTEGER,
    "LAT(ms)": SECONDS,
}  # fmt: skip


def _sniff_snoop(head: Head) -> bool:
    return bool(_SNOOP_HEADER.search(head.text) or _SNOOP_ROW.search(head.text))


def _read_snoop(source: Source) -> Capture:
    """Read bcc biosnoop; CaptureError for biosnoop.bt, whose rows lack the size."""
    header = _SNOOP_HEADER.search(source.head.text)
    if header and (header[1] == "ms" or "BYTES" not in header[0]):
        raise source.error(
            "is biosnoop without sizes, directions and microseconds",
            "trace block_rq_issue and block_rq_complete as CSV: "
            "ts_ns,ev,dev_major,dev_minor,sector,nr_sector,rwbs",
        )
    return requests_capture(source, "biosnoop", _snoop_blocks)


def _snoop_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    notes.warnings.append("biosnoop rounds latencies to 10 us or so")
    return timed_rows(_snoop_batches(source, notes), notes, has_latency=True)


def _snoop_shape(head: Head) -> Shape:
    """The columns as the header has them, from the right: a command may hold blanks."""
    header = _SNOOP_HEADER.search(head.text)
    names = (header[0] if header else _SNOOP_NAMES).split()
    if not set(_SNOOP_KINDS) <= set(names):
        names = _SNOOP_NAMES.split()
    row = None if header else _SNOOP_ROW.search(head.text)
    if row and re.search(r"\s\d+[.,]\d+\s+\d+[.,]\d+\s*$", row[0]):
        names.insert(-1, "QUE(ms)")
    wanted = {
        name: TableColumn(at if at == 0 else at - len(names), _SNOOP_KINDS[name])
        for at, name in enumerate(names)
        if name in _SNOOP_KINDS
    }
    return Shape(wanted, least=len(names), most=1000, commas=False, point=",")


def _snoop_batches(source: Source, notes: Notes) -> Iterator[Block]:
    others = 0
    names, shape = ColumnNames(), _snoop_shape(source.head)
    for batch in table_batches(
        source, shape, names, notes, lambda x: bool(_SNOOP_EXPECTED.match(x))
    ):
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
    notes.say(others, OTHER_COMMANDS, "flushes, discards or other commands (not in the table)")


REPORTS: Final = {"biosnoop": SimpleNamespace(sniff=_sniff_snoop, read=_read_snoop)}
