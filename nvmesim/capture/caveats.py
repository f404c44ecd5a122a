"""Caveats about measurements; every reader of results asks here.

Each caveat is one sentence: what was found, with the number, and what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    found = (
        *measurement.warnings,
        *_load_caveats(measurement, is_polled),
        *_sample_caveats(measurement),
    )
    return replace(measurement, warnings=tuple(dict.fromkeys(found)))


def _load_caveats(measurement: Measurement, is_polled: bool) -> Iterator[str]:
    c, cpu = measurement.conditions, measurement.cpu
    if c.engine in NO_DRIVE:
        yield f"ioengine={c.engine} does no I/O: nothing of a drive was measured"
    elif c.direct is False and c.engine not in NO_CACHE:
        yield "direct=0: the page cache was measured with the drive; capture with direct=1"
    if c.rate_iops is not None:
        yield (
            f"rate limited to {c.rate_iops:g} requests/s: throughput is the limit, not the drive's"
        )
    if c.duration_s is not None and c.duration_s < SHORT_S:
        yield f"short run: {c.duration_s:.3g} s, {SHORT_S:g} s or more are wanted"
    if is_polled:
        yield (
            "polled: a job takes a whole CPU at any load, so its CPU time is not a cost per request"
        )
    elif cpu and cpu.per_job_pct is not None and cpu.per_job_pct >= CPU_BOUND_PCT:
        yield (
            f"CPU-bound: a job was {cpu.per_job_pct:.0f} % busy on its CPU, so the drive was not "
            "measured; capture with more jobs"
        )


def _sample_caveats(measurement: Measurement) -> Iterator[str]:
    for op, result in measurement.ops.items():
        if 0 < result.count < MIN_SAMPLES:
            yield f"only {result.count} {op}s: too few to calibrate on"
            continue
        thin = ((kind, _thin_percentiles(getattr(result, kind))) for kind in ("clat", "lat"))
        yield from [f"{op} {kind}: {text}" for kind, text in thin if text][:1]


def _thin_percentiles(latency: Latency | None) -> str:
    if latency is None:
        return ""
    n = latency.count
    thin = [p for p in latency.percentiles_s if n * (100 - p) < 100 * SAMPLES_BEYOND and p < 100]
    if not thin:
        return ""
    return f"p{min(thin):g} and above rest on fewer than {SAMPLES_BEYOND} of {n} samples"
