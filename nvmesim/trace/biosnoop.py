"""Reader of bcc's biosnoop: a line a request, its time that of completion.

Columns by version: ``TIME(s) COMM PID DISK T SECTOR BYTES [QUE(ms)] LAT(ms)``. The command may
hold blanks, so fields are taken from the right. bpftrace's biosnoop.bt prints neither size nor
direction and whole milliseconds: it is refused with what to print instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import polars as pl

from nvmesim.trace.capture import Capture
from nvmesim.trace.lines import line_frames
from nvmesim.trace.pairing import Notes
from nvmesim.trace.request_table import Block, requests_capture
from nvmesim.trace.text import Head, Source
from nvmesim.trace.timed import sane, timed_blocks

FORMAT: Final = "biosnoop"
SECTOR: Final = 512
_HEADER = re.compile(r"^\s*TIME\((s|ms)\)\s+.*\bLAT\(ms\)\s*$", re.M)
_ROW = re.compile(r"^\d+[.,]\d+\s+.*?\s+\d+\s+\S+\s+[RW]\w*\s+\d+\s+\d+\s+\d+[.,]\d+\s*", re.M)
LINE: Final = (
    r"^\s*(?P<time>\d{1,9}[.,]\d{1,9})\s+.*?\s\d+\s+(?P<device>[\w!-]+)\s+(?P<op>[A-Z]+)\s+"
    r"(?P<sector>-?\d{1,16})\s+(?P<bytes>\d{1,13})\s+(?:\d+[.,]\d+\s+)?(?P<took>\d{1,9}[.,]\d+)\s*$"
)


def sniff(head: Head) -> bool:
    """Whether *head* holds biosnoop's header, or rows of bcc's."""
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
    return timed_blocks(_frames(source, notes), notes)


def _frames(source: Source, notes: Notes) -> Iterator[pl.DataFrame]:
    start: int | None = None
    others = 0
    for lines in line_frames(source):
        body = lines.filter(
            ~pl.col("line").str.contains(r"^\s*$|^\s*TIME\(|^Tracing |^Detaching |^WARNING")
        )
        cells = body.select(pl.col("line").str.extract_groups(LINE)).unnest("line")
        complete = _decimal("time", 10**9)
        frame = cells.select(
            issue=complete - _decimal("took", 10**6),
            complete=complete,
            op=pl.col("op").str.slice(0, 1).replace_strict(
                {"R": 0, "W": 1}, default=None, return_dtype=pl.Int64
            ),
            bytes=pl.col("bytes").str.to_integer(strict=False),
            offset=pl.col("sector").str.to_integer(strict=False).clip(-1, 2**53) * SECTOR,
            device=pl.col("device"),
        )  # fmt: skip
        is_sane = sane(latency=True)
        is_other = pl.col("op").is_null() & pl.col("issue").is_not_null()
        other = frame.filter(is_other).height
        good = frame.filter(is_sane & pl.col("op").is_not_null())
        others += other
        notes.skipped += body.height - good.height - other
        if start is None and good.height:
            start = int(good["issue"][0])
        yield good.with_columns(pl.col("issue", "complete") - (start or 0))
    notes.say(others, "flushes, discards or other commands (not in the table)")


def _decimal(name: str, unit: int) -> pl.Expr:
    """A decimal (point or comma) times *unit*, as an integer."""
    number = pl.col(name).str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    return (number * unit).round().cast(pl.Int64, strict=False)
