"""Readers of block events: blkparse, perf script, ftrace and CSV of bpftrace.

Fields printed by blkparse's ``-f`` have no header: which column is what is found from the values.
Needed are a time, an action, a sector and a count of sectors or bytes; RWBS and the device if they
are there. The tracepoints block_rq_issue and block_rq_complete carry device, RWBS, sector, sectors.
Source: blkparse(1), blktrace 1.2.0 blkparse_fmt.c; linux/include/trace/events/block.h (6.1, and
6.18 with an ioprio field); linux/include/uapi/linux/blktrace_api.h, struct blk_io_trace version 7
(kernel 2.6.23 on). The latency is D to C, as btt's D2C (on md and dm devices Q to the last
C). Times count from the start of the trace, sectors are 512 B always.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from nvmesim.capture.capture import Capture
from nvmesim.capture.lines import (
    MAX_ODD,
    Notes,
    ahead,
    line_frames,
    operation_of,
)
from nvmesim.capture.requests import OTHER, UNKNOWN
from nvmesim.capture.requests.pairing import Events, Pairer
from nvmesim.capture.requests.table import Block, requests_capture
from nvmesim.capture.text import Head, Source

MAX_SECTOR: Final = 2**53
MAX_SECTORS: Final = 2**31
MAX_SECONDS: Final = 3_000_000_000
"""Epoch seconds pass; ten times as many nanoseconds would leave int64."""
MAX_COLUMNS: Final = 32

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


_SEPARATOR: Final = r"[,\x00-\x20]+"
_CELL: Final = r"[^,\x00-\x20]+"
_TIME: Final = r"(?P<time>\d{1,10}\.\d{1,9})"
_TAIL: Final = (
    rf"(?:(?:\+?[^+,\x00-\x20][^,\x00-\x20]*{_SEPARATOR})*?(?P<sector>\d+){_SEPARATOR}\+{_SEPARATOR}(?P<length>\d+)"
    rf"(?:{_SEPARATOR}.*)?|(?:\d+{_SEPARATOR})?(?P<none>\[)"
    r"(?:[^+]|\+[^,\x00-\x20])*)\][\x00-\x20]*$"
)
"""``sector + length``, or neither; a whole line ends with ``[process]`` or ``(elapsed) [0]``."""


@dataclass(frozen=True)
class Layout:
    """How lines of events are read."""

    pattern: str
    """Its groups: time, action and, where they are, major, minor, op, sector, length, none.

    The last is of commands without a sector range. A line that has no time, and no event, is none.
    """
    in_ns: bool = False
    """True if times are whole ns."""
    in_bytes: bool = False
    """True if the length column counts bytes, not sectors."""
    has_end: bool = False
    """True if a whole line ends with ``]``, so that a last line needs no newline."""


_DEVICE_CELLS: Final = rf"(?P<major>\d+){_SEPARATOR}(?P<minor>\d+){_SEPARATOR}"
DEFAULT: Final = Layout(
    rf"^[,\x00-\x20]*{_DEVICE_CELLS}\d{{1,18}}{_SEPARATOR}\d{{1,18}}{_SEPARATOR}{_TIME}"
    rf"{_SEPARATOR}\d{{1,18}}{_SEPARATOR}(?P<action>[^,\x00-\x20]{{1,2}}){_SEPARATOR}(?P<op>{_CELL})"
    rf"(?:{_SEPARATOR}{_TAIL})?",
    has_end=True,
)
"""``maj,min cpu sequence time pid action RWBS sector + n [process]``."""
TRACE: Final = Layout(
    r"^.*?(?:(?P<time>\d{1,10}\.\d{6,9})|\d)(?P<event>:)[ \t]+(?:block:)?"
    r"(?:block_rq_(?P<action>issue|complete|requeue)|\w[\w:]+):[\x00-\x20]+"
    rf"(?:{_DEVICE_CELLS}(?P<op>{_CELL}){_SEPARATOR}{_TAIL})?"
)
"""``maj,min RWBS [bytes] (cmd) sector + n ... [process]`` behind an event's name."""
_LETTERS: Final = {"issue": "D", "complete": "C", "requeue": "R"}
_CODES: Final = {letter: ord(letter) for letter in "QDCR"}


def _columns_layout(roles: dict[str, int], *, commas: bool, in_bytes: bool) -> Layout:
    """Return the layout of columns by their places, split at commas, or at blanks and commas."""
    any_cell = "[^,]*?" if commas else _CELL
    shapes = {"time": _TIME, "action": r"(?P<action>[^,\x00-\x20]{1,2})",
              "op": f"(?P<op>{any_cell})"}  # fmt: skip
    cells = {at: shapes.get(name, rf"(?:(?P<{name}>\d+)|{any_cell})") for name, at in roles.items()}
    row = [cells.get(at, any_cell) for at in range(max(roles.values()) + 1)]
    known = 1 + max(roles[name] for name in ("time", "action", "op") if name in roles)
    separator = r"[\x00-\x20]*,[ \t]*" if commas else _SEPARATOR
    first, rest = separator.join(row[:known]), "".join(separator + cell for cell in row[known:])
    begin, end = (r"[ \t]*", r"[\x00-\x20]*(?:,.*)?$") if commas else (
        r"[,\x00-\x20]*", r"(?:[,\x00-\x20].*)?$"
    )  # fmt: skip
    return Layout(f"^{begin}{first}(?:{rest})?{end}", in_bytes=in_bytes)


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
    if not 5 <= width <= MAX_COLUMNS or count < len(lines) / 2:
        return None
    columns: list[Column] = list(zip(*[row for row in rows if len(row) == width], strict=True))
    times, actions, operations, integers = (
        [
            i
            for i, column in enumerate(columns)
            if sum(bool(pattern.match(value)) for value in column) >= AGREE * len(column)
        ]
        for pattern in (_TIME_CELL, _ACTION_CELL, _RWBS_CELL, _INTEGER)
    )
    actions = [i for i in actions if b"C" in columns[i] and {b"D", b"Q"} & set(columns[i])]
    numbers = {i: _integers(columns[i]) for i in integers if not (with_device and i < 2)}
    extent = _sector_and_length(numbers)
    if not times or not actions or extent is None:
        return None
    sector, length, in_bytes = extent
    roles = {"time": times[0], "action": actions[0], "sector": sector, "length": length}
    op = next((i for i in operations if i != actions[0]), None)
    roles |= {} if op is None else {"op": op}
    roles |= {"major": 0, "minor": 1} if with_device and not commas else {}
    return _columns_layout(roles, commas=commas, in_bytes=in_bytes)


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
    other_lines = OtherLines(_SUMMARY, _SKIPS)
    yield from text_events(source, notes, layout, other_lines)
    text = "events lost by blktrace (Skips): counts and depths are too low"
    notes.say(other_lines.lost, EVENTS_LOST, text)
    if "<op>" not in layout.pattern:
        notes.warnings.append("no RWBS column: reads and writes are not told apart; print %d too")
    if "<major>" not in layout.pattern:
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
            yield Block(rows, [device_name(i) for i in pairer.devices])
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
    odd: list[str]
    """Lines that are not events: summary or damage."""
    skipped: int
    steps: int


def _scan(lines: pl.DataFrame, layout: Layout) -> _Scanned:
    """Return the events of *lines*, a frame with the column ``line``."""
    every = lines.select("line", found=pl.col("line").str.extract_groups(layout.pattern))
    every = every.unnest("found")
    mark = "event" if "event" in every.columns else "time"
    odd = every.filter(pl.col(mark).is_null() & pl.col("line").str.contains(r"\S"))["line"]
    found = every.with_columns(pl.col("action").replace(_LETTERS))
    found = found.filter(pl.col("action").is_in(list(_CODES)))

    def numbers(name: str, default: int = -1) -> np.ndarray:
        if name not in found.columns:
            return np.full(found.height, default)
        return np.asarray(found[name].cast(pl.Int64, strict=False).fill_null(-1).to_numpy())

    sector, length = numbers("sector"), numbers("length") // (512 if layout.in_bytes else 1)
    if "none" in found.columns:
        is_none = found["none"].is_not_null().to_numpy()
        sector, length = np.where(is_none, 0, sector), np.where(is_none, 0, length)
    major, minor = numbers("major", 0), numbers("minor", 0)
    exact = found["time"]
    if not layout.in_ns:
        exact = exact.cast(pl.Decimal(38, 9), strict=False).to_physical()
    time = exact.cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    good = (sector >= 0) & (sector <= MAX_SECTOR) & (length >= 0) & (length <= MAX_SECTORS)
    good &= (major >= 0) & (major < 4096) & (minor >= 0) & (minor < 2**20)
    good &= (time >= 0) & (time <= MAX_SECONDS * 10**9)
    ranged = good & (length > 0)
    letter = found["action"].replace_strict(_CODES, return_dtype=pl.Int64).to_numpy()
    operation = np.full(found.height, UNKNOWN)
    if "op" in found.columns:
        words = found["op"].replace("", None)
        distinct = words.drop_nulls().unique()
        codes = [OTHER if (code := operation_of(word)) < 0 else code for word in distinct]
        operation = words.replace_strict(
            distinct, codes, default=UNKNOWN, return_dtype=pl.Int64
        ).to_numpy()
    rows = np.stack([time, major * 2**20 + minor, sector, length], axis=1)[ranged]
    codes_of = np.stack([letter, operation])[:, ranged].astype(np.uint8)
    return _Scanned(
        Events(np.ascontiguousarray(rows), np.ascontiguousarray(codes_of)),
        odd.head(MAX_ODD).to_list(),
        int((~good).sum()) + max(odd.len() - MAX_ODD, 0),
        int((good & ~ranged & (letter != ord("Q"))).sum()),
    )


def text_events(
    source: Source, notes: Notes, layout: Layout, is_expected: Callable[[bytes], bool],
) -> Iterator[Events]:  # fmt: skip
    """Events of lines in *layout*; a chunk is scanned on another thread while the last is paired.

    Lines that are none and not *is_expected* count as skipped.
    """
    steps, ends = 0, Notes()  # the latter is filled on the other thread
    frames = line_frames(source, ends, keep_last=layout.has_end)
    for scanned in ahead(source, (_scan(lines, layout) for lines in frames)):
        notes.skipped += scanned.skipped
        notes.skipped += sum(not is_expected(line.encode()) for line in scanned.odd)
        steps += scanned.steps
        if len(scanned.events):
            yield scanned.events
    notes.skipped += ends.skipped
    notes.say(steps, FLUSH_STEPS, STEPS)


_BLOCK = re.compile(r"\d\.\d{6,9}: +(block:)?block_rq_(issue|complete): +\d+,\d+ ")
_CSV_HEADER = re.compile(r"^ts_ns,ev,.*sector.*$", re.M)
_CSV_ROW = re.compile(r"^\d{6,19},[DCQR],\d{1,4},\d{1,7},\d+,\d+,[A-Z]+.*$", re.M)
_QUIET = re.compile(rb"\s*#|Attaching |\s*$|ts_ns,|cpus=\d|version = ")
_LOST = re.compile(rb"CPU:\d+ \[LOST (\d{1,15}) EVENTS\]|[Ll]ost (\d{1,15}) events")
_COLUMNS: Final = {
    "ts_ns": r"(?P<time>\d{1,19})", "ev": "(?P<action>[QDCR])", "dev_major": r"(?P<major>\d+)",
    "dev_minor": r"(?P<minor>\d+)", "sector": r"(?P<sector>\d+)", "nr_sector": r"(?P<length>\d+)",
    "rwbs": "(?P<op>[A-Za-z]{0,10})",
}  # fmt: skip
LOST: Final = "events lost by the tracer: counts and depths are too low"


def _sniff_tracepoints(head: Head) -> bool:
    text = head.text
    if "block_rq_" in text:
        return bool(_BLOCK.search(text))
    return bool(_CSV_HEADER.search(text) or _CSV_ROW.search(text))


def _read_tracepoints(source: Source) -> Capture:
    head = source.head.text
    if _BLOCK.search(head):
        name = "perf-script" if re.search(r": +block:block_rq", head) else "ftrace"
        return requests_capture(source, name, block_blocks)
    return requests_capture(source, "bpftrace-csv", csv_blocks)


def block_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of block_rq_* events, in order of completion."""
    other_lines = OtherLines(_QUIET, _LOST)
    yield from paired_blocks(from_zero(text_events(source, notes, TRACE, other_lines)), notes)
    notes.say(other_lines.lost, EVENTS_LOST, LOST)


def csv_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of a CSV with a line an event, in order of completion."""
    yield from paired_blocks(from_zero(_csv_events(source, notes)), notes)


def _csv_events(source: Source, notes: Notes) -> Iterator[Events]:
    other_lines = OtherLines(_QUIET, _LOST)
    header = _CSV_HEADER.search(source.head.text)
    row = _CSV_ROW.search(source.head.text)
    names = header[0].strip().split(",") if header else list(_COLUMNS)
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise source.error(
            f"its CSV header lacks {', '.join(missing)}", "print " + ",".join(_COLUMNS)
        )
    width = len(names) if header or row is None else row[0].count(",") + 1
    cells = {names.index(name): cell for name, cell in _COLUMNS.items()}
    line = r'[ \t"]*,[ \t"]*'.join(cells.get(at, "[^,]*") for at in range(width))
    layout = Layout(rf'^[ \t"]*{line}[ \t"]*$', in_ns=True)
    yield from text_events(source, notes, layout, other_lines)
    notes.say(other_lines.lost, EVENTS_LOST, LOST)


REPORTS: Final = {"tracepoints": SimpleNamespace(sniff=_sniff_tracepoints, read=_read_tracepoints)}
