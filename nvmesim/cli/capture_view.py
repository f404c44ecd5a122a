"""What `nvmesim trace` says of one capture: a JSON object, or a headline and rows of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from nvmesim import units
from nvmesim.result.summary import kiops, microseconds, percent, plural
from nvmesim.trace.capture import Capture, Conditions, Latency, Measurement, Op, OpResult
from nvmesim.trace.histogram import merge_latencies

OPS: Final[tuple[Op, ...]] = ("read", "write")
HEADINGS: Final = (
    *("measurement", "load", "op", "count", "IOPS", "GB/s", "mean us"),
    *("p50 us", "p99 us", "p99.9 us", "cpu"),
)


def to_json(capture: Capture) -> dict[str, Any]:
    """Return the object that `trace --json` prints for one file."""
    return {
        "file": str(capture.file),
        "format": capture.format,
        "version": capture.version,
        "conditions": _common(capture.measurements),
        "rows": capture.rows,
        "skipped": capture.skipped,
        "ops": {op: _all_of(capture, op) for op in OPS},
        "measurements": [_measurement(m) for m in capture.measurements],
        "has_requests": capture.requests is not None,
        "warnings": [
            *capture.warnings,
            *(f"{m.label}: {w}" for m in capture.measurements for w in m.warnings),
        ],
    }


def _common(measurements: tuple[Measurement, ...]) -> dict[str, Any]:
    """Conditions that all measurements share; what differs between them is null."""
    every = [_conditions(m.conditions) for m in measurements]
    names = [f.name for f in fields(Conditions)]
    return {
        name: every[0][name] if every and all(c[name] == every[0][name] for c in every) else None
        for name in names
    }


def _conditions(conditions: Conditions) -> dict[str, Any]:
    found = {f.name: getattr(conditions, f.name) for f in fields(Conditions)}
    if isinstance(conditions.block_size, Mapping):
        found["block_size"] = {str(k): v for k, v in conditions.block_size.items()}
    return found


def _all_of(capture: Capture, op: Op) -> dict[str, Any] | None:
    """All measurements of a file together; latencies only where they can be merged."""
    found = [m.ops[op] for m in capture.measurements if op in m.ops]
    if not found:
        return None
    return {
        "count": sum(r.count for r in found),
        "bytes": sum(r.bytes for r in found),
        "latency_s": _latency(merge_latencies([_total(r) for r in found])),
        "clat_s": _latency(merge_latencies([r.clat for r in found])),
    }


def _total(result: OpResult) -> Latency | None:
    """Total latency if its distribution is known, else completion latency."""
    if result.lat is not None and result.lat.percentiles_s:
        return result.lat
    return result.clat or result.lat


def _latency(latency: Latency | None) -> dict[str, Any] | None:
    if latency is None:
        return None
    return {
        "count": latency.count,
        "mean": latency.mean_s,
        "min": latency.min_s,
        "max": latency.max_s,
        "stddev": latency.stddev_s,
        **{f"p{p:g}": value for p, value in sorted(latency.percentiles_s.items())},
    }


def _measurement(measurement: Measurement) -> dict[str, Any]:
    return {
        "label": measurement.label,
        "conditions": _conditions(measurement.conditions),
        "ops": {op: _op(r) for op, r in measurement.ops.items()},
        "cpu": asdict(measurement.cpu) if measurement.cpu else None,
        "disk_util_pct": dict(measurement.disk_util_pct),
        "source": measurement.source,
    }


def _op(result: OpResult) -> dict[str, Any]:
    return {
        "count": result.count,
        "bytes": result.bytes,
        "iops": result.iops,
        "bytes_per_s": result.bytes_per_s,
        "lat_s": _latency(result.lat),
        "clat_s": _latency(result.clat),
        "slat_s": _latency(result.slat),
    }


def headline(capture: Capture) -> str:
    """Format, version and counts in one line."""
    parts = [f"{capture.format}{f' {capture.version}' if capture.version else ''}"]
    parts.append(plural(capture.rows, "row"))
    if capture.skipped:
        parts.append(f"{capture.skipped:,} skipped")
    parts.append(plural(len(capture.measurements), "measurement"))
    if capture.requests is not None:
        parts.append("every request is known")
    return ", ".join(parts)


def rows(capture: Capture) -> list[tuple[str, ...]]:
    """One row of texts for each operation of each measurement, as HEADINGS."""
    return [
        _row(measurement, op, measurement.ops[op])
        for measurement in capture.measurements
        for op in OPS
        if op in measurement.ops
    ]


def _row(measurement: Measurement, op: Op, result: OpResult) -> tuple[str, ...]:
    latency = _total(result)
    known: Mapping[float, float] = latency.percentiles_s if latency else {}
    cpu = measurement.cpu
    return (
        measurement.label,
        load_text(measurement.conditions),
        op,
        f"{result.count:,}",
        kiops(result.iops),
        f"{result.bytes_per_s / 1e9:.3g}",
        microseconds(latency.mean_s if latency else None),
        *(microseconds(known.get(p)) for p in (50.0, 99.0, 99.9)),
        percent(cpu.total_pct / 100) if cpu else "-",
    )


def load_text(conditions: Conditions) -> str:
    """The load in a few words.

    >>> load_text(Conditions(access="random", block_size=4096, jobs=2, iodepth=32))
    'random 4 KiB, 2x32'
    """
    parts = [f"{conditions.access or 'unknown access,'} {_size(conditions.block_size)}"]
    if conditions.jobs is not None or conditions.iodepth is not None:
        parts.append(f"{conditions.jobs or '?'}x{conditions.iodepth or '?'}")
    elif conditions.depth_mean is not None:
        parts.append(f"depth {conditions.depth_mean:.3g}")
    return ", ".join(parts)


def _size(size: int | Mapping[int, float] | None) -> str:
    if isinstance(size, Mapping):
        return "mixed sizes"
    return units.format_size(size) if size else "?"
