"""Reader of Iometer's results CSV, 1.1 and the builds around it; several runs may share a file.

Columns are found by their names in the ``'Target Type`` header. A run is an ALL row and the
PROCESSOR, WORKER and DISK rows behind it. Response times are total ones (``lat``), in ms.
Source: Iometer 1.1, ManagerList.cpp SaveResults.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, CpuUse, Latency, Measurement, Op, OpResult
from nvmesim.capture.readers.reports.common import (
    LONGEST_MS,
    S_PER_MS,
    access_of,
    number,
    results,
    whole,
)
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "iometer"
LARGEST: Final = 64 << 20
HEADER: Final = "'Target Type"
KINDS: Final = ("ALL", "MANAGER", "PROCESSOR", "WORKER", "DISK")
NEEDED: Final = ("IOps", "Read IOps", "Write IOps", "Read I/Os", "Write I/Os", "Bytes Read")
NAMES: Final[dict[Op, tuple[str, str, str]]] = {
    "read": ("Read", "Bytes Read", "Read I/Os"),
    "write": ("Write", "Bytes Written", "Write I/Os"),
}

Row = dict[str, str]


@dataclass
class _Spec:
    """An access specification: lines of size, %size, %reads, %random."""

    lines: list[tuple[int, float, float, float]] = field(default_factory=list)

    def mean(self, column: int) -> float | None:
        weight = sum(line[1] for line in self.lines)
        if weight <= 0:
            return None
        return sum(line[1] * line[column] for line in self.lines) / weight / 100


@dataclass
class _Run:
    """An ALL row, the rows behind it, and whether the file goes on after them."""

    total: Row
    processors: list[Row] = field(default_factory=list)
    workers: list[Row] = field(default_factory=list)
    whole: bool = False


def sniff(head: Head) -> bool:
    """True if *head* is of Iometer's results."""
    return "'Test Type" in head.text or HEADER in head.text


def read(source: Source) -> Capture:
    """Read Iometer results; CaptureError if there is no ALL row under a known header."""
    parse = _Parse()
    text = source.text(LARGEST)
    lines = text.split("\n")
    cut = int(bool(lines.pop().strip()))
    for line in lines:
        parse.line(line)
    parse.close(is_whole=False)
    warnings = [f"{cut} cut line left out"] if cut else []
    skipped = parse.skipped + cut
    measured = []
    for run in parse.runs:
        measurement = _measurement(run, parse.specs)
        if measurement is None:
            skipped += 1
        else:
            measured.append(measurement)
    if not measured:
        raise source.error("has no whole result of Iometer", "save the results again")
    return results(source, FORMAT, measured, warnings, version=parse.version, skipped=skipped)


@dataclass
class _Parse:
    """The state of reading a results file line by line."""

    specs: dict[str, _Spec] = field(default_factory=dict)
    runs: list[_Run] = field(default_factory=list)
    version: str | None = None
    skipped: int = 0
    columns: list[str] = field(default_factory=list)
    delimiter: str = ","
    section: str = ""
    spec: str = ""
    run: _Run | None = None

    def line(self, text: str) -> None:
        """Take the next line."""
        if text.startswith("'"):
            self._heading(text)
            return
        cells = next(self._rows(text), [])
        if not cells or not any(cell.strip() for cell in cells):
            return
        if cells[0] in KINDS and self.columns:
            self._result(cells)
        elif self.section.startswith("'Version"):
            self.version = text.strip()[:40]
        elif self.section.startswith("'Access specification name"):
            self.spec = cells[0].strip()
            self.specs[self.spec] = _Spec()
        elif self.section.startswith("'size") and self.spec:
            self._spec_line(cells)

    def close(self, *, is_whole: bool) -> None:
        """The current run has no more rows."""
        if self.run is not None:
            self.run.whole = is_whole
            self.runs.append(self.run)
        self.run = None

    def _rows(self, text: str) -> Iterator[list[str]]:
        try:
            yield from csv.reader(io.StringIO(text), delimiter=self.delimiter)
        except csv.Error:
            self.skipped += 1

    def _heading(self, text: str) -> None:
        self.close(is_whole=True)
        self.section = text
        if text.startswith(HEADER):
            self.delimiter = ";" if text.count(";") > text.count(",") else ","
            self.columns = [c.strip().lstrip("'") for c in text.split(self.delimiter)]
            if not set(NEEDED) <= set(self.columns):
                self.columns = []

    def _spec_line(self, cells: list[str]) -> None:
        values = [number(cell) for cell in cells[:4]]
        if len(values) < 4 or any(v is None or v < 0 for v in values):
            self.skipped += 1
            return
        size, share, reads, random = (v or 0.0 for v in values)
        self.specs[self.spec].lines.append((int(size), share, reads, random))

    def _result(self, cells: list[str]) -> None:
        if cells[0] == "ALL":
            self.close(is_whole=True)
        if len(cells) > len(self.columns) + 1 or (cells[0] == "ALL" and len(cells) < 20):
            self.skipped += 1
            return
        row = dict(zip(self.columns, cells, strict=False))
        if cells[0] == "ALL":
            self.run = _Run(row)
        elif self.run is not None and cells[0] == "PROCESSOR":
            self.run.processors.append(row)
        elif self.run is not None and cells[0] == "WORKER":
            self.run.workers.append(row)


def _measurement(run: _Run, specs: dict[str, _Spec]) -> Measurement | None:
    ops = {op: result for op in NAMES if (result := _op_result(run.total, op)) is not None}
    if not ops:
        return None
    name = run.total.get("Access Specification Name", "").strip()
    spec = specs.get(name, _Spec())
    warnings = [] if run.whole else ["the file ends here: CPU and workers may be cut (left out)"]
    errors = whole(run.total.get("Errors"))
    if errors:
        warnings.append(f"{errors} errors during the run")
    return Measurement(
        label=shown(name) or "all",
        conditions=Conditions(
            read_fraction=spec.mean(2),
            access=access_of(spec.mean(3)),
            block_size=_sizes(spec),
            jobs=whole(run.total.get("# Workers")) or None,
            iodepth=_depth(run) if run.whole else None,
            targets=whole(run.total.get("# Disks")) or None,
            engine="iometer",
            cpus=len(run.processors) or None if run.whole else None,
        ),
        ops=ops,
        cpu=_cpu(run) if run.whole else None,
        source="Iometer",
        warnings=tuple(warnings),
    )


def _sizes(spec: _Spec) -> int | dict[int, float] | None:
    total = sum(share for _, share, _, _ in spec.lines)
    if total <= 0:
        return None
    mix: dict[int, float] = {}
    for size, share, _, _ in spec.lines:
        mix[size] = mix.get(size, 0.0) + share / total
    return next(iter(mix)) if len(mix) == 1 else mix


def _depth(run: _Run) -> int | None:
    """Outstanding per worker: queue depth (per disk) times the worker's disks, if all agree."""
    depths = set()
    for worker in run.workers:
        depth, disks = whole(worker.get("Queue Depth")), whole(worker.get("# Disks"))
        depths.add(depth * disks if depth and disks else None)
    return depths.pop() if len(depths) == 1 else None


def _op_result(row: Row, op: Op) -> OpResult | None:
    name, bytes_column, count_column = NAMES[op]
    count, iops = whole(row.get(count_column)), number(row.get(f"{name} IOps"))
    n_bytes = whole(row.get(bytes_column))
    if not count or iops is None or iops <= 0 or n_bytes is None:
        return None
    mean = _milliseconds(row.get(f"Average {name} Response Time"))
    longest = _milliseconds(row.get(f"Maximum {name} Response Time"))
    latency = Latency(count=count, mean_s=mean, max_s=longest) if mean is not None else None
    return OpResult(
        count=count,
        bytes=n_bytes,
        iops=iops,
        bytes_per_s=n_bytes / count * iops,
        lat=latency,
    )


def _milliseconds(text: str | None) -> float | None:
    value = number(text)
    return value * S_PER_MS if value is not None and 0 <= value <= LONGEST_MS else None


def _cpu(run: _Run) -> CpuUse | None:
    used = [number(row.get("% CPU Utilization")) for row in run.processors]
    if not used or None in used:
        return None
    user = [number(row.get("% User Time")) for row in run.processors]
    system = [number(row.get("% Privileged Time")) for row in run.processors]
    return CpuUse(
        user_pct=None if None in user else sum(u for u in user if u),
        system_pct=None if None in system else sum(s for s in system if s),
        total_pct=sum(u for u in used if u),
        scope="host",
    )
