"""Reader of SPDK's ``perf`` and ``bdevperf``: rates, latency summary and histogram, in us.

Source: spdk, app/spdk_nvme_perf/perf.c (print_performance, print_latency_statistics) and
examples/bdev/bdevperf/bdevperf.c (performance_dump).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nvmesim.capture.capture import Access, Capture, Conditions, Latency, Measurement
from nvmesim.capture.readers.reports.common import (
    MIB,
    nearest_size,
    number_of,
    one_load,
    rate_result,
    read_report,
)
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "spdk"
_HEADER: Final = re.compile(r"^[ \t]*Device Information\s*:(.*)$", re.M)
_SUMMARY: Final = re.compile(r"^Summary latency data for (.+?)\s+from core\s+\d+:\s*$", re.M)
_PLAIN: Final = re.compile(r": +[0-9.]{1,18} IOPS +[0-9.]{1,18} Mi?B/s\s*$", re.M)
_HISTOGRAM: Final = re.compile(r"^Latency histogram for (.+?)\s+from core\s+\d+:\s*$", re.M)
_JOB: Final = re.compile(
    r"^[ \t]*Job: (\S+)(?: \(Core Mask 0x[0-9a-fA-F]+(?:, workload: (\w+))?"
    r"(?:, percentage: (\d{1,3}))?(?:, depth: (\d{1,7}))?(?:, IO size: (\d{1,10}))?\))?\s*"
)
_ROW: Final = re.compile(r"^[ \t]*(\S.*?)\s*:\s*((?:[0-9.]{1,18}(?:\s+|$)){4,9})$")
_PERCENTILE: Final = re.compile(r"^[ \t]*([0-9.]{1,10})%\s*:\s*([0-9.]{1,15})us\s*$")
_BIN: Final = re.compile(
    r"^[ \t]*([0-9.]{1,15})\s*-\s*([0-9.]{1,15}):\s*[0-9.]{1,9}%\s*\(\s*(\d{1,15})\)\s*$"
)
_PLAIN_ROW: Final = re.compile(
    r"^[ \t]*(\S.*?)\s*:\s+([0-9.]{1,18}) (IOPS)\s+([0-9.]{1,18}) (MiB/s|MB/s)\s*$"
)
"""Of bdevperf before 21.01, which prints no latencies."""
_CORE: Final = re.compile(r"\s+from core\s+\d+$")
_COMMAND: Final = re.compile(r"perf\b(?=[^\n]*\s-q\s*\d)([^\n]*)")
_OPTION: Final = re.compile(r"(?<!\S)-([qowMt])\s*(\w+)")
_KINDS: Final[Mapping[str, tuple[Access, float | None]]] = {
    **{"read": ("sequential", 1.0), "randread": ("random", 1.0), "write": ("sequential", 0.0)},
    **{"randwrite": ("random", 0.0), "rw": ("sequential", None), "randrw": ("random", None)},
}


@dataclass
class _Device:
    """Lines of one device or job, perhaps by several cores."""

    name: str
    kind: str = ""
    percentage: float | None = None
    depth: int | None = None
    size: int | None = None
    rows: list[dict[str, float]] = field(default_factory=list)
    percentiles: list[dict[float, float]] = field(default_factory=list)
    bins: list[list[tuple[float, float, int]]] = field(default_factory=list)

    def add_percentile(self, percent: float, seconds: float) -> None:
        """Add one to the last table; a lower one than there begins another core's."""
        if not self.percentiles or percent <= max(self.percentiles[-1]):
            self.percentiles.append({})
        self.percentiles[-1][percent] = seconds

    def add_bin(self, low: float, high: float, count: int) -> None:
        """Add one to the last histogram; a lower one than there begins another core's."""
        if not self.bins or (self.bins[-1] and low < self.bins[-1][-1][1] * (1 - 1e-9)):
            self.bins.append([])
        if high > low:
            self.bins[-1].append((low, high, count))


def sniff(head: Head) -> bool:
    """True if *head* has the table or the latency summary of either tool."""
    return (
        bool(_SUMMARY.search(head.text))
        or ("Latency(us)" in head.text and bool(_HEADER.search(head.text)))
        or bool("Running I/O for" in head.text and _PLAIN.search(head.text))
    )


def read(source: Source) -> Capture:
    """Read every device; CaptureError if there is neither a rate nor a latency."""
    return read_report(source, FORMAT, _measurements)


def _measurements(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    devices: dict[str, _Device] = {}
    columns: list[str] = []
    current = _Device("")
    given = _command(text)

    def device_of(name: str) -> _Device:
        return devices.setdefault(name, _Device(name, **given))

    for line_number, line in enumerate(text.split("\n"), start=1):
        where = f"line {line_number}"
        header, named = _HEADER.match(line), _SUMMARY.match(line) or _HISTOGRAM.match(line)
        job, percentile, one_bin = _JOB.match(line), _PERCENTILE.match(line), _BIN.match(line)
        row, plain = _ROW.match(line), _PLAIN_ROW.match(line)
        name = _CORE.sub("", (plain or row or [""] * 2)[1])
        cells: dict[str, str] = {}
        if header:
            columns = header[1].split()
        elif named:
            current = device_of(named[1])
        elif job:
            current = device_of(job[1])
            current.kind = job[2] or current.kind
            current.percentage = float(job[3]) if job[3] else current.percentage
            current.depth = int(job[4]) if job[4] else current.depth
            current.size = int(job[5]) if job[5] else current.size
        elif percentile and current.name:
            percent = number_of(source, where, percentile[1], 100)
            us = number_of(source, f"{where}: us", percentile[2], 1e12)
            current.add_percentile(percent, us * 1e-6)
        elif one_bin and current.name:
            low, high = (number_of(source, f"{where}: us", one_bin[k], 1e12) for k in (1, 2))
            current.add_bin(low * 1e-6, high * 1e-6, int(one_bin[3]))
        elif plain:
            cells = {plain[3]: plain[2], plain[5]: plain[4]}
        elif row and columns and len(row[2].split()) == len(columns):
            cells = dict(zip(columns, row[2].split(), strict=True))
        if cells and name != "Total":
            device_of(name).rows.append(
                {k: number_of(source, f"{where}: {k}", v) for k, v in cells.items()}
            )
    for device in devices.values():
        if device.rows or device.percentiles or device.bins:
            yield _measurement(device, warnings)


def _command(text: str) -> dict[str, Any]:
    """Load of a ``perf`` command line, if the text has one."""
    command = _COMMAND.search(text)
    options = dict(_OPTION.findall(command[1])) if command else {}
    given: dict[str, Any] = {}
    for key, name in (("q", "depth"), ("o", "size"), ("M", "percentage")):
        if options.get(key, "").isdecimal() and len(options[key]) < 10:
            given[name] = int(options[key])
    if options.get("w") in _KINDS:
        given["kind"] = options["w"]
    return given


def _measurement(device: _Device, warnings: list[str]) -> Measurement:
    access, fraction = _KINDS.get(device.kind, (None, None))
    if fraction is None and device.percentage is not None:
        fraction = device.percentage / 100
    iops = sum(row.get("IOPS", 0.0) for row in device.rows)
    # Both names mean 2**20 bytes; perf printed MB/s before 19.
    rate = sum(row.get("MiB/s", row.get("MB/s", 0.0)) for row in device.rows) * MIB
    seconds = max((row.get("runtime(s)", 0.0) for row in device.rows), default=0.0)
    lat = _latency(device, iops, seconds)
    count = lat.count or None
    known = lat if lat.mean_s is not None or lat.percentiles_s else None
    result = rate_result(iops, rate, seconds=seconds or None, count=count, lat=known)
    rounding = len(device.rows) * 0.005
    size = device.size or nearest_size(iops, rate, rounding * MIB, rounding)
    if not device.rows:
        warnings.append(f"{shown(device.name, 40)}: a latency summary alone: no rate, no load")
    conditions = Conditions(
        access=access,
        block_size=size,
        jobs=len(device.rows) or None,
        iodepth=device.depth,
        targets=1,
        duration_s=seconds or None,
        engine="spdk",
        direct=True,
    )
    return one_load(device.name, result, conditions, read_fraction=fraction, source="SPDK")


def _latency(device: _Device, iops: float, seconds: float) -> Latency:
    """Return mean and extremes over the cores; percentiles and bins where one core measured."""
    whole = device.bins[0] if len(device.bins) == 1 else []
    counted = sum(n for _, _, n in whole)
    means = [(row.get("IOPS", 0.0), row.get("Average", 0.0)) for row in device.rows]
    known = iops and any("Average" in row for row in device.rows)
    mean = sum(n * us for n, us in means) / iops * 1e-6 if known else None
    lows = [row["min"] * 1e-6 for row in device.rows if "min" in row]
    highs = [row["max"] * 1e-6 for row in device.rows if "max" in row]
    return Latency(
        count=counted or round(iops * seconds),
        mean_s=mean,
        min_s=min(lows, default=None),
        max_s=max(highs, default=None),
        percentiles_s=device.percentiles[0] if len(device.percentiles) == 1 else {},
        bin_s=np.array([(low + high) / 2 for low, high, _ in whole]) if counted else None,
        bin_count=np.array([n for _, _, n in whole], np.int64) if counted else None,
    )
