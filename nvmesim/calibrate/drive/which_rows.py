"""Which rows measure the drive, and what is said of those that do not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.laws import (
    SHALLOW,
    WAITING_BYTES,
    RowKind,
    in_flight,
    row_kind,
    shared_limit,
    unloaded_latency_s,
)  # fmt: skip
from nvmesim.calibrate.drive.open_ceilings import SLOW
from nvmesim.calibrate.drive.starting_point import SLOWEST_FLASH_S, streams_slowly
from nvmesim.calibrate.drive.write_side import is_volatile
from nvmesim.calibrate.points import LONE_S, Point
from nvmesim.calibrate.stack.scaled import cycles_as_busy
from nvmesim.capture.capture import Captures
from nvmesim.catalog.links import Link, parse_link
from nvmesim.errors import FitError

PORTS: Final = ("pcie4 x4", "pcie5 x4", "pcie6 x4")
"""Ports that a drive may have had where it did more than its own carries."""


@dataclass(frozen=True)
class DividedRows:
    """Rows of one drive by what is fitted to them."""

    given: Sequence[Point]
    """All of them, those that are held out too"""
    free: Sequence[Point]
    """Those that are fitted, below any limit of a volume"""
    plain: Sequence[Point]
    """Those of `free` without flushes, unless nothing else tells of writes"""
    reads: Sequence[Point]
    writes: Sequence[Point]
    mixes: Sequence[Point]
    streamed: Sequence[Point]
    """Sequential writes, where they stand for random ones"""

    @property
    def most_mixed(self) -> float:
        """Most requests/s of a drive that a mix did."""
        mixed = (p.iops / p.targets for p in self.given if 0 < p.read_fraction < 1)
        return max(mixed, default=0)

    @property
    def are_measured(self) -> bool:
        """True if `reads` are rows, and not what mixes hold."""
        return all(p in self.plain for p in self.reads)

    def reads_that_wait_alike(self) -> Sequence[Point]:
        """`reads` that mixes hold; one small full row has as many as its mix did.

        At a controller that is full reads and writes wait alike.
        """
        least = min(p.block_size for p in self.reads)
        first, *others = [p for p in self.reads if p.block_size == least]
        lone, is_known = unloaded_latency_s([first], read=True)
        if others or row_kind(first, lone, is_known=is_known) is not RowKind.CEILING:
            return self.reads
        loads = {(p.block_size, p.jobs, p.iodepth): p.iops for p in self.mixes}
        mixed = loads[least, first.jobs, first.iodepth]
        alike = replace(first, iops=mixed, mean_s=None)
        return [alike if p is first else p for p in self.reads]

    @property
    def others(self) -> list[Point]:
        """Those of `plain` that neither reads nor writes nor mixes are."""
        return [p for p in self.plain if p not in (*self.reads, *self.writes, *self.mixes)]


def divided(
    given: Sequence[Point], free: Sequence[Point], host: BenchHost, notes: list[str]
) -> DividedRows:
    """*given* rows, of which *free* are fitted, by what they tell; FitError if it is nothing."""
    free = of_whole_sectors(free, notes)
    plain = [p for p in free if not p.sync]
    if not any(p.read_fraction == 0 for p in plain) and not is_volatile(free, host):
        plain = free  # what is known of writes is known with their flushes
    reads = [p for p in plain if p.read_fraction == 1 and p.random]
    # a flush after each write leaves nothing to stream: such rows tell latencies
    writes = [p for p in plain if p.read_fraction == 0 and (p.random or p.sync)]
    waiting = [p for p in plain if p.read_fraction == 0 and p.outstanding <= SHALLOW]
    streamed = [] if writes else waiting
    if all(p.outstanding > SHALLOW for p in writes):
        # alone, a sequential write waits as a random one does
        writes += streamed or [p for p in waiting if p.block_size <= SECTOR]
    reads, mixed = alone_and_beside(reads)
    mixes = [p for p in plain if 0 < p.read_fraction < 1 and p.random] + mixed
    if not any(p.read_fraction in (0, 1) for p in free):
        mixes = mixes or list(plain)
        reads = reads_of_mixes(mixes, notes)
    elif not (reads or writes):
        # few requests, and those of a slow device, wait for it, and not for a thread or a link
        waited = [p for p in mixes
                  if p.outstanding <= SHALLOW * p.targets or p.iops < SLOW * p.targets]  # fmt: skip
        reads = reads_of_mixes(waited, notes) if waited else []
    elif not writes:
        writes = rest_of_mixes(mixes, reads, notes, read=False)
    elif not reads:
        reads = rest_of_mixes(mixes, writes, notes, read=True)
    return DividedRows(given, free, plain, reads, writes, mixes, streamed)


def alone_and_beside(reads: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Reads that ran alone, or beside the least load if none did, and others beside open loads.

    Beside a load that fills the drive they wait for what no number of it tells; they are judged.
    """
    least = min((p.beside.iops if p.beside else 0.0 for p in reads), default=0.0)
    alone = [p for p in reads if (p.beside.iops if p.beside else 0.0) <= least]
    return alone, [p for p in reads if p not in alone and p.beside and p.beside.rate is not None]


def reads_of_mixes(mixes: Sequence[Point], notes: list[str]) -> list[Point]:
    """Reads that *mixes* hold, where no row is of reads or writes alone; *notes* get why.

    A write is taken to last as long as drives with a buffer take (`LONE_S`), reads the rest of a
    request's time. Raises FitError where there are no mixes either.
    """
    if not mixes:
        raise FitError(
            "no point measures the drive alone: all are held out or CPU-bound; add a capture of "
            "reads or of writes with more jobs or less depth"
        )
    found = []
    for p in mixes:
        took = in_flight(p) / p.iops
        writes = (1 - p.read_fraction) * min(LONE_S[False], took / 2)
        alone = (took - writes) / p.read_fraction
        read = replace(p, read_fraction=1.0, iops=in_flight(p) / alone, mean_s=alone)
        found.append(replace(read, percentiles_s={}, body_s={}))
    notes.append(
        f"all random rows are mixes: a write is taken to last {1e6 * LONE_S[False]:.3g} us, reads "
        "what is left; rows of reads alone and of writes alone would tell them apart"
    )
    return found


TELLS: Final = 0.2
"""Share of a mix's time that its writes must take to tell how long one does. Assumed."""


def rest_of_mixes(
    mixes: Sequence[Point], known: Sequence[Point], notes: list[str], *, read: bool
) -> list[Point]:
    """Reads (*read*), or writes, that *mixes* hold beside *known* rows of the other operation.

    Where no row is of them alone. Reads and writes are taken to have their turn at what they share:
    a mix takes the time of those known, as rows of the same load tell it, and of the others.
    Source: `explanations.PRIOR`.
    """
    found: dict[tuple[int, float, int], Point] = {}
    for p in sorted(mixes, key=lambda p: p.read_fraction, reverse=read):
        share = p.read_fraction if read else 1 - p.read_fraction
        alike = [q for q in known if (q.block_size, q.targets) == (p.block_size, p.targets)
                 and q.outstanding >= p.outstanding]  # fmt: skip
        load = (p.block_size, p.outstanding, p.targets)
        if p.rate is not None or p.beside or not alike or load in found:
            continue
        took = p.outstanding / p.iops
        alone = p.outstanding / min(alike, key=lambda q: q.outstanding).iops
        left = took - (1 - share) * alone
        if left < TELLS * took:
            continue
        rate = p.outstanding * share / left
        told = replace(p, read_fraction=float(read), iops=rate, mean_s=None)
        found[load] = replace(told, percentiles_s={}, body_s={}, cpu_s=None)
    if found:
        kind, other = ("reads", "writes") if read else ("writes", "reads")
        notes.append(
            f"no row is of {kind} alone: what mixes take beyond their {other} is taken to be of "
            f"their {kind}; a row of {kind} would tell them apart"
        )
    return list(found.values())


def host_doubts(host: BenchHost, points: Sequence[Point], included: bool) -> Iterator[str]:
    """Yield where *points* contradict the *host* or the link that they are said to be of."""
    top = max(points, key=_one_way)
    moved, rate = _one_way(top), host.link.raw_bytes_per_s
    if moved > rate:
        able = (x for x in PORTS if parse_link(x).raw_bytes_per_s > moved)
        do = "no port does: several drives were measured (column drives of a table), or a cache"
        if (port := next(able, None)) is not None:
            do = f"name the link, --captured-on STACK,'{port}'"
        yield (
            f"{top.name}: {moved / 1e9:.3g} GB/s of a drive are more than {host.link} carries "
            f"({rate / 1e9:.3g}): {do}"
        )
    shallow = [p for p in points if p.outstanding == 1 and p.cpu_s]
    if included or not shallow:
        return
    named = cycles_as_busy(host.stack, host.link, shallow[0]) / (host.ghz * 1e9)
    measured = shallow[0].cpu_s or 0.0
    if not 0.7 < named / measured < 1.4:
        yield (
            f"{shallow[0].name}: {1e6 * measured:.3g} us of CPU a request, where "
            f"{host.stack.name} at {host.ghz:g} GHz takes {1e6 * named:.3g}: it is not the stack "
            "that measured, and the drive is off by the difference; fit it with calibrate --stack"
        )


def of_the_drive(points: Sequence[Point], included: bool, notes: list[str]) -> list[Point]:
    """Those of *points* that are fitted; *notes* get why others are not.

    A row of a full thread is one of the drive's only with a host to simulate.
    """
    found = []
    for p in points:
        shared = shared_limit(p, points)
        if p.held_out:
            continue
        if p.is_cpu_bound and included:
            notes.append(
                f"{p.name}: a job was {p.per_job_pct:.0f} % busy, so the host was measured "
                "and not the drive; the point is not fitted (calibrate --stack would fit it)"
            )
        elif shared is not None:
            notes.append(
                f"{p.name} on {p.targets} drives: each does less than one did alone "
                f"({shared.name}), so that something they share was measured (an adapter, a root "
                "complex, memory, a core); the point is not fitted"
            )
        else:
            found.append(p)
    return found


NO_FASTER: Final = 1.3
"""Rate of a thread at depth in units of one request's at a time, up to which depth did nothing."""

DEEP: Final = 8
"""Requests in flight that a thread was asked for, from which on that says something. Assumed."""

_like: Final = attrgetter(
    "read_fraction", "random", "block_size", "jobs", "targets", "raid", "sync", "path"
)  # fmt: skip
HELD_UP: Final = 0.9
"""Share of its time in submissions from which on a thread does nothing beside them. Assumed."""
IDLE_PCT: Final = 50.0
"""CPU use up to which a thread that submits all the time mostly waits there. Assumed."""
QUEUED: Final = 32
"""Requests in flight that any queue takes (SATA's): beyond, a submission may wait for a place."""


def _is_held_up(p: Point) -> bool:
    """True if each submission returned when its request was done.

    Source: fio's HOWTO, ioengine=libaio ("may only support queued behavior with non-buffered I/O").
    """
    submitting = p.iops / p.jobs * (p.slat_s or 0.0)
    return submitting > HELD_UP and (p.per_job_pct or 100.0) < IDLE_PCT and p.outstanding <= QUEUED


def one_by_one(points: Sequence[Point], link: Link, notes: list[str]) -> list[Point]:
    """*points* with depth 1 where threads waited for each request; *notes* get why.

    Flash does several requests in the time of one, so threads that do no more at depth than without
    have a synchronous engine, or write a file that grows. A limit of bytes is another matter.
    """
    rows = [p for p in points if not (p.held_out or p.rate) and p.block_size <= WAITING_BYTES]
    alone: dict[tuple[object, ...], float] = {}
    for p in rows:
        if p.iodepth == 1 and p.jobs / p.iops < SLOWEST_FLASH_S:
            alone[_like(p)] = max(p.iops, alone.get(_like(p), 0.0))
    deep = [p for p in rows if p.iodepth >= DEEP]
    waiting = {
        id(p) for p in deep if p.iops < NO_FASTER * alone.get(_like(p), 0.0) or _is_held_up(p)
    }
    if link.kind != "pcie" or not waiting or len(waiting) < len(deep):
        return list(points)
    notes.append(
        f"{deep[0].name}: one at a time, so its threads waited for each request (a synchronous "
        "engine, or a file that grows), and those of predictions do"
    )
    # what a request took is what it and those before it did
    return [
        replace(p, iodepth=1, mean_s=None, percentiles_s={}, body_s={}, totals_s={},
                total_body_s={}, bins=None, total_bins=None)
        if p.iodepth > 1 and not (p.held_out or p.rate) else p
        for p in points
    ]  # fmt: skip


SECTOR: Final = 4096

CHANGED_S: Final = 100e-6
"""Time from which on a write of less than 4 KiB was not just buffered. Sources: 0.43 to 0.66 ms (a
Solidigm P5520, md bitmaps, linux-raid), 0.48 ms (`calibration/held-out`, M05); whole ones 10 to 30
us."""


def of_whole_sectors(points: Sequence[Point], notes: list[str]) -> list[Point]:
    """*points* but writes of a part of a sector: its rest is written again, say the *notes*.

    Raises FitError where there are no others.
    """
    changed = [
        p for p in points
        if p.read_fraction == 0 and p.block_size < SECTOR and p.outstanding / p.iops > CHANGED_S
    ]  # fmt: skip
    if not changed:
        return list(points)
    why = (
        f"{changed[0].name}: writes of less than 4 KiB take long because the rest of the sector is "
        "read and written again"
    )
    if len(changed) == len(points):
        raise FitError(f"{why}; add a row of writes of 4 KiB")
    notes.append(f"{why}; they are not fitted")
    return [p for p in points if p not in changed]


def least_link(points: Sequence[Point]) -> str:
    """The slowest PCIe 4.0 or later x4 link that carries *points*: the drive's own is not said."""
    moved = max((_one_way(p) for p in points), default=0.0)
    return "pcie4 x4" if moved < 7.5e9 else "pcie5 x4" if moved < 15e9 else "pcie6 x4"


SATA: Final = "sata3"
SATA_BYTES: Final = 560e6
"""Bytes/s that SATA 3 carries at most. Source: data sheets of its drives (480 to 560 MB/s)."""


def told_link(captures: Captures, points: Sequence[Point]) -> tuple[str, str]:
    """Return the link that *points* are behind and why, where nobody names it; blank: not told.

    Linux calls disks behind SATA and SAS sd. Virtual ones as well, where no guest is stated.
    """
    names = {n for m in captures.measurements for n in m.disk_util_pct}
    disks = sorted(n for n in names if not n.startswith(("md", "dm-")))
    if not all(n.startswith("sd") for n in disks) or any(p.guest != "none" for p in points):
        return "", ""
    if not disks:
        is_slow = streams_slowly([p for p in points if not p.held_out])
        return (SATA, "no NVMe drive streams so slowly") if is_slow else ("", "")
    is_carried = max((_one_way(p) for p in points), default=0.0) < SATA_BYTES
    return (SATA, f"their device is {disks[0]}") if is_carried else ("", "")


def _one_way(p: Point) -> float:
    """Bytes per second in the busier direction of one drive's link."""
    return p.iops * p.block_size / p.targets * max(p.read_fraction, 1 - p.read_fraction)
