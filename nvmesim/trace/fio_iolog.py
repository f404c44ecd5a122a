"""fio's iolog (``write_iolog``): what was requested and when, without latencies.

Version 3 stamps every line in us, version 2 has ``wait`` lines between. File names may hold
spaces, so a line is read from its right. Source: fio HOWTO, trace file formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from nvmesim.trace.capture import REQUEST_SCHEMA, Capture, Conditions, Measurement, Op, OpResult
from nvmesim.trace.lazy_table import lazy_table
from nvmesim.trace.lines import chunks, line_frame
from nvmesim.trace.text import Head, Source

_HEADER: Final = re.compile(r"\s*fio version ([23]) iolog\s*")
_LINE: Final = (
    r"^(?:(?P<time>\d{1,18}) )?(?P<file>.+) (?P<action>read|write|trim|sync|datasync|"
    r"add|open|close|wait)(?: (?P<offset>\d{1,18})(?: (?P<length>\d{1,15}))?)?$"
)
NS_PER_US: Final = 1000
MAX_TIME_US: Final = 10**13
MAX_LENGTH: Final = 2**40
OPS: Final[tuple[Op, ...]] = ("read", "write")
KEEP_ROWS: Final = 2_000_000


def sniff(head: Head) -> bool:
    """Whether *head* starts with the header of an iolog."""
    return _HEADER.fullmatch(head.text.split("\n", 1)[0]) is not None


@dataclass
class _Tally:
    """What one pass over the file counts."""

    rows: int = 0
    skipped: int = 0
    others: int = 0
    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPS, 0))
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPS, 0))
    sizes: set[int] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    first_ns: int | None = None
    last_ns: int = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Count the requests of *frame*, of `REQUEST_SCHEMA`."""
        self.rows += frame.height
        if not frame.height:
            return
        for op, count, n_bytes in frame.group_by("op").agg(pl.len(), pl.col("bytes").sum()).rows():
            self.count[op] += count
            self.bytes[op] += n_bytes
        if len(self.sizes) < 2:
            self.sizes.update(frame["bytes"].unique().head(2).to_list())
        if len(self.files) < 1000:
            self.files.update(frame["device"].unique().to_list())
        times = frame["issue_ns"]
        if times.null_count() == 0:
            low, high = times.to_numpy().min(), times.to_numpy().max()
            self.first_ns = int(low) if self.first_ns is None else min(self.first_ns, int(low))
            self.last_ns = max(self.last_ns, int(high))


def read(source: Source) -> Capture:
    """Read an iolog: arrivals only; CaptureError if it holds no read and no write."""
    header = _HEADER.fullmatch(source.head.text.split("\n", 1)[0])
    version = int(header[1]) if header else 3
    tally = _Tally()
    kept: list[pl.DataFrame] = []
    for frame in _frames(source, version, tally):
        tally.add(frame)
        if tally.rows <= KEEP_ROWS:
            kept.append(frame)
    if not tally.rows:
        raise source.error(
            f"is an iolog without a read or write ({tally.skipped} lines skipped)",
            "repeat the capture",
        )
    if tally.rows <= KEEP_ROWS:
        table = pl.concat(kept).lazy()
    else:
        table = lazy_table(_again(source, version), REQUEST_SCHEMA)
    warnings = ["an iolog has no latencies: arrivals only"]
    if version == 2:
        warnings.append("version 2 has no times: only its wait lines space the requests")
    if tally.others:
        warnings.append(f"{tally.others} trims and flushes are left out")
    if tally.skipped:
        warnings.append(f"{tally.skipped} lines skipped: damaged or cut off")
    return Capture(
        file=source.path,
        format="fio-iolog",
        version=f"iolog {version}",
        measurements=(_measurement(tally),),
        rows=tally.rows,
        skipped=tally.skipped,
        requests=table,
        warnings=tuple(warnings),
    )


def _again(source: Source, version: int) -> Callable[[], Iterator[pl.DataFrame]]:
    return lambda: _frames(source, version, _Tally())


def _frames(source: Source, version: int, tally: _Tally) -> Iterator[pl.DataFrame]:
    """Yield the requests; *tally* counts lines that are none."""
    clock_ns = 0
    is_first = True
    for data in chunks(source):
        raw = data.tobytes()
        if not raw.endswith(b"\n"):  # fio ends every line: what does not was cut off
            raw, _, last = raw.rpartition(b"\n")
            tally.skipped += bool(last.strip())
        lines = line_frame(raw)
        body = lines.slice(1) if is_first else lines
        is_first = False
        text = pl.col("line")
        parsed = (
            body.filter(text.str.strip_chars() != "")
            .select(text.str.extract_groups(_LINE).alias("groups"))
            .unnest("groups")
            .with_columns(pl.col("time", "offset", "length").cast(pl.Int64, strict=False))
        )
        frame, clock_ns = _timed(parsed, version, clock_ns)
        action = pl.col("action")
        is_request = action.is_in(list(OPS)).fill_null(False)
        is_good = (
            is_request
            & pl.col("offset").is_not_null()
            & pl.col("length").is_between(1, MAX_LENGTH)
            & pl.col("issue_ns").is_not_null()
        ).fill_null(False)
        damaged = frame.filter(action.is_null() | (is_request & ~is_good)).height
        tally.skipped += damaged
        tally.others += frame.filter(action.is_in(["trim", "sync", "datasync"])).height
        yield frame.filter(is_good).select(_columns())


def _timed(frame: pl.DataFrame, version: int, clock_ns: int) -> tuple[pl.DataFrame, int]:
    """Add ``issue_ns``: stamped in version 3, the sum of the waits so far in version 2."""
    if version == 3:
        time = pl.when(pl.col("time") <= MAX_TIME_US).then(pl.col("time") * NS_PER_US)
        return frame.with_columns(time.alias("issue_ns")), 0
    wait = pl.when((pl.col("action") == "wait") & (pl.col("offset") <= MAX_TIME_US))
    steps = wait.then(pl.col("offset") * NS_PER_US).otherwise(0)
    timed = frame.with_columns((steps.cum_sum() + clock_ns).alias("issue_ns"))
    return timed, int(timed["issue_ns"][-1]) if timed.height else clock_ns


def _columns() -> list[pl.Expr]:
    unknown = pl.lit(None, dtype=pl.Int64)
    return [
        pl.col("issue_ns"),
        unknown.alias("complete_ns"),
        unknown.alias("latency_ns"),
        pl.col("action").cast(REQUEST_SCHEMA["op"]).alias("op"),
        pl.col("length").alias("bytes"),
        pl.col("offset"),
        pl.col("file").alias("device"),
        pl.lit(None, dtype=pl.Int32).alias("depth"),
    ]


def _measurement(tally: _Tally) -> Measurement:
    span_s = (tally.last_ns - (tally.first_ns or 0)) / 1e9
    rate = 1 / span_s if span_s > 0 else 0.0
    total = sum(tally.count.values())
    ops: dict[Op, OpResult] = {
        op: OpResult(
            tally.count[op], tally.bytes[op], tally.count[op] * rate, tally.bytes[op] * rate
        )
        for op in OPS
        if tally.count[op]
    }
    conditions = Conditions(
        read_fraction=tally.count["read"] / total,
        block_size=next(iter(tally.sizes)) if len(tally.sizes) == 1 else None,
        targets=len(tally.files),
        duration_s=span_s if span_s > 0 else None,
    )
    return Measurement("iolog", conditions, ops, source="fio iolog")
