"""fio's iolog (``write_iolog``): what was requested and when, without latencies.

Version 3 stamps every line in us, version 2 has ``wait`` lines between. File names may hold
spaces, so a line is read from its right. Source: fio HOWTO, trace file formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import polars as pl

from nvmesim.capture.capture import (
    OPS,
    REQUEST_SCHEMA,
    Capture,
    Conditions,
    Measurement,
    Op,
    OpResult,
    lazy_table,
)
from nvmesim.capture.lines import OTHER_COMMANDS, STEPS_BACK, Notes, line_frames
from nvmesim.capture.text import Head, Source

_HEADER: Final = re.compile(r"\s*fio version ([23]) iolog\s*")
_LINE: Final = (
    r"^(?:(?P<time>[0-9]{1,18}) )?(?P<device>\S.*) "
    r"(?P<action>read|write|trim|sync|datasync|wait|add|open|close)"
    r"(?: (?P<offset>[0-9]{1,18})(?: (?P<bytes>[0-9]{1,15}))?)?\s*$"
)
NS_PER_US: Final = 1000
MAX_TIME_US: Final = 10**13
MAX_LENGTH: Final = 2**40
STEP_NS: Final = 10**9
"""Threads' lines interleave by less; a longer step back starts another run."""
KEEP_ROWS: Final = 2_000_000
"""Requests kept in memory; those of a longer log are read again when they are used."""


def sniff(head: Head) -> bool:
    """True if *head* starts with the header of an iolog."""
    return _HEADER.fullmatch(head.text.split("\n", 1)[0]) is not None


def read(source: Source) -> Capture:
    """Read an iolog: arrivals only; CaptureError if it holds no read and no write."""
    header = _HEADER.fullmatch(source.head.text.split("\n", 1)[0])
    version = int(header[1]) if header else 3
    notes = Notes()
    kept: list[pl.DataFrame] = []
    sums: list[pl.DataFrame] = []
    rows = 0
    for frame in _frames(source, version, notes):
        rows += frame.height
        sums.append(
            frame.group_by("op", "device").agg(
                count=pl.len(),
                total=pl.col("bytes").sum(),
                smallest=pl.col("bytes").min(),
                largest=pl.col("bytes").max(),
                first=pl.col("issue_ns").min(),
                last=pl.col("issue_ns").max(),
            )
        )
        kept.append(frame)
        if rows > KEEP_ROWS:
            kept.clear()
    if not rows:
        raise source.error(
            f"is an iolog without a read or write ({notes.skipped} lines skipped)",
            "repeat the capture",
        )
    warnings = ["an iolog has no latencies: arrivals only", *notes.warnings]
    if version == 2:
        warnings.append("version 2 has no times: only its wait lines space the requests")
    if notes.skipped:
        warnings.append(f"{notes.skipped} lines skipped: damaged or cut off")
    table = lazy_table(
        lambda: iter(kept) if rows <= KEEP_ROWS else _frames(source, version, Notes()),
        REQUEST_SCHEMA,
    )
    return Capture(
        file=source.path,
        format="fio-iolog",
        version=f"iolog {version}",
        measurements=(_measurement(pl.concat(sums), rows),),
        rows=rows,
        skipped=notes.skipped,
        requests=table,
        warnings=tuple(warnings),
    )


def _frames(source: Source, version: int, notes: Notes) -> Iterator[pl.DataFrame]:
    """Yield the requests in batches of `REQUEST_SCHEMA`, in the order of the file."""
    clock_ns = others = back = 0
    last_ns = -(2**62)
    is_first = True
    for lines in line_frames(source, notes):
        text = lines[1:] if is_first else lines
        is_first = False
        text = text.filter(pl.col("line").str.strip_chars() != "")
        found = text.select(pl.col("line").str.extract_groups(_LINE)).unnest("line")
        found = found.with_columns(pl.col("time", "offset", "bytes").cast(pl.Int64))
        if version == 2:
            waits = pl.when(pl.col("action") == "wait").then(pl.col("offset")).otherwise(0)
            clock = waits.fill_null(0).clip(0, MAX_TIME_US).cum_sum() * NS_PER_US + clock_ns
        else:
            known = pl.col("time") <= MAX_TIME_US
            clock = pl.when(known).then(pl.col("time")).otherwise(None) * NS_PER_US
        found = found.with_columns(issue_ns=clock)
        if version == 2 and found.height:
            clock_ns = int(found["issue_ns"][-1])
        asked = found.filter(pl.col("action").is_in(OPS))
        good = asked.filter(
            pl.col("issue_ns").is_not_null()
            & pl.col("offset").is_not_null()
            & pl.col("bytes").is_between(1, MAX_LENGTH)
        )
        notes.skipped += found["action"].null_count() + asked.height - good.height
        others += int(found["action"].is_in(["trim", "sync", "datasync"]).sum())
        steps = good["issue_ns"].diff()
        back += int((steps < -STEP_NS).sum())
        if good.height:
            back += int(good["issue_ns"][0]) - last_ns < -STEP_NS
            last_ns = int(good["issue_ns"][-1])
        good = good.rename({"action": "op"})
        yield good.select(
            (pl.col(name) if name in good.columns else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in REQUEST_SCHEMA.items()
        )
    notes.say(back, STEPS_BACK, "places where the time steps back by more than a second")
    notes.say(others, OTHER_COMMANDS, "trims and flushes are left out")


def _measurement(sums: pl.DataFrame, rows: int) -> Measurement:
    first, last = sums["first"].min(), sums["last"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    span_s = (last - first) / 1e9
    rate = 1 / span_s if span_s > 0 else 0.0
    ops: dict[Op, OpResult] = {}
    for op in OPS:
        mine = sums.filter(pl.col("op") == op)
        count, n_bytes = int(mine["count"].sum()), int(mine["total"].sum())
        if count:
            ops[op] = OpResult(count, n_bytes, count * rate, n_bytes * rate)
    sizes = {*sums["smallest"], *sums["largest"]}
    conditions = Conditions(
        read_fraction=ops["read"].count / rows if "read" in ops else 0.0,
        block_size=sizes.pop() if len(sizes) == 1 else None,
        targets=sums["device"].n_unique(),
        duration_s=span_s if span_s > 0 else None,
    )
    return Measurement("iolog", conditions, ops, source="fio iolog")
