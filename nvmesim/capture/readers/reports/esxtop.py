"""Reader of esxtop's batch mode (``esxtop -b``): what each physical device did, averaged.

Device latency ("driver", DAVG) is that of the drive and its path below the kernel; MB are 2**20.
Source: VMware, "Interpreting esxtop statistics", SCSI device counters; the PDH-CSV 4.0 format.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.capture.fields import checked
from nvmesim.capture.readers.reports.common import MIB, results
from nvmesim.capture.text import MAX_TEXT_BYTES, Head, Source, shown

FORMAT: Final = "esxtop"
_START: Final = re.compile(r'^"?\(PDH-CSV 4\.0\)')
_COUNTER: Final = re.compile(
    r"^\\\\[^\\]*\\Physical Disk SCSI Device\(([^\\()]{1,80})\)\\(.{1,60})$"
)
_WANTED: Final = {
    "Reads/sec": "read",
    "Writes/sec": "write",
    "MBytes Read/sec": "read MB",
    "MBytes Written/sec": "write MB",
    "Average Driver MilliSec/Read": "read ms",
    "Average Driver MilliSec/Write": "write ms",
    "Average Driver MilliSec/Command": "ms",
    "Active Commands": "active",
}
_OPS: Final[tuple[Op, ...]] = ("read", "write")


@dataclass
class _Device:
    columns: dict[str, int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)

    def add(self, source: Source, line: int, cells: list[str]) -> None:
        """Add one sample."""
        values = {
            what: checked(source, f"line {line}, column {at + 1}", cells[at], most=1e13)
            for what, at in self.columns.items()
        }
        for what, value in values.items():
            self.sums[what] = self.sums.get(what, 0.0) + value
        for op in _OPS:
            took = values.get(f"{op} ms", values.get("ms", 0.0))
            self.waited[op] = self.waited.get(op, 0.0) + took * values.get(op, 0.0)


def sniff(head: Head) -> bool:
    """True if *head* is of a performance log that names ESX's counters as far as it goes."""
    return bool(_START.match(head.text)) and (
        "Physical Disk SCSI Device(" in head.text or "Physical Cpu" in head.text
    )


def read(source: Source) -> Capture:
    """Average every device that did something over all samples."""
    rows = _rows(source)
    header = next(rows, (0, []))[1]
    devices = _devices(header)
    if not devices:
        raise source.error(
            "has no counters of physical SCSI devices", "run esxtop -b with the disk device panel"
        )
    samples, skipped = 0, 0
    for line, cells in rows:
        if len(cells) != len(header):
            skipped += 1
            continue
        samples += 1
        for device in devices.values():
            device.add(source, line, cells)
    found = [m for name, device in devices.items() if (m := _measurement(name, device, samples))]
    warnings = ["samples are averaged; how long they lasted is not said, so counts are unknown"]
    return results(source, FORMAT, found, warnings, rows=samples, skipped=skipped)


def _rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    lines = source.text(MAX_TEXT_BYTES).split("\n")
    last = lines.pop()
    for number, line in enumerate([*lines, last] if last.endswith('"') else lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, next(csv.reader([line], strict=True))
        except csv.Error:
            yield number, []
    if last and not last.endswith('"'):
        yield len(lines) + 1, []


def _devices(header: list[str]) -> dict[str, _Device]:
    devices: dict[str, _Device] = {}
    for at, name in enumerate(header):
        match = _COUNTER.match(name)
        if match and match[2] in _WANTED:
            devices.setdefault(shown(match[1], 60), _Device()).columns[_WANTED[match[2]]] = at
    return {name: d for name, d in devices.items() if {"read", "write"} & set(d.columns)}


def _measurement(name: str, device: _Device, samples: int) -> Measurement | None:
    if not samples:
        return None
    mean = {what: value / samples for what, value in device.sums.items()}
    ops: dict[Op, OpResult] = {}
    for op in _OPS:
        iops = mean.get(op, 0.0)
        if not iops:
            continue
        took = device.waited[op] / device.sums[op] / 1e3
        lat = Latency(0, mean_s=took) if took else None
        ops[op] = OpResult(0, 0, iops, mean.get(f"{op} MB", 0.0) * MIB, clat=lat)
    if not ops:
        return None
    total = sum(result.iops for result in ops.values())
    return Measurement(
        label=name,
        conditions=Conditions(
            read_fraction=ops["read"].iops / total if "read" in ops else 0.0,
            targets=1,
            depth_mean=mean.get("active"),
        ),
        ops=ops,
        source=FORMAT,
    )
