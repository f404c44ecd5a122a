"""Reader of ``sar -d``: what each device did, reads and writes as one.

The mean over its intervals counts, or the row of averages where it stands alone.
Source: sysstat sar, print_disk_stats of versions 9 to 12.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from nvmesim.capture.capture import Capture
from nvmesim.capture.readers.reports.common import LARGEST, number, results
from nvmesim.capture.readers.reports.iostat import DeviceReport, busy_devices, device_measurement
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
    reports: dict[str, DeviceReport] = {}
    times: list[int] = []
    columns: list[str] = []
    is_last = False
    skipped = int(bool(lines.pop().strip()))  # perhaps of the table, perhaps before one
    for line in lines:
        header, start = _HEADER.match(line), _TIME.match(line)
        if header:
            columns = ["tps", *header["rest"].split()]
            is_last = header["last"] is not None
            times += [_seconds(start)] if start else []
        elif not line.strip():
            columns = []
        elif columns:
            row = _row(line, columns, is_last)
            skipped += row is None
            if row is not None:
                report = reports.setdefault(start[0] if start else "", DeviceReport())
                report.devices[row[0]] = row[1]
                times += [_seconds(start)] if start else []
    # A header has the time at which its first interval began.
    gaps = sorted((b - a) % 86_400 for a, b in pairwise(dict.fromkeys(times)))
    length = float(gaps[len(gaps) // 2]) if gaps else None
    warnings = ["sar has reads and writes as one: neither can be calibrated on"]
    if length is None:
        warnings.append("the length of an interval is unknown: rates are known and counts are not")
    rows = sum(len(report.devices) for report in reports.values())
    # The averages at the end say what the intervals do, if these are there.
    average = reports.pop("", None)
    whole = list(reports.values()) or ([average] if average else [])
    length = length if reports else None
    found = [
        device_measurement(name, whole, None, length, name, FORMAT) for name in busy_devices(whole)
    ]
    return results(source, FORMAT, found, warnings, rows=rows, skipped=skipped)


def _row(line: str, columns: list[str], is_last: bool) -> tuple[str, dict[str, float]] | None:
    """Device and figures of a row, in iostat's columns of ``-s``; None if it is not whole."""
    head = _TIME.match(line) or _AVERAGE.match(line)
    words = line[head.end() :].split() if head else []
    if is_last:
        words = [*words[-1:], *words[:-1]]
    values = [number(word) for word in words[1:]]
    if len(values) != len(columns) or any(value is None or value < 0 for value in values):
        return None
    found = {key: value or 0.0 for key, value in zip(columns, values, strict=True)}
    found["kB/s"] = found.get("rkB/s", 0.0) + found.get("wkB/s", 0.0)
    found["sec/s"] = found.get("rd_sec/s", 0.0) + found.get("wr_sec/s", 0.0)
    return shown(words[0], 40), found


def _seconds(match: re.Match[str]) -> int:
    hours = int(match[1]) % 12 + (12 if match[4] == "P" else 0) if match[4] else int(match[1])
    return hours * 3600 + int(match[2]) * 60 + int(match[3])
