"""One entry of fio's ``jobs`` as numbers: its counts, latencies, CPU time and options."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from nvmesim.capture.capture import Latency, Op, OpResult
from nvmesim.capture.fields import MAX_COUNT, MAX_LATENCY_S, MAX_RATE, Fields
from nvmesim.capture.histogram import fio_bin_value
from nvmesim.capture.text import shown
from nvmesim.scenario.loads.fio_options import FioOptions

OPS: Final[tuple[Op, ...]] = ("read", "write")
_NS_PER_S, _US_PER_S = 1e9, 1e6
_RAW_INDEX_MARK: Final = "FIO_IO_U_PLAT_"
"""fio 2.2.12 to 2.19 print the bin's index beside keys of this name, later ones its midpoint."""
ALL_CLIENTS: Final = "All clients"
"""Name under which fio sums the jobs of its clients, which stand by themselves, too."""
_GROUPED_RATIO: Final = 0.75
"""Thread time over wall time that must exceed numjobs before more threads are believed."""
_GROUPED_MIN_S: Final = 0.5


@dataclass(frozen=True)
class FioJob:
    """One entry: a job, or all jobs of a group that fio merged."""

    name: str
    host: str
    group: int
    error: int
    threads: int | None
    """How many threads the entry stands for, None if it does not say."""
    options: FioOptions
    depth: int | None
    """fio's latency_depth."""
    ops: Mapping[Op, OpResult]
    mixed: OpResult | None
    """Reads and writes, where they were reported as one only."""
    runtime_s: float
    user_pct: float | None
    system_pct: float | None
    notes: tuple[str, ...]
    switches: int | None = None
    """Context switches, all threads."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """How many were in flight at submission, as fio counts it: "1", "2", "4", ... -> percent."""

    runtimes_s: Mapping[Op, float] = field(default_factory=dict)
    """Run time of each operation: those of a mixture are the same, those of phases are not."""

    @property
    def count(self) -> int:
        """Requests that were counted, all operations."""
        return sum(result.count for result in self.results)

    @property
    def results(self) -> list[OpResult]:
        """Results by operation, or as one if the file has it so."""
        return [*self.ops.values(), *([self.mixed] if self.mixed else [])]


def read_jobs(entries: list[Fields], common: Mapping[str, object]) -> list[FioJob]:
    """Read all *entries*; *common* are the ``global options`` beneath the jobs' own."""
    names = Counter(_identity(entry) for entry in entries)
    return [_job(entry, common, names[_identity(entry)]) for entry in entries]


def _identity(entry: Fields) -> tuple[str, int, str]:
    name = entry.text("jobname") or "job"
    return entry.text("hostname") or "", entry.count("groupid") or 0, name


def _job(entry: Fields, common: Mapping[str, object], same_name: int) -> FioJob:
    own = entry.fields("job options")
    options = FioOptions({**common, **(own.table if own else {})})
    host, group, name = _identity(entry)
    runtimes = {op: _runtime_s(entry, op) for op in (*OPS, "mixed")}
    ops = {op: result for op in OPS if (result := _op_result(entry, op)) is not None}
    ops, mixed = by_operation(ops, None if ops else _op_result(entry, "mixed"), options)
    runtime = max(runtimes.values())
    threads, notes = _threads(entry, options, same_name, runtime)
    return FioJob(
        name=name,
        host=host,
        group=group,
        error=_error(entry),
        threads=threads,
        options=options,
        depth=entry.count("latency_depth"),
        ops=ops,
        mixed=mixed,
        runtime_s=runtime,
        user_pct=entry.number("usr_cpu", most=1e6),
        system_pct=entry.number("sys_cpu", most=1e6),
        notes=(*notes, *_other_work(entry)),
        switches=entry.count("ctx"),
        levels=_levels(entry),
        runtimes_s={op: runtimes[op] for op in OPS},
    )


def _levels(entry: Fields) -> dict[str, float]:
    table = entry.fields("iodepth_level")
    if table is None:
        return {}
    return {key: table.number(key, most=1e6) or 0.0 for key in table.table}


def _error(entry: Fields) -> int:
    error = entry.table.get("error")
    # Some versions print the errno with its sign.
    return abs(error) if type(error) is int else entry.count("error") or 0


def describe_error(number: int) -> str:
    """Return errno *number* with its meaning.

    >>> describe_error(28)
    'error=28 (No space left on device)'
    """
    if number == errno.EILSEQ:  # what fio reports when verify finds other data than it wrote
        return f"error={number} (verify found wrong data)"
    known = 0 < number < 4096
    return f"error={number}" + (f" ({os.strerror(number)})" if known else "")


def _runtime_s(entry: Fields, op: str) -> float:
    table = entry.fields(op)
    runtime = table.number("runtime", most=MAX_LATENCY_S * 1e6) if table else None
    return (runtime or 0.0) / 1000


def by_operation(
    ops: dict[Op, OpResult], mixed: OpResult | None, options: FioOptions
) -> tuple[dict[Op, OpResult], OpResult | None]:
    """Return what was read and written, and what was reported as one: none beside the others.

    Requests reported as one of a job that only reads are its reads.
    """
    if mixed is None or ops:
        return ops, None
    pure = _only_op(options)
    return (ops, mixed) if pure is None else ({pure: mixed}, None)


def _only_op(options: FioOptions) -> Op | None:
    """Return the one operation of a job that only reads or only writes, else None."""
    fraction = options.read_fraction()
    if fraction == 1.0:
        return "read"
    return "write" if fraction == 0.0 else None


def _threads(
    entry: Fields, options: FioOptions, same_name: int, runtime_s: float
) -> tuple[int, tuple[str, ...]]:
    """Return how many threads this entry stands for, and a note if the options say otherwise.

    `job_runtime` sums over grouped threads (fio 3.8 on); before, an entry is one thread if there
    are as many entries of its name as numjobs asks for.
    """
    asked = max(1, options.whole("numjobs", 1) or 1)
    if asked > 1 and same_name % asked == 0:
        return 1, ()
    thread_ms = entry.number("job_runtime", most=1e15)
    if thread_ms is None or runtime_s < _GROUPED_MIN_S:
        return asked, ()
    ran = thread_ms / 1000 / runtime_s
    if ran < asked + _GROUPED_RATIO:
        return asked, ()
    note = f"{round(ran)} threads ran where numjobs says {asked}: jobs of several sections merged"
    return round(ran), (note,)


def _other_work(entry: Fields) -> list[str]:
    notes = []
    trim, sync = entry.fields("trim"), entry.fields("sync")
    if trim and (count := trim.count("total_ios")):
        notes.append(f"{count} trims are left out")
    if sync and (count := sync.count("total_ios")):
        notes.append(f"{count} flushes (fsync) ran between the requests")
    if count := entry.count("total_err"):
        notes.append(f"{count} requests failed and were continued over")
    return notes


def _op_result(entry: Fields, op: str) -> OpResult | None:
    table = entry.fields(op)
    if table is None:
        return None
    runtime_s = _runtime_s(entry, op)
    iops = table.number("iops", most=MAX_RATE)
    count = table.count("total_ios")
    if count is None:  # before fio 2.1.5 or so there is only the rate
        count = round((iops or 0.0) * runtime_s)
    if count == 0:
        return None
    n_bytes = table.number("io_bytes", most=MAX_COUNT) or 0
    if "io_kbytes" not in table.table:  # before fio 2.21 the key io_bytes held KiB
        n_bytes *= 1024
    rate = table.number("bw_bytes", most=MAX_RATE)
    if rate is None:
        rate = 1024 * (table.number("bw", most=MAX_RATE / 1024) or 0.0)
    return OpResult(
        count=count,
        bytes=int(n_bytes),
        iops=iops if iops is not None else (count / runtime_s if runtime_s else 0.0),
        bytes_per_s=rate,
        clat=_latency(table, "clat", count),
        lat=_latency(table, "lat", count),
        slat=_latency(table, "slat", count),
    )


def _latency(op: Fields, kind: str, op_count: int) -> Latency | None:
    """Return the distribution at ``<kind>_ns`` (fio 3) or *kind* in us (fio 2), if it has samples.

    A synchronous engine has no slat, ``gtod_reduce`` nothing at all: N is 0 or all numbers are.
    """
    table, per_s = op.fields(f"{kind}_ns"), _NS_PER_S
    if table is None:
        table, per_s = op.fields(kind), _US_PER_S
    if table is None:
        return None
    count = table.count("N")
    mean = _seconds(table, "mean", per_s)
    top = _seconds(table, "max", per_s)
    if count == 0 or not mean or not top:
        return None
    latency = Latency(
        count=op_count if count is None else count,
        mean_s=mean,
        min_s=_seconds(table, "min", per_s),
        max_s=top,
        stddev_s=_seconds(table, "stddev", per_s),
        percentiles_s=_percentiles(table, per_s),
        **_bins(table, per_s),
    )
    _check_order(table, latency, per_s)
    return latency


def _seconds(table: Fields, key: str, per_s: float) -> float | None:
    value = table.number(key, most=MAX_LATENCY_S * per_s)
    return None if value is None else value / per_s


def _check_order(table: Fields, latency: Latency, per_s: float) -> None:
    """Refuse numbers that contradict each other: a digit was lost or added."""
    low, mean, high = latency.min_s or 0.0, latency.mean_s or 0.0, latency.max_s or 0.0
    # fio 2 cuts min and max to whole microseconds.
    if not low - 1 / per_s <= mean * 1.001 or not mean <= high * 1.001 + 1 / per_s:
        raise table.source.error(
            f"{table.at('mean')} is {mean * per_s:g}, outside min {low * per_s:g} and max "
            f"{high * per_s:g}",
            "repeat the capture",
        )
    values = [latency.percentiles_s[p] for p in sorted(latency.percentiles_s)]
    if any(a > b for a, b in pairwise(values)):
        raise table.source.error(f"{table.at('percentile')} decreases", "repeat the capture")


def _percentiles(table: Fields, per_s: float) -> dict[float, float]:
    """Percent -> s; the unused slots of fio up to 3.3 (``"0.00" : 0``) are left out."""
    given = table.fields("percentile")
    found: dict[float, float] = {}
    for key in given.table if given else ():
        assert given is not None
        try:
            percent = float(key)
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise table.source.error(
                f"{given.where} has the key {shown(key, 20)!r}, not a percentage",
                "repeat the capture",
            )
        value = _seconds(given, key, per_s)
        if value is not None and (percent > 0 or value > 0):
            found[percent] = value
    return found if any(found.values()) else {}


def _bins(table: Fields, per_s: float) -> dict[str, np.ndarray]:
    """Return the bins of json+ as the arrays of `Latency`, nothing if there are none."""
    given = table.fields("bins")
    if given is None or not given.table:
        return {}
    raw_index = any(key.startswith(_RAW_INDEX_MARK) for key in given.table)
    pairs = [pair for pair in given.table.items() if not pair[0].startswith(_RAW_INDEX_MARK)]
    if not pairs:
        return {}
    try:
        keys = np.array([int(key) for key, _ in pairs], dtype=np.int64)
        counts = np.array([value for _, value in pairs])
        if counts.dtype.kind != "i" or (counts < 0).any() or (keys < 0).any():
            raise ValueError
        if keys.max() / per_s > MAX_LATENCY_S:
            raise ValueError
        if raw_index and keys.max() >= 64 * 40:
            raise ValueError
    except (ValueError, OverflowError):
        raise table.source.error(
            f"{given.where} holds something that is not the count of a bin", "repeat the capture"
        ) from None
    values = (fio_bin_value(keys) if raw_index else keys.astype(np.float64)) / per_s
    order = np.argsort(values)
    return {"bin_s": values[order], "bin_count": counts[order].astype(np.int64)}
