"""Reader of DiskSpd's XML results (``-Rxml``), 2.0.21 to 2.3.

What DiskSpd prints is not always XML: error lines stand before ``<Results>`` and behind
``</Results>``, and a path may hold a bare ``&``. Document types are refused: nothing in DiskSpd's
output has one, and entities are how a small file becomes a large one.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Final

import polars as pl

from nvmesim.capture.capture import OPS, REQUEST_SCHEMA, Capture, Measurement
from nvmesim.capture.fields import parsed_xml
from nvmesim.capture.readers.reports.common import (
    LONGEST_MS,
    MOST,
    S_PER_MS,
    number,
    results,
    whole,
)
from nvmesim.capture.readers.reports.diskspd_spans import (
    DiskspdTarget,
    TimeSpan,
    checked_table,
    measurements,
    numbered,
)
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "diskspd-xml"
LARGEST: Final = 64 << 20
"""Bytes; a result of 1,000 threads with a second-by-second series is about 20 MB."""
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
    found: list[Measurement] = []
    series: list[pl.DataFrame] = []
    for document in documents:
        clean = _CONTROL.sub("?", _BARE_AMPERSAND.sub("&amp;", document))
        root = parsed_xml(source, clean, most=MAX_DEPTH, do="repeat the capture")
        version = _text(root, "System/Tool/Version") or version
        for span in _spans(root, warnings):
            found += measurements(span, version)
        # The spans of a file are runs of their own, so only a single one has a course of time.
        series += [
            table for e in root.findall("TimeSpan") if (table := _iops_series(e)) is not None
        ]
    capture = results(source, FORMAT, numbered(found), warnings, version=version)
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
        if i < len(profiles):
            _read_profile(profiles[i], span)
        _read_result(element, span)
        spans.append(span)
    return spans


def _read_profile(profile: ET.Element, span: TimeSpan) -> None:
    span.warmup_s = number(_text(profile, "Warmup"))
    span.shared_threads = bool(whole(_text(profile, "ThreadCount")))
    span.thread_outstanding = whole(_text(profile, "RequestCount")) or None
    routines = _text(profile, "CompletionRoutines") == "true"
    span.engine = "completion-routines" if routines else "iocp"
    span.targets = [_target(element) for element in profile.findall("Targets/Target")]


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
            span.warnings.append(f"{shown(path)}: a thread without its {name}Count (left out)")
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
