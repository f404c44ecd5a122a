"""Rows of captures as loads of a scenario, with what was measured under each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nvmesim.capture.capture import Captures, Conditions, Measurement
from nvmesim.errors import InputError
from nvmesim.units import format_size

LEAST_NOISE: Final = 0.02
"""Relative standard error of a measured rate at least: repeats of one run differ by so much."""
TAIL_NOISE: Final = 0.08
"""The same of a measured p99."""


@dataclass(frozen=True)
class MeasuredRow:
    """One measurement of the server."""

    label: str
    workload: Mapping[str, Any]
    """The load as a ``[[workload]]`` table."""
    iops: float
    p99_s: float | None
    """Of the completion latency of reads, or of writes where nothing reads; None: not stated."""
    is_buffered: bool | None
    """True if the page cache was in the way; None: not stated."""
    engine: str | None
    """fio's ioengine; None: not stated."""

    @property
    def figures(self) -> dict[str, float]:
        """Column of a sweep -> measured value."""
        column = f"{'read' if self.workload['read'] else 'write'}_lat_p99_us"
        p99 = {} if self.p99_s is None else {column: self.p99_s * 1e6}
        return {"iops": self.iops, **p99}


def in_flight(workload: Mapping[str, Any]) -> int:
    """Return the requests in flight of a *workload* of `workload_of`, at least.

    >>> in_flight({"threads_total": 4, "outstanding": 32})
    128
    """
    threads = workload.get("threads") or workload["threads_total"]
    return int(threads) * int(workload["outstanding"])


def rows_of(captures: Captures) -> tuple[list[MeasuredRow], list[str]]:
    """Return the rows of *captures* that can be simulated, and why the others cannot.

    InputError if none can.
    """
    rows, left_out = [], []
    for capture in captures.files:
        for measurement in capture.measurements:
            try:
                rows.append(_row(measurement))
            except InputError as error:
                left_out.append(f"{capture.file} ({measurement.label}): {error}")
    if not rows:
        why = left_out[0] if left_out else "the captures hold requests but no measurements"
        raise InputError(f"no row can be compared with a prediction: {why}")
    return rows, left_out


def _row(measurement: Measurement) -> MeasuredRow:
    conditions = measurement.conditions
    rate = sum(op.iops for op in measurement.ops.values())
    if rate <= 0:
        raise InputError("states no rate; IOPS or requests and run time are needed")
    reads = measurement.ops.get("read")
    shown = reads if reads is not None and reads.iops > 0 else measurement.ops["write"]
    return MeasuredRow(
        label=measurement.label,
        workload=workload_of(conditions, measurement),
        iops=rate,
        p99_s=shown.clat.percentiles_s.get(99.0) if shown.clat is not None else None,
        is_buffered=None if conditions.direct is None else not conditions.direct,
        engine=conditions.engine,
    )


def workload_of(conditions: Conditions, measurement: Measurement) -> dict[str, Any]:
    """Return *conditions* as a workload table; InputError says which of them is not known."""
    needed = {"jobs": conditions.jobs, "iodepth": conditions.iodepth,
              "block_size": conditions.block_size}  # fmt: skip
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise InputError(
            f"does not state {' and '.join(missing)}; add columns, or the command that was run"
        )
    sizes = conditions.block_size
    assert sizes is not None
    out: dict[str, Any] = {
        "block_size": format_size(sizes) if isinstance(sizes, int)
        else {format_size(size): share for size, share in sizes.items()},
        "access": conditions.access or "random",
        "read": _read_share(conditions, measurement),
        "outstanding": conditions.iodepth,
    }  # fmt: skip
    out["threads_total"] = conditions.jobs
    if conditions.targets_per_job == 1 and conditions.targets and conditions.jobs:
        out["threads"] = max(1, conditions.jobs // conditions.targets)
        del out["threads_total"]
    if conditions.rate_iops is not None and conditions.jobs:
        out["rate_limit"] = conditions.rate_iops / conditions.jobs
    return out


def _read_share(conditions: Conditions, measurement: Measurement) -> float:
    if conditions.read_fraction is not None:
        return conditions.read_fraction
    rates = {op: result.iops for op, result in measurement.ops.items()}
    return rates.get("read", 0.0) / sum(rates.values())


def noise_of(figure: str) -> float:
    """Return the standard error of the logarithm of a measured *figure*.

    >>> noise_of("iops"), noise_of("read_lat_p99_us")
    (0.02, 0.08)
    """
    return LEAST_NOISE if figure == "iops" else TAIL_NOISE


def log_ratios(rows: Iterable[MeasuredRow], predicted: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return log(measured / predicted) row by row and figure by figure, NaN where one is unknown.

    >>> row = MeasuredRow("a", {"read": 1.0}, 100.0, None, None, None)
    >>> log_ratios([row], [{"iops": 100.0}])
    [0.0]
    """
    out = []
    for row, answer in zip(rows, predicted, strict=True):
        for figure, measured in row.figures.items():
            value = answer.get(figure)
            out.append(math.log(measured / value) if value else math.nan)
    return out
