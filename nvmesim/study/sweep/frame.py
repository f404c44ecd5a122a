"""Rows of a sweep as one tidy Polars frame: parameters first, then every result column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from nvmesim.study.sweep.point import KINDS

_OP: Final = ("iops", "lat_mean_us", "lat_p50_us", "lat_p99_us", "lat_p99_9_us")
_LATENCY: Final = ("mean", "p50", "p90", "p99", "p99_9", "p99_99", "p99_low", "p99_high", "max")
_TEXTS: Final = ("verdict", "station", "outside", "warnings", "error")
_WHOLE: Final = ("outstanding", "requests", "assumptions")

RESULT_COLUMNS: Final = (
    "iops", "iops_low", "iops_high", "bytes_per_s",
    *(f"lat_{name}_us" for name in _LATENCY),
    *(f"{op}_{name}" for op in ("read", "write") for name in _OP),
    "iops_simulation", "lat_p99_simulation", "outside",
    "cpu_logical", "cpu_physical", "cycles_per_io", "ghz_per_miops",
    "verdict", "station", "utilization", "bound_iops", "backlog_per_s", "outstanding",
    *(f"busy_{kind.replace('-', '_')}" for kind in KINDS),
    "requests", "converged", "warnings", "assumptions", "error",
)  # fmt: skip


def _type(name: str) -> pl.DataType:
    if name in _TEXTS:
        return pl.String()
    if name in _WHOLE:
        return pl.Int64()
    return pl.Boolean() if name == "converged" else pl.Float64()


def to_frame(
    keys: Sequence[str], points: Iterable[Sequence[Any]], rows: Sequence[Mapping[str, Any]]
) -> pl.DataFrame:
    """Return one row a point: the values of *keys*, then its results (null beside an error)."""
    columns = list(zip(*points, strict=True)) or [() for _ in keys]
    parameters = [_parameter(k, list(v)) for k, v in zip(keys, columns, strict=True)]
    results = [
        pl.Series(name, [row.get(name) for row in rows], dtype=_type(name))
        for name in RESULT_COLUMNS
    ]
    taken = set(keys)
    return pl.DataFrame([*parameters, *(s for s in results if s.name not in taken)])


def _parameter(key: str, values: list[Any]) -> pl.Series:
    """Whole numbers, numbers, flags or texts; a mixture or a table becomes text."""
    kinds = {type(v) for v in values}
    if kinds <= {int}:
        return pl.Series(key, values, dtype=pl.Int64())
    if kinds <= {int, float}:
        return pl.Series(key, [float(v) for v in values], dtype=pl.Float64())
    if kinds <= {bool}:
        return pl.Series(key, values, dtype=pl.Boolean())
    return pl.Series(key, [_text(v) for v in values], dtype=pl.String())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
