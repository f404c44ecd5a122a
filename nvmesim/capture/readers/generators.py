"""Results of the load generators elbencho, vdbench and Iometer: a measurement a phase or run.

Of elbencho its CSV (``--csvfile``); figures are those of the last thread that ended ("LAST DONE"),
so they are of the whole phase. Of vdbench flatfile.html, of raw and of file system workloads: the
row of averages of each run counts, which leaves warm-up out; times are ms, MB are 2**20 bytes;
whether ``threads`` are those of a drive or of all is not said, so no depth is taken from them.
Of Iometer the results CSV, 1.1 and the builds around it, whose columns are found by their names in
the ``'Target Type`` header: a run is an ALL row and the PROCESSOR, WORKER and DISK rows behind it;
response times are total ones (``lat``), in ms.
Source: breuner/elbencho, Statistics.cpp; the vdbench 5.04.07 manual, "Flatfile selective parsing";
Iometer 1.1, ManagerList.cpp SaveResults.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Final

from nvmesim.capture.capture import (
    OPS,
    Capture,
    Conditions,
    CpuUse,
    Latency,
    Measurement,
    Op,
    OpResult,
)
from nvmesim.capture.checked_numbers import (
    LONGEST_MS,
    MIB,
    S_PER_MS,
    Report,
    access_of,
    checked,
    number,
    one_load,
    rate_result,
    results,
    whole,
)
from nvmesim.capture.text import Head, Source, shown

# elbencho -----------------------------------------------------------------------------------------

_HEADER: Final = frozenset({"operation", "IOPS [last]", "MiB/s [last]"})


def _elbencho(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    lines = text.split("\n")[:-1]  # the last one may be cut
    names: list[str] = []
    for at, line in enumerate(lines, start=1):
        try:
            cells = next(csv.reader([line], strict=True), [])
        except csv.Error:
            cells = []
        if names[-1:] == ["command"] and len(cells) != len(names):
            # elbencho puts the command last, with quotes and commas of its own.
            cells = line.split(",", len(names) - 1)
        if set(cells) >= _HEADER:
            names = cells
            continue
        if not names or not cells:
            continue
        if len(cells) != len(names):
            warnings.append(f"line {at} has {len(cells)} of {len(names)} cells (left out)")
            continue
        row = dict(zip(names, cells, strict=True))
        if row["operation"] in ("READ", "WRITE") or row["operation"].startswith("RWMIX"):
            yield _phase(source, f"line {at}", row)


def _phase(source: Source, where: str, row: Mapping[str, str]) -> Measurement:
    def cell(name: str, most: float = 1e13) -> float | None:
        text = row.get(name, "").strip()
        return checked(source, f"{where}: {name}", text, most=most) if text else None

    seconds = (cell("time ms [last]") or 0.0) / 1e3 or None
    mib = cell("MiB [last]")
    rate = (cell("MiB/s [last]") or 0.0) * MIB
    if mib and seconds:
        rate = mib * MIB / seconds
    size = cell("block size", 1 << 40)
    iops = rate / size if size and rate else cell("IOPS [last]") or 0.0
    mean, low, high = (cell(f"IO lat us [{what}]") for what in ("avg", "min", "max"))
    lat = None
    if mean:
        count = round(iops * seconds) if seconds else 0
        lat = Latency(count, mean / 1e6, (low or 0.0) / 1e6, high / 1e6 if high else None)
    threads, hosts = cell("threads", 1e7), cell("hosts", 1e7)
    depth, random, direct = cell("IO depth", 1e7), row.get("random"), row.get("direct IO")
    conditions = Conditions(
        access=None if random in (None, "") else "random" if random == "1" else "sequential",
        block_size=round(size) if size else None,
        jobs=round(threads * (hosts or 1)) if threads else None,
        iodepth=round(depth) if depth else None,
        direct=None if direct in (None, "") else direct == "1",
        duration_s=seconds,
    )
    label = " ".join(filter(None, (row["operation"].lower(), row.get("label", ""))))
    return one_load(
        label,
        rate_result(iops, rate, seconds=seconds, lat=lat),
        conditions,
        read_fraction=_fraction(row["operation"]),
        source="elbencho",
    )


def _fraction(operation: str) -> float | None:
    """Fraction of reads that the name of a phase says; RWMIX70 reads 70 %."""
    if operation.startswith("RWMIX"):
        share = operation.removeprefix("RWMIX")
        return int(share) / 100 if share.isdecimal() and int(share) <= 100 else None
    return 1.0 if operation.endswith("READ") else 0.0


# vdbench ------------------------------------------------------------------------------------------

_FLAT: Final = re.compile(r"^[ \t]*tod\s+(?:timestamp\s+)?Run\s+Interval\s", re.M)
_TAGS: Final = re.compile(r"<[^>\n]{0,300}>")
_AVERAGE: Final = re.compile(r"avg_(\d{1,9})-(\d{1,9})")
_CLOCK: Final = re.compile(r"(\d\d):(\d\d):(\d\d(?:\.\d{1,3})?)")
RESIDUE: Final = 1e-9  # part of all requests that is no more than the rounding of a difference


def _vdbench(source: Source, text: str, warnings: list[str]) -> Iterator[Measurement]:
    columns: list[str] = []
    times: list[float] = []
    run = ""
    for at, line in enumerate([*_TAGS.sub("", text).split("\n"), ""], start=1):
        words = line.split()
        if _FLAT.match(line):
            columns = words
            continue
        if not columns or not words or words[0].startswith("*"):
            continue
        if len(words) != len(columns):
            warnings.append(f"line {at} has {len(words)} of {len(columns)} columns (left out)")
            continue
        row = dict(zip(columns, words, strict=True))
        if row["Run"] != run:
            _note_cut(run, times, warnings)
            run, times = row["Run"], []
        if _AVERAGE.fullmatch(row["Interval"]):
            yield _averages(source, at, run, row, _span(times, row["Interval"]))
            times = []
        else:
            times.append(_tod(row["tod"]))
    _note_cut(run, times, warnings)


def _note_cut(run: str, times: list[float], warnings: list[str]) -> None:
    if times:
        warnings.append(f"{shown(run, 60)}: ends before its averages (left out)")


def _averages(
    source: Source, line: int, run: str, row: Mapping[str, str], seconds: float | None
) -> Measurement:
    """One row of averages: names of raw workloads are lower case, of file systems not."""
    low = {key.lower(): value for key, value in row.items()}

    def cell(*names: str, most: float = 1e13) -> float | None:
        name = next((name for name in names if low.get(name, "n/a") != "n/a"), None)
        if name is None:
            return None
        return checked(source, f"line {line}: {name}", low[name], most=most)

    rate = cell("rate") or 0.0
    share = (cell("read%", "rdpct", most=100) or 0.0) / 100
    reads, writes = cell("read_rate"), cell("write_rate")
    reads = rate * share if reads is None else reads
    writes = rate * (1 - share) if writes is None else writes
    both = reads + writes
    total = (cell("mb/sec") or 0.0) * MIB
    ops: dict[Op, OpResult] = {}
    for op, iops in zip(OPS, (reads, writes), strict=True):
        if iops <= RESIDUE * both:
            continue
        mean, high = cell(f"{op}_resp", "resp"), cell(f"{op}_resp_max", f"{op}_max")
        spread = cell(f"{op}_resp_std", f"{op}_std")
        count = round(iops * seconds) if seconds else 0
        lat = None
        if mean:
            spread_s = None if spread is None else spread / 1e3
            lat = Latency(count, mean / 1e3, None, high / 1e3 if high else None, spread_s)
        bandwidth = (cell(f"mb_{op}") or 0.0) * MIB or total * (iops / both)
        ops[op] = rate_result(iops, bandwidth, seconds=seconds, lat=lat)
    seek = cell("seekpct", most=100)
    return Measurement(
        label=shown(run, 60),
        conditions=Conditions(
            read_fraction=reads / both if both else None,
            access=None if seek is None else access_of(seek / 100),
            block_size=_whole_size(cell("bytes/io", "xfersize", most=1 << 40) or 0.0),
            duration_s=seconds,
            depth_mean=cell("queue_depth"),
        ),
        ops=ops,
        source="vdbench",
    )


def _whole_size(size: float) -> int | None:
    """Return a size of the averages, whose last bytes are cut: 4093 or 4094 means 4096."""
    whole = 512 * round(size / 512)
    return whole if whole and abs(size - whole) <= max(4.0, 1e-3 * whole) else None


def _tod(text: str) -> float:
    match = _CLOCK.match(text)
    return int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3]) if match else 0.0


def _span(times: list[float], interval: str) -> float | None:
    """Seconds that the averages cover: as many intervals as they name."""
    match = _AVERAGE.fullmatch(interval)
    gaps = sorted((b - a) % 86_400 for a, b in pairwise(times))
    if match is None or not gaps:
        return None
    length = round(gaps[len(gaps) // 2]) or gaps[len(gaps) // 2]
    return max(int(match[2]) - int(match[1]) + 1, 0) * length or None


# Iometer ------------------------------------------------------------------------------------------

LARGEST: Final = 64 << 20
IOMETER_HEADER: Final = "'Target Type"
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
    rows: dict[str, list[Row]]  # by kind
    whole: bool = True


def _sniff_iometer(head: Head) -> bool:
    """True if *head* is of Iometer's results."""
    return "'Test Type" in head.text or IOMETER_HEADER in head.text


def _read_iometer(source: Source) -> Capture:
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
    return results(source, "iometer", measured, warnings, version=parse.version, skipped=skipped)


@dataclass
class _Parse:
    """The state of reading a results file line by line."""

    specs: dict[str, Spec] = field(default_factory=dict)
    runs: list[_Run] = field(default_factory=list)
    version: str | None = None
    skipped: int = 0
    columns: list[str] = field(default_factory=list)
    delimiter: str = ","
    section: str = ""
    spec: Spec | None = None  # the specification that lines are read of
    is_open: bool = False  # True if the last run may have more rows

    def line(self, text: str) -> None:
        """Take the next line."""
        if text.startswith("'"):
            self.is_open, self.section = False, text
            if text.startswith(IOMETER_HEADER):
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


REPORTS: Final = {
    "iometer": SimpleNamespace(sniff=_sniff_iometer, read=_read_iometer),
    "vdbench": Report("vdbench", ((_FLAT.pattern,),), _vdbench),
    "elbencho": Report(
        "elbencho",
        ((r"\A(?:[^\n]*\n){0,4}[^\n]*operation[^\n]*IOPS \[last\][^\n]*MiB/s \[last\]",),),
        _elbencho,
    ),
}
