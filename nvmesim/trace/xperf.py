"""xperf's dump of an ETW trace (``xperf -i x.etl -o y.csv -a dumper``), disk events only.

The header gives the columns of each kind of event; newer builds have a CPU column, so nothing is
taken by position. The time is that of completion, the issue is ElapsedTime earlier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import polars as pl

from nvmesim.trace.lines import line_frames
from nvmesim.trace.pairing import Notes
from nvmesim.trace.request_table import Block
from nvmesim.trace.text import Head, Source
from nvmesim.trace.timed import sane, timed_blocks

NS_PER_US: Final = 1000
NEEDED: Final = ("TimeStamp", "ByteOffset", "IOSize", "ElapsedTime", "DiskNum")
KINDS: Final = {"DiskRead": 0, "DiskWrite": 1}
_HEADER = re.compile(r"^\s*(DiskRead|DiskWrite),\s*TimeStamp\s*,.*$", re.M)


def is_xperf(head: Head) -> bool:
    """Whether *head* is of an xperf dump that has disk events."""
    return "BeginHeader" in head.text and bool(_HEADER.search(head.text))


def xperf_blocks(source: Source, notes: Notes) -> Iterator[Block]:
    """Requests of the dump, in order of completion."""
    return timed_blocks(_frames(source, notes), notes)


def _columns(source: Source) -> dict[str, list[str]]:
    """Column names of DiskRead and DiskWrite events, as the header has them."""
    found = {
        match[1]: [name.strip() for name in match[0].split(",")]
        for match in _HEADER.finditer(source.head.text)
    }
    for kind, names in found.items():
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise source.error(
                f"its header lacks {', '.join(missing)} for {kind}", "dump with xperf -a dumper"
            )
    return found


def _frames(source: Source, notes: Notes) -> Iterator[pl.DataFrame]:
    columns = _columns(source)
    start: int | None = None
    flushes = 0
    for lines in line_frames(source, notes):
        cells = lines.select(cells=pl.col("line").str.split(",").list.eval(
            pl.element().str.strip_chars()
        ))  # fmt: skip
        kind = pl.col("cells").list.get(0, null_on_oob=True)
        flushes += cells.filter(kind == "DiskFlush").height
        events = cells.filter(kind.is_in(list(columns)))
        events = events.filter(pl.col("cells").list.get(1, null_on_oob=True) != "TimeStamp")
        parts = [_kind(events.filter(kind == name), name, columns[name]) for name in columns]
        found = pl.concat(parts).filter(sane(latency=True)).sort("complete", maintain_order=True)
        notes.skipped += events.height - found.height
        if start is None and found.height:
            start = int(found["issue"].min() or 0)  # type: ignore[arg-type]
        yield found.with_columns(pl.col("issue", "complete") - (start or 0))
    # The dump's own header names the event once.
    notes.say(max(flushes - 1, 0), "flushes (not in the table)")


def _kind(events: pl.DataFrame, name: str, names: list[str]) -> pl.DataFrame:
    def cell(column: str) -> pl.Expr:
        return pl.col("cells").list.get(names.index(column), null_on_oob=True)

    def hexadecimal(column: str) -> pl.Expr:
        return cell(column).str.strip_prefix("0x").str.to_integer(base=16, strict=False)

    complete = cell("TimeStamp").str.to_integer(strict=False)
    took = cell("ElapsedTime").str.to_integer(strict=False)
    limit = 10**15
    return events.select(
        issue=(complete.clip(-1, limit) - took.clip(-1, limit)) * NS_PER_US,
        complete=complete.clip(-1, limit) * NS_PER_US,
        op=pl.lit(KINDS[name], pl.Int64),
        bytes=hexadecimal("IOSize"),
        offset=hexadecimal("ByteOffset"),
        device=pl.concat_str(pl.lit("disk"), cell("DiskNum")),
    )
