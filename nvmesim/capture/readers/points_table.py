"""A table of points as people have them before the hardware is bought: datasheets, reviews.

CSV, a row a measured point; blank cells are unknown and ``#`` starts a comment line. Separators are
``,``, ``;`` or a tab; with ``;`` or a tab a decimal comma is read too (German and Russian Excel).
"""

import csv
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from nvmesim.capture.capture import (
    PURE,
    Capture,
    Conditions,
    CpuUse,
    Latency,
    Measurement,
    Op,
    OpResult,
)  # fmt: skip
from nvmesim.capture.caveats import UNKNOWN_COLUMN, UNSTATED_MIX, with_caveats
from nvmesim.capture.checked_numbers import results
from nvmesim.capture.readers.points_columns import (
    BANDWIDTH,
    LATENCY,
    OP_EXAMPLES,
    US,
    Cell,
    Column,
    Operation,
    column,
    hint,
    misspelt,
)  # fmt: skip
from nvmesim.capture.text import Head, Source
from nvmesim.errors import CaptureError
from nvmesim.limits import MOST_POINTS
from nvmesim.scenario.loads.fio_options import DEFAULT_READ_PERCENT, is_synchronous
from nvmesim.units import format_size
from nvmesim.warning import Warning

IMPOSSIBLE: Final = 1.15
"""More requests in flight than there were, by Little's law, that rounding does not explain."""
FACTOR: Final = (300.0, 3000.0)
"""About a thousand: a latency in another unit than its column's."""
SAME: Final = 0.03
"""Relative difference of a rate and a bandwidth that rounding explains; MB and MiB differ by 5 %.
"""


@dataclass(frozen=True)
class _Row:
    source: Source
    line: int
    values: Mapping[str, Any]
    """Column -> what its cell says, of known columns and cells that are not blank."""
    unknown: tuple[str, ...]
    """Columns that are not known."""
    without_unit: tuple[str, ...]
    """Columns of latencies of which neither the name nor this row's cell says the unit."""

    def error(self, found: str, do: str, *unknown: str) -> CaptureError:
        known = f"{hint(unknown[0])}; " if unknown else ""
        return self.source.error(f"line {self.line}: {found}", f"{known}{do}")


def sniff(head: Head) -> bool:
    """True if the first line of *head* names an operation and a result of it."""
    for line in head.lines:
        if line.strip() and not line.startswith("#"):
            columns = filter(None, map(column, line.split(_separator(line))))
            names = {c.name for c in columns if c.has_unit}
            has_result = bool({"iops", *BANDWIDTH} & names or any(map(LATENCY.fullmatch, names)))
            return has_result and bool(names & {"op", "iodepth", "block_size"})
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
    warnings: list[str] = [
        Warning(UNKNOWN_COLUMN, f"left out: {hint(name)}") for name in rows[0].unknown
    ]
    without = sorted({name for row in rows for name in row.without_unit})
    if without:
        said = f"{', '.join(without)}: no unit is stated; taken as microseconds (write 58us or 2ms)"
        warnings.append(Warning("no-unit", said))
    halves = [row for row in rows if _share(row) is None]
    if halves:
        first = f"{len(halves)} of {len(rows)} rows, the first in line {halves[0].line}"
        said = (
            f"a mix without its share of reads is taken as {DEFAULT_READ_PERCENT} % reads, as fio "
            f"does ({first}): write randrw:70, or add a column read_pct"
        )
        warnings.append(Warning(UNSTATED_MIX, said))
    if waiting := [row for row in rows if _depth(row) != row.values.get("iodepth")]:
        warnings.append(
            f"{len(waiting)} of {len(rows)} rows, the first in line {waiting[0].line}: a thread of "
            f"{waiting[0].values['engine']} has one request in flight, whatever iodepth says"
        )
    if not source.text().endswith("\n"):
        warnings.append("its last line has no end: check that nothing is missing")
    return results(source, "points", [_measurement(row) for row in rows], warnings)


def _separator(line: str) -> str:
    return max(",;\t", key=line.count)


def _rows(source: Source) -> Iterator[_Row]:
    numbered = enumerate(source.text().split("\n"), start=1)
    lines = [(n, text) for n, text in numbered if text.strip() and not text.startswith("#")]
    separator = _separator(lines[0][1]) if lines else ","
    columns: list[Column | None] = []
    for number, text in lines:
        try:
            cells = next(csv.reader([text], delimiter=separator, strict=True))
        except csv.Error as error:
            raise source.error(
                f"line {number} is not a row of a CSV ({error})", "a point is one line"
            ) from None
        if not columns:
            names = [cell.strip().strip('"').strip() for cell in cells]
            columns = _header(source, number, names)
            unknown = tuple(n for n, c in zip(names, columns, strict=True) if n and c is None)
            continue
        if len(cells) != len(names):
            raise source.error(
                f"line {number} has {len(cells)} cells, the header {len(names)}",
                "leave unknown cells blank, but keep their separators",
            )
        values, without_unit = {}, []
        for name, found, cell in zip(names, columns, map(str.strip, cells), strict=True):
            if found is not None and cell:
                values[found.name] = found.convert(
                    Cell(source, number, name, cell, separator != ",")
                )
                if not (found.has_unit or cell[-1].isalpha()):
                    without_unit.append(name)
        yield _Row(source, number, values, unknown, tuple(without_unit))


def _header(source: Source, line: int, names: list[str]) -> list[Column | None]:
    """Return what each column is; CaptureError for one that is there twice, or misspelt."""
    columns = [column(name) for name in names]
    first: dict[str, str] = {}
    for name, found in zip(names, columns, strict=True):
        if found is None and (meant := misspelt(name)) is not None:
            raise source.error(
                f"line {line}: column {name!r} is not known",
                f"is {meant} meant? Name it so, or leave it out",
            )
        said = name.lower() if found is None else found.name
        if name and (other := first.setdefault(said, name)) is not name:
            raise source.error(f"line {line}: column {other!r} occurs twice"
                               if other == name else
                               f"line {line}: columns {other!r} and {name!r} say the same",
                               "keep one")  # fmt: skip
    return columns


def _measurement(row: _Row) -> Measurement:
    get = row.values.get
    operation: Operation = row.values["op"]
    share = _share(row)
    fraction = DEFAULT_READ_PERCENT / 100 if share is None else share
    jobs, drives = _threads(row)
    conditions = Conditions(
        read_fraction=fraction,
        access=operation.access,
        block_size=get("block_size"),
        jobs=jobs,
        iodepth=_depth(row),
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
        filesystem=get("filesystem"),
        guest=get("guest"),
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
    operation: Operation | None = row.values.get("op")
    if operation is None:
        raise row.error("has no op", OP_EXAMPLES, *row.unknown)
    share = row.values.get("read_pct")
    if share is None:
        return operation.read_fraction
    if operation.read_fraction not in (None, share / 100):
        raise row.error(
            f"op is {operation.text} and read_pct {share:g}",
            "write randrw or rw for a mix, or leave the cell blank",
        )
    return float(share / 100)


def _depth(row: _Row) -> int | None:
    """Depth of a thread: 1 of a synchronous engine, unless rate and latency tell of more."""
    get = row.values.get
    depth: int | None = get("iodepth")
    took = US * (get("lat_mean_us") or get("clat_mean_us") or 0.0)
    is_deep = get("iops", 0.0) * took > IMPOSSIBLE * (_threads(row)[0] or 1)
    return 1 if depth and is_synchronous(get("engine")) and not is_deep else depth


def _threads(row: _Row) -> tuple[int | None, int | None]:
    """Jobs in all, of which ``threads_per_drive`` is a part, and drives."""
    jobs, each, drives = map(row.values.get, ("jobs", "threads_per_drive", "drives"))
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
        match = LATENCY.fullmatch(name)
        if match is None or match["op"] != prefix:
            continue
        kind = match["kind"]
        own = found.get(kind, Latency(count=0))
        if match["percent"]:
            percent = float(match["percent"].replace("_", "."))
            by_percent = {**own.percentiles_s, percent: value * US}
            found[kind] = replace(own, percentiles_s=dict(sorted(by_percent.items())))
        else:
            found[kind] = replace(own, **{f"{match['moment']}_s": value * US})
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
    raise row.error("has no iops", "give iops, or lat_mean_us with jobs and iodepth", *row.unknown)


def _bandwidth(row: _Row, iops: float | None) -> float:
    """Requests/s that the row's bandwidth is, 0 if it has none; it must agree with *iops*."""
    column = next((name for name in BANDWIDTH if name in row.values), None)
    if column is None:
        return 0.0
    unit, value, size = BANDWIDTH[column], row.values[column], row.values.get("block_size")
    if size is None:
        raise row.error(f"{column} without block_size", "write the size of the requests")
    rate: float = value * unit / size
    if not iops or abs(rate / iops - 1) <= SAME:
        return rate
    meant = [c for c, u in BANDWIDTH.items() if abs(rate / unit * u / iops - 1) <= SAME]
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
        do = "it is a thousand times too long: is its unit another? Write us, or the unit after it"
    elif is_kept_full and FACTOR[0] < 1 / ratio < FACTOR[1]:
        do = "is it in milliseconds? Write us, or the unit after the number"
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
        total = 100 * iops * each * US
    if total is None:
        return None
    per_job = total / conditions.jobs if conditions.jobs else None
    return CpuUse(None, None, total, per_job, polled=row.values.get("polled", False))
