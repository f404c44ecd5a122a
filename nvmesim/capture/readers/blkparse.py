"""Readers of block events: blkparse, blktrace, perf script, ftrace and CSV of bpftrace.

The latency is D to C, as btt's D2C (on md and dm devices Q to the last C). Times count from the
start of the trace, sectors are 512 B always.
Source: blkparse(1), blktrace 1.2.0 blkparse_fmt.c; linux/include/trace/events/block.h (6.1, and
6.18 with an ioprio field).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple

import numpy as np

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import Notes, chunks, whole_lines
from nvmesim.capture.readers import blkparse_kernel as kernel
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
from nvmesim.capture.requests import FLUSH, OTHER, READ, UNKNOWN, WRITE
from nvmesim.capture.requests.pairing import Events, Pairer
from nvmesim.capture.requests.table import Block, requests_capture
from nvmesim.capture.text import Head, Source

SHORTEST_LINE: Final = 8
"""Bytes of an event line at least, ``0.0,D,1,1``; bounds the events of a chunk."""
MAX_ODD_LINES: Final = 100_000
SMALL: Final = 1 << 20
N_THREADS: Final = 2

_EVENT = re.compile(
    rb"^[ \t]*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+[A-Zm]{1,2}\s+\S+(?:\s+\d+ \+ \d+|\s+\[)", re.M
)
_SUMMARY = re.compile(
    rb"\s*$|CPU ?\d+ \(|Total \(|Throughput \(|Events \(|Input file |"
    rb"\s+(Reads? |Writes? |IO unplugs|Read depth|PC |(Allocation|Dispatch|Completion) wait)"
)
_SKIPS = re.compile(rb"\ASkips: [\d,.']+ forward \(([\d,.']{1,30})")

EVENTS_LOST: Final = "events-lost"
FLUSH_STEPS: Final = "flush-steps"  # codes of warnings
STEPS: Final = "flush steps and commands without sectors (not in the table)"


def sniff(head: Head) -> bool:
    """True if *head* holds events as blkparse prints them by itself."""
    return bool(_EVENT.search(head.text.encode()))


def read(source: Source) -> Capture:
    """Read blkparse text; CaptureError if it holds no whole request."""
    return requests_capture(source, "blkparse", blocks)


def blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """The requests of *source* in batches, in order of completion."""
    pairer = Pairer()
    other_lines = OtherLines(_SUMMARY, _SKIPS)
    events = text_events(
        source, notes, other_lines, is_trace=False, commands=lambda: pairer.command_devices
    )
    yield from paired_blocks(events, notes, pairer)
    text = "events lost by blktrace (Skips): counts and depths are too low"
    notes.say(other_lines.lost, EVENTS_LOST, text)


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
    """``maj,min`` of a device id as blkparse prints it.

    >>> device_name((259 << 20) | 1)
    '259,1'
    """
    return f"{device >> 20},{device & (2**20 - 1)}"


def paired_blocks(
    batches: Iterable[Events], notes: Notes, pairer: Pairer | None = None
) -> Iterator[Block]:
    """Pair *batches* of events into blocks."""
    pairer = pairer or Pairer()
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
    odd: list[bytes]  # lines that are not events: summary or damage
    counters: np.ndarray


def _scan(
    data: np.ndarray, start: int, stop: int, is_trace: bool, commands: np.ndarray
) -> _Scanned:
    room = (stop - start) // SHORTEST_LINE + 1
    rows = np.empty((room, 4), np.int64)
    codes = np.empty((2, room), np.uint8)
    odd = np.empty((2, MAX_ODD_LINES), np.int64)
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    n, n_odd = kernel.scan_events(
        data, start, stop, is_trace, commands, np.empty((2, kernel.MAX_COLUMNS), np.int64),
        rows, codes, odd, counters,
    )  # fmt: skip
    lines = [data[a:b].tobytes() for a, b in odd[:, :n_odd].T.tolist()]
    return _Scanned(Events(rows[:n], codes[:, :n]), lines, counters)


def text_events(
    source: Source, notes: Notes, is_expected: Callable[[bytes], bool], *, is_trace: bool,
    commands: Callable[[], np.ndarray] = lambda: np.empty(0, np.int64),
) -> Iterator[Events]:  # fmt: skip
    """Events of text lines; a chunk is scanned on two threads while the last one is paired.

    Lines that are none and not *is_expected* count as skipped. *commands* are devices whose Q
    events nobody needs.
    """
    waiting: list[Future[_Scanned]] = []
    steps = 0

    def done() -> Iterator[Events]:
        nonlocal steps
        for future in waiting:
            scanned = future.result()
            notes.skipped += int(scanned.counters[kernel.SKIPPED])
            notes.skipped += sum(not is_expected(line) for line in scanned.odd)
            steps += int(scanned.counters[kernel.BOOKKEEPING])
            if scanned.events.rows.shape[0]:
                yield scanned.events

    with ThreadPoolExecutor(N_THREADS) as pool:
        for whole in chunks(source):
            # A last line without its end may be cut within a number; one of blkparse ends with "]".
            stop = whole_lines(whole) if is_trace else whole.size
            notes.skipped += int(stop < whole.size)
            data = whole[:stop]
            middle = whole_lines(data[: stop // 2]) if stop >= SMALL else 0
            known = commands()
            started = [
                pool.submit(_scan, data, *part, is_trace, known)
                for part in ((0, middle), (middle, stop))
                if part[1] > 0
            ]
            yield from done()
            waiting = started
        yield from done()
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
    events = text_events(source, notes, other_lines, is_trace=True)
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


# -- blktrace's own files, one a CPU -----------------------------------------------------------
#
# ``<device>.blktrace.<cpu>``, merged by time. Source: linux/include/uapi/linux/blktrace_api.h,
# struct blk_io_trace version 7 (kernel 2.6.23 on).

MAGIC: Final = {"little": b"tae", "big": b"eat"}
"""The magic 0x65617400 without its low byte, which is the version."""
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


def _sniff_binary(head: Head) -> bool:
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


def binary_parts(path: Path, asked: Collection[Path] = ()) -> tuple[Path, ...]:
    """*path* and the files of the device's other CPUs beside it; without them pairs are lost."""
    match = _NAME.match(path.name)
    if match is None:
        return (path,)
    others = (p for p in path.parent.glob("*.blktrace.*") if p != path and p.is_file())
    same = [p for p in others if (m := _NAME.match(p.name)) and m[1] == match[1]]
    return (path, *sorted(p for p in same if p.stat().st_size))


def _read_binary(source: Source) -> Capture:
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
    found = source.parts if len(source.parts) > 1 else binary_parts(source.path)
    files = [
        _binary_events(source if path == source.path else Source(path, (), source.on_read), notes)
        for path in found
    ]
    yield from paired_blocks(from_zero(_merged(files)), notes)


def _records(data: bytes, big: bool, notes: Notes) -> tuple[np.ndarray, int]:
    """The whole records of *data* by their fields, and the number of bytes used up.

    Bytes that start no record are passed over up to the next magic and count as one skip.
    """
    magic = MAGIC["big"] + b"\7" if big else b"\7" + MAGIC["little"]
    at, last, starts = 0, len(data) - RECORD, []
    while at <= last:
        if not data.startswith(magic, at):
            notes.skipped += 1
            found = data.find(magic, at)
            at = found if 0 <= found <= last else last + 1
            continue
        more = data[at + RECORD - 2 : at + RECORD]
        following = at + RECORD + int.from_bytes(more, "big" if big else "little")
        if following > len(data):
            break
        starts.append(at)
        at = following
    order = ">" if big else "<"
    kind = np.dtype([(name, order + number) for name, number in _FIELDS.items()])
    where = np.array(starts, np.int64)[:, None] + np.arange(RECORD)
    return np.frombuffer(data, np.uint8)[where].view(kind)[:, 0], at


def _scan_records(records: np.ndarray, counters: np.ndarray) -> Events:
    """The events among *records* that pairing needs; counters as in `blkparse_kernel`."""
    categories = records["action"].astype(np.int64) >> 16
    kind = np.where(categories & NOTIFY_BIT, 0, records["action"] & 0xFFFF)
    letter = np.where(kind < _LETTERS.size, _LETTERS[np.minimum(kind, _LETTERS.size - 1)], 0)
    sectors, sector = records["bytes"] // 512, records["sector"]
    is_late = records["time"] > kernel.MAX_SECONDS * 10**9
    is_step = ~is_late & ((sectors == 0) | (sector > kernel.MAX_SECTOR))
    counters[kernel.SKIPPED] += ((letter > 0) & is_late).sum()
    counters[kernel.BOOKKEEPING] += ((letter > 0) & is_step & (letter != ord("Q"))).sum()
    good = (letter > 0) & ~is_late & ~is_step
    columns = (records["time"], records["device"], sector, sectors)
    bits = ((DISCARD_BIT | PASSTHROUGH_BIT, OTHER), (WRITE_BIT, WRITE), (READ_BIT, READ),
            (FLUSH_BIT, FLUSH))  # fmt: skip
    op = np.select([categories & bit > 0 for bit, _ in bits], [code for _, code in bits], OTHER)
    rows = np.stack([column[good].astype(np.int64) for column in columns], axis=1)
    return Events(rows, np.stack([letter[good], op[good]]).astype(np.uint8))


def _binary_events(source: Source, notes: Notes) -> Iterator[Events]:
    """Events of one CPU's file, a chunk at a time."""
    counters = np.zeros(kernel.N_COUNTERS, np.int64)
    big = _order(source.head) == "big"
    carried = b""
    with source.open() as file:
        while data := file.read(BINARY_CHUNK):
            data = carried + data
            records, used = _records(data, big, notes)
            carried = data[used:]
            events = _scan_records(records, counters)
            if len(events):
                yield events
    notes.skipped += int(counters[kernel.SKIPPED]) + bool(carried)
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


REPORTS: Final = {
    "tracepoints": SimpleNamespace(sniff=_sniff_tracepoints, read=_read_tracepoints),
    "blktrace": SimpleNamespace(sniff=_sniff_binary, read=_read_binary, parts=binary_parts),
}
