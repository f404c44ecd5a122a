"""Requests of a workload group to a target, the flushes behind them, and arrivals of traces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt

from nvmesim.errors import ScenarioError
from nvmesim.network.builder import Row, op
from nvmesim.network.network import Op
from nvmesim.scenario.resolved import WorkloadGroup
from nvmesim.warning import Warning

if TYPE_CHECKING:
    import polars as pl

TICK_PS: Final = 10**9
"""Of kernels with HZ = 1000, as measured: one busy file makes 999 to 1,000 commits a second."""
JOURNAL: Final = {"ext4": 12288, "xfs": 0}
"""Bytes that a commit writes before its flush; counted on ext4: commits of 12 KiB."""
RECORD: Final = 4096  # bytes of the record that ends a commit


@dataclass(frozen=True)
class Access:
    """What a drive has to know of a command beside its operation and its size."""

    sequential: bool = False
    """It follows its neighbour, so that programs are full and a disk's arm stays."""
    through: bool = False  # a write that must reach the media (FUA)
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
    streams: int = 1  # sequential streams on the target
    through: bool = False  # the write must reach the media (FUA)
    flushes: bool = False  # a flush follows the write, once it is answered
    flushes_all: bool = False
    """It goes to drives without a volatile cache too (`StackProfile.flushes_all`)."""
    journal: Literal["", "ext4", "xfs"] = ""  # the journal that it commits

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


# -- flushes ------------------------------------------------------------------------------------
#
# A write is answered before its flush starts, so its latency does not hold it; the user then
# submits the flush as a request of its own, waits for every member, and goes on. Source: fio 3.33,
# io_u.c (a sync is an I/O unit of its own that takes one of the iodepth), Linux md.c
# (md_flush_request).
#
# An fsync of a file commits the journal of its file system. All threads share one file and one
# commit runs at a time: whoever comes before its flush joins it. File times change once a tick, so
# in the tick of the last commit there is nothing to commit and a thread flushes by itself. ext4: a
# journal write, a flush, and a record that must reach the media; XFS: a log write behind a flush.
# Sources: Linux fs/ext4/fsync.c, fs/jbd2/commit.c, fs/xfs/xfs_file.c (xfs_file_fsync),
# Documentation/filesystems/multigrain-ts.rst.


def flushed_kinds(
    kinds: Sequence[tuple[bool, int, float]], sync_every: int
) -> list[tuple[bool, int, float, bool]]:
    """(write, bytes, share, flushes): one of *sync_every* writes has a flush behind it.

    Which one is drawn: it is every n-th on average, and the threads do not march in step.

    >>> flushed_kinds([(True, 4096, 1.0)], 4)
    [(True, 4096, 0.75, False), (True, 4096, 0.25, True)]
    """
    found = []
    for write, n_bytes, share in kinds:
        part = share / sync_every if write and sync_every else 0.0
        if share > part:
            found.append((write, n_bytes, share - part, False))
        if part:
            found.append((write, n_bytes, part, True))
    return found


def commit_rows(turn: int, flush: Sequence[Row], record: Row, journal: Sequence[Row]) -> list[Row]:
    """Steps of an fsync on a file system whose commits are the *turn*.

    The leader writes the *journal*, then closes the commit, and ends it with a *flush* and the
    *record*; who comes in the tick of the last commit only flushes.
    """
    lead = [*journal, op(Op.CLOSE, turn), *flush, record, op(Op.LEAVE, turn, len(flush))]
    return [op(Op.JOIN, turn, len(lead) + len(flush), len(lead), TICK_PS), *lead, *flush]


# -- arrivals of a trace ---------------------------------------------------------------------------
#
# An open loop that comes when the trace's requests came. Sizes and operations are the trace's own;
# addresses are not kept (a hypothetical array has others), so each request goes to a drawn place of
# its target. Devices of the trace become targets in turn.

MAX_SIZES = 64
"""Distinct sizes that are kept as they are; the sizes of a trace with more are rounded up to powers
of two of at least 4 KiB."""


@dataclass(frozen=True)
class Replay:
    """Arrivals in order of time."""

    kinds: tuple[tuple[bool, int, float], ...]  # (write, bytes, share)
    kind: npt.NDArray[np.int64]  # int64[n]: index into kinds
    arrival_ps: npt.NDArray[np.int64]  # int64[n], ascending, from 0
    device: npt.NDArray[np.int64]  # int64[n]: number of the device, in order of appearance
    notes: tuple[str, ...] = ()


def read_replay(path: Path, speed: float) -> Replay:
    """Read the arrivals of *path*, *speed* times as fast as they came.

    Raises ScenarioError when the file holds no requests with times, CaptureError when it cannot be
    read.
    """
    import polars as pl  # slow to import, and few runs replay a trace

    from nvmesim.capture.registry import read_capture

    capture = read_capture(path)
    if capture.requests is None:
        raise ScenarioError(
            f"{path.name}: holds results, not requests; replay a block trace, a log of single "
            "requests or an iolog"
        )
    issue = pl.coalesce(
        pl.col("issue_ns"), pl.col("complete_ns") - pl.col("latency_ns"), pl.col("complete_ns")
    )
    frame = (
        capture.requests.select(issue.alias("at"), pl.col("op").cast(pl.String), "bytes", "device")
        .filter(pl.col("at").is_not_null() & (pl.col("bytes") > 0))
        .sort("at", maintain_order=True)
        .collect()
    )
    if frame.is_empty():
        raise ScenarioError(f"{path.name}: no request in it has a time and a size")
    notes = []
    sizes = frame["bytes"]
    if sizes.n_unique() > MAX_SIZES:
        rounded = np.maximum(4096, 2 ** np.ceil(np.log2(sizes.to_numpy())).astype(np.int64))
        frame = frame.with_columns(pl.Series("bytes", rounded))
        text = f"{path.name}: {sizes.n_unique()} sizes are rounded up to powers of two"
        notes.append(Warning("sizes-rounded", text, path.name))
    return _replay(frame, speed, tuple(notes))


def _replay(frame: pl.DataFrame, speed: float, notes: tuple[str, ...]) -> Replay:
    write = (frame["op"] == "write").to_numpy().astype(np.int64)
    size = frame["bytes"].to_numpy().astype(np.int64)
    keys, kind, counts = np.unique(
        np.stack([write, size], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    kinds = tuple(
        (bool(w), int(n), float(count) / len(frame))
        for (w, n), count in zip(keys.tolist(), counts.tolist(), strict=True)
    )
    at = frame["at"].to_numpy().astype(np.int64)
    arrival = ((at - at[0]) * (1000 / speed)).astype(np.int64)
    names = frame["device"].fill_null("").to_numpy()
    _, first, device = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return Replay(
        kinds, kind.reshape(-1).astype(np.int64), arrival, rank[device.reshape(-1)], notes
    )


@dataclass(frozen=True)
class Replayed:
    """A network group that replays a trace."""

    replay: Replay
    first_flow: int
    n_targets: int


def arrival_arrays(
    user_group: Sequence[int], groups: Mapping[int, Replayed]
) -> dict[str, npt.NDArray[np.int64]]:
    """Arrivals of each user, for `Network`: those of its trace in turn, over all that replay it."""
    if not groups:
        names = ("arrival_ps", "arrival_flow", "user_arrival_ptr")
        return dict.fromkeys(names, np.zeros(0, np.int64))
    sharing: dict[int, list[int]] = {}
    for user, group in enumerate(user_group):
        if group in groups:
            sharing.setdefault(id(groups[group].replay), []).append(user)
    times, flows, pointer = [], [], [0]
    for user, group in enumerate(user_group):
        n = 0
        if group in groups:
            of = groups[group]
            users = sharing[id(of.replay)]
            mine = slice(users.index(user), None, len(users))
            place = of.replay.device[mine] % of.n_targets
            times.append(of.replay.arrival_ps[mine])
            flows.append(of.first_flow + place * len(of.replay.kinds) + of.replay.kind[mine])
            n = len(times[-1])
        pointer.append(pointer[-1] + n)
    return {
        "arrival_ps": np.concatenate(times),
        "arrival_flow": np.concatenate(flows),
        "user_arrival_ptr": np.array(pointer, np.int64),
    }
