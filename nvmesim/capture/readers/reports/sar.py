"""Reader of ``sar -d``: what each device did, reads and writes as one.

The rows of averages count where sar wrote them, else the mean over its intervals.
Source: sysstat sar, print_disk_stats of versions 9 to 12.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, OpResult
from nvmesim.capture.readers.diskspd.time_spans import number
from nvmesim.capture.readers.reports.common import LARGEST, results
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "sar"
_HEADER: Final = re.compile(
    r"^(?P<time>\d\d:\d\d:\d\d(?: ?[AP]M)?|\S{0,40}[^\d\s]\S{0,40}:)[ \t]+(?P<first>DEV\s+)?tps\s+"
    r"(?P<rest>.*%util)(?P<last>\s+DEV)?\s*$",
    re.M,
)
"""The device stands first or, with --pretty, last."""
_TIME: Final = re.compile(r"^(\d\d):(\d\d):(\d\d)(?: ?([AP])M)?\s+")
_AVERAGE: Final = re.compile(r"^\S{0,40}[^\d\s]\S{0,40}:\s+")
_BANNER: Final = re.compile(r"^Linux \S+ \(")
UNITS: Final = {"rd_sec/s": 512.0, "wr_sec/s": 512.0, "rkB/s": 1024.0, "wkB/s": 1024.0}
Values = dict[str, float]


@dataclass
class _Device:
    rows: list[Values] = field(default_factory=list)
    average: Values | None = None


def sniff(head: Head) -> bool:
    """True if *head* is sar's report that has a table of devices, now or perhaps later."""
    if _HEADER.search(head.text):
        return True
    banner = next((line for line in head.lines if line.strip()), "")
    return (
        not head.whole
        and bool(_BANNER.match(banner))
        and bool(re.search(r"^\d\d:\d\d:\d\d(?: ?[AP]M)?\s+CPU\s+%us", head.text, re.M))
    )


def read(source: Source) -> Capture:
    """Read the table of devices; CaptureError if there is none."""
    lines = source.text(LARGEST).split("\n")
    devices: dict[str, _Device] = {}
    times: list[int] = []
    skipped = 0
    columns: list[str] = []
    is_last = False
    last = lines.pop() if lines[-1].strip() else ""
    for line in lines:
        header = _HEADER.match(line)
        if header:
            columns = ["tps", *header["rest"].split()]
            is_last = header["last"] is not None
            if start := _TIME.match(line):
                times.append(_seconds(start))
        elif not line.strip():
            columns = []
        elif columns:
            skipped += not _row(line, columns, is_last, devices, times)
    if last:  # perhaps of the table, perhaps before one
        skipped += 1
    length = _interval(times)
    warnings = ["sar has reads and writes as one: neither can be calibrated on"]
    if length is None:
        warnings.append("the length of an interval is unknown: rates are known and counts are not")
    busy = {name: d for name, d in devices.items() if _is_busy(d)} or devices
    found = [_measurement(name, device, length) for name, device in busy.items()]
    rows = sum(len(device.rows) + (device.average is not None) for device in devices.values())
    return results(source, FORMAT, found, warnings, rows=rows, skipped=skipped)


def _row(
    line: str, columns: list[str], is_last: bool, devices: dict[str, _Device], times: list[int]
) -> bool:
    """Add the row on *line*; whether it is whole."""
    start = _TIME.match(line)
    average = None if start else _AVERAGE.match(line)
    head = start or average
    words = line[head.end() :].split() if head else []
    if is_last:
        words = [*words[-1:], *words[:-1]]
    values = [number(word) for word in words[1:]]
    if len(values) != len(columns) or any(value is None or value < 0 for value in values):
        return False
    found = {key: value or 0.0 for key, value in zip(columns, values, strict=True)}
    device = devices.setdefault(shown(words[0], 40), _Device())
    if start is None:
        device.average = found
    else:
        device.rows.append(found)
        times.append(_seconds(start))
    return True


def _seconds(match: re.Match[str]) -> int:
    hours = int(match[1]) % 12 + (12 if match[4] == "P" else 0) if match[4] else int(match[1])
    return hours * 3600 + int(match[2]) * 60 + int(match[3])


def _interval(times: list[int]) -> float | None:
    """Seconds of an interval: a header has the time at which its first one began."""
    distinct = list(dict.fromkeys(times))
    gaps = sorted((b - a) % 86_400 for a, b in pairwise(distinct))
    return float(gaps[len(gaps) // 2]) if gaps else None


def _is_busy(device: _Device) -> bool:
    return any(
        row["tps"] > 0 for row in [*device.rows, *([device.average] if device.average else [])]
    )


def _measurement(name: str, device: _Device, length: float | None) -> Measurement:
    rows = device.rows or ([device.average] if device.average else [])
    average = device.average or {
        key: sum(row.get(key, 0.0) for row in rows) / len(rows) for key in rows[0]
    }
    seconds = length * len(device.rows) if length and device.rows else None
    iops = average["tps"]
    rate = sum(average.get(key, 0.0) * unit for key, unit in UNITS.items())
    count = round(iops * seconds) if seconds else 0
    waited = sum(row["tps"] * row.get("await", 0.0) for row in rows)
    total = sum(row["tps"] for row in rows)
    lat = Latency(count, mean_s=waited / total / 1e3) if total and waited else None
    result = OpResult(count, round(rate * seconds) if seconds else 0, iops, rate, clat=lat)
    util = average.get("%util")
    return Measurement(
        label=name,
        conditions=Conditions(
            targets=1,
            duration_s=seconds,
            depth_mean=average.get("aqu-sz", average.get("avgqu-sz")),
        ),
        ops={},
        disk_util_pct={} if util is None else {name: util},
        source=FORMAT,
        mixed=result,
    )
