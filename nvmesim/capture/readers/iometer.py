"""Reader of Iometer's results CSV, 1.1 and the builds around it; several runs may share a file.

Columns are found by their names in the ``'Target Type`` header. A run is an ALL row and the
PROCESSOR, WORKER and DISK rows behind it. Response times are total ones (``lat``), in ms.
Source: Iometer 1.1, ManagerList.cpp SaveResults.
"""

import csv
from dataclasses import dataclass, field
from typing import Final

from nvmesim.capture.capture import Capture, Conditions, CpuUse, Latency, Measurement, Op, OpResult
from nvmesim.capture.checked_numbers import LARGEST, access_of, number, results, seconds, whole
from nvmesim.capture.text import Head, Source, shown

FORMAT: Final = "iometer"
HEADER: Final = "'Target Type"
KINDS: Final = ("ALL", "MANAGER", "PROCESSOR", "WORKER", "DISK")
NEEDED: Final = ("IOps", "Read IOps", "Write IOps", "Read I/Os", "Write I/Os", "Bytes Read")
NAMES: Final[dict[Op, tuple[str, str, str]]] = {
    "read": ("Read", "Bytes Read", "Read I/Os"),
    "write": ("Write", "Bytes Written", "Write I/Os"),
}

Row = dict[str, str]
Spec = list[tuple[int, float, float, float]]
"""An access specification: lines of size, %size, %reads, %random."""


@dataclass
class _Run:
    """An ALL row, the rows behind it, and whether the file goes on after them."""

    total: Row
    rows: dict[str, list[Row]]
    """By kind."""
    whole: bool = True


def sniff(head: Head) -> bool:
    """True if *head* is of Iometer's results."""
    return "'Test Type" in head.text or HEADER in head.text


def read(source: Source) -> Capture:
    """Read Iometer results; CaptureError if there is no ALL row under a known header."""
    parse = _Parse()
    lines = source.text(LARGEST).split("\n")
    cut = int(bool(lines.pop().strip()))
    for line in lines:
        parse.line(line)
    if parse.is_open:
        parse.runs[-1].whole = False
    measured = [m for run in parse.runs if (m := _measurement(run, parse.specs)) is not None]
    skipped = parse.skipped + cut + len(parse.runs) - len(measured)
    warnings = [f"{cut} cut line left out"] if cut else []
    return results(source, FORMAT, measured, warnings, version=parse.version, skipped=skipped)


@dataclass
class _Parse:
    specs: dict[str, Spec] = field(default_factory=dict)
    runs: list[_Run] = field(default_factory=list)
    version: str | None = None
    skipped: int = 0
    columns: list[str] = field(default_factory=list)
    delimiter: str = ","
    section: str = ""
    spec: Spec | None = None
    """The specification that lines are read of."""
    is_open: bool = False
    """True if the last run may have more rows."""

    def line(self, text: str) -> None:
        """Take the next line."""
        if text.startswith("'"):
            self.is_open, self.section = False, text
            if text.startswith(HEADER):
                self.delimiter = ";" if text.count(";") > text.count(",") else ","
                self.columns = [c.strip().lstrip("'") for c in text.split(self.delimiter)]
                self.columns = self.columns if set(NEEDED) <= set(self.columns) else []
            return
        try:
            cells = next(csv.reader([text], delimiter=self.delimiter), [])
        except csv.Error:
            self.skipped += 1
            return
        if not any(cell.strip() for cell in cells):
            return
        if cells[0] in KINDS and self.columns:
            self._result(cells)
        elif self.section.startswith("'Version"):
            self.version = text.strip()[:40]
        elif self.section.startswith("'Access specification name"):
            self.spec = self.specs[cells[0].strip()] = []
        elif self.section.startswith("'size") and self.spec is not None:
            values = [v for v in map(number, cells[:4]) if v is not None and v >= 0]
            if len(values) < 4:
                self.skipped += 1
                return
            size, share, reads, random = values
            self.spec.append((int(size), share, reads, random))

    def _result(self, cells: list[str]) -> None:
        kind = cells[0]
        self.is_open = self.is_open and kind != "ALL"
        if len(cells) > len(self.columns) + 1 or (kind == "ALL" and len(cells) < 20):
            self.skipped += 1
            return
        row = dict(zip(self.columns, cells, strict=False))
        if kind == "ALL":
            self.runs.append(_Run(row, {name: [] for name in KINDS}))
            self.is_open = True
        elif self.is_open:
            self.runs[-1].rows[kind].append(row)


def _measurement(run: _Run, specs: dict[str, Spec]) -> Measurement | None:
    ops = {op: result for op in NAMES if (result := _op_result(run.total, op)) is not None}
    if not ops:
        return None
    name = run.total.get("Access Specification Name", "").strip()
    spec = specs.get(name, [])
    weight = sum(share for _, share, _, _ in spec)
    sizes: dict[int, float] = {}
    for size, share, _, _ in spec if weight > 0 else ():
        sizes[size] = sizes.get(size, 0.0) + share / weight
    reads, random = (
        sum(line[1] * line[column] for line in spec) / weight / 100 if weight > 0 else None
        for column in (2, 3)
    )
    warnings = [] if run.whole else ["the file ends here: CPU and workers may be cut (left out)"]
    errors = whole(run.total.get("Errors"))
    if errors:
        warnings.append(f"{errors} errors during the run")
    # Outstanding per worker: queue depth (per disk) times the worker's disks, if all agree.
    workers = [(whole(w.get("Queue Depth")), whole(w.get("# Disks"))) for w in run.rows["WORKER"]]
    depths = {depth * disks if depth and disks else None for depth, disks in workers}
    return Measurement(
        label=shown(name) or "all",
        conditions=Conditions(
            read_fraction=reads,
            access=access_of(random),
            block_size=next(iter(sizes)) if len(sizes) == 1 else sizes or None,
            jobs=whole(run.total.get("# Workers")) or None,
            iodepth=depths.pop() if run.whole and len(depths) == 1 else None,
            targets=whole(run.total.get("# Disks")) or None,
            engine="iometer",
            cpus=len(run.rows["PROCESSOR"]) or None if run.whole else None,
        ),
        ops=ops,
        cpu=_cpu(run.rows["PROCESSOR"]) if run.whole else None,
        source="Iometer",
        warnings=tuple(warnings),
    )


def _op_result(row: Row, op: Op) -> OpResult | None:
    name, bytes_column, count_column = NAMES[op]
    count, iops = whole(row.get(count_column)), number(row.get(f"{name} IOps"))
    n_bytes = whole(row.get(bytes_column))
    if not count or iops is None or iops <= 0 or n_bytes is None:
        return None
    mean = seconds(number(row.get(f"Average {name} Response Time")))
    longest = seconds(number(row.get(f"Maximum {name} Response Time")))
    latency = Latency(count=count, mean_s=mean, max_s=longest) if mean is not None else None
    return OpResult(
        count=count, bytes=n_bytes, iops=iops, bytes_per_s=n_bytes / count * iops, lat=latency
    )


def _cpu(processors: list[Row]) -> CpuUse | None:
    """CPU time of all processors; None if one of them lacks it."""

    def total(column: str) -> float | None:
        values = [number(row.get(column)) for row in processors]
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None

    used = total("% CPU Utilization")
    if used is None:
        return None
    return CpuUse(total("% User Time"), total("% Privileged Time"), used, scope="host")
