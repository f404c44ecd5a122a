"""Readers of block tracepoints as text: perf script, ftrace, and CSV printed by bpftrace.

All three carry block_rq_issue and block_rq_complete: device, RWBS, sector, sectors. An ftrace
that has nvme_setup_cmd and nvme_complete_rq only is paired by queue and command number.
Source: linux/include/trace/events/block.h (6.1, and 6.18 with an ioprio field), nvme/host/trace.h.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import polars as pl

from nvmesim.trace import blkparse_kernel as kernel
from nvmesim.trace.blkparse import device_name, paired_blocks
from nvmesim.trace.capture import Capture
from nvmesim.trace.lines import line_frames
from nvmesim.trace.nvme_events import nvme_blocks
from nvmesim.trace.pairing import Events, Notes
from nvmesim.trace.request_table import Block, requests_capture
from nvmesim.trace.text import Head, Source

FORMAT: Final = "tracepoints"
MAX_SECONDS: Final = kernel.MAX_SECONDS

BLOCK_EVENT: Final = (
    r"(?P<s>\d{1,10})\.(?P<f>\d{6,9}): +(?:block:)?block_rq_(?P<event>issue|complete|requeue): "
    r"(?P<major>\d{1,4}),(?P<minor>\d{1,7}) (?P<rwbs>[A-Z]{1,10}) (?:\d+ )?\(.*?\) "
    r"(?P<sector>\d{1,16}) \+ (?P<n>\d{1,10}) (?:\S+,\d+,\d+ )?\[.*\]$"
)
NVME_EVENT: Final = r": (?:nvme:)?nvme_(?:setup_cmd|complete_rq): "
_BLOCK = re.compile(r"\d+\.\d{6,9}: +(block:)?block_rq_(issue|complete): \d+,\d+ ")
_NVME = re.compile(r"\d+\.\d{6,9}: +(nvme:)?nvme_(setup_cmd|complete_rq): ")
_CSV_HEADER = re.compile(r"^ts_ns,ev,.*sector.*$", re.M)
_CSV_ROW = re.compile(r"^\d{6,19},[DCQR],\d{1,4},\d{1,7},\d+,\d+,[A-Z]+", re.M)
CSV_COLUMNS: Final = ("ts_ns", "ev", "dev_major", "dev_minor", "sector", "nr_sector", "rwbs")

LETTERS: Final = {"issue": 68, "complete": 67, "requeue": 82, "D": 68, "C": 67, "Q": 81, "R": 82}
OTHER_EVENT: Final = r"^\s*#|\d: +[\w:]+: |^Attaching |^\s*$|^ts_ns,|^CPU:\d+ \[LOST|^lost "


def sniff(head: Head) -> bool:
    """Whether *head* holds block events of perf script, ftrace or a bpftrace CSV."""
    text = head.text
    return any(pattern.search(text) for pattern in (_BLOCK, _NVME, _CSV_HEADER, _CSV_ROW))


def read(source: Source) -> Capture:
    """Read block tracepoints; CaptureError if they hold no whole request."""
    head = source.head.text
    if _BLOCK.search(head):
        name = "perf-script" if re.search(r": +block:block_rq", head) else "ftrace"
        return requests_capture(source, name, block_blocks)
    if _NVME.search(head):
        return requests_capture(source, "ftrace-nvme", nvme_blocks)
    return requests_capture(source, "bpftrace-csv", csv_blocks)


def block_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of block_rq_* events, in order of completion."""
    yield from paired_blocks(_from_zero(_events(source, notes, _matched)), notes, device_name)


def csv_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of a CSV with a line an event, in order of completion."""
    header = _CSV_HEADER.search(source.head.text)
    names = header[0].strip().split(",") if header else list(CSV_COLUMNS)
    missing = [name for name in CSV_COLUMNS if name not in names]
    if missing:
        raise source.error(
            f"its CSV header lacks {', '.join(missing)}", "print " + ",".join(CSV_COLUMNS)
        )

    def fields(lines: pl.DataFrame) -> pl.DataFrame:
        cells = pl.col("line").str.split(",")
        wanted = lines.select(
            pl.when(cells.list.len() >= len(names)).then(cells).alias("cells")
        ).select(
            pl.col("cells").list.get(names.index(c), null_on_oob=True).alias(c) for c in CSV_COLUMNS
        )
        return wanted.select(
            time=pl.col("ts_ns").str.to_integer(strict=False),
            event=pl.col("ev"),
            major=pl.col("dev_major").str.to_integer(strict=False),
            minor=pl.col("dev_minor").str.to_integer(strict=False),
            sector=pl.col("sector").str.to_integer(strict=False),
            n=pl.col("nr_sector").str.to_integer(strict=False),
            rwbs=pl.col("rwbs"),
        )

    yield from paired_blocks(_from_zero(_events(source, notes, fields)), notes, device_name)


def _matched(lines: pl.DataFrame) -> pl.DataFrame:
    """Fields of perf and ftrace lines, null where a line is no block event."""
    found = lines.select(pl.col("line").str.extract_groups(BLOCK_EVENT)).unnest("line")
    integer = {name: pl.col(name).str.to_integer(strict=False) for name in ("major", "minor")}
    return found.select(
        time=pl.col("s").str.to_integer(strict=False) * 10**9
        + pl.col("f").str.pad_end(9, "0").str.to_integer(strict=False),
        event=pl.col("event"),
        **integer,
        sector=pl.col("sector").str.to_integer(strict=False),
        n=pl.col("n").str.to_integer(strict=False),
        rwbs=pl.col("rwbs"),
    )


def _events(
    source: Source, notes: Notes, fields: Callable[[pl.DataFrame], pl.DataFrame]
) -> Iterator[Events]:
    """Block events of *source*; lines that are no events of any kind are counted as skipped."""
    steps = 0
    for lines in line_frames(source):
        found = fields(lines)
        letters = pl.col("event").replace_strict(LETTERS, default=None, return_dtype=pl.UInt8)
        found = found.with_columns(action=letters)
        sane = (
            pl.all_horizontal(pl.all().is_not_null())
            & pl.col("time").is_between(0, MAX_SECONDS * 10**9)
            & pl.col("sector").is_between(0, kernel.MAX_SECTOR)
            & pl.col("n").is_between(0, kernel.MAX_SECTORS)
            & pl.col("major").is_between(0, 4095)
            & pl.col("minor").is_between(0, 2**20 - 1)
        )
        is_event = found.select(sane.fill_null(False)).to_series()
        rest = lines.filter(~is_event)
        notes.skipped += rest.height - int(rest.select(_expected(pl.col("line")).sum()).item() or 0)
        events = found.filter(is_event)
        steps += events.filter(pl.col("n") == 0).height
        events = events.filter(pl.col("n") > 0)
        if events.height:
            yield _as_events(events)
    notes.say(steps, "flush steps and commands without sectors (not in the table)")


def _expected(line: pl.Expr) -> pl.Expr:
    """Lines that belong to such a file without being block events: headers, other events."""
    damaged = line.str.contains(r"block_rq_(issue|complete|requeue)")
    return line.str.contains(OTHER_EVENT) & ~damaged


def _as_events(found: pl.DataFrame) -> Events:
    device = pl.col("major") * 2**20 + pl.col("minor")
    rows = found.select("time", device.alias("device"), "sector", "n").cast(pl.Int64)
    codes = np.empty((2, found.height), np.uint8)
    codes[0] = found["action"].to_numpy()
    codes[1] = operations(found["rwbs"]).to_numpy()
    return Events(np.ascontiguousarray(rows.to_numpy()), codes)


def operations(rwbs: pl.Series) -> pl.Series:
    """UInt8 operation codes of `blkparse_kernel` for RWBS fields.

    >>> operations(pl.Series(["R", "FWFSM", "FN", "WS", "DS"])).to_list()
    [0, 1, 2, 1, 3]
    """
    letter = rwbs.str.extract(r"^F?([A-Z])", 1)
    codes = {"R": kernel.READ, "W": kernel.WRITE, "N": kernel.FLUSH, "F": kernel.FLUSH}
    return letter.replace_strict(codes, default=kernel.OTHER, return_dtype=pl.UInt8)


def _from_zero(batches: Iterator[Events]) -> Iterator[Events]:
    """Times counted from the first event; they come as time since boot or of the day."""
    start: int | None = None
    for events in batches:
        if start is None:
            start = int(events.rows[0, 0])
        yield Events(events.rows - np.array([start, 0, 0, 0]), events.codes)
