"""Reader of ``iostat -x``, text and JSON: what each device did, a measurement a device.

The first report is since boot and is left out when there are others. Rates are averaged over the
reports, which are equally long; waits are weighted by the requests that waited.
Source: sysstat 12 iostat.c; older column names (await, avgqu-sz, rsec/s) are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Final

from nvmesim.trace.capture import Capture, Conditions, CpuUse, Latency, Measurement, Op, OpResult
from nvmesim.trace.diskspd_common import LONGEST_MS, S_PER_MS, number
from nvmesim.trace.text import Head, Source, shown

FORMAT: Final = "iostat"
LARGEST: Final = 128 << 20
UNITS: Final = {"rkB/s": 1024.0, "rMB/s": 1024.0**2, "rsec/s": 512.0}
LETTERS: Final[dict[Op, str]] = {"read": "r", "write": "w"}
_HEADER = re.compile(r"^Device:?\s+.*\br/s\b.*$", re.M)
_CPUS = re.compile(r"\((\d{1,6}) CPU\)")
_DATE = re.compile(r"\d{1,4}[/.\-]\d{1,2}[/.\-]\d{1,4}[ T]\d{1,2}:\d\d:\d\d(?: [AP]M)?")
_DATES: Final = (
    "%m/%d/%y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p", "%m/%d/%y %I:%M:%S %p", "%Y-%m-%dT%H:%M:%S", "%d/%m/%y %H:%M:%S",
)  # fmt: skip
_COMMA = re.compile(r"(:\s*)(\d+),(\d+)(?=\s*[,}])")

Values = dict[str, float]


@dataclass
class _Report:
    """One report: the CPU line and the device table."""

    when: datetime | None = None
    cpu: Values = field(default_factory=dict)
    devices: dict[str, Values] = field(default_factory=dict)


def sniff(head: Head) -> bool:
    """Whether *head* is of iostat -x, text or JSON."""
    return bool(_HEADER.search(head.text)) or (
        '"sysstat"' in head.text and '"statistics"' in head.text
    )


def read(source: Source) -> Capture:
    """Read iostat -x; CaptureError if there is no whole report."""
    text = source.text(LARGEST)
    is_json = text.lstrip().startswith("{")
    reports, cpus, skipped = _from_json(source, text) if is_json else _from_text(text)
    reports = [report for report in reports if report.devices]
    if not reports:
        raise source.error("is iostat without one whole table", "run iostat -x -t 1")
    warnings = []
    if len(reports) == 1:
        warnings.append("one report only: it is the average since boot, not of a load")
    else:
        reports = reports[1:]
    interval = _interval(reports)
    if interval is None:
        warnings.append("no times (iostat -t): reports are taken as 1 s, so counts are a guess")
    if skipped:
        warnings.append(f"{skipped} lines skipped: damaged, or of no known kind")
    names = list(dict.fromkeys(name for report in reports for name in report.devices))
    names = [name for name in names if _is_busy(name, reports)] or names
    found = [_measurement(name, reports, cpus, interval or 1.0) for name in names]
    return Capture(
        file=source.path,
        format=FORMAT,
        version=None,
        measurements=tuple(found),
        rows=sum(len(report.devices) for report in reports),
        skipped=skipped,
        warnings=tuple(warnings),
    )


def _from_text(text: str) -> tuple[list[_Report], int | None, int]:
    cpus = _CPUS.search(text[:2000])
    lines = text.split("\n")
    skipped = int(bool(lines.pop().strip()))
    reports: list[_Report] = []
    table: Callable[[list[str]], bool] | None = None
    when: datetime | None = None
    cpu: Values = {}
    for line in lines:
        words = line.split()
        date = _DATE.match(line.strip())
        if not words:
            table = None
        elif date:
            when = _date(date[0])
        elif words[0].rstrip(":") == "Device":
            reports.append(_Report(when, cpu))
            table = _device_table(words, reports[-1])
            cpu = {}
        elif words[0] == "avg-cpu:":
            table = _cpu_table(words[1:], cpu)
        elif table is not None:
            skipped += not table(words)
        elif not _CPUS.search(line):
            skipped += 1
    return reports, int(cpus[1]) if cpus else None, skipped


def _device_table(header: list[str], report: _Report) -> Callable[[list[str]], bool]:
    def row(words: list[str]) -> bool:
        values = [number(word) for word in words[1:]]
        if (
            len(words) != len(header)
            or None in values
            or min((v or 0 for v in values), default=-1) < 0
        ):
            return False
        pairs = zip(header[1:], values, strict=True)
        report.devices[words[0]] = {key: value for key, value in pairs if value is not None}
        return True

    return row


def _cpu_table(header: list[str], cpu: Values) -> Callable[[list[str]], bool]:
    def row(words: list[str]) -> bool:
        values = [number(word) for word in words]
        if len(words) != len(header) or None in values:
            return False
        for key, value in zip(header, values, strict=True):
            cpu[key.lstrip("%")] = value or 0.0
        return True

    return row


def _from_json(source: Source, text: str) -> tuple[list[_Report], int | None, int]:
    try:
        # sysstat prints decimals as the locale does, which is no JSON.
        data = json.loads(_COMMA.sub(r"\1\2.\3", text))
        host = data["sysstat"]["hosts"][0]
        raw = host["statistics"]
        cpus = host.get("number-of-cpus")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise source.error(
            f"is cut or broken iostat JSON ({shown(error)})", "stop iostat with Ctrl-C only"
        ) from None
    reports = []
    skipped = 0
    for item in raw if isinstance(raw, list) else []:
        report = _Report()
        if not isinstance(item, dict):
            skipped += 1
            continue
        report.when = _date(str(item.get("timestamp", "")))
        report.cpu = _numbers(item.get("avg-cpu"))
        disks = item.get("disk")
        for disk in disks if isinstance(disks, list) else []:
            values = _numbers(disk)
            name = disk.get("disk_device") if isinstance(disk, dict) else None
            if not isinstance(name, str) or "r/s" not in values:
                skipped += 1
                continue
            report.devices[name] = {("%util" if k == "util" else k): v for k, v in values.items()}
        reports.append(report)
    is_count = isinstance(cpus, int) and 0 < cpus < 10**6
    return reports, cpus if is_count else None, skipped


def _numbers(item: object) -> Values:
    if not isinstance(item, dict):
        return {}
    return {
        str(key): float(value)
        for key, value in item.items()
        if isinstance(value, int | float) and 0 <= value < 1e15
    }


def _date(text: str) -> datetime | None:
    for form in _DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None


def _is_busy(name: str, reports: list[_Report]) -> bool:
    """Whether the device did anything; a host lists many that did not."""
    rows = (report.devices.get(name, {}) for report in reports)
    return any(row.get("r/s") or row.get("w/s") or row.get("%util") for row in rows)


def _interval(reports: list[_Report]) -> float | None:
    """Seconds between reports, the median of those that have times."""
    times = [report.when for report in reports if report.when is not None]
    gaps = sorted((b - a).total_seconds() for a, b in pairwise(times))
    middle = gaps[len(gaps) // 2] if gaps else 0.0
    return middle if 0 < middle < 86_400 * 366 else None


def _measurement(
    name: str, reports: list[_Report], cpus: int | None, interval: float
) -> Measurement:
    rows = [report.devices[name] for report in reports if name in report.devices]
    seconds = interval * len(rows)
    ops = {op: result for op in LETTERS if (result := _op_result(rows, op, interval)) is not None}
    rates = {op: result.iops for op, result in ops.items()}
    total = sum(rates.values())
    queue = [r.get("aqu-sz", r.get("avgqu-sz")) for r in rows]
    used = [r["%util"] for r in rows if "%util" in r]
    return Measurement(
        label=name,
        conditions=Conditions(
            read_fraction=rates.get("read", 0.0) / total if total else None,
            targets=1,
            duration_s=seconds,
            cpus=cpus,
            depth_mean=None if None in queue else sum(q for q in queue if q) / len(queue),
        ),
        ops=ops,
        cpu=_cpu(reports, cpus),
        disk_util_pct={name: sum(used) / len(used)} if used else {},
        source="iostat",
    )


def _op_result(rows: list[Values], op: Op, interval: float) -> OpResult | None:
    letter = LETTERS[op]
    rates = [row.get(f"{letter}/s", 0.0) for row in rows]
    n_bytes = 0.0
    for unit, scale in UNITS.items():
        n_bytes += sum(row.get(letter + unit[1:], 0.0) for row in rows) * scale * interval
    count = round(sum(rates) * interval)
    seconds = interval * len(rows)
    if count == 0 or max(rates) > 1e12 or n_bytes > 1e18:
        return None
    waits = [row.get(f"{letter}_await", row.get("await")) for row in rows]
    latency = None
    if None not in waits and max(w or 0 for w in waits) <= LONGEST_MS:
        waited = sum((w or 0.0) * r for w, r in zip(waits, rates, strict=True))
        latency = Latency(count=count, mean_s=waited / sum(rates) * S_PER_MS)
    return OpResult(
        count=count,
        bytes=round(n_bytes),
        iops=sum(rates) / len(rates),
        bytes_per_s=n_bytes / seconds,
        clat=latency,
    )


def _cpu(reports: list[_Report], cpus: int | None) -> CpuUse | None:
    """CPU time of the host; iowait and idle are not use."""
    found = [report.cpu for report in reports if {"user", "system"} <= report.cpu.keys()]
    if not found or not cpus:
        return None
    user = sum(c["user"] + c.get("nice", 0.0) for c in found) / len(found) * cpus
    system = sum(c["system"] for c in found) / len(found) * cpus
    if user + system > 110 * cpus:
        return None
    return CpuUse(user, system, user + system, scope="host")
