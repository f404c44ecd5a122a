"""DiskSpd's measurements, and the reader of its XML results (``-Rxml``), 2.0.21 to 2.3.

XML and text share the facts of a `TimeSpan`. DiskSpd's latency runs from just before ReadFile or
WriteFile to the dequeue of the completion, so it is a total one (``lat``). Its CPU table counts all
processes of the host.

What DiskSpd prints is not always XML: error lines stand before ``<Results>`` and behind
``</Results>``, and a path may hold a bare ``&``. Document types are refused: nothing in DiskSpd's
output has one, and entities are how a small file becomes a large one.
Source: microsoft/diskspd wiki and ResultParser.cpp, 2.0.21 to 2.3.
"""

from __future__ import annotations

import math
import operator
import re
import xml.etree.ElementTree as ET
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

import polars as pl

from nvmesim.capture.capture import (
    OPS,
    REQUEST_SCHEMA,
    Access,
    Capture,
    Conditions,
    CpuUse,
    Latency,
    Measurement,
    Op,
    OpResult,
)
from nvmesim.capture.checked_numbers import (
    LARGEST,
    LONGEST_MS,
    MOST,
    S_PER_MS,
    number,
    parsed_xml,
    results,
    seconds,
    tell_apart,
    whole,
)
from nvmesim.capture.text import Head, Source, shown
from nvmesim.warning import Warning

SHORTEST_S: Final = 0.001
"""Test times are printed in hundredths; a shorter one makes rates without end."""
BUSY_PCT: Final = 95.0
EXACT_ASYNC: Final = (2, 2)
"""Release notes of 2.2: older versions inflate latency at more than one outstanding request."""


@dataclass
class DiskspdTarget:
    """One target as the profile states it; None is unknown."""

    path: str
    block_size: int | None = None
    outstanding: int | None = None
    """Per thread."""
    threads: int | None = None
    write_pct: float | None = None
    random: bool | None = None
    direct: bool | None = None
    rate_iops: float | None = None
    """Limit per thread."""


@dataclass
class DiskspdCounts:
    """Results of one direction, over some threads."""

    count: int = 0
    bytes: int = 0
    latency_ms: float = 0.0
    """Sum over the requests."""
    squares: float = 0.0
    timed: int = 0

    def __add__(self, other: DiskspdCounts) -> DiskspdCounts:
        return DiskspdCounts(*map(operator.add, astuple(self), astuple(other)))

    def add(
        self, count: int, n_bytes: int, mean_ms: float | None = None, stddev: float | None = None
    ) -> None:
        """Add *count* requests with this mean and population standard deviation (exact sums)."""
        self.count += count
        self.bytes += n_bytes
        if mean_ms is not None and 0 <= mean_ms <= LONGEST_MS and count:
            self.timed += count
            self.latency_ms += mean_ms * count
            self.squares += (min(max(stddev or 0.0, 0.0), LONGEST_MS) ** 2 + mean_ms**2) * count


Counts = dict[Op, DiskspdCounts]
Percentiles = dict[Op, dict[float, float]]
"""Percent -> ms of each direction; 0 is the minimum, 100 the maximum."""
Moments = tuple[float | None, float | None]
"""Mean and standard deviation, ms."""


@dataclass
class TimeSpan:
    """One time span: profile, counts, tables."""

    label: str
    targets: list[DiskspdTarget] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict)
    """By target path."""
    total: Counts | None = None
    """Totals as printed; None: the sum over the targets."""
    means: dict[Op, Moments] = field(default_factory=dict)
    """Of the total, as printed."""
    percentiles: Percentiles = field(default_factory=dict)
    target_percentiles: dict[str, Percentiles] = field(default_factory=dict)
    seconds: float | None = None
    threads: int | None = None
    shared_threads: bool = False
    """-F: each thread has all targets."""
    thread_outstanding: int | None = None
    """-O: outstanding per thread over all targets."""
    warmup_s: float | None = None
    cpus: int | None = None
    cpu_average: tuple[float | None, float | None, float | None] | None = None
    """Usage, user, kernel in percent of the whole host."""
    busiest_pct: float | None = None
    engine: str | None = None
    warnings: list[str] = field(default_factory=list)

    def tally(self, path: str, op: Op) -> DiskspdCounts:
        """The counts of one target and direction, made when first asked for."""
        return self.counts.setdefault(path, {}).setdefault(op, DiskspdCounts())


def measurements(span: TimeSpan, version: str | None) -> list[Measurement]:
    """The total of *span*, then each target if there are several; empty without a test time."""
    if span.seconds is None or not SHORTEST_S <= span.seconds < MOST:
        return []
    total = span.total
    if total is None:
        total = {}
        for counts in span.counts.values():
            for op, part in counts.items():
                total[op] = total.get(op, DiskspdCounts()) + part
    source = f"DiskSpd {version or ''}".strip()
    notes: list[str] = []
    numbers = tuple(int(part) for part in re.findall(r"\d{1,6}", version or "")[:3])
    is_timed = any(mean is not None for mean, _ in span.means.values()) or span.percentiles
    is_deep = any(t.outstanding and t.outstanding > 1 for t in span.targets)
    if is_timed and is_deep and numbers and numbers < EXACT_ASYNC:
        text = "DiskSpd before 2.2 inflates latency at more than one outstanding request"
        notes.append(Warning("inflated-latency", text))
    if span.busiest_pct is not None and span.busiest_pct >= BUSY_PCT:
        text = f"a logical CPU was {span.busiest_pct:.0f} % busy: the CPU may be what was measured"
        notes.append(Warning("cpu-bound", text))
    found = [
        Measurement(
            label=span.label,
            conditions=_conditions(span, span.targets, total),
            ops=_ops(total, span.seconds, span.means, span.percentiles),
            cpu=_cpu(span),
            source=source,
            warnings=(*span.warnings, *notes),
        )
    ]
    for path, counts in span.counts.items() if len(span.counts) > 1 else ():
        targets = [t for t in span.targets if t.path == path]
        conditions = _conditions(span, targets, counts, is_one=True)
        ops = _ops(counts, span.seconds, {}, span.target_percentiles.get(path, {}))
        found.append(Measurement(f"{span.label}: {path}", conditions, ops, source=source))
    return found


def _conditions(
    span: TimeSpan, targets: list[DiskspdTarget], counts: Counts, *, is_one: bool = False
) -> Conditions:
    def same(name: str) -> Any:
        """The one value that all targets have, or None."""
        values = [getattr(target, name) for target in targets]
        return values[0] if values and all(v == values[0] for v in values) else None

    done = sum(c.count for c in counts.values())
    read_fraction = counts.get("read", DiskspdCounts()).count / done if done else None
    if same("write_pct") is not None:
        read_fraction = 1 - same("write_pct") / 100
    depth = same("outstanding")
    if span.shared_threads and not is_one:  # over the targets that each thread has
        depths = [t.outstanding for t in targets]
        depth = span.thread_outstanding or (sum(filter(None, depths)) if all(depths) else None)
    limits = [(t.rate_iops, span.threads if span.shared_threads else t.threads) for t in targets]
    has_limits = bool(limits) and all(rate and threads for rate, threads in limits)
    is_random = same("random")
    access: Access | None = None if is_random is None else "random" if is_random else "sequential"
    return Conditions(
        read_fraction=read_fraction,
        access=access,
        # Each target gets its own stream; how the requests divide is not known beforehand.
        block_size=same("block_size") or None,
        jobs=same("threads") if is_one and not span.shared_threads else span.threads,
        iodepth=depth,
        targets=len(targets) or None,
        targets_per_job=1 if targets and not span.shared_threads else None,
        engine=span.engine,
        direct=same("direct"),
        rate_iops=sum((r or 0.0) * (n or 0) for r, n in limits) if has_limits else None,
        duration_s=span.seconds,
        ramp_s=span.warmup_s,
        cpus=span.cpus,
    )


def _ops(
    counts: Counts, duration_s: float, means: dict[Op, Moments], percentiles: Percentiles
) -> dict[Op, OpResult]:
    return {
        op: OpResult(
            count=c.count,
            bytes=c.bytes,
            iops=c.count / duration_s,
            bytes_per_s=c.bytes / duration_s,
            lat=_latency(c, means.get(op, (None, None)), percentiles.get(op, {})),
        )
        for op, c in counts.items()
        if c.count
    }


def _latency(counts: DiskspdCounts, printed: Moments, table: dict[float, float]) -> Latency | None:
    mean, stddev = map(seconds, printed)
    if counts.timed and counts.timed == counts.count:  # every thread says its own
        own = counts.latency_ms / counts.timed
        variance = max(counts.squares / counts.timed - own * own, 0.0)
        mean = own * S_PER_MS if mean is None else mean
        stddev = math.sqrt(variance) * S_PER_MS if stddev is None else stddev
    if mean is None and not table:
        return None
    return Latency(
        count=counts.count,
        mean_s=mean,
        min_s=seconds(table.get(0.0)),
        max_s=seconds(table.get(100.0)),
        stddev_s=stddev,
        percentiles_s={p: v * S_PER_MS for p, v in sorted(table.items()) if 0 < p < 100},
    )


def checked_table(table: dict[float, float], warnings: list[str], what: str) -> dict[float, float]:
    """*table* if its percentiles ascend and are sane; else nothing, and a warning."""
    values = [table[p] for p in sorted(table)]
    if all(0 <= v <= LONGEST_MS for v in values) and values == sorted(values):
        return table
    text = f"{what}: percentiles that do not ascend (left out): the file is damaged"
    warnings.append(Warning("impossible-latency", text))
    return {}


def _cpu(span: TimeSpan) -> CpuUse | None:
    usage, user, kernel = span.cpu_average or (None, None, None)
    n = span.cpus
    if usage is None or not n:
        return None
    return CpuUse(
        user_pct=None if user is None else user * n,
        system_pct=None if kernel is None else kernel * n,
        total_pct=usage * n,
        scope="host",
    )


FORMAT: Final = "diskspd-xml"
MAX_DEPTH: Final = 32
"""DiskSpd nests 7 elements."""

_RESULTS = re.compile(r"<Results>.*?</Results>", re.S)
_SNIFF = re.compile(r"<Results>\s*<(?:System|Profile|TimeSpan)\b")
_DOCTYPE = re.compile(r"<!(DOCTYPE|ENTITY)", re.I)
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def sniff(head: Head) -> bool:
    """True if *head* holds the start of DiskSpd's XML."""
    start = head.text.find("<Results>")
    return start >= 0 and _SNIFF.match(head.text, start) is not None


def read(source: Source) -> Capture:
    """Read DiskSpd XML; CaptureError if no time span has results or the XML is cut or broken."""
    text = source.text(LARGEST)
    if _DOCTYPE.search(text):
        raise source.error("holds a document type", "give the file as DiskSpd wrote it")
    documents = _RESULTS.findall(text)
    if not documents:
        raise source.error("is cut: <Results> without </Results>", "repeat the capture")
    warnings = []
    if text.count("<Results>") > len(documents):
        warnings.append("the last result is cut (left out)")
    version = None
    runs = []
    series: list[pl.DataFrame] = []
    for document in documents:
        clean = _CONTROL.sub("?", _BARE_AMPERSAND.sub("&amp;", document))
        root = parsed_xml(source, clean, most=MAX_DEPTH, do="repeat the capture")
        version = _text(root, "System/Tool/Version") or version
        runs.append([m for span in _spans(root, warnings) for m in measurements(span, version)])
        # The spans of a file are runs of their own, so only a single one has a course of time.
        series += [
            table for e in root.findall("TimeSpan") if (table := _iops_series(e)) is not None
        ]
    capture = results(source, FORMAT, tell_apart(runs), warnings, version=version)
    return replace(capture, series=series[0] if len(series) == 1 else None)


def _text(element: ET.Element, path: str) -> str | None:
    found = element.findtext(path)
    return found.strip() if found else None


def _spans(root: ET.Element, warnings: list[str]) -> list[TimeSpan]:
    profiles = root.findall("Profile/TimeSpans/TimeSpan")
    spans = []
    for i, element in enumerate(root.findall("TimeSpan")):
        error = _text(element, "Error")
        if error:
            warnings.append(f"timespan {i + 1}: {shown(error, 120)}")
            continue
        span = TimeSpan(label=f"timespan {i + 1}")
        for profile in profiles[i : i + 1]:
            span.warmup_s = number(_text(profile, "Warmup"))
            span.shared_threads = bool(whole(_text(profile, "ThreadCount")))
            span.thread_outstanding = whole(_text(profile, "RequestCount")) or None
            routines = _text(profile, "CompletionRoutines") == "true"
            span.engine = "completion-routines" if routines else "iocp"
            span.targets = [_target(element) for element in profile.findall("Targets/Target")]
        _read_result(element, span)
        spans.append(span)
    return spans


def _target(element: ET.Element) -> DiskspdTarget:
    block_size = whole(_text(element, "BlockSize"))
    uncached = {_text(element, name) for name in ("DisableOSCache", "DisableAllCache")}
    ratio = whole(_text(element, "RandomRatio"))
    is_random = True if ratio is None or ratio >= 100 else None
    if element.find("Random") is None:
        is_random = None if element.find("StrideSize") is None else False
    limit = element.find("Throughput")
    rate = number(limit.text) if limit is not None else None
    if limit is not None and limit.get("unit") != "IOPS":  # bytes per millisecond
        rate = rate * 1000 / block_size if rate and block_size else None
    return DiskspdTarget(
        path=_text(element, "Path") or "",
        block_size=block_size or None,
        outstanding=whole(_text(element, "RequestCount")),
        threads=whole(_text(element, "ThreadsPerFile")),
        write_pct=number(_text(element, "WriteRatio")),
        random=is_random,
        direct="true" in uncached,
        rate_iops=rate if rate and rate > 0 else None,
    )


def _read_result(element: ET.Element, span: TimeSpan) -> None:
    span.seconds = number(_text(element, "TestTimeSeconds"))
    span.threads = whole(_text(element, "ThreadCount"))
    span.cpus = (
        whole(_text(element, "ProcCount")) or len(element.findall("CpuUtilization/CPU")) or None
    )
    average = element.find("CpuUtilization/Average")
    if average is not None:
        usage, user, kernel = (
            number(_text(average, f"{name}Percent")) for name in ("Usage", "User", "Kernel")
        )
        span.cpu_average = (usage, user, kernel)
    used = [number(e.text) for e in element.findall("CpuUtilization/CPU/UsagePercent")]
    span.busiest_pct = max((u for u in used if u is not None), default=None)
    for target in element.findall("Thread/Target"):
        _read_target(target, span)
    latency = element.find("Latency")
    if latency is None:
        return
    for op in OPS:
        name = op.capitalize()
        mean = number(_text(latency, f"Average{name}Milliseconds"))
        span.means[op] = (mean, number(_text(latency, f"{name}LatencyStdev")))
        table = {}
        for bucket in latency.findall("Bucket"):
            percent = number(_text(bucket, "Percentile"))
            value = number(_text(bucket, f"{name}Milliseconds"))
            if percent is not None and value is not None and 0 <= percent <= 100:
                table[percent] = value
        if table:
            span.percentiles[op] = checked_table(table, span.warnings, op)


def _read_target(element: ET.Element, span: TimeSpan) -> None:
    path = _text(element, "Path") or ""
    for op in OPS:
        name = op.capitalize()
        count = whole(_text(element, f"{name}Count"))
        n_bytes = whole(_text(element, f"{name}Bytes"))
        if count is None or n_bytes is None:
            text = f"{shown(path)}: a thread without its {name}Count (left out)"
            span.warnings.append(Warning("thread-cut", text))
            continue
        mean = number(_text(element, f"Average{name}LatencyMilliseconds"))
        stddev = number(_text(element, f"{name}LatencyStdev"))
        span.tally(path, op).add(count, n_bytes, mean, stddev)


def _iops_series(span: ET.Element) -> pl.DataFrame | None:
    """Requests/s and mean latency of each window of *span*; None if it ran without ``-D``.

    A bucket's counts are requests/s and its SampleMillisecond is where the window ends.
    """
    rows: list[tuple[float, str, str, float]] = []
    for bucket in span.findall("Iops/Bucket"):
        end = number(bucket.get("SampleMillisecond"))
        if end is None or not 0 < end <= LONGEST_MS:
            continue
        for op in OPS:
            name = op.capitalize()
            rate = number(bucket.get(name))
            mean = number(bucket.get(f"{name}AvgLatencyMilliseconds"))
            if rate is not None and 0 <= rate <= MOST:
                rows.append((end * S_PER_MS, op, "iops", rate))
            if rate and mean is not None and 0 <= mean <= LONGEST_MS:
                rows.append((end * S_PER_MS, op, "lat", mean * S_PER_MS))
    if not rows:
        return None
    table = pl.DataFrame(rows, schema=("time_s", "op", "kind", "value"), orient="row")
    return table.with_columns(pl.col("op").cast(REQUEST_SCHEMA["op"]))
