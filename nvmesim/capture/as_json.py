"""A capture as the JSON-ready object of ``nvmesim trace --json``."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from nvmesim.capture.capture import (
    KINDS,
    Capture,
    Conditions,
    Latency,
    Measurement,
    OpResult,
    merge_latencies,
)
from nvmesim.files import plain_json

SHOWN_PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
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
    for m in measurements:
        warnings += [f"{m.label}: {w}" if len(measurements) > 1 else w for w in m.warnings]
    each = [_conditions(m.conditions) for m in measurements] or [_conditions(Conditions())]
    ops: dict[str, list[OpResult]] = {op: [] for op in OP_NAMES}
    for m in measurements:
        for op, result in _results(m).items():
            ops[op].append(result)
    table: Table = plain_json(
        {
            "file": str(capture.file),
            "format": capture.format,
            "version": capture.version,
            "conditions": {
                key: value if all(other[key] == value for other in each) else None
                for key, value in each[0].items()
            },
            "rows": capture.rows,
            "skipped": capture.skipped,
            "ops": {op: _ops(results) for op, results in ops.items() if results},
            "warnings": list(dict.fromkeys(map(str, warnings))),
            "has_requests": capture.requests is not None,
            "series": [] if capture.series is None else _series(capture.series),
            "measurements": [_measurement(m) for m in measurements],
        }
    )
    return table


def _conditions(conditions: Conditions) -> Table:
    return {**vars(conditions), "outstanding": conditions.outstanding}


def _results(measurement: Measurement) -> dict[str, OpResult]:
    both = (*measurement.ops.items(), ("mixed", measurement.mixed))
    return {op: result for op, result in both if result is not None}


def _ops(results: Sequence[OpResult]) -> Table:
    """Counts and latencies; rates only of a single measurement, for several need not overlap."""
    by_kind = {kind: merge_latencies([getattr(r, kind) for r in results]) for kind in KINDS}
    main = max(KINDS[:2], key=lambda kind: _worth(by_kind[kind]))
    one = results[0] if len(results) == 1 else None
    return {
        "count": sum(r.count for r in results),
        "bytes": sum(r.bytes for r in results),
        "iops": one and one.iops,
        "bytes_per_s": one and one.bytes_per_s,
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
    percents = sorted({*SHOWN_PERCENTILES, *latency.percentiles_s})
    return {
        "kind": kind,
        "count": latency.count,
        "mean": latency.mean_s,
        **{f"p{p:g}": latency.percentiles_s.get(p) for p in percents},
        "min": latency.min_s,
        "max": latency.max_s,
        "stddev": latency.stddev_s,
        "bins": 0 if latency.bin_s is None else len(latency.bin_s),
    }


def _series(series: pl.DataFrame) -> list[Table]:
    """Windowed means by kind and operation: how many windows, and their mean and range."""
    value = pl.col("value")
    figures = {"mean": value.mean(), "min": value.min(), "max": value.max()}
    groups = series.group_by("kind", "op", maintain_order=True)
    return groups.agg(windows=pl.len(), **figures).to_dicts()


def _measurement(measurement: Measurement) -> Table:
    return {
        "label": measurement.label,
        "source": measurement.source,
        "conditions": _conditions(measurement.conditions),
        "ops": {op: _ops([result]) for op, result in _results(measurement).items()},
        "cpu": measurement.cpu and dataclasses.asdict(measurement.cpu),
        "disk_util_pct": measurement.disk_util_pct,
        "warnings": list(map(str, measurement.warnings)),
    }
