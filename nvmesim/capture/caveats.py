"""Caveats about measurements, and checks that their numbers can be true together.

Every reader of results asks for caveats: each is one sentence, what was found, with the number, and
what follows from it. Every capture passes the checks: a latency is no longer than its run,
percentiles lie below the maximum, requests in flight are rate times latency (Little's law), and
bandwidth is rate times size. What fails is said with both numbers and left out; it is never passed
on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from nvmesim.capture.capture import KINDS, Capture, Latency, Measurement, Op, OpResult
from nvmesim.capture.checked_numbers import MAX_LATENCY_S
from nvmesim.capture.text import Source
from nvmesim.warning import Warning

SAMPLES_BEYOND: Final = 100
"""Samples that must lie beyond a percentile: its rank then scatters by 10 %."""
SHORT_S: Final = 5.0
"""Assumed: shorter runs do not outlast start-up, write buffers and garbage-collection episodes."""
CPU_BOUND_PCT: Final = 90.0
"""A job this busy has no time left to submit: the CPU was measured (980 PRO captures: one
process stops at 383 kIOPS with 97 % busy while two go on to 640)."""
MIN_SAMPLES: Final = 1000
UNKNOWN_COLUMN: Final = "unknown-column"
"""Code of the warning about a column of a table of points that was not read."""
UNSTATED_MIX: Final = "unstated-mix"
"""Code of the warning that mixes do not state their share of reads."""
FEWEST: Final = 3
"""Requests that make a rate: the time between two is no more than one sample."""
NO_DRIVE: Final = ("null", "cpuio", "exec", "nop")
"""Engines of fio that send nothing to a drive. Source: fio HOWTO, ioengine."""
NO_CACHE: Final = ("io_uring_cmd", "sg")
"""Engines that pass commands to the device: whatever direct= says, no page cache is between."""
IDLE: Final = 0.5
"""Share of a thread's time with a request in flight below which it waits for others. Assumed."""
LITTLE: Final = 0.2
"""Rate times latency may be off so far: rates and latencies are of slightly other windows."""
BANDWIDTH: Final = 0.1
"""Bytes over requests may be off so far from the size: the last request may be a part of one."""
DRAIN_S: Final = 1.0
"""Requests that began before the measured time: they end within it."""
ABOVE_MAX: Final = 0.05
"""Percentiles are midpoints of bins or rounded, the maximum is exact."""
THIN: Final = "thin-tail"
"""Code of the warning that percentiles rest on few samples."""
CLAIMS: Final = "points"
"""A table of claimed points, whose author is answerable: it is told, and keeps its rows."""


def with_caveats(measurement: Measurement, *, is_polled: bool = False) -> Measurement:
    """Return *measurement* with the caveats that its own numbers give added to its warnings.

    A polled job (*is_polled*) is always fully busy, which then says nothing about the drive.
    """
    found = [*_load_caveats(measurement, is_polled), *_sample_caveats(measurement)]
    return _warned(measurement, *found)


def _load_caveats(measurement: Measurement, is_polled: bool) -> Iterator[Warning]:
    c, cpu = measurement.conditions, measurement.cpu
    if c.engine in NO_DRIVE:
        text = f"ioengine={c.engine} does no I/O: nothing of a drive was measured"
        yield Warning("no-drive", text)
    elif c.direct is False and c.engine not in NO_CACHE:
        text = "direct=0: the page cache was measured with the drive; capture with direct=1"
        yield Warning("page-cache", text)
    if c.rate_iops is not None:
        what = "throughput is the limit, not the drive's"
        text = f"rate limited to {c.rate_iops:g} requests/s: {what}"
        yield Warning("rate-limited", text)
    if c.duration_s is not None and c.duration_s < SHORT_S:
        text = f"short run: {c.duration_s:.3g} s, {SHORT_S:g} s or more are wanted"
        yield Warning("short-run", text)
    if is_polled:
        text = "a job takes a whole CPU at any load, so its CPU time is not a cost per request"
        yield Warning("polled", f"polled: {text}")
    elif cpu and cpu.per_job_pct is not None and cpu.per_job_pct >= CPU_BOUND_PCT:
        text = (
            f"CPU-bound: a job was {cpu.per_job_pct:.0f} % busy on its CPU, so the drive was not "
            "measured; capture with more jobs"
        )
        yield Warning("cpu-bound", text)


def _sample_caveats(measurement: Measurement) -> Iterator[Warning]:
    for op, result in measurement.ops.items():
        if 0 < result.count < MIN_SAMPLES:
            yield Warning("few-requests", f"only {result.count} {op}s: too few to calibrate on")
            continue
        thin = ((kind, _thin_percentiles(getattr(result, kind))) for kind in ("clat", "lat"))
        yield from [Warning(THIN, f"{op} {kind}: {text}") for kind, text in thin if text][:1]


def _thin_percentiles(latency: Latency | None) -> str:
    if latency is None:
        return ""
    n = latency.count
    thin = [p for p in latency.percentiles_s if n * (100 - p) < 100 * SAMPLES_BEYOND and p < 100]
    if not thin:
        return ""
    return f"p{min(thin):g} and above rest on fewer than {SAMPLES_BEYOND} of {n} samples"


def plausible(source: Source, capture: Capture) -> Capture:
    """Return *capture* without what cannot be true, each such thing said.

    Raises
    ------
    CaptureError
        If no measurement is left: the first contradiction, with both numbers.
    """
    kept: list[Measurement] = []
    problems: list[str] = []
    for measurement in capture.measurements:
        checked = _without_bad_latencies(measurement)
        asked, found, problem = checked.conditions.outstanding, in_flight(checked), ""
        if asked is not None and found is not None and found > (1 + LITTLE) * asked:
            made = f"IOPS times mean latency make {found:.4g} requests in flight"
            problem = f"{made}, jobs times depth are {asked}"
        if problem and capture.format != CLAIMS:
            problems.append(f"{measurement.label}: {problem}")
            continue
        checked = _sizes_checked(checked)
        if problem:
            checked = _warned(checked, Warning("in-flight", problem))
        elif capture.requests is None:
            checked = _depth_checked(checked)
        kept.append(checked)
    if problems and not kept:
        raise source.error(problems[0], "the file contradicts itself: give it as it was written")
    if not problems and all(a is b for a, b in zip(kept, capture.measurements, strict=True)):
        return capture
    warnings = (*capture.warnings, *(f"left out: {problem}" for problem in problems))
    return replace(capture, measurements=tuple(kept), warnings=warnings)


def _warned(measurement: Measurement, *notes: Warning) -> Measurement:
    if not notes:
        return measurement
    return replace(measurement, warnings=tuple(dict.fromkeys((*measurement.warnings, *notes))))


def _without_bad_latencies(measurement: Measurement) -> Measurement:
    conditions = measurement.conditions
    run_s = conditions.duration_s
    longest = MAX_LATENCY_S
    if run_s is not None:
        longest = min(longest, (1 + ABOVE_MAX) * (run_s + (conditions.ramp_s or 0.0)) + DRAIN_S)
    notes: list[Warning] = []
    ops: dict[Op, OpResult] = {
        op: _sound(op, result, longest, run_s, notes) for op, result in measurement.ops.items()
    }
    mixed = measurement.mixed and _sound("mixed", measurement.mixed, longest, run_s, notes)
    return _warned(replace(measurement, ops=ops, mixed=mixed), *notes) if notes else measurement


def _sound(
    op: str, result: OpResult, longest: float, run_s: float | None, notes: list[Warning]
) -> OpResult:
    """Return *result* without the latencies that cannot be; they are said."""
    bad: dict[str, Any] = {}
    for kind in KINDS:
        latency: Latency | None = getattr(result, kind)
        problem = latency and (_too_long(latency, longest, run_s) or _out_of_order(latency))
        if problem:
            bad[kind] = None
            notes.append(Warning("impossible-latency", f"{op} {kind}: {problem}; left out"))
    return replace(result, **bad) if bad else result


def _too_long(latency: Latency, longest: float, run_s: float | None) -> str:
    tail = max(latency.percentiles_s.values(), default=0.0)
    for what, value in (
        *(("mean", latency.mean_s), ("maximum", latency.max_s), ("tail", tail)),
        *(("minimum", latency.min_s), ("deviation", latency.stddev_s)),
    ):
        if value is not None and value > longest:
            limit = f"its run of {run_s:,.6g} s" if run_s is not None else "eleven days"
            return f"a {what} of {value:,.6g} s is longer than {limit}: its clock or unit is wrong"
    return ""


def _out_of_order(latency: Latency) -> str:
    values = [latency.percentiles_s[p] for p in sorted(latency.percentiles_s)]
    if values != sorted(values):
        return "its percentiles decrease"
    low, mean, top = latency.min_s or 0.0, latency.mean_s, latency.max_s
    if mean is not None and low > (1 + ABOVE_MAX) * mean + 2e-6:
        return f"its mean is {1e6 * mean:,.6g} us, below its minimum of {1e6 * low:,.6g} us"
    if mean is not None and top and mean > (1 + ABOVE_MAX) * top + 2e-6:
        return f"its mean is {1e6 * mean:,.6g} us, above its maximum of {1e6 * top:,.6g} us"
    if top and values and values[-1] > (1 + ABOVE_MAX) * top + 2e-6:
        p = max(latency.percentiles_s)
        return f"p{p:g} is {1e6 * values[-1]:,.6g} us, above its maximum of {1e6 * top:,.6g} us"
    return ""


def in_flight(measurement: Measurement) -> float | None:
    """Mean number of requests in flight by Little's law; None if a mean latency is unknown."""
    total = 0.0
    results = list(measurement.ops.values())
    if not results and measurement.mixed is not None:
        results = [measurement.mixed]
    for result in results:
        known = [x.mean_s for x in (result.lat, result.clat) if x is not None and x.mean_s]
        if not known or not result.iops:
            return None
        total += known[0] * result.iops
    return total if results else None


def waits_between(measurement: Measurement) -> bool:
    """True if threads of a mix, with one request at a time, have none for most of the time.

    They flush, or think: latencies tell of the drive then, and the rate does not. A table's rate is
    what its author means.
    """
    c, busy = measurement.conditions, in_flight(measurement)
    is_closed = (c.rate_iops, c.offered_iops, c.sync) == (None,) * 3
    if measurement.place or len(measurement.ops) < 2 or not is_closed or c.direct is False:
        return False
    return busy is not None and c.iodepth == 1 and busy < IDLE * (c.jobs or 1)


def _sizes_checked(measurement: Measurement) -> Measurement:
    """Hold the sizes that were asked for against bytes over requests; sizes that fail go."""
    size = measurement.conditions.block_size
    results = [r for r in measurement.ops.values() if r.iops and r.bytes_per_s]
    if size is None or not results or len(results) < len(measurement.ops):
        return measurement
    mean = sum(b * share for b, share in size.items()) if isinstance(size, Mapping) else size
    expected = mean * sum(r.iops for r in results)
    found = sum(r.bytes_per_s for r in results)
    if abs(expected - found) <= BANDWIDTH * max(expected, found):
        return measurement
    text = (
        f"IOPS times the size asked for make {expected:,.5g} B/s, its bandwidth is {found:,.5g} "
        "B/s: what size the requests had is unknown"
    )
    conditions = replace(measurement.conditions, block_size=None)
    return _warned(replace(measurement, conditions=conditions), Warning("size-unknown", text))


def _depth_checked(measurement: Measurement) -> Measurement:
    """Hold the depth, asked or counted, against Little's law; a counted one that fails goes."""
    conditions, found = measurement.conditions, in_flight(measurement)
    asked, counted = conditions.outstanding, conditions.depth_mean
    if found is None:
        return measurement
    is_kept_full = (conditions.rate_iops, conditions.offered_iops, conditions.sync) == (None,) * 3
    if asked is not None and is_kept_full and found < (1 - LITTLE) * asked:
        text = (
            f"IOPS times mean latency make {found:.3g} requests in flight, jobs times depth are "
            f"{asked}: the load was not as deep as asked"
        )
        return _warned(measurement, Warning("shallow", text))
    if counted is not None and abs(counted - found) > LITTLE * max(counted, found, 1.0):
        text = (
            f"a mean queue of {counted:.3g} is counted, IOPS times mean latency make {found:.3g}: "
            "the queue is left out"
        )
        conditions = replace(conditions, depth_mean=None)
        return _warned(replace(measurement, conditions=conditions), Warning("queue-unknown", text))
    return measurement
