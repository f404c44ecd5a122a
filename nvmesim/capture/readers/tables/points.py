"""A table of points as people have them before the hardware is bought: datasheets, reviews.

CSV, a row a measured point; blank cells are unknown and ``#`` starts a comment line. Separators are
``,``, ``;`` or a tab; with ``;`` or a tab a decimal comma is read too (German and Russian Excel).
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

from nvmesim.capture.capture import (
    Arrivals,
    Capture,
    Conditions,
    CpuUse,
    Latency,
    Measurement,
    Op,
    OpResult,
    Sync,
)
from nvmesim.capture.caveats import with_caveats
from nvmesim.capture.fields import MAX_LATENCY_S, MAX_RATE, checked
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError, UnitError, nearest
from nvmesim.limits import MOST_POINTS
from nvmesim.raid.levels import LEVELS
from nvmesim.scenario.loads.fio_options import FioOptions, parse_bytes
from nvmesim.units import format_size, parse_size

_PLAIN: Final = frozenset(
    {"op", "block_size", "jobs", "iodepth", "iops", "cpu_pct", "source", "targets", "engine"}
    | {"duration_s", "drives", "threads_per_drive", "note", "name", "rate", "arrivals", "limit"}
    | {"sync", "raid", "polled", "cpu_us", "beside", "device_times"}
)
_BANDWIDTH: Final = {
    "bw_mb_s": 1e6, "bw_mib_s": 2.0**20, "bw_gb_s": 1e9, "bw_gib_s": 2.0**30, "bw_kib_s": 2.0**10,
}  # fmt: skip
"""Column -> bytes/s of its unit."""
_LATENCY: Final = re.compile(
    r"(?P<op>read_|write_)?(?:(?P<kind>clat|lat|slat)_)?"
    r"(?:(?P<moment>mean|min|max|stddev)|p(?P<percent>[0-9]{1,2}(?:_[0-9]{1,6})?))_us"
)
_OP: Final = re.compile(r"(?:rand)?(?:read|write)|((?:rand)?rw|readwrite)(?::([0-9.]+)%?)?")
MAX_JOBS: Final = 1 << 20
SECTOR: Final = 512
_DECIMAL: Final = ((1000, "KiB"), (10**6, "MiB"), (10**9, "GiB"))
_US: Final = 1e-6


def sniff(head: Head) -> bool:
    """True if the first line of *head* names an operation and a result of it."""
    for line in head.lines:
        if line.strip() and not line.startswith("#"):
            names = {_clean(name) for name in line.split(_separator(line))}
            return "op" in names and any(
                name == "iops" or name in _BANDWIDTH or _column(name) for name in names
            )
    return False


def read(source: Source) -> Capture:
    """Read every row; CaptureError names the line and column of the first that cannot be true."""
    rows = list(itertools.islice(_rows(source), MOST_POINTS + 1))
    if len(rows) > MOST_POINTS:
        raise source.error(
            f"has more than {MOST_POINTS:,} points", "keep those that tell something of the drive"
        )
    if not rows:
        raise source.error(
            "line 1: has a header and no points (every column is empty)",
            "add a row for each measured point",
        )
    unknown = dict.fromkeys(name for name in rows[0].cells if not _is_known(name))
    warnings = [
        f"column {name!r} is not known and left out; {nearest(name, _EXAMPLES)}" for name in unknown
    ]
    if not source.text().endswith("\n"):
        warnings.append("its last line has no end: check that nothing is missing")
    return Capture(
        file=source.path,
        format="points",
        version=None,
        measurements=tuple(_measurement(row) for row in rows),
        rows=len(rows),
        warnings=tuple(warnings),
    )


_EXAMPLES: Final = (
    *sorted(_PLAIN),
    *_BANDWIDTH,
    *("lat_mean_us", "p50_us", "p90_us", "p99_us", "p99_9_us", "p99_99_us", "lat_p99_us"),
)


def _clean(name: str) -> str:
    return name.strip().strip('"').strip().lower()


def _separator(line: str) -> str:
    return max(",;\t", key=line.count)


def _column(name: str) -> re.Match[str] | None:
    return _LATENCY.fullmatch(name)


def _is_known(name: str) -> bool:
    return name in _PLAIN or name in _BANDWIDTH or _column(name) is not None or not name


@dataclass(frozen=True)
class _Row:
    """One line of the table: column -> cell, blank cells left out of `get`."""

    source: Source
    line: int
    cells: Mapping[str, str]
    decimal_comma: bool

    def error(self, found: str, do: str) -> CaptureError:
        return self.source.error(f"line {self.line}: {found}", do)

    def get(self, column: str) -> str | None:
        return self.cells.get(column, "").strip() or None

    def number(self, column: str, most: float) -> float | None:
        text = self.get(column)
        if text is None:
            return None
        if self.decimal_comma:
            text = text.replace(",", ".")
        where = f"line {self.line}: {column}"
        return checked(self.source, where, text, most=most, do="mend the cell, or leave it blank")

    def choice(self, column: str, known: tuple[str, ...]) -> str | None:
        text = self.get(column)
        if text is not None and text.lower() not in known:
            raise self.error(f"{column} is {shown(text, 30)!r}", f"write {', '.join(known)}")
        return None if text is None else text.lower()

    def flag(self, column: str) -> bool:
        return self.choice(column, ("0", "1")) == "1"

    def whole(self, column: str, most: int) -> int | None:
        number = self.number(column, most)
        if number is None:
            return None
        if number < 1 or number != int(number):
            raise self.error(f"{column} is {number:g}", "write a whole number from 1 on")
        return int(number)


def _rows(source: Source) -> Iterator[_Row]:
    numbered = enumerate(source.text().split("\n"), start=1)
    lines = [(n, text) for n, text in numbered if text.strip() and not text.startswith("#")]
    separator = _separator(lines[0][1]) if lines else ","
    names: list[str] = []
    for number, text in lines:
        try:
            cells = next(csv.reader([text], delimiter=separator, strict=True))
        except csv.Error as error:
            raise source.error(
                f"line {number} is not a row of a CSV ({error})", "a point is one line"
            ) from None
        if not names:
            names = [_clean(cell) for cell in cells]
            _check_header(source, number, names)
            continue
        if len(cells) != len(names):
            raise source.error(
                f"line {number} has {len(cells)} cells, the header {len(names)}",
                "leave unknown cells blank, but keep their separators",
            )
        yield _Row(source, number, dict(zip(names, cells, strict=True)), separator != ",")


def _check_header(source: Source, number: int, names: list[str]) -> None:
    given = [name for name in names if name]
    twice = next((name for name in given if given.count(name) > 1), None)
    if twice is not None:
        raise source.error(f"line {number}: column {twice!r} occurs twice", "keep one")


def _measurement(row: _Row) -> Measurement:
    options, fraction = _load(row)
    jobs, drives, is_own = _threads(row)
    conditions = Conditions(
        read_fraction=fraction,
        access=options.access(),
        block_size=_block_size(row),
        jobs=jobs,
        iodepth=row.whole("iodepth", MAX_JOBS),
        targets=drives,
        targets_per_job=1 if is_own else None,
        engine=row.get("engine"),
        duration_s=row.number("duration_s", MAX_LATENCY_S),
        offered_iops=row.number("rate", MAX_RATE) or None,
        arrivals=cast("Arrivals | None", row.choice("arrivals", ("poisson", "fixed"))),
        most_outstanding=row.whole("limit", MAX_JOBS),
        sync=cast("Sync | None", row.choice("sync", ("fsync", "fdatasync", "sync"))),
        raid=_raid(row),
        beside=row.get("beside"),
        device_times=row.flag("device_times"),
    )
    latencies = {name: _latencies(row, name) for name in ("", "read_", "write_")}
    iops, warnings = _iops(row, conditions, latencies[""].get("lat"))
    _check_law(row, iops, conditions, latencies)
    is_mix = 0 < fraction < 1 and bool(latencies[""])
    if is_mix:
        warnings.append("the latencies of a mix are those of reads and writes together")
    ops: dict[Op, OpResult] = {}
    for op, share in (("read", fraction), ("write", 1 - fraction)):
        if share > 0:
            own = {**(latencies[""] if share == 1 else {}), **latencies[f"{op}_"]}
            ops["read" if op == "read" else "write"] = _result(iops * share, conditions, own)
    measurement = Measurement(
        label=_label(row, conditions),
        conditions=conditions,
        ops=ops,
        cpu=_cpu(row, conditions, iops),
        source=row.get("source") or "",
        place=f"line {row.line}",
        warnings=tuple(warnings),
        mixed=_result(iops, conditions, latencies[""]) if is_mix else None,
    )
    # The number of samples behind a datasheet's figures is unknown: no caveats about it.
    return replace(with_caveats(replace(measurement, ops={})), ops=ops)


def _threads(row: _Row) -> tuple[int | None, int | None, bool]:
    """Jobs in all, drives, and whether each job has a drive of its own.

    ``targets`` and ``drives`` are the same; ``threads_per_drive`` stands for ``jobs``.
    """
    jobs, each = row.whole("jobs", MAX_JOBS), row.whole("threads_per_drive", MAX_JOBS)
    drives, targets = row.whole("drives", MAX_JOBS), row.whole("targets", MAX_JOBS)
    if drives and targets and drives != targets:
        raise row.error(f"drives is {drives} and targets {targets}", "they are the same: keep one")
    drives = drives or targets
    if each is None:
        return jobs, drives, False
    if jobs is not None and jobs != each * (drives or 1):
        raise row.error(
            f"jobs is {jobs}, threads_per_drive {each} on {drives or 1} drives make "
            f"{each * (drives or 1)}", "keep one of the two",
        )  # fmt: skip
    return each * (drives or 1), drives, True


IMPOSSIBLE: Final = 1.15
"""More requests in flight than there were, by Little's law, that rounding does not explain."""
FACTOR: Final = (300.0, 3000.0)
"""About a thousand: a latency in another unit than its column's."""


def _check_law(
    row: _Row, iops: float, conditions: Conditions, latencies: Mapping[str, Mapping[str, Latency]]
) -> None:
    """Raise where a row cannot be: N = X R. Source: Little 1961."""
    outstanding, own = conditions.outstanding, latencies[""]
    table = own.get("lat") or own.get("clat")
    if table is None or not table.mean_s or not outstanding or not iops:
        return
    column = "lat_mean_us" if "lat" in own else "clat_mean_us or mean_us"
    inside = iops * table.mean_s
    ratio = inside / outstanding
    text = f"{iops:,.0f} IOPS at {1e6 * table.mean_s:.6g} us with {outstanding} in flight"
    right = f"{1e6 * outstanding / iops:.4g} us"
    is_kept_full = conditions.offered_iops is None and conditions.sync is None
    if FACTOR[0] < ratio < FACTOR[1] or (is_kept_full and FACTOR[0] < 1 / ratio < FACTOR[1]):
        given = "nanoseconds" if ratio > 1 else "milliseconds"
        raise row.error(
            f"{column}: {text} cannot be, it would be {right}", f"is it in {given}? Write us"
        )
    if ratio > IMPOSSIBLE:
        raise row.error(
            f"{column}: {text} cannot be, it would be {right}",
            "check iops, the latency, jobs and iodepth of this row",
        )


def _load(row: _Row) -> tuple[FioOptions, float]:
    """Return the row's ``op`` as fio's rw option, and the fraction of reads."""
    text = (row.get("op") or "").lower()
    match = _OP.fullmatch(text)
    if match is None:
        raise row.error(
            f"op is {shown(text, 30)!r}" if text else "has no op",
            "write randread, randwrite, read, write or randrw:70 (percent of reads)",
        )
    options = FioOptions({"rw": match.group(1) or text})
    if match.group(2) is not None:
        percent = checked(row.source, f"line {row.line}: op", match.group(2), most=100)
        return options, percent / 100
    fraction = options.read_fraction()
    return options, 0.5 if fraction is None else fraction


def _block_size(row: _Row) -> int | None:
    text = row.get("block_size")
    if text is None:
        return None
    size = _size(row, "block_size", text)
    if not 1 <= size <= 1 << 40:
        raise row.error(f"block_size is {size} B", "write 1 B to 1 TiB")
    if size >= SECTOR and size % SECTOR:
        power = max((u for u in _DECIMAL if size % u[0] == 0), default=None)
        do = "write a multiple of 512 bytes"
        if power is not None:
            do = f"drives count in binary: is {size // power[0]} {power[1]} meant?"
        raise row.error(f"block_size is {text}, {size:,} bytes", do)
    return size


def _size(row: _Row, column: str, text: str) -> int:
    size = parse_bytes(text)
    if size is None:
        try:
            size = parse_size(text.strip())
        except UnitError as error:
            raise row.error(f"{column}: {error}", "or 4096, or 4k") from None
    return size


def _latencies(row: _Row, prefix: str) -> dict[str, Latency]:
    """Return clat, lat and slat of the columns with *prefix*; ``p99_us`` alone is a clat."""
    moments: dict[str, dict[str, float]] = {}
    percentiles: dict[str, dict[float, float]] = {}
    for name in row.cells:
        match = _column(name)
        if match is None or (match["op"] or "") != prefix:
            continue
        value = row.number(name, MAX_LATENCY_S / _US)
        if value is None:
            continue
        if value == 0:
            raise row.error(f"{name} is 0", "leave the cell blank if it is unknown")
        kind = match["kind"] or "clat"
        if match["percent"]:
            percent = float(match["percent"].replace("_", "."))
            percentiles.setdefault(kind, {})[percent] = value * _US
        else:
            moments.setdefault(kind, {})[match["moment"]] = value * _US
    found = {}
    for kind in dict.fromkeys((*moments, *percentiles)):
        by_percent = dict(sorted(percentiles.get(kind, {}).items()))
        if list(by_percent.values()) != sorted(by_percent.values()):
            raise row.error(f"the percentiles of {prefix}{kind} decrease", "check the cells")
        own = moments.get(kind, {})
        found[kind] = Latency(
            count=0,
            mean_s=own.get("mean"),
            min_s=own.get("min"),
            max_s=own.get("max"),
            stddev_s=own.get("stddev"),
            percentiles_s=by_percent,
        )
    return found


def _iops(row: _Row, conditions: Conditions, lat: Latency | None) -> tuple[float, list[str]]:
    """Return the rate of the row: given, or what its bandwidth, or its depth and latency, imply."""
    iops = row.number("iops", MAX_RATE)
    if iops == 0:
        raise row.error("iops is 0", "leave the cell blank if it is unknown")
    moved = _bandwidth(row, conditions, iops)
    if iops or moved:
        return iops or moved, []
    if lat is not None and lat.mean_s and conditions.outstanding:
        return conditions.outstanding / lat.mean_s, [
            "iops is blank and was taken as jobs x iodepth / lat_mean_us"
        ]
    odd = [name for name in row.cells if not _is_known(name)]
    hint = f"column {odd[0]!r} is not known, {nearest(odd[0], _EXAMPLES)}; " if odd else ""
    raise row.error("has no iops", f"{hint}give iops, or lat_mean_us with jobs and iodepth")


SAME: Final = 0.03
"""Relative difference of a rate and a bandwidth that rounding explains; MB and MiB differ by 5 %.
"""


def _bandwidth(row: _Row, conditions: Conditions, iops: float | None) -> float:
    """Requests/s that the row's bandwidth is, 0 if it has none; it must agree with *iops*."""
    for column, unit in _BANDWIDTH.items():
        value = row.number(column, 1e15)
        if value is None:
            continue
        if value == 0:
            raise row.error(f"{column} is 0", "leave the cell blank if it is unknown")
        size = conditions.block_size
        if not isinstance(size, int):
            raise row.error(f"{column} without block_size", "write the size of the requests")
        rate = value * unit / size
        if not iops or abs(rate / iops - 1) <= SAME:
            return rate
        meant = next(
            (c for c, u in _BANDWIDTH.items() if abs(rate / unit * u / iops - 1) <= SAME), ""
        )
        raise row.error(
            f"{column}: {iops:,.0f} IOPS of {format_size(size)} are {iops * size / unit:,.6g}, "
            f"not {value:,.6g}", f"is it {meant}?" if meant else "keep the one that was measured",
        )  # fmt: skip
    return 0.0


def _result(iops: float, conditions: Conditions, own: Mapping[str, Latency]) -> OpResult:
    """Return the result of one operation; counts are known only with a duration."""
    size = conditions.block_size if isinstance(conditions.block_size, int) else 0
    count = round(iops * (conditions.duration_s or 0.0))
    return OpResult(
        count=count,
        bytes=count * size,
        iops=iops,
        bytes_per_s=iops * size,
        clat=own.get("clat"),
        lat=own.get("lat"),
        slat=own.get("slat"),
    )


def _cpu(row: _Row, conditions: Conditions, iops: float) -> CpuUse | None:
    total, each = row.number("cpu_pct", 1e8), row.number("cpu_us", MAX_LATENCY_S / _US)
    polled = row.flag("polled")
    if total is None and each is not None:
        total = 100 * iops * each * _US
    if total is None:
        return None
    per_job = total / conditions.jobs if conditions.jobs else None
    return CpuUse(None, None, total, per_job, polled=polled)


def _raid(row: _Row) -> str | None:
    """Level of the measured array, and its chunk in bytes: "raid0:524288"."""
    text = row.get("raid")
    if text is None or text == "none":
        return None
    level, _, chunk = text.partition(":")
    if level.strip().lower() not in LEVELS:
        raise row.error(f"raid is {shown(text, 30)!r}", "write raid0:512 KiB, raid1 or raid10")
    size = f":{_size(row, 'raid', chunk)}" if chunk.strip() else ""
    return f"{level.strip().lower()}{size}"


def _label(row: _Row, conditions: Conditions) -> str:
    if row.get("name"):
        return row.get("name") or ""
    size = conditions.block_size
    parts = [row.get("op") or "", format_size(size) if isinstance(size, int) else ""]
    if conditions.jobs and conditions.iodepth:
        parts.append(f"{conditions.jobs}x{conditions.iodepth}")
    return " ".join(part for part in parts if part)
