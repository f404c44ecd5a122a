"""A table of points as people have them before the hardware is bought: datasheets, reviews.

CSV, a row a measured point; blank cells are unknown and ``#`` starts a comment line. Separators are
``,``, ``;`` or a tab; with ``;`` or a tab a decimal comma is read too (German and Russian Excel).
"""

import csv
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from nvmesim.capture.capture import (
    PURE,
    Access,
    Capture,
    Conditions,
    CpuUse,
    Latency,
    Measurement,
    Op,
    OpResult,
)
from nvmesim.capture.caveats import UNSTATED_MIX, with_caveats
from nvmesim.capture.checked_numbers import MAX_LATENCY_S, MAX_RATE, checked, results
from nvmesim.capture.text import Head, Source, shown
from nvmesim.errors import CaptureError, UnitError, nearest
from nvmesim.limits import MOST_POINTS
from nvmesim.raid.levels import LEVELS
from nvmesim.scenario.loads.fio_options import DEFAULT_READ_PERCENT, FioOptions, parse_bytes
from nvmesim.units import format_size, parse_size
from nvmesim.warning import Warning

MAX_JOBS: Final = 1 << 20
SECTOR: Final = 512
IMPOSSIBLE: Final = 1.15
"""More requests in flight than there were, by Little's law, that rounding does not explain."""
FACTOR: Final = (300.0, 3000.0)
"""About a thousand: a latency in another unit than its column's."""
SAME: Final = 0.03
"""Relative difference of a rate and a bandwidth that rounding explains; MB and MiB differ by 5 %.
"""
_US: Final = 1e-6
_DECIMAL: Final = ((1000, "KiB"), (10**6, "MiB"), (10**9, "GiB"))
_LATENCY: Final = re.compile(
    r"(?P<op>read_|write_)?(?:(?P<kind>clat|lat|slat)_)?"
    r"(?:(?P<moment>mean|min|max|stddev)|p(?P<percent>[0-9]{1,2}(?:_[0-9]{1,6})?))_us"
)
_OP_EXAMPLES: Final = "write randread, randwrite, read, write or randrw:70 (percent of reads)"
_OP: Final = re.compile(r"(?:rand)?(?:read|write)|((?:rand)?rw|readwrite)(?::([0-9.]+)%?)?")


@dataclass(frozen=True)
class _Cell:
    source: Source
    line: int
    column: str
    text: str
    decimal_comma: bool

    def error(self, found: str, do: str) -> CaptureError:
        return self.source.error(f"line {self.line}: {found}", do)


def _number(cell: _Cell, most: float) -> float:
    text = cell.text.replace(",", ".") if cell.decimal_comma else cell.text
    where, do = f"line {cell.line}: {cell.column}", "mend the cell, or leave it blank"
    return checked(cell.source, where, text, most=most, do=do)


def _positive(cell: _Cell, most: float) -> float:
    number = _number(cell, most)
    if number == 0:
        raise cell.error(f"{cell.column} is 0", "leave the cell blank if it is unknown")
    return number


def _whole(cell: _Cell) -> int:
    number = _number(cell, MAX_JOBS)
    if number < 1 or number != int(number):
        raise cell.error(f"{cell.column} is {number:g}", "write a whole number from 1 on")
    return int(number)


def _choice(cell: _Cell, *known: str) -> str:
    if cell.text.lower() not in known:
        raise cell.error(f"{cell.column} is {shown(cell.text, 30)!r}", f"write {', '.join(known)}")
    return cell.text.lower()


def _size(cell: _Cell, text: str) -> int:
    size = parse_bytes(text)
    if size is None:
        try:
            size = parse_size(text.strip())
        except UnitError as error:
            raise cell.error(f"{cell.column}: {error}", "or 4096, or 4k") from None
    return size


def _block_size(cell: _Cell) -> int:
    size = _size(cell, cell.text)
    if not 1 <= size <= 1 << 40:
        raise cell.error(f"block_size is {size} B", "write 1 B to 1 TiB")
    if size >= SECTOR and size % SECTOR:
        power = max((u for u in _DECIMAL if size % u[0] == 0), default=None)
        do = "write a multiple of 512 bytes"
        if power is not None:
            do = f"drives count in binary: is {size // power[0]} {power[1]} meant?"
        raise cell.error(f"block_size is {cell.text}, {size:,} bytes", do)
    return size


def _raid(cell: _Cell) -> str | None:
    """Level of the measured array, and its chunk in bytes: "raid0:524288"."""
    if cell.text == "none":
        return None
    level, _, chunk = cell.text.partition(":")
    level = level.strip().lower()
    if level not in LEVELS:
        raise cell.error(
            f"raid is {shown(cell.text, 30)!r}", "write raid0:512 KiB, raid1 or raid10"
        )
    return f"{level}:{_size(cell, chunk)}" if chunk.strip() else level


class _Operation(NamedTuple):
    text: str
    access: Access | None
    read_fraction: float | None  # None: a mix whose cell does not say it


def _operation(cell: _Cell) -> _Operation:
    match = _OP.fullmatch(cell.text.lower())
    if match is None:
        raise cell.error(f"op is {shown(cell.text.lower(), 30)!r}", _OP_EXAMPLES)
    options = FioOptions({"rw": match[1] or match[0]}, complete=False)
    fraction = options.read_fraction()
    if match[2] is not None:
        fraction = checked(cell.source, f"line {cell.line}: op", match[2], most=100) / 100
    return _Operation(cell.text, options.access(), fraction)


_BANDWIDTH: Final = {
    "bw_mb_s": 1e6, "bw_mib_s": 2.0**20, "bw_gb_s": 1e9, "bw_gib_s": 2.0**30, "bw_kib_s": 2.0**10,
}  # fmt: skip
"""Column -> bytes/s of its unit."""
_SHARES: Final = ("read_pct", "rwmixread")
"""Columns of the percentage of reads, the second as fio calls it."""
_PLAIN: Final[dict[str, Callable[[_Cell], Any]]] = {
    **dict.fromkeys(("name", "note", "source", "engine", "beside"), lambda cell: cell.text),
    **dict.fromkeys(("jobs", "iodepth", "targets", "drives", "threads_per_drive", "limit"), _whole),
    **dict.fromkeys(
        ("polled", "device_times", "direct"), lambda cell: _choice(cell, "0", "1") == "1"
    ),
    "arrivals": lambda cell: _choice(cell, "poisson", "fixed"),
    "block_size": _block_size,
    **dict.fromkeys(_SHARES, partial(_number, most=100)),
    "cpu_pct": partial(_number, most=1e8),
    "cpu_us": partial(_number, most=MAX_LATENCY_S / _US),
    "duration_s": partial(_number, most=MAX_LATENCY_S),
    "iops": partial(_positive, most=MAX_RATE),
    "op": _operation,
    "raid": _raid,
    "rate": partial(_number, most=MAX_RATE),
    "sync": lambda cell: _choice(cell, "fsync", "fdatasync", "sync"),
}
"""Column -> what its cells are."""
_EXAMPLES: Final = (
    *sorted(_PLAIN),
    *_BANDWIDTH,
    *("lat_mean_us", "p50_us", "p90_us", "p99_us", "p99_9_us", "p99_99_us", "lat_p99_us"),
)


def _converter(column: str) -> Callable[[_Cell], Any] | None:
    if column in _BANDWIDTH:
        return partial(_positive, most=1e15)
    if _LATENCY.fullmatch(column):
        return partial(_positive, most=MAX_LATENCY_S / _US)
    return _PLAIN.get(column)


@dataclass(frozen=True)
class _Row:
    source: Source
    line: int
    values: Mapping[str, Any]
    """Column -> what its cell says, of known columns and cells that are not blank."""
    unknown: tuple[str, ...]
    """Columns that are not known."""

    def error(self, found: str, do: str) -> CaptureError:
        return self.source.error(f"line {self.line}: {found}", do)


def sniff(head: Head) -> bool:
    """True if the first line of *head* names an operation and a result of it."""
    for line in head.lines:
        if line.strip() and not line.startswith("#"):
            names = {_clean(name) for name in line.split(_separator(line))}
            results = {"iops", *_BANDWIDTH} & names or any(map(_LATENCY.fullmatch, names))
            return "op" in names and bool(results)
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
    warnings = [
        f"column {name!r} is not known and left out; {nearest(name, _EXAMPLES)}"
        for name in rows[0].unknown
    ]
    halves = [row for row in rows if _share(row) is None]
    if halves:
        first = f"{len(halves)} of {len(rows)} rows, the first in line {halves[0].line}"
        said = (
            f"a mix without its share of reads is taken as {DEFAULT_READ_PERCENT} % reads, as fio "
            f"does ({first}): write randrw:70, or add a column read_pct"
        )
        warnings.append(Warning(UNSTATED_MIX, said))
    if not source.text().endswith("\n"):
        warnings.append("its last line has no end: check that nothing is missing")
    return results(source, "points", [_measurement(row) for row in rows], warnings)


def _clean(name: str) -> str:
    return name.strip().strip('"').strip().lower()


def _separator(line: str) -> str:
    return max(",;\t", key=line.count)


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
            twice = next((name for name in names if name and names.count(name) > 1), None)
            if twice is not None:
                raise source.error(f"line {number}: column {twice!r} occurs twice", "keep one")
            unknown = tuple(name for name in names if name and _converter(name) is None)
            continue
        if len(cells) != len(names):
            raise source.error(
                f"line {number} has {len(cells)} cells, the header {len(names)}",
                "leave unknown cells blank, but keep their separators",
            )
        values = {}
        for name, cell in zip(names, cells, strict=True):
            converter = _converter(name)
            if converter is not None and cell.strip():
                values[name] = converter(
                    _Cell(source, number, name, cell.strip(), separator != ",")
                )
        yield _Row(source, number, values, unknown)


def _measurement(row: _Row) -> Measurement:
    get = row.values.get
    operation: _Operation = row.values["op"]
    share = _share(row)
    fraction = DEFAULT_READ_PERCENT / 100 if share is None else share
    jobs, drives = _threads(row)
    conditions = Conditions(
        read_fraction=fraction,
        access=operation.access,
        block_size=get("block_size"),
        jobs=jobs,
        iodepth=get("iodepth"),
        targets=drives,
        targets_per_job=1 if "threads_per_drive" in row.values else None,
        direct=get("direct"),
        engine=get("engine"),
        duration_s=get("duration_s"),
        offered_iops=get("rate") or None,
        arrivals=get("arrivals"),
        most_outstanding=get("limit"),
        sync=get("sync"),
        raid=get("raid"),
        beside=get("beside"),
        device_times=get("device_times", False),
    )
    latencies = {name: _latencies(row, name) for name in ("", "read_", "write_")}
    iops, warnings = _iops(row, conditions, latencies[""].get("lat"))
    _check_law(row, iops, conditions, latencies[""])
    is_mix = PURE < fraction < 1 - PURE and bool(latencies[""])
    if is_mix:
        warnings.append("the latencies of a mix are those of reads and writes together")
    ops: dict[Op, OpResult] = {}
    shares: dict[Op, float] = {"read": fraction, "write": 1 - fraction}
    for op, share in shares.items():
        if share > 0:
            own = {**(latencies[""] if share >= 1 - PURE else {}), **latencies[f"{op}_"]}
            ops[op] = _result(iops * share, conditions, own)
    size = get("block_size")
    load = f"{jobs}x{conditions.iodepth}" if jobs and conditions.iodepth else ""
    name = operation.text
    if operation.read_fraction is None:
        name = f"{name}:{100 * fraction:g}"
    label = " ".join(filter(None, (name, format_size(size) if size else "", load)))
    measurement = Measurement(
        label=get("name") or label,
        conditions=conditions,
        ops=ops,
        cpu=_cpu(row, conditions, iops),
        source=get("source", ""),
        place=f"line {row.line}",
        warnings=tuple(warnings),
        mixed=_result(iops, conditions, latencies[""]) if is_mix else None,
    )
    # The number of samples behind a datasheet's figures is unknown: no caveats about it.
    return replace(with_caveats(replace(measurement, ops={})), ops=ops)


def _share(row: _Row) -> float | None:
    """The fraction of reads, of the operation or a column; None if a mix does not say it."""
    operation: _Operation | None = row.values.get("op")
    if operation is None:
        raise row.error("has no op", _OP_EXAMPLES)
    fraction = operation.read_fraction
    for column in _SHARES:
        share = row.values.get(column)
        if share is None:
            continue
        if fraction not in (None, share / 100):
            raise row.error(
                f"op is {operation.text} and {column} {share:g}",
                "write randrw or rw for a mix, or leave the cell blank",
            )
        fraction = share / 100
    return fraction


def _threads(row: _Row) -> tuple[int | None, int | None]:
    """Jobs in all, and drives.

    ``targets`` and ``drives`` are the same; ``threads_per_drive`` stands for ``jobs``.
    """
    jobs, each, drives, targets = map(
        row.values.get, ("jobs", "threads_per_drive", "drives", "targets")
    )
    if drives and targets and drives != targets:
        raise row.error(f"drives is {drives} and targets {targets}", "they are the same: keep one")
    drives = drives or targets
    if each is None:
        return jobs, drives
    threads = each * (drives or 1)
    if jobs not in (None, threads):
        raise row.error(
            f"jobs is {jobs}, threads_per_drive {each} on {drives or 1} drives make {threads}",
            "keep one of the two",
        )
    return threads, drives


def _latencies(row: _Row, prefix: str) -> dict[str, Latency]:
    """Return clat, lat and slat of the columns with *prefix*; ``p99_us`` alone is a clat."""
    found: dict[str, Latency] = {}
    for name, value in row.values.items():
        match = _LATENCY.fullmatch(name)
        if match is None or (match["op"] or "") != prefix:
            continue
        kind = match["kind"] or "clat"
        own = found.get(kind, Latency(count=0))
        if match["percent"]:
            percent = float(match["percent"].replace("_", "."))
            by_percent = {**own.percentiles_s, percent: value * _US}
            found[kind] = replace(own, percentiles_s=dict(sorted(by_percent.items())))
        else:
            found[kind] = replace(own, **{f"{match['moment']}_s": value * _US})
    for kind, latency in found.items():
        values = list(latency.percentiles_s.values())
        if values != sorted(values):
            raise row.error(f"the percentiles of {prefix}{kind} decrease", "check the cells")
    return found


def _iops(row: _Row, conditions: Conditions, lat: Latency | None) -> tuple[float, list[str]]:
    """Return the rate of the row: given, or what its bandwidth, or its depth and latency, imply."""
    iops = row.values.get("iops")
    rate = _bandwidth(row, iops)
    if iops or rate:
        return iops or rate, []
    if lat is not None and lat.mean_s and conditions.outstanding:
        return conditions.outstanding / lat.mean_s, [
            "iops is blank and was taken as jobs x iodepth / lat_mean_us"
        ]
    hint = ""
    if row.unknown:
        name = row.unknown[0]
        hint = f"column {name!r} is not known, {nearest(name, _EXAMPLES)}; "
    raise row.error("has no iops", f"{hint}give iops, or lat_mean_us with jobs and iodepth")


def _bandwidth(row: _Row, iops: float | None) -> float:
    """Requests/s that the row's bandwidth is, 0 if it has none; it must agree with *iops*."""
    column = next((name for name in _BANDWIDTH if name in row.values), None)
    if column is None:
        return 0.0
    unit, value, size = _BANDWIDTH[column], row.values[column], row.values.get("block_size")
    if size is None:
        raise row.error(f"{column} without block_size", "write the size of the requests")
    rate: float = value * unit / size
    if not iops or abs(rate / iops - 1) <= SAME:
        return rate
    meant = [c for c, u in _BANDWIDTH.items() if abs(rate / unit * u / iops - 1) <= SAME]
    raise row.error(
        f"{column}: {iops:,.0f} IOPS of {format_size(size)} are {iops * size / unit:,.6g}, "
        f"not {value:,.6g}",
        f"is it {meant[0]}?" if meant else "keep the one that was measured",
    )


def _check_law(
    row: _Row, iops: float, conditions: Conditions, latencies: Mapping[str, Latency]
) -> None:
    """Raise where a row cannot be: N = X R. Source: Little 1961."""
    outstanding = conditions.outstanding
    latency = latencies.get("lat") or latencies.get("clat")
    if latency is None or not latency.mean_s or not outstanding or not iops:
        return
    ratio = iops * latency.mean_s / outstanding
    is_kept_full = conditions.offered_iops is None and conditions.sync is None
    do = "check iops, the latency, jobs and iodepth of this row"
    if FACTOR[0] < ratio < FACTOR[1]:
        do = "is it in nanoseconds? Write us"
    elif is_kept_full and FACTOR[0] < 1 / ratio < FACTOR[1]:
        do = "is it in milliseconds? Write us"
    elif ratio <= IMPOSSIBLE:
        return
    column = "lat_mean_us" if "lat" in latencies else "clat_mean_us or mean_us"
    raise row.error(
        f"{column}: {iops:,.0f} IOPS at {1e6 * latency.mean_s:.6g} us with {outstanding} in flight "
        f"cannot be, it would be {1e6 * outstanding / iops:.4g} us",
        do,
    )


def _result(iops: float, conditions: Conditions, own: Mapping[str, Latency]) -> OpResult:
    """Return the result of one operation; counts are known only with a duration."""
    size = conditions.block_size if isinstance(conditions.block_size, int) else 0
    count = round(iops * (conditions.duration_s or 0.0))
    return OpResult(count, count * size, iops, iops * size, **own)


def _cpu(row: _Row, conditions: Conditions, iops: float) -> CpuUse | None:
    total, each = row.values.get("cpu_pct"), row.values.get("cpu_us")
    if total is None and each is not None:
        total = 100 * iops * each * _US
    if total is None:
        return None
    per_job = total / conditions.jobs if conditions.jobs else None
    return CpuUse(None, None, total, per_job, polled=row.values.get("polled", False))
