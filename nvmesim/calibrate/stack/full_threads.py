"""Rows whose threads were plainly full: they tell what a request costs without CPU figures."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from nvmesim.calibrate.drive.laws import WAITED
from nvmesim.calibrate.notes import named
from nvmesim.calibrate.points import LONE_S, Point

QUEUED: Final = 8
"""Requests in flight of a thread from which on it may be full; with fewer it waits for them."""
MORE: Final = 1.25
"""What more threads do, in units of a row's IOPS, from which on its threads were the limit."""
LARGE: Final = 32 << 10
"""Bytes from which on links and memory may be what many drives wait for. Assumed."""
_load: Final = attrgetter("read_fraction", "random", "block_size", "sync", "path")
"""What a drive is asked in a row"""
_kind: Final = attrgetter("read_fraction", "random", "block_size", "iodepth", "targets",
                          "own_targets", "sync", "raid", "path", "polled")  # fmt: skip
"""Key of rows that differ in threads alone"""
ROOM: Final = 1.25
"""Requests in flight in units of what the IOPS need of a NAND drive: fewer may be the limit."""


def with_full_threads(points: Sequence[Point]) -> tuple[list[Point], list[str]]:
    """*points* with the CPU time of rows whose threads were plainly full, and what is said of it.

    None where any row states CPU figures.

    >>> rows = [Point("", 1.0, True, 4096, n, 128, x, None) for n, x in ((1, 564e3), (4, 1562e3))]
    >>> round(1e6 * with_full_threads(rows)[0][0].cpu_s, 3), with_full_threads(rows)[0][1].cpu_s
    (1.773, None)
    """
    if any(p.cpu_s for p in points):
        return list(points), []
    found = [
        replace(p, cpu_s=p.jobs / p.iops, per_job_pct=100.0) if _is_full(p, points) else p
        for p in points
    ]
    full = [p for p in found if p.cpu_s]
    if not full:
        return found, []
    return found, [
        "no CPU figures: threads are taken as full where more of them do more at the same depth, "
        f"so that a request takes jobs / IOPS of CPU time: {named([p.name for p in full], 6)}; "
        "such rows do not say what a sleeping thread pays to wake up: it is assumed"
    ]


def _is_full(p: Point, points: Sequence[Point]) -> bool:
    if p.is_bounded or p.read_fraction not in (0, 1):
        return False
    if p.iodepth < QUEUED:
        return False
    alike = [
        q.iops for q in points
        if q.jobs > p.jobs and _kind(q) == _kind(p) and not q.is_bounded
    ]  # fmt: skip
    fewer = [q.iops for q in points if q.jobs < p.jobs and _kind(q) == _kind(p)]
    needed = ROOM * p.iops * LONE_S[p.read_fraction == 1]
    is_more = max(alike, default=0.0) > MORE * p.iops > MORE * max(fewer, default=0.0)
    return (is_more or does_less_of_each(p, points)) and p.outstanding > needed


def does_less_of_each(p: Point, points: Sequence[Point]) -> bool:
    """True if fewer threads than drives got less of each drive than another row of *points* did."""
    if p.jobs >= p.targets or p.raid or p.block_size >= LARGE:
        return False
    per_drive = (
        q.iops / q.targets for q in points
        if q.targets < p.targets and q.outstanding / q.targets <= p.outstanding / p.targets
        and not q.raid and _load(q) == _load(p)
    )  # fmt: skip
    return max(per_drive, default=0.0) > MORE * p.iops / p.targets


CONNECTED: Final = 16
"""Requests in flight of a thread from which on its connection may be full."""


def with_full_connections(points: Sequence[Point]) -> list[Point]:
    """*points* that passed NVMe-oF, a lone thread's that waited as full: its connection was.

    Each CPU has a queue of its own there, on which one worker sends and receives: that is not in
    the CPU figures of fio's threads, which are left out. Sources: Linux drivers/nvme/host/tcp.c
    (nvme_tcp_io_work); one thread over NVMe/TCP did 84k reads of 4 KiB/s with 30 % of a CPU, and
    sixteen did 944k (github vtl/ethblk); another 111k reads and 116k writes (io-target/ioutgt).
    """
    found = [replace(p, cpu_s=None, per_job_pct=None) for p in points]
    return [
        replace(p, per_job_pct=100.0)
        if p.jobs == 1 and p.iodepth >= CONNECTED and p.read_fraction in (0, 1)
        and p.outstanding > WAITED * LONE_S[p.read_fraction == 1] * p.iops
        and not any(_load(q) == _load(p) and q.jobs > 1 and q.iops < MORE * p.iops for q in points)
        else p
        for p in found
    ]  # fmt: skip
