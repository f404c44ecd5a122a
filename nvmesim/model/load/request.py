"""Requests of a workload group to a target, as the planner of a volume needs them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from nvmesim.scenario.resolved import WorkloadGroup


@dataclass(frozen=True)
class Access:
    """What a drive has to know of a command beside its operation and its size."""

    sequential: bool = False
    """It follows its neighbour, so that programs are full and a disk's arm stays."""
    through: bool = False
    """A write that must reach the media (FUA)."""
    misaligned: bool = False
    """It starts inside a physical sector (512e), so that it touches one more."""


@dataclass(frozen=True)
class RequestKind:
    """Requests of a group to a target: one operation, one size, from one socket's memory."""

    write: bool
    n_bytes: int
    access: Literal["random", "sequential"]
    align: int
    offset: int
    span: int | None
    depth: int
    """Requests in flight at the target: a sequential stream coalesces with it (md, RAID5/6)."""
    socket: int
    memory: int
    streams: int = 1
    """Sequential streams on the target."""
    through: bool = False
    """The write must reach the media (FUA)."""
    flushes: bool = False
    """A flush follows the write, once it is answered."""
    flushes_all: bool = False
    """It goes to drives without a volatile cache too (`StackProfile.flushes_all`)."""
    journal: Literal["", "ext4", "xfs"] = ""
    """The journal that it commits."""

    @property
    def drive_access(self) -> Access:
        """That of its commands, were they aligned."""
        return Access(self.access == "sequential", self.through)

    def misaligned(self, sector: int) -> tuple[int, int]:
        """(m, n): of n requests in a row, m touch one physical sector of *sector* bytes more.

        >>> RequestKind(True, 4096, "random", 512, 0, None, 1, 0, 0).misaligned(4096)
        (7, 8)
        >>> RequestKind(True, 4096, "random", 4096, 512, None, 1, 0, 0).misaligned(4096)
        (1, 1)
        >>> RequestKind(True, 1024, "random", 1024, 0, None, 1, 0, 0).misaligned(4096)
        (0, 1)
        """
        step = self.n_bytes if self.access == "sequential" else self.align
        period = sector // math.gcd(step, sector)
        least = math.ceil(self.n_bytes / sector)
        starts = ((self.offset + k * step) % sector for k in range(period))
        inside = sum(math.ceil((start + self.n_bytes) / sector) > least for start in starts)
        return (inside // period, 1) if inside in (0, period) else (inside, period)


def request_kinds(group: WorkloadGroup) -> list[tuple[bool, int, float]]:
    """(write, bytes, share) of a group; shares sum to 1.

    >>> request_kinds(WorkloadGroup("w", (), block_sizes=((4096, 1.0),), read=0.7))
    [(False, 4096, 0.7), (True, 4096, 0.30000000000000004)]
    """
    writes = group.write_block_sizes or group.block_sizes
    kinds = [(False, size, group.read * share) for size, share in group.block_sizes]
    kinds += [(True, size, (1 - group.read) * share) for size, share in writes]
    return [kind for kind in kinds if kind[2] > 0]
