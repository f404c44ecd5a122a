"""fio's ``lat``, ``clat``, ``slat``, ``bw`` and ``iops`` logs: a row a request, or window means.

Reads in batches: a log larger than memory gives its statistics in one pass and its requests as a
lazy frame. Logs of jobs that ran together, asked for together, become one capture.
Source: fio HOWTO, log file formats; fio iolog.c.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from nvmesim.capture.capture import REQUEST_SCHEMA, Capture, Conditions, Measurement, Op, OpResult
from nvmesim.capture.caveats import with_caveats
from nvmesim.capture.readers.fio.sibling import (
    FioRun,
    LogName,
    find_run,
    find_version,
    parse_name,
    run_parts,
)
from nvmesim.capture.readers.fio_logs.log_rows import (
    ROW,
    LogLayout,
    Rows,
    find_layout,
    row_batches,
    sample_rows,
    version_of,
)
from nvmesim.capture.readers.fio_logs.log_stats import LogStats
from nvmesim.capture.requests.table import lazy_table
from nvmesim.capture.text import Head, Source

OPS: Final[tuple[Op, ...]] = ("read", "write")
KEEP_ROWS: Final = 2_000_000
"""Rows kept in memory (60 bytes each); a longer log is read again when its requests are used."""
SNIFFED_ROWS: Final = 20
SNIFFED_SHARE: Final = 0.25
LATENCY_KINDS: Final = ("clat", "lat", "slat")
_SCALE: Final = {"bw": 1024.0, "iops": 1.0}
"""Averaged bw is in KiB/s."""


def sniff(head: Head) -> bool:
    """True if the first lines of *head* are rows of a fio log; a few may be damaged."""
    lines = [line for line in head.lines[: 4 * SNIFFED_ROWS] if line.strip()][:SNIFFED_ROWS]
    rows = [line.split(", ") for line in lines if ROW.fullmatch(line)]
    directions = ("0", "1", "2")
    of_fio = [row for row in rows if row[2] in directions or row[3] in directions]
    return len(of_fio) > SNIFFED_SHARE * len(lines)


def parts(path: Path, asked: Collection[Path]) -> tuple[Path, ...]:
    """Return the logs among *asked* that jobs running with that of *path* wrote."""
    return run_parts(path, asked)


def read(source: Source) -> Capture:
    """Read a log and those of the jobs that ran with it; CaptureError if it has no whole row."""
    name, run = parse_name(source.path), find_run(source.path)
    sources = [source, *(Source(p, (), source.on_read) for p in source.parts if p != source.path)]
    stated = run.version if run else find_version(source.path)
    version = version_of(stated)
    rows = [sample_rows(part) for part in sources]
    if not rows[0]:
        raise source.error("has no whole row of a fio log", "repeat the capture")
    kind = name.kind or ("iops" if all(row[1] == "1" for row in rows[0]) else "clat")
    layouts = [find_layout(own or rows[0], version, kind) for own in rows]
    # Epoch times: the first job's start is the start of all.
    start = min(layout.t0_ms for layout in layouts)
    log = _Log(kind, sources, [replace(layout, t0_ms=start) for layout in layouts])
    stats, kept = log.scan()
    if not stats.rows:
        raise source.error(
            f"has no whole row of a fio log ({stats.skipped} skipped)", "repeat the capture"
        )
    averaged = layouts[0].is_averaged
    numbers = [parse_name(part.path).job for part in sources]
    measurement = _measurement(stats, kind, name, run, numbers, averaged)
    return Capture(
        file=source.path,
        format="fio-log",
        version=stated,
        measurements=(with_caveats(measurement),) if not averaged else (measurement,),
        rows=stats.rows,
        skipped=stats.skipped,
        requests=None if averaged or kind not in ("clat", "lat") else log.requests(kept, run),
        series=_series(kept, kind) if averaged and kept else None,
        warnings=tuple(_warnings(stats, layouts[0], name, kind, run, len(sources))),
    )


class _Log:
    """The files of one kind of log of one run, and how their rows are to be read."""

    def __init__(self, kind: str, sources: list[Source], layouts: list[LogLayout]) -> None:
        self.kind, self.sources, self.layouts = kind, sources, layouts

    def scan(self) -> tuple[LogStats, list[Rows]]:
        """Read everything once: the statistics, and the rows while they are few."""
        stats = LogStats(self.kind, self.layouts[0].is_averaged)
        kept: list[Rows] = []
        for source, layout in zip(self.sources, self.layouts, strict=True):
            for rows, skipped in row_batches(source, layout):
                stats.add(rows, skipped)
                if stats.rows <= KEEP_ROWS:
                    kept.append(rows)
                else:
                    kept.clear()
            stats.end_file()
        return stats, kept if stats.rows <= KEEP_ROWS else []

    def requests(self, kept: list[Rows], run: FioRun | None) -> pl.LazyFrame:
        """Return the requests in order of completion; of a long log read again, in file order."""
        device = _device(run)
        if kept:
            return lazy_table(_kept_frames(kept, device), REQUEST_SCHEMA)
        tables = [
            lazy_table(_frames_of(source, layout, device), REQUEST_SCHEMA)
            for source, layout in zip(self.sources, self.layouts, strict=True)
        ]
        merged = tables[0]
        for table in tables[1:]:
            merged = merged.merge_sorted(table, key="complete_ns")
        return merged


def _kept_frames(kept: list[Rows], device: str | None) -> Callable[[], Iterator[pl.DataFrame]]:
    """The rows in memory as one table of requests, made when it is first used."""
    whole: list[pl.DataFrame] = []

    def frames() -> Iterator[pl.DataFrame]:
        if not whole:
            found = pl.concat([_requests(rows, device) for rows in kept])
            whole.append(_with_depth(found.sort("complete_ns", maintain_order=True)))
        return iter(whole)

    return frames


def _frames_of(
    source: Source, layout: LogLayout, device: str | None
) -> Callable[[], Iterator[pl.DataFrame]]:
    def frames() -> Iterator[pl.DataFrame]:
        return (_requests(rows, device) for rows, _ in row_batches(source, layout))

    return frames


def _requests(rows: Rows, device: str | None) -> pl.DataFrame:
    """Rows as requests. Without issue times a completion is known to its millisecond only."""
    n = rows.value.size
    unknown = pl.Series(dtype=pl.Int64).extend_constant(None, n)
    issue, complete = unknown, pl.Series(rows.time_ns)
    if rows.issue_ns is not None:
        # A lat log writes 0 in place of its issue time.
        known = rows.issue_ns > 0
        issue = pl.Series(rows.issue_ns).set(pl.Series(~known), None)
        complete = pl.Series(np.where(known, rows.issue_ns + rows.value, rows.time_ns))
    return pl.DataFrame(
        [
            issue.alias("issue_ns"),
            complete.alias("complete_ns"),
            pl.Series("latency_ns", rows.value),
            pl.Series("op", OPS, dtype=REQUEST_SCHEMA["op"]).gather(rows.op),
            pl.Series("bytes", rows.bytes),
            (unknown if rows.offset is None else pl.Series(rows.offset)).alias("offset"),
            pl.Series("device", [device], dtype=pl.String).new_from_index(0, n),
            pl.Series("depth", dtype=pl.Int32).extend_constant(None, n),
        ]
    )


def _with_depth(table: pl.DataFrame) -> pl.DataFrame:
    """Fill in how many were outstanding at each issue, where every issue time is known."""
    if not table.height or table["issue_ns"].null_count():
        return table
    issue, complete = table["issue_ns"].to_numpy(), table["complete_ns"].to_numpy()
    started = np.searchsorted(np.sort(issue), issue, side="right")
    ended = np.searchsorted(np.sort(complete), issue, side="right")
    return table.with_columns(pl.Series("depth", np.maximum(started - ended, 1).astype(np.int32)))


def _device(run: FioRun | None) -> str | None:
    names = {name for job in run.jobs for name in job.options.filenames()} if run else set()
    return names.pop() if len(names) == 1 else None


def _series(kept: list[Rows], kind: str) -> pl.DataFrame:
    """Window means in s, requests/s or bytes/s."""
    unit = "bytes_per_s" if kind == "bw" else kind
    value = np.concatenate([rows.value for rows in kept]) * _SCALE.get(kind, 1e-9)
    op = np.concatenate([rows.op for rows in kept])
    return pl.DataFrame(
        [
            pl.Series("time_s", np.concatenate([rows.time_ns for rows in kept]) / 1e9),
            pl.Series("op", OPS, dtype=REQUEST_SCHEMA["op"]).gather(op),
            pl.Series("kind", [unit], dtype=pl.String).new_from_index(0, value.size),
            pl.Series("value", value),
        ]
    )


def _measurement(
    stats: LogStats,
    kind: str,
    name: LogName,
    run: FioRun | None,
    numbers: list[int | None],
    averaged: bool,
) -> Measurement:
    conditions = run.conditions(numbers) if run else Conditions()
    span_s = stats.span_s
    if not averaged:
        counted = {OPS[k]: stats.count[k] for k in range(2) if stats.count[k]}
        if conditions.read_fraction is None:
            share = counted.get("read", 0) / sum(counted.values())
            conditions = replace(conditions, read_fraction=share)
        if conditions.block_size is None and stats.one_size:
            conditions = replace(conditions, block_size=stats.one_size)
    # A log may hold the first requests of a run only (log_entries, a cut file).
    conditions = replace(conditions, duration_s=span_s or conditions.duration_s)
    if run is None and name.job is not None:
        conditions = replace(conditions, jobs=len(numbers))
    ops: dict[Op, OpResult] = {}
    for k, op in enumerate(OPS):
        if stats.count[k] and not averaged:
            ops[op] = stats.result(k, span_s)
    return Measurement(label=name.prefix, conditions=conditions, ops=ops, source=f"fio {kind} log")


def _warnings(
    stats: LogStats, layout: LogLayout, name: LogName, kind: str, run: FioRun | None, n_files: int
) -> list[str]:
    found = list(layout.guesses)
    if stats.skipped:
        found.append(f"{stats.skipped} rows skipped: damaged, cut off, zero or trims")
    if not name.kind:
        found.append(f"the file's name does not say what was logged: taken as {kind}")
    if run is None:
        found.append("no JSON of its run beside it: engine, depth and drive are unknown")
    elif name.job is not None and n_files < len(run.numbers):
        found.append(
            f"{n_files} of {len(run.numbers)} jobs that ran together: the others loaded the drive, "
            "too; give the logs of all of them"
        )
    elif name.job is not None and run is None and n_files > 1:
        found.append(f"{n_files} jobs' logs were taken as having run together")
    if layout.is_averaged:
        found.append("averaged log (log_avg_msec): no counts and no percentiles, only drift shows")
    elif kind in LATENCY_KINDS and not layout.has_issue:
        found.append(
            "times are completions to 1 ms: the depth at issue is unknown (log_issue_time of fio "
            "3.38 gives it)"
        )
    return [*found, *stats.caveats()]
