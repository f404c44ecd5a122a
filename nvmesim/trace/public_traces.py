"""Readers of published block traces, and xperf's dump: a line a request, told by their columns.

Sources: the READMEs of MSR Cambridge (SNIA 388), Alibaba block traces 2020, Tencent CBS (SNIA
27917), K5cloud 2018, SYSTOR '17 (SNIA 4928), SPC trace file format 1.0.1; xperf -a dumper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from nvmesim.trace.blkparse_fields import whole_lines
from nvmesim.trace.capture import Capture
from nvmesim.trace.lines import chunks
from nvmesim.trace.pairing import Notes
from nvmesim.trace.request_table import Block, requests_capture
from nvmesim.trace.text import Head, Source
from nvmesim.trace.timed import sane, timed_blocks
from nvmesim.trace.xperf import is_xperf, xperf_blocks

FORMAT: Final = "public-trace"
SECTOR: Final = 512
LARGEST: Final = 4 * 10**15
"""us or 100 ns: the most that is no overflow in ns."""
HEAD_LINES: Final = 50
_BLANK = re.compile(rb"^[ \t]*\n", re.M)

I64: Final = pl.Int64()
F64: Final = pl.Float64()
TEXT: Final = pl.String()


@dataclass(frozen=True)
class Layout:
    """One trace format: its columns, how to know it, and what the columns mean."""

    name: str
    sniff: re.Pattern[str]
    schema: dict[str, pl.DataType]
    header: str
    """First column's name where a header line may stand."""
    times: Callable[[int | float | None], dict[str, pl.Expr]]
    """Expressions of issue and complete in ns, given the first row's time."""
    columns: dict[str, pl.Expr]
    latency: bool
    unanswered: pl.Expr | None = None
    """Rows that are right and have no answer: left out, counted apart."""


def _micros(name: str) -> pl.Expr:
    """Seconds with decimals as ns; float64 holds epoch seconds to 0.24 us, so us are exact."""
    micros = (pl.col(name) * 1e6).clip(-1, LARGEST).round()
    return micros.cast(I64, strict=False) * 1000


def _at_most(name: str, limit: int) -> pl.Expr:
    """A column held within int64 when it is multiplied; what is outside is not sane anyway."""
    return pl.col(name).clip(-1, limit)


def _since(start: float | None, time: pl.Expr) -> pl.Expr:
    return time - (0 if start is None else int(start))


def _direction(name: str, write: str) -> pl.Expr:
    """0 for a read, 1 for a write, null for anything else; *write* is its first letter."""
    letter = pl.col(name).str.strip_chars().str.to_lowercase().str.slice(0, 1)
    return pl.when(letter == write).then(1).when(letter == "r").then(0)


def _msr_times(start: float | None) -> dict[str, pl.Expr]:
    # FILETIME in ns would leave int64: the start goes off first.
    issue = _since(start, pl.col("time")).clip(-LARGEST, LARGEST) * 100
    return {"issue": issue, "complete": issue + pl.col("response").clip(-1, 10**12) * 100}


def _systor_times(start: float | None) -> dict[str, pl.Expr]:
    issue = _since(start, _micros("time"))
    return {"issue": issue, "complete": issue + _micros("response")}


def _arrivals(time: pl.Expr) -> Callable[[int | float | None], dict[str, pl.Expr]]:
    return lambda start: {"issue": _since(start, time), "complete": pl.lit(None, I64)}


LAYOUTS: Final = (
    Layout(
        "msr-cambridge",
        re.compile(r'^"?\d{17,18}"?,[^,]*,\d+,"?(?:Read|Write)"?,\d+,\d+,\d+\s*$', re.M | re.I),
        {"time": I64, "host": TEXT, "disk": TEXT, "type": TEXT, "offset": I64, "size": I64,
         "response": I64},
        "Timestamp",
        _msr_times,
        {"op": _direction("type", "w"), "bytes": pl.col("size"), "offset": pl.col("offset"),
         "device": pl.concat_str("host", pl.lit("."), "disk")},
        latency=True,
    ),
    Layout(
        "alibaba",
        re.compile(r"^\d+,[RW],\d+,\d+,\d{15,17}\s*$", re.M),
        {"disk": TEXT, "type": TEXT, "offset": I64, "size": I64, "time": I64},
        "device_id",
        _arrivals(_at_most("time", LARGEST) * 1000),
        {"op": _direction("type", "w"), "bytes": pl.col("size"), "offset": pl.col("offset"),
         "device": pl.col("disk")},
        latency=False,
    ),
    Layout(
        "tencent-cbs",
        re.compile(r"^1\d{9},\d+,\d+,[01],\d+\s*$", re.M),
        {"time": I64, "sector": I64, "sectors": I64, "type": I64, "disk": TEXT},
        "Timestamp",
        _arrivals(_at_most("time", 4 * 10**9) * 10**9),
        {"op": pl.when(pl.col("type").is_in([0, 1])).then(pl.col("type")),
         "bytes": _at_most("sectors", 2**32) * SECTOR, "offset": _at_most("sector", 2**53) * SECTOR,
         "device": pl.col("disk")},
        latency=False,
    ),
    Layout(
        "k5cloud",
        re.compile(r"^\d+,\d+\.\d+,[RW],\d+,\d+\s*$", re.M),
        {"disk": TEXT, "time": F64, "type": TEXT, "offset": I64, "size": I64},
        "ID",
        _arrivals(_micros("time")),
        {"op": _direction("type", "w"), "bytes": pl.col("size"), "offset": pl.col("offset"),
         "device": pl.col("disk")},
        latency=False,
    ),
    Layout(
        "systor17",
        re.compile(r"^(?:Timestamp,Response,IOType,LUN|\d+\.\d+,\d+\.\d+,[RW],\d+,\d+,\d+\s*$)",
                   re.M),
        {"time": F64, "response": F64, "type": TEXT, "disk": TEXT, "offset": I64, "size": I64},
        "Timestamp",
        _systor_times,
        {"op": _direction("type", "w"), "bytes": pl.col("size"), "offset": pl.col("offset"),
         "device": pl.concat_str(pl.lit("lun"), "disk")},
        latency=True,
        unanswered=pl.col("response").is_null() & pl.col("size").is_not_null()
        & pl.col("time").is_not_null(),
    ),
    Layout(
        "spc",
        re.compile(r"^\d{1,4},\d+,\d+,[RWrw],\d+\.\d+(?:,.*)?\s*$", re.M),
        {"disk": TEXT, "lba": I64, "size": I64, "type": TEXT, "time": F64},
        "ASU",
        _arrivals(_micros("time")),
        {"op": _direction("type", "w"), "bytes": pl.col("size"),
         "offset": _at_most("lba", 2**53) * SECTOR, "device": pl.concat_str(pl.lit("asu"), "disk")},
        latency=False,
    ),
)  # fmt: skip


def find_layout(head: Head) -> Layout | None:
    """The layout that a line near the start has, or None."""
    text = "\n".join(head.lines[:HEAD_LINES])
    return next((layout for layout in LAYOUTS if layout.sniff.search(text)), None)


def sniff(head: Head) -> bool:
    """Whether *head* is of a published trace or an xperf dump."""
    return is_xperf(head) or find_layout(head) is not None


def read(source: Source) -> Capture:
    """Read a trace with a line a request; CaptureError if it holds none."""
    if is_xperf(source.head):
        return requests_capture(source, "xperf", xperf_blocks)
    layout = find_layout(source.head)
    if layout is None:
        raise source.error("is no trace with a line a request", "give the trace as published")

    def blocks(source: Source, notes: Notes) -> Iterator[Block]:
        return timed_blocks(_frames(source, layout, notes), notes)

    return requests_capture(source, layout.name, blocks)


def _frames(source: Source, layout: Layout, notes: Notes) -> Iterator[pl.DataFrame]:
    """Sane rows of the trace in the columns of `timed`; the others are counted."""
    start: int | float | None = None
    unanswered = 0
    for data in chunks(source):
        stop = whole_lines(data)
        # A last line without its end may be cut within a number.
        notes.skipped += int(stop < data.size)
        cells = _cells(data[:stop], layout)
        if cells.height == 0:
            continue
        if start is None:
            first = cells.select(layout.times(None)["issue"]).to_series().drop_nulls()
            start = _start(cells, layout, first)
        if layout.unanswered is not None:
            without = cells.select(layout.unanswered.fill_null(False)).to_series()
            unanswered += int(without.sum())
            cells = cells.filter(~without)
        frame = cells.select(**layout.times(start), **layout.columns)
        good = frame.filter(sane(latency=layout.latency) & pl.col("op").is_not_null())
        notes.skipped += frame.height - good.height
        yield good
    notes.say(unanswered, "requests without a response (left out)")


def _start(cells: pl.DataFrame, layout: Layout, issues: pl.Series) -> int | float:
    """Time of the first row, in the unit that the layout subtracts."""
    if layout.schema["time"] == I64 and layout.name == "msr-cambridge":
        times = cells["time"].drop_nulls()
        return int(times[0]) if times.len() else 0
    return int(issues[0]) if issues.len() else 0


def _cells(data: np.ndarray, layout: Layout) -> pl.DataFrame:
    """Lines of *data* as typed columns; what does not parse is null; no blank lines."""
    text = data.tobytes().replace(b'"', b"").replace(b"\r", b"")
    if b"\n\n" in text or text.startswith(b"\n"):
        text = _BLANK.sub(b"", text)
    if not text.strip():
        return pl.DataFrame(schema=layout.schema)
    frame = pl.read_csv(
        # Polars counts the columns of the first line, which may be damaged: give it a header.
        io.BytesIO(",".join(layout.schema).encode() + b"\n" + text),
        has_header=True,
        schema=layout.schema,
        quote_char=None,
        encoding="utf8-lossy",
        truncate_ragged_lines=True,
        ignore_errors=True,
    )
    first = text[: text.find(b"\n")].decode("utf-8", "replace")
    return frame.slice(1) if first.split(",")[0].strip() == layout.header else frame
