"""Metrics that can be measured and predicted: their units, and what an error of each is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nvmesim.errors import InputError, nearest


@dataclass(frozen=True)
class Metric:
    """One kind of number of a row."""

    unit: str
    points: bool = False
    """Errors are differences in the metric's own unit instead of shares of the measured value."""
    most: float = float("inf")


METRICS: Final = {
    "iops": Metric("/s"),
    "mib_per_s": Metric("MiB/s"),
    "lat_mean_us": Metric("us"),
    "clat_p50_us": Metric("us"),
    "clat_p99_us": Metric("us"),
    "clat_p99_9_us": Metric("us"),
    "latency_ms": Metric("ms"),
    "cpu_pct": Metric("%", points=True, most=100),
    "thread_cpu_pct": Metric("%", points=True, most=101),
    "loss_pct": Metric("%", points=True, most=100),
    "busy_pct": Metric("%", points=True, most=100),
    "ratio": Metric(""),
    "ghz_per_miops": Metric("GHz"),
    "ghz": Metric("GHz"),
    "carries": Metric("", points=True, most=1),
}
"""By name. ``loss_pct`` and ``ratio`` compare IOPS with those of the row's reference;
``busy_pct:3`` is of drive 3; ``thread_cpu_pct`` is per submitting thread, % of a logical CPU."""


def metric(name: str) -> Metric:
    """Return the metric called *name* ("busy_pct:3" is "busy_pct"); InputError if there is none.

    >>> metric("iops").unit, metric("cpu_pct").points
    ('/s', True)
    """
    base = name.partition(":")[0]
    if base not in METRICS:
        raise InputError(f"metric {name!r} is unknown; {nearest(base, METRICS)}")
    return METRICS[base]
