"""fio's ``lat``, ``clat``, ``slat``, ``bw`` and ``iops`` logs: a row a request, or window means.

Reads in batches: a log larger than memory gives its statistics in one pass and its requests as a
lazy frame. Logs of jobs that ran together, asked for together, become one capture. A log has no
header: what its columns are is decided by fio's version, which the run's JSON beside it states, as
it does load and drive. Source: fio HOWTO, log file formats; fio iolog.c.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import numpy as np
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
from nvmesim.capture.caveats import with_caveats
from nvmesim.capture.lines import Notes
from nvmesim.capture.readers.fio.fio_jobs import FioJob, conditions_of, groups
from nvmesim.capture.readers.fio.log_rows import (
    ROW,
    LogLayout,
    LogStats,
    Rows,
    find_layout,
    row_batches,
    sample_rows,
    version_of,
)
from nvmesim.capture.requests import UNKNOWN_TIME
from nvmesim.capture.requests.table import KEEP_ROWS, Block, block_frame, rows_of
from nvmesim.capture.text import Head, Source
from nvmesim.errors import CaptureError
from nvmesim.warning import Warning

SNIFFED_ROWS: Final = 20
SNIFFED_SHARE: Final = 0.25
FOLDERS_ABOVE: Final = 3
MAX_JSON_BYTES: Final = 1 << 24
MAX_CANDIDATES: Final = 64
"""Files of a folder that are looked into for the run of a log."""
_SCALE: Final = {"bw": 1024.0, "iops": 1.0}
"""Averaged bw is in KiB/s."""
_NAME: Final = re.compile(
    r"(?P<prefix>.+)_(?P<kind>clat|slat|lat|bw|iops)(?:\.(?P<job>\d{1,6}))?\.log\b.*"
)
_KIND: Final = re.compile(r"(?:^|[_.-])(clat|slat|lat|bw|iops)(?=[_.-])")
_OPTION: Final = {"bw": "write_bw_log", "iops": "write_iops_log"}
_STATED: Final = re.compile(
    r"(?:\"fio version\"\s*:\s*\"fio-|^[2-5];fio-|^fio-)(\d[\w.-]*)", re.MULTILINE
)
"""A version as JSON, terse lines and normal output state it."""


@dataclass(frozen=True)
class LogName:
    """Parts of a log's name, as fio puts them together."""

    prefix: str
    kind: str
    """clat, lat, slat, bw or iops; empty if the name does not say."""
    job: int | None
    """Number of the job, from 1 on; None if all jobs wrote one file."""


@dataclass(frozen=True)
class FioRun:
    """The run that wrote a log: fio's version, and the jobs that ran together with this one."""

    version: str
    jobs: list[FioJob]
    numbers: range
    """The log numbers of these jobs."""

    def conditions(self, logs: Collection[int | None]) -> Conditions:
        """Return the load of the jobs that wrote the *logs* of these numbers; None: of all."""
        if None in logs:
            return conditions_of(self.jobs)
        chosen = []
        first = self.numbers.start
        for job in self.jobs:
            last = first + (job.threads or 1)
            if job.results and any(first <= number < last for number in logs if number):
                chosen.append(job)
            first = last
        return replace(conditions_of(chosen or self.jobs), jobs=len(set(logs)))


def parse_name(path: Path) -> LogName:
    """Return prefix, kind and job of a log's name.

    >>> parse_name(Path("rr_qd4_clat.1.log.gz"))
    LogName(prefix='rr_qd4', kind='clat', job=1)
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        token = _KIND.search(path.name)
        return LogName(path.name.split(".")[0], token.group(1) if token else "", None)
    return LogName(match["prefix"], match["kind"], int(match["job"]) if match["job"] else None)


def sniff(head: Head) -> bool:
    """True if the first lines of *head* are rows of a fio log; a few may be damaged."""
    lines = [line for line in head.lines[: 4 * SNIFFED_ROWS] if line.strip()][:SNIFFED_ROWS]
    rows = [line.split(", ") for line in lines if ROW.fullmatch(line)]
    directions = ("0", "1", "2")
    of_fio = [row for row in rows if row[2] in directions or row[3] in directions]
    return len(of_fio) > SNIFFED_SHARE * len(lines)


def parts(path: Path, asked: Collection[Path]) -> tuple[Path, ...]:
    """Return the logs among *asked* of one kind that the jobs running with *path*'s wrote."""
    own = parse_name(path)
    if own.job is None:
        return (path,)
    run = find_run(path)
    found: dict[int, Path] = {}
    for other in asked:
        name = parse_name(other)
        same = other.parent == path.parent and (name.prefix, name.kind) == (own.prefix, own.kind)
        if same and name.job is not None and (run is None or name.job in run.numbers):
            found.setdefault(name.job, other)
    found[own.job] = path
    return tuple(found[job] for job in sorted(found))


def find_run(path: Path) -> FioRun | None:
    """Return the run whose JSON lies beside the log *path* and names it, or None."""
    log = parse_name(path)
    for candidate in _candidates(path.parent, log.prefix):
        try:
            state = candidate.stat()
            runs = _runs_in(candidate, log.prefix, state.st_mtime_ns, state.st_size)
        except (CaptureError, RecursionError, MemoryError, OverflowError, OSError):
            continue  # a broken neighbour is none of the log's business
        for version, jobs in runs:
            first = 1
            for together in groups(jobs):
                numbers = range(first, first + sum(job.threads or 1 for job in together))
                first = numbers.stop
                wrote = any(_wrote(job, log) for job in together)
                if wrote and (log.job is None or log.job in numbers):
                    return FioRun(version, together, numbers)
    return None


def _candidates(folder: Path, prefix: str) -> list[Path]:
    try:
        files = [p for p in folder.iterdir() if ".json" in p.name or p.name.startswith(prefix)]
        small = [p for p in files if p.is_file() and p.stat().st_size <= MAX_JSON_BYTES]
    except OSError:
        return []
    results = [p for p in small if not _NAME.fullmatch(p.name)]
    results.sort(key=lambda p: (not p.name.startswith(prefix), p.name))
    return results[:MAX_CANDIDATES]


@lru_cache(maxsize=32)
def _runs_in(
    path: Path, prefix: str, changed: int, size: int
) -> tuple[tuple[str, list[FioJob]], ...]:
    """Runs of the JSON *path* if it names *prefix*; kept, for each log of a folder asks again."""
    from nvmesim.capture.readers.fio.fio_json import jobs_of_runs, sniff

    source = Source(path)
    if not sniff(source.head) or prefix not in source.text(MAX_JSON_BYTES * 20):
        return ()
    return tuple(jobs_of_runs(source))


def _wrote(job: FioJob, log: LogName) -> bool:
    option = job.options.given.get(_OPTION.get(log.kind, "write_lat_log"))
    if option is None:
        return False
    name = re.split(r"[/\\]", option.strip())[-1]
    # Without a value fio takes the job's name.
    return (name if name not in ("", "1") else job.name) == log.prefix


def find_version(path: Path) -> str | None:
    """Return the fio version that results near the log *path* agree on, or None.

    Results are looked for in its folder and up to three above it, as harnesses (pbench) lay them
    out; the nearest folder that has any decides.
    """
    folder = path.resolve().parent
    for above in (folder, *list(folder.parents)[:FOLDERS_ABOVE]):
        try:
            files = sorted(
                p for p in above.iterdir() if p.is_file() and not _NAME.fullmatch(p.name)
            )
        except OSError:
            return None
        found = set()
        for file in files[:MAX_CANDIDATES]:
            try:
                if file.stat().st_size <= MAX_JSON_BYTES:
                    found.update(_STATED.findall(Source(file).head.text)[:1])
            except (CaptureError, OSError):
                continue
        if found:
            # Several versions are no answer.
            return found.pop() if len(found) == 1 else None
    return None


def read(source: Source) -> Capture:
    """Read a log and those of the jobs that ran with it; CaptureError if it has no whole row."""
    name, run = parse_name(source.path), find_run(source.path)
    sources = [source, *(Source(p, (), source.on_read) for p in source.parts if p != source.path)]
    stated = run.version if run else find_version(source.path)
    rows = [sample_rows(part) for part in sources]
    if not rows[0]:
        raise source.error("has no whole row of a fio log", "repeat the capture")
    kind = name.kind or ("iops" if all(row[1] == "1" for row in rows[0]) else "clat")
    layouts = [find_layout(own or rows[0], version_of(stated), kind) for own in rows]
    # Epoch times: the first job's start is the start of all.
    start = min(layout.t0_ms for layout in layouts)
    layouts = [replace(layout, t0_ms=start) for layout in layouts]
    averaged = layouts[0].is_averaged
    stats, notes = LogStats(kind, averaged), Notes()
    kept: list[Rows] = []
    for part, layout in zip(sources, layouts, strict=True):
        for batch in row_batches(part, layout, notes):
            stats.add(batch)
            kept.append(batch)
            if stats.rows > KEEP_ROWS:
                kept.clear()
        stats.end_file()
    if not stats.rows:
        raise source.error(
            f"has no whole row of a fio log ({notes.skipped} skipped)", "repeat the capture"
        )
    measurement = _measurement(stats, name, run, [parse_name(part.path).job for part in sources])
    requests = None
    if kind in ("clat", "lat") and not averaged:
        names = {name for job in run.jobs for name in job.options.filenames()} if run else set()
        requests = _requests(sources, layouts, kept, names.pop() if len(names) == 1 else None)
    return Capture(
        file=source.path,
        format="fio-log",
        version=stated,
        measurements=(measurement if averaged else with_caveats(measurement),),
        rows=stats.rows,
        skipped=notes.skipped,
        requests=requests,
        series=_series(kept, kind) if averaged and kept else None,
        warnings=tuple(_warnings(stats, notes, layouts[0], name, run, len(sources))),
    )


def _requests(
    sources: list[Source], layouts: list[LogLayout], kept: list[Rows], device: str | None
) -> pl.LazyFrame:
    """Return the requests in order of completion; of a long log read again, in file order."""
    if not kept:

        def frames(source: Source, layout: LogLayout) -> Iterator[pl.DataFrame]:
            yield from (_frame(rows, device) for rows in row_batches(source, layout, Notes()))

        tables = [
            lazy_table(partial(frames, source, layout))
            for source, layout in zip(sources, layouts, strict=True)
        ]
        merged = tables[0]
        for table in tables[1:]:
            merged = merged.merge_sorted(table, key="complete_ns")
        return merged

    @lru_cache
    def whole() -> pl.DataFrame:
        found = pl.concat([_frame(rows, device) for rows in kept])
        table = found.sort("complete_ns", maintain_order=True)
        if not table.height or table["issue_ns"].null_count():
            return table
        issue, complete = table["issue_ns"].to_numpy(), table["complete_ns"].to_numpy()
        started = np.searchsorted(np.sort(issue), issue, side="right")
        ended = np.searchsorted(np.sort(complete), issue, side="right")
        depth = np.maximum(started - ended, 1).astype(np.int32)
        return table.with_columns(pl.Series("depth", depth))

    return lazy_table(lambda: iter([whole()]))


def _frame(rows: Rows, device: str | None) -> pl.DataFrame:
    """Rows as requests. Without issue times a completion is known to its millisecond only."""
    unknown = np.full_like(rows.value, UNKNOWN_TIME)
    issue, complete = unknown, rows.time_ns
    if rows.issue_ns is not None:
        # A lat log writes 0 in place of its issue time.
        issue = np.where(rows.issue_ns > 0, rows.issue_ns, UNKNOWN_TIME)
        complete = np.where(rows.issue_ns > 0, rows.issue_ns + rows.value, rows.time_ns)
    offset = unknown if rows.offset is None else rows.offset
    table = rows_of(issue, complete, offset, rows.bytes, np.zeros_like(unknown), rows.op)
    names = [] if device is None else [device]
    return block_frame(Block(table, names)).with_columns(latency_ns=pl.Series(rows.value))


def _series(kept: list[Rows], kind: str) -> pl.DataFrame:
    """Window means in s, requests/s or bytes/s."""
    unit = "bytes_per_s" if kind == "bw" else kind
    value = np.concatenate([rows.value for rows in kept]) * _SCALE.get(kind, 1e-9)
    return pl.DataFrame(
        [
            pl.Series("time_s", np.concatenate([rows.time_ns for rows in kept]) / 1e9),
            pl.Series("op", OPS, dtype=REQUEST_SCHEMA["op"]).gather(
                np.concatenate([rows.op for rows in kept])
            ),
            pl.Series("kind", [unit], dtype=pl.String).new_from_index(0, value.size),
            pl.Series("value", value),
        ]
    )


def _measurement(
    stats: LogStats, name: LogName, run: FioRun | None, numbers: list[int | None]
) -> Measurement:
    conditions = run.conditions(numbers) if run else Conditions()
    counted = [] if stats.is_averaged else [k for k in range(2) if stats.count[k]]
    if counted and conditions.read_fraction is None:
        conditions = replace(conditions, read_fraction=stats.count[0] / sum(stats.count))
    if counted and conditions.block_size is None and len(stats.sizes) == 1:
        conditions = replace(conditions, block_size=next(iter(stats.sizes)))
    # A log may hold the first requests of a run only (log_entries, a cut file).
    conditions = replace(conditions, duration_s=stats.span_s or conditions.duration_s)
    if run is None and name.job is not None:
        conditions = replace(conditions, jobs=len(numbers))
    ops: dict[Op, OpResult] = {OPS[k]: stats.result(k) for k in counted}
    return Measurement(name.prefix, conditions, ops, source=f"fio {stats.kind} log")


def _warnings(
    stats: LogStats, notes: Notes, layout: LogLayout, name: LogName, run: FioRun | None,
    n_files: int,
) -> list[str]:  # fmt: skip
    found = [Warning("units-guessed", guess) for guess in layout.guesses]
    if notes.skipped:
        text = f"{notes.skipped} rows skipped: damaged, cut off, zero or trims"
        found.append(Warning("rows-skipped", text))
    if not name.kind:
        text = f"the file's name does not say what was logged: taken as {stats.kind}"
        found.append(Warning("kind-guessed", text))
    if run is None:
        text = "no JSON of its run beside it: engine, depth and drive are unknown"
        found.append(Warning("run-unknown", text))
    elif name.job is not None and n_files < len(run.numbers):
        text = (
            f"{n_files} of {len(run.numbers)} jobs that ran together: the others loaded the drive, "
            "too; give the logs of all of them"
        )
        found.append(Warning("logs-missing", text))
    if layout.is_averaged:
        text = "averaged log (log_avg_msec): no counts and no percentiles, only drift shows"
        found.append(Warning("averaged-log", text))
    elif stats.is_latency and "issue_ns" not in layout.columns:
        text = (
            "times are completions to 1 ms: the depth at issue is unknown (log_issue_time of fio "
            "3.38 gives it)"
        )
        found.append(Warning("depth-unknown", text))
    return [*found, *stats.caveats()]
