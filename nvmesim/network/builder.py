"""Collects stations, distributions, programs, plans and loads as the arrays of a `Network`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Ints
from nvmesim.errors import LimitError
from nvmesim.limits import MOST_CHILDREN, at_most
from nvmesim.network.network import (
    MAX_CHILDREN,
    N_FIELDS,
    PURPOSE_FIRST_FREE,
    SCALE_ONE,
    Kind,
    Op,
    StationInfo,
    StationKind,
)
from nvmesim.rng import TABLE


class Row(NamedTuple):
    """One operation: what a to e mean is said at its code (`Op`)."""

    code: int
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    purpose: int = PURPOSE_FIRST_FREE  # separates the draws of one token


@dataclass(frozen=True)
class ChildRow:
    """One child of a plan: a program per alternative, and the member whose load decides."""

    programs: tuple[int, ...]
    members: tuple[int, ...]


class DiePrograms(NamedTuple):
    """What a `Kind.DIE` does beside the tokens: the fields ``die_*`` of `Network`."""

    dist: int = -1
    gate: int = -1
    suspend_ps: int = -1
    backlog: int = 0
    every: int = 0
    batch_dist: int = -1
    slow_dist: int = -1


class Batches(NamedTuple):
    """How a `Kind.ROUNDS` serves: the fields ``round_*`` of `Network`."""

    most: int = 1
    base_ps: int = 0
    base_dist: int = -1
    gathers: bool = False


class Bucket(NamedTuple):
    """What a `Kind.LIMIT` saves up: the field ``limit_saved_ps`` of `Network`."""

    saved_ps: int = 0


class WakeUp(NamedTuple):
    """What waking a `Kind.SLEEPER` takes: the fields ``wake_*`` of `Network`."""

    ps: int = 0
    half_ps: int = 0


class ThreadBatch(NamedTuple):
    """How a `Kind.BATCHER` works: the fields ``batch_*`` of `Network`."""

    most: int = 1
    ps: int = 0


StationParameters = DiePrograms | Batches | Bucket | WakeUp | ThreadBatch


class Station(NamedTuple):
    """A station; *own* is what only its kind has."""

    name: str
    kind: Kind
    servers: int = 1
    scale: Sequence[int] = ()
    own: StationParameters | None = None


@dataclass
class Builder:
    """A network under construction; ids are handed out in order."""

    stations: list[Station] = field(default_factory=list)
    infos: list[StationInfo] = field(default_factory=list)
    ops: list[Row] = field(default_factory=list)
    series: list[Ints] = field(default_factory=list)
    series_block: list[int] = field(default_factory=list)
    _dists: dict[bytes, int] = field(default_factory=dict)
    _named: dict[tuple[Any, ...], int] = field(default_factory=dict)
    tables: list[Ints] = field(default_factory=list)  # quantile tables of the distributions, by row

    def station(self, name: str, kind: Kind, servers: int = 1, **more: Any) -> int:
        """Add one station, *more* being fields of `Station`; return its id."""
        self.stations.append(Station(name, kind, servers, **more))
        return len(self.stations) - 1

    def named(
        self, name: str, role: StationKind, kind: Kind = Kind.FIFO, servers: int = 1, *,
        own: StationParameters | None = None, scale: Sequence[int] = (), **about: Any,
    ) -> int:  # fmt: skip
        """Station that is one line of the `report`; asked for again, it is the same station."""
        key = (name, role, *about.items())
        if key not in self._named:
            self._named[key] = self.station(name, kind, servers, scale=scale, own=own)
            self.report(name, role, self._named[key], **about)
        return self._named[key]

    def let_save(self, number: int, saved_ps: int) -> None:
        """Make a station a token bucket that saves up *saved_ps* at least."""
        made = self.stations[number]
        if isinstance(made.own, Bucket):
            saved_ps = max(saved_ps, made.own.saved_ps)
        self.stations[number] = made._replace(kind=Kind.LIMIT, own=Bucket(saved_ps))

    def report(
        self, name: str, kind: StationKind, first: int, count: int = 1, **about: Any
    ) -> None:
        """Name the *count* stations from *first* on as one line; *about*: fields of its info."""
        servers = sum(s.servers for s in self.stations[first : first + count])
        self.infos.append(StationInfo(name, kind, first, count, servers, **about))

    def dist(self, table: Ints) -> int:
        """Row of a quantile table; equal tables share one."""
        key = table.tobytes()
        if key not in self._dists:
            self._dists[key] = len(self.tables)
            self.tables.append(table)
        return self._dists[key]

    def add_series(self, samples_ps: Ints, block: int) -> int:
        """Row of a series of samples that is drawn in runs of *block*."""
        self.series.append(samples_ps)
        self.series_block.append(block)
        return len(self.series) - 1

    def program(self, rows: Sequence[Row]) -> int:
        """Append operations; return the first one's number."""
        start = len(self.ops)
        self.ops.extend(rows)
        return start


def op(code: Op, a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0, slot: int = 0) -> Row:
    """One operation; *slot* separates the draws of one token, so it must not repeat along a path.

    >>> op(Op.END)[0] == Op.END
    True
    """
    return Row(int(code), a, b, c, d, e, PURPOSE_FIRST_FREE + 2 * slot)


def const(station: int, service_ps: int, delay_ps: int = 0) -> Row:
    """Visit *station* for a constant time, then wait *delay_ps* more."""
    return op(Op.VISIT, station, -1, max(1, service_ps), delay_ps)


@dataclass
class Plans:
    """Plans of all flows, deduplicated, and the orders that flows draw from."""

    phase_ptr: list[int] = field(default_factory=lambda: [0])
    child_ptr: list[int] = field(default_factory=lambda: [0])
    alt_ptr: list[int] = field(default_factory=lambda: [0])
    programs: list[int] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    order: list[npt.NDArray[np.int64]] = field(default_factory=list)
    _n_order: int = 0

    def plan(self, phases: Sequence[Sequence[ChildRow]]) -> int:
        """Add one plan; return its id. LimitError if it is too large, or all of them are."""
        own = sum(map(len, phases))
        if own > MAX_CHILDREN:
            raise LimitError(
                f"a request is {own:,} commands at once; {MAX_CHILDREN:,} at most: a smaller "
                "block_size, or a larger chunk"
            )
        at_most(len(self.programs) + own, MOST_CHILDREN, "plans", "commands of all plans")
        for phase in phases:
            for child in phase:
                self.programs.extend(child.programs)
                self.members.extend(child.members)
                self.alt_ptr.append(len(self.programs))
            self.child_ptr.append(len(self.alt_ptr) - 1)
        self.phase_ptr.append(len(self.child_ptr) - 1)
        return len(self.phase_ptr) - 2

    def add_order(self, plans: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Add an order; return where it starts and its length."""
        start = self._n_order
        self.order.append(np.asarray(plans, np.int64))
        self._n_order += len(plans)
        return start, len(plans)

    def pad(self, n_phases: int) -> None:
        """Give every plan *n_phases* phases: an engine forks by phase number."""
        phase_ptr, child_ptr = [0], [0]
        for first, last in pairwise(self.phase_ptr):
            ends = self.child_ptr[first + 1 : last + 1]
            child_ptr += ends + [self.child_ptr[last]] * (n_phases - (last - first))
            phase_ptr.append(len(child_ptr) - 1)
        self.phase_ptr, self.child_ptr = phase_ptr, child_ptr


def ints(values: Sequence[int] | npt.NDArray[np.int64]) -> Ints:
    """int64 array of *values*.

    >>> ints([1, 2]).dtype
    dtype('int64')
    """
    return np.ascontiguousarray(values, dtype=np.int64)


def table_of(rows: Iterable[Iterable[int]], width: int) -> Ints:
    """int64[n, width] of *rows*; NumPy itself is six times as long over named tuples.

    >>> table_of([(1, 2), (3, 4)], 2).shape
    (2, 2)
    """
    return np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, width)


def station_arrays(b: Builder) -> dict[str, Ints | tuple[str, ...]]:
    """The station, distribution and operation arrays of `Network`."""
    scale: list[int] = []
    starts = [-1] * len(b.stations)
    own: dict[type, list[int]] = {}
    for i, s in enumerate(b.stations):
        own.setdefault(type(s.own), []).append(i)
        if s.scale:
            starts[i] = len(scale)
            scale.extend(s.scale)
    tables = np.stack(b.tables) if b.tables else np.zeros((0, TABLE), np.int64)
    lengths = np.cumsum([0] + [len(s) for s in b.series])
    return {
        "station_names": tuple(s.name for s in b.stations),
        "station_kind": ints([s.kind for s in b.stations]),
        "station_servers": ints([s.servers for s in b.stations]),
        "station_scale": ints(starts),
        "scale": ints(scale),
        **_columns(b.stations, own, DiePrograms(), "die"),
        **_columns(b.stations, own, Batches(), "round"),
        **_columns(b.stations, own, Bucket(), "limit"),
        **_columns(b.stations, own, WakeUp(), "wake"),
        **_columns(b.stations, own, ThreadBatch(), "batch"),
        "dist": ints(tables),
        "series": ints(np.concatenate(b.series) if b.series else []),
        "series_ptr": ints(lengths),
        "series_block": ints(b.series_block),
        "ops": table_of(b.ops, N_FIELDS),
    }


def _columns(
    stations: Sequence[Station], own: Mapping[type, list[int]], nothing: StationParameters,
    prefix: str,
) -> dict[str, Ints]:  # fmt: skip
    """The columns of one kind's record, *nothing* where a station is of another kind."""
    mine = own.get(type(nothing), [])
    table = np.tile(np.array(nothing, np.int64), (len(stations), 1))
    if mine:
        table[mine] = table_of([stations[i].own or nothing for i in mine], len(nothing))
    return {f"{prefix}_{name}": ints(table[:, k]) for k, name in enumerate(nothing._fields)}


def plan_arrays(plans: Plans) -> dict[str, Ints]:
    """The plan arrays of `Network`."""
    return {
        "plan_phase_ptr": ints(plans.phase_ptr),
        "phase_child_ptr": ints(plans.child_ptr),
        "child_alt_ptr": ints(plans.alt_ptr),
        "alt_program": ints(plans.programs),
        "alt_member": ints(plans.members),
        "order": ints(np.concatenate(plans.order)),
    }


FLOW_ARRAYS: Final = ("program", "write", "bytes", "order_ptr", "order_len", "stream", "class")
"""Names of the fields of `FlowRow` in `Network`."""
FULL: Final = 1 << 32  # the last cumulative threshold of a group


class FlowRow(NamedTuple):
    """The fields ``flow_*`` of `Network`."""

    program: int
    write: int
    n_bytes: int
    order_ptr: int
    order_len: int
    stream: int = -1
    own: int = -1  # class whose histogram it counts in


class BurstRow(NamedTuple):
    """The fields ``group_on_*`` and ``group_off_*`` of `Network`."""

    on_dist: int = -1
    off_dist: int = -1
    on_slow: int = SCALE_ONE
    off_slow: int = SCALE_ONE


class GroupRow(NamedTuple):
    """The fields ``group_*`` of `Network`."""

    flow: int
    kinds: int
    threshold_ptr: int
    targets: int = 1
    measured: int = 1
    open: int = 0
    gap_dist: int = -1
    think_ps: int = 0
    bursts: BurstRow = BurstRow()


class UserRow(NamedTuple):
    """The fields ``user_*`` of `Network`."""

    group: int
    thread: int
    target: int = 0
    stream: int = 0


@dataclass
class LoadRows:
    """Flows, groups, users as they are added."""

    flows: list[FlowRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    threshold: list[int] = field(default_factory=list)
    users: list[UserRow] = field(default_factory=list)
    stream_start: list[int] = field(default_factory=list)
    max_targets: int = 1

    def add_thresholds(self, shares: Sequence[float]) -> int:
        """Add the cumulative thresholds of *shares*, which sum to 1; return where they start."""
        start = len(self.threshold)
        self.threshold += [round(part * FULL) for part in accumulate(shares)]
        self.threshold[-1] = FULL
        return start

    def arrays(self, n_classes: int) -> dict[str, Any]:
        """Fields of `Network`."""
        bursts = [group.bursts for group in self.groups]
        return {
            **_load_columns("flow", FLOW_ARRAYS, self.flows),
            "n_classes": n_classes,
            **_load_columns("group", GroupRow._fields[:-1], [group[:-1] for group in self.groups]),
            **_load_columns("group", BurstRow._fields, bursts),
            "threshold": ints(self.threshold),
            "n_batch_targets": self.max_targets,
            **_load_columns("user", UserRow._fields, self.users),
            "n_streams": len(self.stream_start),
            "stream_start": ints(self.stream_start),
        }


def _load_columns(
    prefix: str, names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> dict[str, Ints]:
    table = table_of(rows, len(names))
    return {f"{prefix}_{name}": ints(table[:, k]) for k, name in enumerate(names)}
