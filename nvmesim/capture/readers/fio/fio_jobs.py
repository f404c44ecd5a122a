"""fio's jobs, whichever of its formats they stood in, and measurements of those that ran together.

Counts add, histograms merge. Percentiles of separate jobs are never averaged: without histograms
(json+) the merged measurement has none, and says so.
"""

import errno
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

from nvmesim.capture.capture import (
    KINDS,
    OPS,
    Conditions,
    CpuUse,
    Measurement,
    Op,
    OpResult,
    merge_latencies,
)
from nvmesim.capture.caveats import CPU_BOUND_PCT, LITTLE, with_caveats
from nvmesim.capture.text import Source, shown
from nvmesim.errors import CaptureError
from nvmesim.scenario.loads.fio_options import FioOptions
from nvmesim.warning import Warning, has

ALL_CLIENTS: Final = "All clients"
"""Name under which fio sums the jobs of its clients, which stand by themselves, too."""
INTERRUPTED: Final = "terminating on signal"
"""Text that fio prints of Ctrl-C and timeouts from outside."""
RUNTIME_SPREAD: Final = 0.05
"""Jobs whose run times differ by more did not load the drive together all the time."""
MOSTLY_ALONE: Final = 0.5
ALWAYS_ALONE: Final = 0.99
"""Shares of requests issued with no other in flight; fsyncs and the ends of a run make a few."""
POLLED_ENGINES: Final = ("spdk", "xnvme", "nvme_")
"""They spin for completions whatever else is asked. Source: SPDK's and xNVMe's fio plugins."""
FEW_SWITCHES: Final = 0.1
CACHED_S: Final = 5e-6
"""Memory answers in less, no drive does."""
_PACED: Final = {"thinktime", "rate", "rate_iops", "latency_target", "iodepth_batch"}
COUNT_TOLERANCE: Final = 0.01
"""fio 2.1 prints whole IOPS only: 133 of 133.9 is the worst of its own sample."""
MIX_TOLERANCE: Final = 0.1
"""Shares of reads asked and counted may differ by so much: fio draws for each request."""
TRIMS: Final = "trims"
"""Code of the warning that trims are left out."""
OTHER_MIX: Final = "other-mix"
"""The same where another share of reads was counted than asked."""
_SHAPERS: Final = {
    # option: what it does to the load; its name is the warning's code
    "thinktime": "thinktime: the jobs paused, fewer requests were outstanding than iodepth says",
    "latency_target": "latency_target: fio searched a depth, the run mixes several",
    "startdelay": "startdelay: not all jobs ran all the time",
}
T = TypeVar("T")


@dataclass(frozen=True)
class FioJob:
    """One entry: a job, or all jobs of a group that fio merged."""

    name: str
    group: int
    options: FioOptions
    reported: Mapping[str, OpResult | None]
    """Results of ``read``, ``write`` and ``mixed``, the two as one."""
    runtime_s: float
    host: str = ""
    error: int = 0
    threads: int | None = None
    """How many threads the entry stands for, None if it does not say."""
    depth: int | None = None
    """fio's latency_depth."""
    user_pct: float | None = None
    system_pct: float | None = None
    notes: tuple[str, ...] = ()
    switches: int | None = None
    """Context switches, all threads."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """How many were in flight at submission, as fio counts it: "1", "2", "4", ... -> percent."""
    runtimes_s: Mapping[str, float] = field(default_factory=dict)
    """Run time of each operation: those of a mixture are the same, those of phases are not."""

    @cached_property
    def ops(self) -> dict[Op, OpResult]:
        """What was read and written; a report as one of a job that only reads is of its reads."""
        found = {op: result for op in OPS if (result := self.reported.get(op)) is not None}
        merged, fraction = self.reported.get("mixed"), self.options.read_fraction()
        if found or merged is None or fraction not in (0.0, 1.0):
            return found
        return {"read" if fraction else "write": merged}

    @cached_property
    def mixed(self) -> OpResult | None:
        """Reads and writes, where they were reported as one only."""
        return None if self.ops else self.reported.get("mixed")

    @cached_property
    def results(self) -> list[OpResult]:
        """Results by operation, or as one if the file has it so."""
        return [*self.ops.values(), *([self.mixed] if self.mixed else [])]

    @property
    def has_failed(self) -> bool:
        """True if the job ended by an error; one that was told to go on did not."""
        goes_on = self.options.given.get("continue_on_error", "none").strip() not in ("none", "0")
        return bool(self.error) and not (goes_on and self.results)

    @cached_property
    def share_alone(self) -> float | None:
        """Fraction of requests issued with no other in flight, as fio counted; None if unknown."""
        total = sum(self.levels.values())
        return self.levels.get("1", 0.0) / total if total else None

    @cached_property
    def true_depth(self) -> int | None:
        """Outstanding requests that the job kept: what was asked, unless fio counted otherwise.

        The default engine is synchronous on Linux and asynchronous (windowsaio) on Windows, which
        no option tells.
        """
        alone, asked = self.share_alone, self.options.whole("iodepth")
        if alone is not None and asked not in (None, 1):
            if alone < MOSTLY_ALONE and "ioengine" not in self.options.given:
                return asked
            if alone > ALWAYS_ALONE and _PACED.isdisjoint(self.options.given):
                return 1
        return self.options.iodepth(self.depth)

    @property
    def engine(self) -> str | None:
        """Name of the I/O engine; None if it is unknown, as where fio's default is asynchronous."""
        alone = self.share_alone
        is_default = "ioengine" not in self.options.given and self.true_depth != 1
        is_unknown = is_default and alone is not None and alone < MOSTLY_ALONE
        return None if is_unknown else self.options.engine()

    @property
    def is_polled(self) -> bool:
        """True if the job spins for completions, so that its CPU is full at any load.

        A job that waits for each request in turn gives up its CPU each time; one that does so for
        fewer than a tenth of them and is busy all the time must have polled, if the requests took
        longer than memory does.
        """
        if self.options.given.get("ioengine", "").startswith(POLLED_ENGINES):
            return True
        if self.options.flag("hipri"):
            return True
        if self.switches is None or self.true_depth != 1 or self.options.direct() is False:
            return False
        latencies = [x.mean_s for r in self.results for x in (r.lat, r.clat) if x and x.mean_s]
        return (
            (self.user_pct or 0.0) + (self.system_pct or 0.0) >= CPU_BOUND_PCT
            and self.switches < FEW_SWITCHES * sum(result.count for result in self.results)
            and min(latencies, default=0.0) > CACHED_S
        )

    @property
    def is_phased(self) -> bool:
        """True if the reads came after the writes (verify), not between them.

        A mixture has one run time and no more in flight than its depth; phases have two of each.
        """
        if len(self.ops) < len(OPS):
            return False
        times = [time for time in self.runtimes_s.values() if time]
        if self.threads == 1 and len(times) > 1 and min(times) < (1 - RUNTIME_SPREAD) * max(times):
            return True
        found = [
            r.iops * next((x.mean_s or 0.0 for x in (r.lat, r.clat) if x), 0.0)
            for r in self.results
        ]
        if self.true_depth is None or self.threads is None or not all(found):
            return self.options.read_fraction() in (0.0, 1.0) and not all(found)
        return sum(found) > (1 + LITTLE) * self.true_depth * self.threads >= max(found)


def one_size(options: FioOptions, op: str) -> int | None:
    """Return the size of all requests of *op*, which may be both as one; None if it is not known.

    >>> one_size(FioOptions({"bs": "4k,8k"}), "write"), one_size(FioOptions({"bs": "4k"}), "mixed")
    (8192, 4096)
    """
    names: tuple[Op, ...] = OPS if op == "mixed" else ("write",) if op == "write" else ("read",)
    first, *others = [options.block_sizes(name) or {} for name in names]
    return next(iter(first)) if len(first) == 1 and all(o == first for o in others) else None


def groups(jobs: Iterable[FioJob]) -> list[list[FioJob]]:
    """Split *jobs* into those that ran together: a stonewall or wait starts the next group."""
    found: list[list[FioJob]] = []
    before: FioJob | None = None
    for job in jobs:
        waits = job.options.flag("wait_for_previous") or "wait_for" in job.options.given
        if (
            before is None
            or (before.host, before.group) != (job.host, job.group)
            or (waits and job.name != before.name)
        ):
            found.append([])
        found[-1].append(job)
        before = job
    return found


def measure_groups(
    source: Source, jobs: list[FioJob], disk_util_pct: Mapping[str, float], warnings: list[str],
    message: str = "",
) -> list[Measurement]:  # fmt: skip
    """Return a measurement for each group of *jobs* that ran together.

    A failed group is left out and said in *warnings*; if all failed, CaptureError with the first
    reason and fio's own *message*. Utilization is of the whole file: with several groups of none.
    """
    together = groups(jobs)
    good: list[list[FioJob]] = []
    failed: list[str] = []
    for members in together:
        problem = _problem(members)
        ran = [job for job in members if not job.has_failed]
        if not problem:
            good.append(members)
        elif any(job.results for job in ran):
            text = f"left out: {problem}; the jobs beside it lost its load"
            warnings.append(Warning("job-failed", text))
            good.append(ran)
        else:
            failed.append(problem)
    if not good:
        reason = f" ({message})" if message else ""
        raise source.error(failed[0] + reason, "mend the cause and repeat the capture")
    warnings += [Warning("job-failed", f"left out: {problem}") for problem in failed]
    hosts = {job.host for members in good for job in members}
    if len(hosts) > 1:
        warnings.append(f"{len(hosts)} clients ran together, a measurement each")
    util = disk_util_pct if len(together) == 1 else {}
    measurements = [m for members in good for m in _measure_phases(members, util)]
    results = ([*m.ops.values(), *([m.mixed] if m.mixed else [])] for m in measurements)
    if any(all(op.clat is None and op.lat is None for op in ops) for ops in results):
        text = (
            "no latencies (gtod_reduce or disable_lat and disable_clat): throughput only; a drive "
            "is calibrated better without these options"
        )
        warnings.append(Warning("no-latencies", text))
    return measurements


def reason(source: Source, problem: CaptureError) -> str:
    """Return the text of *problem* without the name of *source*."""
    return str(problem).removeprefix(f"{source.path}: ")


def _problem(jobs: list[FioJob]) -> str:
    """Say why nothing can be learned from *jobs*; empty if something can."""
    for job in jobs:
        if job.has_failed:
            why = f" ({os.strerror(job.error)})" if 0 < job.error < 4096 else ""
            if job.error == errno.EILSEQ:  # verify found other data than it wrote
                why = " (verify found wrong data)"
            return f"job {shown(job.name, 40)!r} failed with error={job.error}{why}"
    if any(job.results for job in jobs):
        return ""
    what = "only trims" if any(has(job.notes, TRIMS) for job in jobs) else "no read and no write"
    return f"job {shown(jobs[0].name, 40)!r} has zero samples: it did {what}"


def _measure_phases(jobs: list[FioJob], util: Mapping[str, float]) -> list[Measurement]:
    """Return the measurement of *jobs*; two if they wrote first and then read, as verify does."""
    if not any(job.is_phased for job in jobs):
        return [_measure(jobs, util)]
    found = []
    text = "reads ran after the writes and not between them (verify): each is measured by itself"
    for op in ("write", "read"):
        alone = [
            replace(
                job,
                reported={op: job.ops[op]},
                runtime_s=job.runtimes_s.get(op) or job.runtime_s,
                user_pct=None,  # CPU time is of both
                system_pct=None,
            )
            for job in jobs
            if op in job.ops
        ]
        m = _measure(alone, {})
        warnings = (Warning("phases", text), *(w for w in m.warnings if not has([w], OTHER_MIX)))
        found.append(replace(m, label=f"{m.label}: {op}s", warnings=warnings))
    return found


def _measure(jobs: list[FioJob], disk_util_pct: Mapping[str, float]) -> Measurement:
    """Merge *jobs*, at least one with requests, into one measurement with its caveats."""
    active = [job for job in jobs if job.results]
    by_op = {op: [job.ops[op] for job in active if op in job.ops] for op in OPS}
    merged: dict[Op, OpResult] = {op: _merge(results) for op, results in by_op.items() if results}
    mixed = [job.mixed for job in active if job.mixed]
    label = shown("+".join(dict.fromkeys(job.name for job in active)), 60)
    is_polled = any(job.is_polled for job in active)
    measurement = Measurement(
        label=f"{active[0].host}: {label}" if active[0].host else label,
        conditions=conditions_of(active),
        ops=merged,
        cpu=_cpu(active, is_polled=is_polled),
        disk_util_pct=disk_util_pct,
        source="fio",
        warnings=tuple(_notes(jobs, active, merged)),
        mixed=_merge(mixed) if mixed else None,
    )
    return with_caveats(measurement, is_polled=is_polled)


def _merge(results: list[OpResult]) -> OpResult:
    if len(results) == 1:
        return results[0]
    return OpResult(
        count=sum(r.count for r in results),
        bytes=sum(r.bytes for r in results),
        iops=sum(r.iops for r in results),
        bytes_per_s=sum(r.bytes_per_s for r in results),
        **{kind: merge_latencies([getattr(r, kind) for r in results]) for kind in KINDS},
    )


def _same(values: Iterable[T | None]) -> T | None:
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else None


def conditions_of(jobs: list[FioJob]) -> Conditions:
    """Return what holds for all of *jobs*, which ran together; None where they differ."""
    options = [job.options for job in jobs]
    names = [o.filenames() for o in options]
    threads = [job.threads for job in jobs if job.threads is not None]
    return Conditions(
        read_fraction=_read_fraction(jobs),
        access=_same(o.access() for o in options),
        block_size=_block_size(jobs),
        jobs=sum(threads) if len(threads) == len(jobs) else None,
        iodepth=_same(job.true_depth for job in jobs),
        targets=None if () in names else len({n for some in names for n in some}),
        engine=_same(job.engine for job in jobs),
        direct=_same(o.direct() for o in options),
        rate_iops=_rate(jobs),
        duration_s=max(job.runtime_s for job in jobs) or None,
        ramp_s=_same(o.ramp_s() for o in options),
    )


def _weight(result: OpResult) -> float:
    """Requests; IOPS where a report was trimmed so far that nothing can be counted."""
    return result.count or result.iops


def _counted_fraction(jobs: list[FioJob]) -> float | None:
    """Return the fraction of reads among the requests counted; None if the file merges them."""
    if any(job.mixed for job in jobs):
        return None
    reads = sum(_weight(job.ops["read"]) for job in jobs if "read" in job.ops)
    return reads / sum(_weight(result) for job in jobs for result in job.results)


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
            # The mean of several sizes is none of them.
            if sizes is None and {"bsrange", "bssplit"}.isdisjoint(job.options.given):
                sizes = _size_counted(result)
            if sizes is None:
                return None
            for size, share in sizes.items():
                weights[size] = weights.get(size, 0.0) + share * _weight(result) / total
    return next(iter(weights)) if len(weights) == 1 else dict(sorted(weights.items()))


def _size_counted(result: OpResult) -> dict[int, float] | None:
    """Return the size of requests that were all alike, from bytes and count; else None.

    Counts of old versions are rounded, and counts and bytes are read a moment apart.
    """
    mean = result.bytes_per_s / result.iops if result.iops else 0.0
    size = 1 << max(0, round(math.log2(max(mean, 1.0))))
    return {size: 1.0} if size >= 512 and abs(mean / size - 1) < COUNT_TOLERANCE else None


def _rate(jobs: list[FioJob]) -> float | None:
    """Return the limit of all jobs together, requests/s; None if one has none."""
    limits: list[float] = []
    for job in jobs:
        sizes = {
            op: r.bytes_per_s / r.iops for op, r in job.ops.items() if r.bytes_per_s and r.iops
        }
        limit = job.options.rate_iops(sizes)
        if limit is None or job.threads is None:
            return None
        limits.append(limit * job.threads)
    return sum(limits)


def _cpu(jobs: list[FioJob], *, is_polled: bool) -> CpuUse | None:
    """Sum over jobs: fio's figures are means over the threads of an entry, in % of their time."""
    user = system = busiest = 0.0
    for job in jobs:
        if job.user_pct is None or job.system_pct is None or job.threads is None:
            return None
        user += job.user_pct * job.threads
        system += job.system_pct * job.threads
        busiest = max(busiest, job.user_pct + job.system_pct)
    return CpuUse(user, system, user + system, busiest, polled=is_polled)


def _notes(jobs: list[FioJob], active: list[FioJob], ops: Mapping[Op, OpResult]) -> list[str]:
    notes = [note for job in jobs for note in job.notes]
    if any(job.mixed for job in active):
        text = (
            "reads and writes are reported as one (unified_rw_reporting=mixed): neither can be "
            "calibrated on"
        )
        notes.append(Warning("mixed-report", text))
    for job in active:
        asked, alone = job.options.whole("iodepth"), job.share_alone
        is_deep = asked not in (None, 1) and not job.options.synchronous
        if alone is not None and is_deep and job.true_depth == 1:
            text = (
                f"iodepth={asked} was asked, but {100 * alone:.4g} % of the requests were issued "
                "with no other in flight: taken as depth 1"
            )
            notes.append(Warning("depth-one", text))
            break
    share, counted = _same(j.options.read_fraction() for j in active), _counted_fraction(active)
    if share is not None and counted is not None and share != _read_fraction(active):
        text = f"the options ask for {100 * share:.3g} % reads, {100 * counted:.3g} % were counted"
        notes.append(Warning(OTHER_MIX, text))
    idle = [job.name for job in jobs if not job.results and not job.notes]
    if idle:
        text = f"{len(idle)} jobs did no request: {shown(', '.join(idle), 40)}"
        notes.append(Warning("idle-jobs", text))
    if len(active) > 1:
        notes += _merge_notes(active, ops)
    given = {key for job in active for key in job.options.given}
    notes += [Warning(key, what) for key, what in _SHAPERS.items() if key in given]
    if any(job.options.given.get("rate") for job in active) and _rate(active) is None:
        notes.append(Warning("rate-limited", "some of the jobs were rate limited"))
    return notes


def _merge_notes(jobs: list[FioJob], ops: Mapping[Op, OpResult]) -> list[str]:
    notes: list[str] = []
    had = any(r.clat and r.clat.percentiles_s for job in jobs for r in job.ops.values())
    if had and not all(result.clat and result.clat.percentiles_s for result in ops.values()):
        text = (
            f"percentiles of {len(jobs)} separate jobs cannot be merged and are left out; capture "
            "with group_reporting or --output-format=json+"
        )
        notes.append(Warning("separate-percentiles", text))
    times = [job.runtime_s for job in jobs]
    if min(times) < (1 - RUNTIME_SPREAD) * max(times):
        text = (
            f"jobs ran together but for {min(times):g} to {max(times):g} s: the load was not "
            "the same throughout"
        )
        notes.append(Warning("unequal-times", text))
    if len({job.true_depth for job in jobs}) > 1:
        text = "jobs of different iodepth ran together: the depth of the drive is unclear"
        notes.append(Warning("unequal-depths", text))
    return notes
