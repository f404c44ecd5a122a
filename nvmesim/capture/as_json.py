"""A capture as the JSON-ready object of ``nvmesim trace --json``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

from nvmesim.capture.capture import Capture, Conditions, CpuUse, Latency, Measurement, OpResult
from nvmesim.capture.histogram import merge_latencies

SHOWN_PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
KINDS: Final = ("clat", "lat", "slat")
OP_NAMES: Final = ("read", "write", "mixed")
Table = dict[str, Any]


def describe_capture(capture: Capture) -> Table:
    """Return file, format, version, conditions, rows, skipped, ops and warnings of *capture*.

    Everything is plain JSON: no NaN, no infinity, unknown is null. ``conditions`` holds what all
    measurements share; with several of them ``ops`` counts all requests of the file, and each
    stands by itself in ``measurements``. ``latency_s`` is of one kind, which it names: completion
    latency where the file has its distribution, else total latency; `clat_s`, `lat_s` and
    `slat_s` have what there is of each. Percentiles are merged from histograms or null.
    """
    measurements = capture.measurements
    warnings = list(capture.warnings)
    for measurement in measurements:
        name = f"{measurement.label}: " if len(measurements) > 1 else ""
        warnings += [f"{name}{warning}" for warning in measurement.warnings]
    return {
        "file": str(capture.file),
        "format": capture.format,
        "version": capture.version,
        "conditions": _shared([_conditions(m.conditions) for m in measurements]),
        "rows": capture.rows,
        "skipped": capture.skipped,
        "ops": _all_ops(measurements),
        "warnings": list(dict.fromkeys(warnings)),
        "has_requests": capture.requests is not None,
        "series": _series(capture),
        "measurements": [_measurement(m) for m in measurements],
    }


def _conditions(conditions: Conditions) -> Table:
    table: Table = {}
    for field in dataclasses.fields(conditions):
        value = getattr(conditions, field.name)
        if isinstance(value, Mapping):
            value = {str(key): _finite(share) for key, share in value.items()}
        table[field.name] = _finite(value)
    table["outstanding"] = conditions.outstanding
    return table


def _shared(tables: list[Table]) -> Table:
    """Return the values that all *tables* share, null where they differ."""
    if not tables:
        return _conditions(Conditions())
    first = tables[0]
    return {k: v if all(t[k] == v for t in tables) else None for k, v in first.items()}


def _results(measurement: Measurement) -> dict[str, OpResult]:
    found: dict[str, OpResult] = {}
    for op, result in measurement.ops.items():
        found[op] = result  # noqa: PERF403 - a mapping of a Literal is not a mapping of str
    if measurement.mixed is not None:
        found["mixed"] = measurement.mixed
    return found


def _all_ops(measurements: Iterable[Measurement]) -> Table:
    found: dict[str, list[OpResult]] = {}
    for measurement in measurements:
        for op, result in _results(measurement).items():
            found.setdefault(op, []).append(result)
    return {op: _ops(found[op]) for op in OP_NAMES if op in found}


def _ops(results: list[OpResult]) -> Table:
    """Counts and latencies; rates only of a single measurement, for several need not overlap."""
    by_kind = {kind: merge_latencies([getattr(r, kind) for r in results]) for kind in KINDS}
    main = max(KINDS[:2], key=lambda kind: _worth(by_kind[kind]))
    one = results[0] if len(results) == 1 else None
    return {
        "count": sum(r.count for r in results),
        "bytes": sum(r.bytes for r in results),
        "iops": _finite(one.iops) if one else None,
        "bytes_per_s": _finite(one.bytes_per_s) if one else None,
        "latency_s": _latency(by_kind[main], main),
        **{f"{kind}_s": _latency(by_kind[kind], kind) for kind in KINDS},
    }


def _worth(latency: Latency | None) -> int:
    """Order: nothing, moments only, a distribution; `max` takes clat where both are equal."""
    if latency is None:
        return 0
    return 2 if latency.percentiles_s or latency.bin_s is not None else 1


def _latency(latency: Latency | None, kind: str) -> Table | None:
    if latency is None:
        return None
    table: Table = {"kind": kind, "count": latency.count, "mean": _finite(latency.mean_s)}
    percents = sorted({*SHOWN_PERCENTILES, *latency.percentiles_s})
    table.update({f"p{p:g}": _finite(latency.percentiles_s.get(p)) for p in percents})
    table.update(min=_finite(latency.min_s), max=_finite(latency.max_s))
    table["stddev"] = _finite(latency.stddev_s)
    table["bins"] = 0 if latency.bin_s is None else len(latency.bin_s)
    return table


def _series(capture: Capture) -> list[Table]:
    """Windowed means by kind and operation: how many windows, and their mean and range."""
    if capture.series is None:
        return []
    value = pl.col("value")
    grouped = capture.series.group_by("kind", "op", maintain_order=True).agg(
        pl.len().alias("windows"),
        value.mean().alias("mean"),
        value.min().alias("min"),
        value.max().alias("max"),
    )
    return grouped.to_dicts()


def _cpu(cpu: CpuUse | None) -> Table | None:
    if cpu is None:
        return None
    return {key: _finite(value) for key, value in dataclasses.asdict(cpu).items()}


def _measurement(measurement: Measurement) -> Table:
    return {
        "label": measurement.label,
        "source": measurement.source,
        "conditions": _conditions(measurement.conditions),
        "ops": {op: _ops([result]) for op, result in _results(measurement).items()},
        "cpu": _cpu(measurement.cpu),
        "disk_util_pct": {k: _finite(v) for k, v in measurement.disk_util_pct.items()},
        "warnings": list(measurement.warnings),
    }


def _finite(value: Any) -> Any:
    """Return *value*, or None for a number that JSON has no text for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
