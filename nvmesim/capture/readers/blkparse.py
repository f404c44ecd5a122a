"""Readers of block events: blkparse, perf script, ftrace and CSV of bpftrace.

Fields printed by blkparse's ``-f`` have no header: which column is what is found from the values.
Needed are a time, an action, a sector and a count of sectors or bytes; RWBS and the device if they
are there. The tracepoints block_rq_issue and block_rq_complete carry device, RWBS, sector, sectors.
Source: blkparse(1), blktrace 1.2.0 blkparse_fmt.c; linux/include/trace/events/block.h (6.1, and
6.18 with an ioprio field); linux/include/uapi/linux/blktrace_api.h, struct blk_io_trace version 7
(kernel 2.6.23 on). The latency is D to C, as btt's D2C (on md and dm devices Q to the last
C). Times count from the start of the trace, sectors are 512 B always.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, NamedTuple

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import (
    INTEGER,
    LETTER,
    OPERATION,
    OPTIONAL,
    ColumnNames,
    Notes,
    Shape,
    TableColumn,
    ahead,
    chunks,
    table_batches,
)
from nvmesim.capture.readers import blkparse_kernel as kernel
from nvmesim.capture.requests import UNKNOWN
from nvmesim.capture.requests.pairing import Events, Pairer
from nvmesim.capture.requests.table import Block, requests_capture
from nvmesim.capture.text import Head, Source

SHORTEST_LINE: Final = 8
"""Bytes of an event line at least, ``0.0,D,1,1``; bounds the events of a chunk."""
MAX_ODD_LINES: Final = 100_000

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
_SKIPS = re.compile(rb"\ASkips: [\d,.']+ forward \(([\d,.']{1,30})")
HEAD_LINES: Final = 200
AGREE: Final = 0.95
"""Share of the head's lines that must fit a column's role; the rest may be damaged."""

_TIME_CELL = re.compile(rb"\d+\.\d{6,9}$")
_ACTION_CELL = re.compile(rb"[A-Zm]{1,2}$")
_RWBS_CELL = re.compile(rb"[FRWDNASMPVE]{1,8}$")
_INTEGER = re.compile(rb"\d+$")
_DEVICE = re.compile(rb"\s*\d+,\d+\s")

EVENTS_LOST: Final = "events-lost"
FLUSH_STEPS: Final = "flush-steps"
"""Codes of warnings."""
STEPS: Final = "flush steps and commands without sectors (not in the table)"
Column = tuple[bytes, ...]


@dataclass(frozen=True)
class Layout:
    """How lines of events split into columns, and what these are."""

    form: int
    """`BLANKS`, `COMMAS` or `TRACE` of the kernel."""
    roles: tuple[int, ...]
    """int[N_ROLES], column of each role, -1 for what it lacks."""
    in_bytes: bool = False
    """True if the length column counts bytes, not sectors."""
    has_end: bool = False
    """True if a whole line ends with ``]``, so that a last line needs no newline."""


DEFAULT: Final = Layout(kernel.BLANKS, (4, 6, 7, -1, -1, 0, 9), has_end=True)
"""``maj,min cpu sequence time pid action RWBS sector + n [process]``."""
TRACE: Final = Layout(kernel.TRACE, (-1, -1, 2, -1, -1, 0, 4))
"""``maj,min RWBS [bytes] (cmd) sector + n ... [process]`` behind an event's name."""


def find_layout(head: bytes) -> Layout | None:
    """The layout that the first lines of a file have, or None if they are not blkparse events."""
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")[:-1] if line.strip()][:HEAD_LINES]
    if len(lines) < 2:
        return None
    with_device = sum(bool(_DEVICE.match(line)) for line in lines) > AGREE * len(lines)
    commas = sum(line.count(b",") for line in lines) >= 3 * len(lines)
    cells = (x.split(b",") if commas else x.replace(b",", b" ").split() for x in lines)
    rows = [[cell.strip() for cell in row] for row in cells]
    width, count = Counter(len(row) for row in rows).most_common(1)[0]
    if not 5 <= width <= kernel.MAX_COLUMNS or count < len(lines) / 2:
        return None
    columns: list[Column] = list(zip(*[row for row in rows if len(row) == width], strict=True))
    times, actions, operations, integers = (
        [i for i, column in enumerate(columns) if _fits(column, pattern)]
        for pattern in (_TIME_CELL, _ACTION_CELL, _RWBS_CELL, _INTEGER)
    )
    actions = [i for i in actions if b"C" in columns[i] and {b"D", b"Q"} & set(columns[i])]
    numbers = {i: _integers(columns[i]) for i in integers if not (with_device and i < 2)}
    extent = _sector_and_length(numbers)
    if not times or not actions or extent is None:
        return None
    sector, length, in_bytes = extent
    op = next((i for i in operations if i != actions[0]), -1)
    major = 0 if with_device and not commas else -1
    form = kernel.COMMAS if commas else kernel.BLANKS
    return Layout(form, (times[0], actions[0], op, sector, length, major, -1), in_bytes)


def _fits(column: Column, pattern: re.Pattern[bytes]) -> bool:
    return sum(bool(pattern.match(value)) for value in column) >= AGREE * len(column)


def _integers(column: Column) -> np.ndarray:
    is_sound = (bool(_INTEGER.match(v)) and len(v) <= 18 for v in column)
    return np.array([float(v) if ok else -1.0 for v, ok in zip(column, is_sound, strict=True)])


def _sector_and_length(integers: dict[int, np.ndarray]) -> tuple[int, int, bool] | None:
    """Columns of sector and length, and whether the length is in bytes."""
    for (n, sectors), (b, n_bytes) in itertools.permutations(integers.items(), 2):
        agree = (n_bytes == 512 * sectors) & (sectors > 0)
        if agree.sum() >= AGREE * max(int((n_bytes > 0).sum()), 1):
            rest = [i for i in integers if i not in (n, b) and i < max(n, b)]
            if rest:
                return max(rest, key=lambda i: integers[i].max()), n, False
    sector = max(integers, key=lambda i: integers[i].max(), default=-1)
    length = next((i for i in integers if i > sector >= 0), None)
    if length is None:
        return None
    sizes = integers[length]
    return sector, length, bool((sizes % 512 == 0).all() and sizes.max() > 0)


def sniff(head: Head) -> bool:
    """True if *head* holds blkparse events in a form read here."""
    text = head.text.encode()
    return bool(_EVENT.search(text)) or find_layout(text) is not None


def read(source: Source) -> Capture:
    """Read blkparse text; CaptureError if it holds no whole request."""
    return requests_capture(source, "blkparse", blocks)


def blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """The requests of *source* in batches, in order of completion."""
    head = source.head.text.encode()
    layout = (None if _PLAIN.search(head) else find_layout(head)) or DEFAULT
    yield from paired_blocks(_events(source, notes, layout), notes)


def _events(source: Source, notes: Notes, layout: Layout) -> Iterator[Events]:
    """Events of blkparse in *layout*, and what is to be said of them."""
    other_lines = OtherLines(_SUMMARY, _SKIPS)
    yield from text_events(source, notes, layout, other_lines)
    text = "events lost by blktrace (Skips): counts and depths are too low"
    notes.say(other_lines.lost, EVENTS_LOST, text)
    if layout.roles[kernel.OP] < 0:
        notes.warnings.append("no RWBS column: reads and writes are not told apart; print %d too")
    if layout.roles[kernel.MAJOR] < 0:
        notes.warnings.append("no device column: all events are taken as one device's; print %D")


class OtherLines:
    """Knows the lines that stand beside events, and counts the events that these say are lost."""

    def __init__(self, expected: re.Pattern[bytes], losses: re.Pattern[bytes]) -> None:
        self._expected, self._losses = expected, losses
        self.lost = 0

    def __call__(self, line: bytes) -> bool:
        """True if *line* is expected, or says that events were lost."""
        losses = self._losses.search(line)
        if losses:
            # Thousands are separated as the locale has it.
            digits = re.sub(rb"\D", b"", losses[losses.lastindex or 0])
            self.lost += int(digits[:15] or b"0")
        return losses is not None or self._expected.match(line) is not None


def device_name(device: int) -> str:
    """``maj,min`` of a device id as blkparse prints it; 0 is a device that was not printed.

    >>> device_name((259 << 20) | 1)
    '259,1'
    """
    return f"{device >> 20},{device & (2**20 - 1)}" if device else "device"


def paired_blocks(batches: Iterable[Events], notes: Notes) -> Iterator[Block]:
    """Pair *batches* of events into blocks."""
    pairer = Pairer()
    for events in batches:
        rows = pairer.feed(events)
        if rows.shape[1]:
            yield Block(rows, [device_name(i) for i in pairer.device_ids])
    pairer.finish(notes)


def from_zero(batches: Iterable[Events]) -> Iterator[Events]:
    """Times counted from the first event; they come as time since boot or of the day."""
    start: int | None = None
    for events in batches:
        if start is None:
            start = int(events.rows[0, 0])
        yield Events(events.rows - np.array([start, 0, 0, 0]), events.codes)


class _Scanned(NamedTuple):
    events: Events
    odd: list[bytes]
    """Lines that are not events: summary or damage."""
    counters: np.ndarray
    is_cut: bool


def _scan(data: bytes, layout: Layout) -> _Scanned:
    # A last line without its end may be cut within a number.
    stop = len(data) if layout.has_end else data.rfind(b"\n") + 1
    room = stop // SHORTEST_LINE + 1
    rows = np.empty((room, 4), np.int64)
    codes = np.empty((2, room), np.uint8)
    odd = np.empty((2, MAX_ODD_LINES), np.int64)
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    n, n_odd = kernel.scan_events(
        np.frombuffer(data, np.uint8), stop, layout.form, np.array(layout.roles, np.int64),
        512 if layout.in_bytes else 1, np.empty((2, kernel.MAX_COLUMNS), np.int64), rows, codes,
        odd, counters,
    )  # fmt: skip
    lines = [data[a:b] for a, b in odd[:, :n_odd].T.tolist()]
    return _Scanned(Events(rows[:n], codes[:, :n]), lines, counters, stop < len(data))


def text_events(
    source: Source, notes: Notes, layout: Layout, is_expected: Callable[[bytes], bool],
) -> Iterator[Events]:  # fmt: skip
    """Events of lines in *layout*; a chunk is scanned on another thread while the last is paired.

    Lines that are none and not *is_expected* count as skipped.
    """
    steps = 0
    for scanned in ahead(source, (_scan(data, layout) for data in chunks(source))):
        notes.skipped += int(scanned.counters[kernel.SKIPPED]) + scanned.is_cut
        notes.skipped += sum(not is_expected(line) for line in scanned.odd)
        steps += int(scanned.counters[kernel.BOOKKEEPING])
        if len(scanned.events):
            yield scanned.events
    notes.say(steps, FLUSH_STEPS, STEPS)


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


def _sniff_tracepoints(head: Head) -> bool:
    """True if *head* holds block events of perf script, ftrace or a bpftrace CSV."""
    text = head.text
    if "block_rq_" in text:
        return bool(_BLOCK.search(text))
    return bool(_CSV_HEADER.search(text) or _CSV_ROW.search(text))


def _read_tracepoints(source: Source) -> Capture:
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
    notes.say(other_lines.lost, EVENTS_LOST, LOST)


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
    notes.say(steps, FLUSH_STEPS, STEPS)
    notes.say(other_lines.lost, EVENTS_LOST, LOST)


REPORTS: Final = {"tracepoints": SimpleNamespace(sniff=_sniff_tracepoints, read=_read_tracepoints)}
