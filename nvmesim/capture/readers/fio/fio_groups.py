"""fio jobs that ran together become one measurement: counts add, histograms merge.

Percentiles of separate jobs are never averaged: without histograms (json+) the merged measurement
has none, and says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, TypeVar

from nvmesim.capture.capture import Conditions, CpuUse, Measurement, Op, OpResult
from nvmesim.capture.caveats import CPU_BOUND_PCT, with_caveats
from nvmesim.capture.histogram import merge_latencies
from nvmesim.capture.plausible import LITTLE
from nvmesim.capture.readers.fio.fio_jobs import OPS, FioJob, describe_error
from nvmesim.capture.text import Source, shown
from nvmesim.warning import Warning

RUNTIME_SPREAD: Final = 0.05
"""Jobs whose run times differ by more did not load the drive together all the time."""
COUNT_TOLERANCE: Final = 0.01
"""fio 2.1 prints whole IOPS only: 133 of 133.9 is the worst of its own sample."""
MOSTLY_ALONE: Final = 0.5
ALWAYS_ALONE: Final = 0.99
"""Shares of requests issued with no other in flight; fsyncs and the ends of a run make a few."""
MIX_TOLERANCE: Final = 0.1
"""Shares of reads asked and counted may differ by so much: fio draws for each request."""
POLLED_ENGINES: Final = ("spdk", "xnvme", "nvme_")
"""They spin for completions whatever else is asked. Source: SPDK's and xNVMe's fio plugins."""
FEW_SWITCHES: Final = 0.1
CACHED_S: Final = 5e-6
"""Memory answers in less, no drive does."""
_PACED: Final = ("thinktime", "rate", "rate_iops", "latency_target", "iodepth_batch")
_PHASES: Final = Warning(
    "phases",
    "reads ran after the writes and not between them (verify): each is measured by itself",
)
T = TypeVar("T")


def groups(jobs: Iterable[FioJob]) -> list[list[FioJob]]:
    """Split *jobs* into those that ran together: a stonewall or wait starts the next group."""
    found: list[list[FioJob]] = []
    for _, together in groupby(jobs, key=lambda job: (job.host, job.group)):
        members = list(together)
        current = members[:1]
        for job, before in zip(members[1:], members, strict=False):
            waits = job.options.flag("wait_for_previous") or "wait_for" in job.options.given
            if waits and job.name != before.name:
                found.append(current)
                current = []
            current.append(job)
        found.append(current)
    return found


def measure_groups(
    source: Source,
    jobs: list[FioJob],
    disk_util_pct: Mapping[str, float],
    warnings: list[str],
    message: str = "",
) -> list[Measurement]:
    """Return a measurement for each group of *jobs* that ran together.

    A failed group is left out and said in *warnings*; if all failed, CaptureError with the first
    reason and fio's own *message*. Utilization is of the whole file: with several groups of none.
    """
    together = groups(jobs)
    problems = [_problem(members) for members in together]
    for at, members in enumerate(together):
        ran = [job for job in members if not _failed(job)]
        if problems[at] and any(job.results for job in ran):
            warnings.append(f"left out: {problems[at]}; the jobs beside it lost its load")
            together[at], problems[at] = ran, ""
    good = [members for members, problem in zip(together, problems, strict=True) if not problem]
    failed = [problem for problem in problems if problem]
    if not good:
        reason = f" ({message})" if message else ""
        raise source.error(failed[0] + reason, "mend the cause and repeat the capture")
    warnings += [f"left out: {problem}" for problem in failed]
    hosts = {job.host for members in good for job in members}
    if len(hosts) > 1:
        warnings.append(f"{len(hosts)} clients ran together, a measurement each")
    util = disk_util_pct if len(together) == 1 else {}
    measurements = [m for members in good for m in _measure_phases(members, util)]
    if any(_without_latencies(m) for m in measurements):
        warnings.append(
            "no latencies (gtod_reduce or disable_lat and disable_clat): throughput only; a drive "
            "is calibrated better without these options"
        )
    return measurements


def tell_apart(runs: Sequence[list[Measurement]]) -> list[Measurement]:
    """Return the measurements of all *runs*; a label of several runs gets the run's number."""
    labels = Counter(label for run in runs for label in {m.label for m in run})
    return [
        replace(m, label=f"{m.label} (run {number})") if labels[m.label] > 1 else m
        for number, run in enumerate(runs, start=1)
        for m in run
    ]


def _measure_phases(jobs: list[FioJob], util: Mapping[str, float]) -> list[Measurement]:
    """Return the measurement of *jobs*; two if they wrote first and then read, as verify does."""
    phased = any(is_phased(job) for job in jobs)
    if not phased:
        return [measure(jobs, util)]
    found = []
    for op in ("write", "read"):
        some = [_only(job, op) for job in jobs if op in job.ops]
        m = measure(some, {})
        found.append(replace(m, label=f"{m.label}: {op}s", warnings=(_PHASES, *m.warnings)))
    return found


def _only(job: FioJob, op: Op) -> FioJob:
    """Return what *job* did of operation *op*; its CPU time is of all it did."""
    runtime_s = job.runtimes_s.get(op) or job.runtime_s
    return replace(job, ops={op: job.ops[op]}, runtime_s=runtime_s, user_pct=None, system_pct=None)


def is_phased(job: FioJob) -> bool:
    """True if the reads of *job* came after its writes (verify), not between them.

    A mixture has one run time and no more in flight than its depth; phases have two of each.
    """
    if not {"read", "write"} <= job.ops.keys():
        return False
    times = [time for time in job.runtimes_s.values() if time]
    if job.threads == 1 and len(times) > 1 and min(times) < (1 - RUNTIME_SPREAD) * max(times):
        return True
    depth = depth_of(job)
    asked = None if depth is None or job.threads is None else depth * job.threads
    found = [
        r.iops * next((x.mean_s or 0.0 for x in (r.lat, r.clat) if x), 0.0) for r in job.results
    ]
    if asked is None or not all(found):
        return job.options.read_fraction() in (0.0, 1.0) and not all(found)
    return sum(found) > (1 + LITTLE) * asked >= max(found)


def _failed(job: FioJob) -> bool:
    """True if *job* ended by an error; one that was told to go on did not."""
    goes_on = job.options.given.get("continue_on_error", "none").strip() not in ("none", "0")
    return bool(job.error) and not (goes_on and job.results)


def _problem(jobs: list[FioJob]) -> str:
    """Say why nothing can be learned from *jobs*; empty if something can."""
    for job in jobs:
        if _failed(job):
            return f"job {shown(job.name, 40)!r} failed with {describe_error(job.error)}"
    if any(job.results for job in jobs):
        return ""
    trimmed = any("trims" in note for job in jobs for note in job.notes)
    what = "only trims" if trimmed else "no read and no write"
    return f"job {shown(jobs[0].name, 40)!r} has zero samples: it did {what}"


def _without_latencies(measurement: Measurement) -> bool:
    mixed = [measurement.mixed] if measurement.mixed else []
    ops = [*measurement.ops.values(), *mixed]
    return all(op.clat is None and op.lat is None for op in ops)


def measure(jobs: list[FioJob], disk_util_pct: Mapping[str, float]) -> Measurement:
    """Merge *jobs*, at least one with requests, into one measurement with its caveats."""
    active = [job for job in jobs if job.results]
    ops = {op: _merge_op([job.ops[op] for job in active if op in job.ops]) for op in OPS}
    merged: dict[Op, OpResult] = {op: result for op, result in ops.items() if result is not None}
    names = list(dict.fromkeys(job.name for job in active))
    label = shown("+".join(names), 60)
    if active[0].host:
        label = f"{active[0].host}: {label}"
    is_polled = any(_is_polled(job) for job in active)
    measurement = Measurement(
        label=label,
        conditions=conditions_of(active),
        ops=merged,
        cpu=_cpu(active, is_polled=is_polled),
        disk_util_pct=disk_util_pct,
        source="fio",
        warnings=tuple(_notes(jobs, active, merged)),
        mixed=_merge_op([job.mixed for job in active if job.mixed]),
    )
    return with_caveats(measurement, is_polled=is_polled)


def _merge_op(results: list[OpResult]) -> OpResult | None:
    if len(results) < 2:
        return results[0] if results else None
    return OpResult(
        count=sum(r.count for r in results),
        bytes=sum(r.bytes for r in results),
        iops=sum(r.iops for r in results),
        bytes_per_s=sum(r.bytes_per_s for r in results),
        clat=merge_latencies([r.clat for r in results]),
        lat=merge_latencies([r.lat for r in results]),
        slat=merge_latencies([r.slat for r in results]),
    )


def _same(values: Iterable[T | None]) -> T | None:
    """Return the value that all share, else None."""
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else None


def _total(values: Iterable[int | None]) -> int | None:
    """Return the sum, None if a part is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def conditions_of(jobs: list[FioJob]) -> Conditions:
    """Return what holds for all of *jobs*, which ran together; None where they differ."""
    options = [job.options for job in jobs]
    names = [o.filenames() for o in options]
    runtime = max(job.runtime_s for job in jobs)
    return Conditions(
        read_fraction=_read_fraction(jobs),
        access=_same(o.access() for o in options),
        block_size=_block_size(jobs),
        jobs=_total(job.threads for job in jobs),
        iodepth=_same(depth_of(job) for job in jobs),
        targets=None if () in names else len({n for some in names for n in some}),
        engine=_same(engine_of(job) for job in jobs),
        direct=_same(o.direct() for o in options),
        rate_iops=_rate(jobs),
        duration_s=runtime or None,
        ramp_s=_same(o.ramp_s() for o in options),
    )


def _counted_fraction(jobs: list[FioJob]) -> float | None:
    """Return the fraction of reads among the requests counted; None if the file merges them."""
    if any(job.mixed for job in jobs):
        return None
    reads = sum(_weight(job.ops["read"]) for job in jobs if "read" in job.ops)
    return reads / sum(_weight(result) for job in jobs for result in job.results)


def _weight(result: OpResult) -> float:
    """Requests; IOPS where a report was trimmed so far that nothing can be counted."""
    return result.count or result.iops


def _read_fraction(jobs: list[FioJob]) -> float | None:
    """Value that the options ask for if all jobs ask the same and did so, else the counted one."""
    asked = _same(job.options.read_fraction() for job in jobs)
    counted = _counted_fraction(jobs)
    if asked is None or (counted is not None and abs(asked - counted) > MIX_TOLERANCE):
        return counted
    return asked


def _block_size(jobs: list[FioJob]) -> int | dict[int, float] | None:
    """Bytes, or the mix weighted by the requests counted; None where neither source says it."""
    weights: dict[int, float] = {}
    total = sum(_weight(result) for job in jobs for result in job.results)
    for job in jobs:
        whose: list[tuple[Op, OpResult]] = list(job.ops.items())
        for op, result in whose or [("read", result) for result in job.results]:
            sizes = job.options.block_sizes(op)
            if sizes is None and not job.options.mixes_sizes:
                sizes = _size_counted(result)
            if sizes is None:
                return None
            for size, share in sizes.items():
                weights[size] = weights.get(size, 0.0) + share * _weight(result) / total
    if len(weights) == 1:
        return next(iter(weights))
    return dict(sorted(weights.items()))


def _size_counted(result: OpResult) -> dict[int, float] | None:
    """Return the size of requests that were all alike, from bytes and count; else None.

    Counts of old versions are rounded, and counts and bytes are read a moment apart.
    """
    mean = result.bytes_per_s / result.iops if result.iops else 0.0
    size = 1 << max(0, round(math.log2(max(mean, 1.0))))
    return {size: 1.0} if size >= 512 and abs(mean / size - 1) < COUNT_TOLERANCE else None


def _rate(jobs: list[FioJob]) -> float | None:
    limits = []
    for job in jobs:
        sizes = {
            op: r.bytes_per_s / r.iops for op, r in job.ops.items() if r.bytes_per_s and r.iops
        }
        limit = job.options.rate_iops(sizes)
        limits.append(None if limit is None or job.threads is None else limit * job.threads)
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known and len(known) == len(limits) else None


def _cpu(jobs: list[FioJob], *, is_polled: bool) -> CpuUse | None:
    """Sum over jobs: fio's figures are means over the threads of an entry, in % of their time."""
    user = system = 0.0
    busiest = 0.0
    for job in jobs:
        if job.user_pct is None or job.system_pct is None or job.threads is None:
            return None
        user += job.user_pct * job.threads
        system += job.system_pct * job.threads
        busiest = max(busiest, job.user_pct + job.system_pct)
    return CpuUse(user, system, user + system, busiest, polled=is_polled)


def share_alone(job: FioJob) -> float | None:
    """Fraction of requests that were issued with no other in flight, as fio counted; or None."""
    total = sum(job.levels.values())
    return job.levels.get("1", 0.0) / total if total else None


def depth_of(job: FioJob) -> int | None:
    """Outstanding requests that the job really kept: what was asked, unless fio counted otherwise.

    fio marks each request with how many are in flight. The default engine is synchronous on Linux
    and asynchronous (windowsaio) on Windows, which no option tells.
    """
    alone, paced = share_alone(job), any(key in job.options.given for key in _PACED)
    asked = job.options.whole("iodepth")
    if alone is None or asked is None or asked == 1:
        return job.options.iodepth(job.depth)
    if alone < MOSTLY_ALONE and "ioengine" not in job.options.given:
        return asked
    if alone > ALWAYS_ALONE and not paced:
        return 1
    return job.options.iodepth(job.depth)


def engine_of(job: FioJob) -> str | None:
    """Name of the I/O engine; None if it is unknown, as where fio's default is asynchronous."""
    alone = share_alone(job)
    if "ioengine" not in job.options.given and alone is not None and depth_of(job) != 1:
        return None if alone < MOSTLY_ALONE else job.options.engine()
    return job.options.engine()


def _depth_notes(jobs: list[FioJob]) -> list[str]:
    for job in jobs:
        asked, depth, alone = job.options.whole("iodepth"), depth_of(job), share_alone(job)
        if (
            alone is not None
            and asked not in (None, 1)
            and depth == 1
            and not job.options.synchronous
        ):
            return [
                f"iodepth={asked} was asked, but {100 * alone:.4g} % of the requests were issued "
                "with no other in flight: taken as depth 1"
            ]
    return []


def _is_polled(job: FioJob) -> bool:
    """True if the job spins for completions, so that its CPU is full at any load.

    A job that waits for each request in turn gives up its CPU each time; one that does so for
    fewer than a tenth of them and is busy all the time must have polled, if the requests took
    longer than memory does.
    """
    engine = job.options.given.get("ioengine", "")
    if engine.startswith(POLLED_ENGINES) or job.options.flag("hipri"):
        return True
    if job.switches is None or depth_of(job) != 1 or job.options.direct() is False:
        return False
    busy = (job.user_pct or 0.0) + (job.system_pct or 0.0)
    means = [x.mean_s for r in job.results for x in (r.lat, r.clat) if x is not None and x.mean_s]
    return (
        busy >= CPU_BOUND_PCT
        and job.switches < FEW_SWITCHES * job.count
        and min(means, default=0.0) > CACHED_S
    )


def _notes(jobs: list[FioJob], active: list[FioJob], ops: Mapping[Op, OpResult]) -> list[str]:
    notes = [note for job in jobs for note in job.notes]
    if any(job.mixed for job in active):
        notes.append(
            "reads and writes are reported as one (unified_rw_reporting=mixed): neither can be "
            "calibrated on"
        )
    notes += _depth_notes(active)
    asked, counted = _same(j.options.read_fraction() for j in active), _counted_fraction(active)
    if None not in (asked, counted) and asked != _read_fraction(active):
        notes.append(
            f"the options ask for {100 * (asked or 0):.3g} % reads, {100 * (counted or 0):.3g} % "
            "were counted"
        )
    idle = [job.name for job in jobs if not job.results and not job.notes]
    if idle:
        notes.append(f"{len(idle)} jobs did no request: {shown(', '.join(idle), 40)}")
    if len(active) > 1:
        notes += _merge_notes(active, ops)
    for key, what in _SHAPERS.items():
        if any(key in job.options.given for job in active):
            notes.append(what)
    if any(job.options.given.get("rate") for job in active) and _rate(active) is None:
        notes.append("some of the jobs were rate limited")
    return notes


def _merge_notes(jobs: list[FioJob], ops: Mapping[Op, OpResult]) -> list[str]:
    notes = []
    had = any(r.clat and r.clat.percentiles_s for job in jobs for r in job.ops.values())
    has = all(result.clat and result.clat.percentiles_s for result in ops.values())
    if had and not has:
        notes.append(
            f"percentiles of {len(jobs)} separate jobs cannot be merged and are left out; capture "
            "with group_reporting or --output-format=json+"
        )
    times = [job.runtime_s for job in jobs]
    if min(times) < (1 - RUNTIME_SPREAD) * max(times):
        notes.append(
            f"jobs ran together but for {min(times):g} to {max(times):g} s: the load was not "
            "the same throughout"
        )
    if len({depth_of(job) for job in jobs}) > 1:
        notes.append("jobs of different iodepth ran together: the depth of the drive is unclear")
    return notes


_SHAPERS: Final = {
    "thinktime": "thinktime: the jobs paused, fewer requests were outstanding than iodepth says",
    "latency_target": "latency_target: fio searched a depth, the run mixes several",
    "startdelay": "startdelay: not all jobs ran all the time",
}
