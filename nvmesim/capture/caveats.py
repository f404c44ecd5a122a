"""Caveats about measurements; every reader of results asks here.

Each caveat is one sentence: what was found, with the number, and what follows from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nvmesim.capture.capture import Latency, Measurement

SAMPLES_BEYOND: Final = 100
"""Samples that must lie beyond a percentile: its rank then scatters by 10 %."""
SHORT_S: Final = 5.0
"""Assumed: shorter runs do not outlast start-up, write buffers and garbage-collection episodes."""
CPU_BOUND_PCT: Final = 90.0
"""A job this busy has no time left to submit: the CPU was measured (980 PRO captures: one
process stops at 383 kIOPS with 97 % busy while two go on to 640)."""
MIN_SAMPLES: Final = 1000
FEWEST: Final = 3
"""Requests that make a rate: the time between two is no more than one sample."""
NO_DRIVE: Final = ("null", "cpuio", "exec", "nop")
"""Engines of fio that send nothing to a drive. Source: fio HOWTO, ioengine."""
NO_CACHE: Final = ("io_uring_cmd", "sg")
"""Engines that pass commands to the device: whatever direct= says, no page cache is between."""


def with_caveats(measurement: Measurement, *, is_polled: bool = False) -> Measurement:
    """Return *measurement* with the caveats that its own numbers give added to its warnings.

    A polled job (*is_polled*) is always fully busy, which then says nothing about the drive.
    """
    found = [
        *measurement.warnings,
        *_load_caveats(measurement),
        *_cpu_caveats(measurement, is_polled),
        *_sample_caveats(measurement),
    ]
    return replace(measurement, warnings=tuple(dict.fromkeys(found)))


def _load_caveats(measurement: Measurement) -> list[str]:
    conditions = measurement.conditions
    found = []
    if conditions.engine in NO_DRIVE:
        found.append(f"ioengine={conditions.engine} does no I/O: nothing of a drive was measured")
    elif conditions.direct is False and conditions.engine not in NO_CACHE:
        found.append("direct=0: the page cache was measured with the drive; capture with direct=1")
    if conditions.rate_iops is not None:
        found.append(
            f"rate limited to {conditions.rate_iops:g} requests/s: throughput is the limit, not "
            "the drive's"
        )
    if conditions.duration_s is not None and conditions.duration_s < SHORT_S:
        found.append(f"short run: {conditions.duration_s:.3g} s, {SHORT_S:g} s or more are wanted")
    return found


def _cpu_caveats(measurement: Measurement, is_polled: bool) -> list[str]:
    cpu = measurement.cpu
    if is_polled:
        return [
            "polled: a job takes a whole CPU at any load, so its CPU time is not a cost per request"
        ]
    if cpu is None or cpu.per_job_pct is None or cpu.per_job_pct < CPU_BOUND_PCT:
        return []
    return [
        f"CPU-bound: a job was {cpu.per_job_pct:.0f} % busy on its CPU, so the drive was not "
        "measured; capture with more jobs"
    ]


def _sample_caveats(measurement: Measurement) -> list[str]:
    found = []
    for op, result in measurement.ops.items():
        if 0 < result.count < MIN_SAMPLES:
            found.append(f"only {result.count} {op}s: too few to calibrate on")
            continue
        for kind in ("clat", "lat"):
            latency: Latency | None = getattr(result, kind)
            text = _percentile_caveat(latency)
            if text:
                found.append(f"{op} {kind}: {text}")
                break
    return found


def _percentile_caveat(latency: Latency | None) -> str:
    if latency is None or not latency.percentiles_s:
        return ""
    thin = [p for p in latency.percentiles_s if latency.count * (100 - p) < 100 * SAMPLES_BEYOND]
    thin = [p for p in thin if p < 100]
    if not thin:
        return ""
    return (
        f"p{min(thin):g} and above rest on fewer than {SAMPLES_BEYOND} of {latency.count} samples"
    )
