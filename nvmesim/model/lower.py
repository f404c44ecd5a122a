"""From a resolved scenario to a network: the only place that knows both.

Every workload group becomes one network group per socket that its threads run on, so that programs
know where the memory is. Threads without a socket are spread over the sockets in turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nvmesim.errors import LimitError
from nvmesim.model.background import BackgroundGroup, destage_group, rebuild_group
from nvmesim.model.commands import Commands, DriveTarget, Planned
from nvmesim.model.drive import DriveModel
from nvmesim.model.host import (
    Distance,
    Host,
    batch_of,
    member_cycles,
    request_cycles,
    sharing_cycles,
)
from nvmesim.model.lowered import FlowInfo, Lowered, RebuildInfo, caveats
from nvmesim.model.path import Paths
from nvmesim.model.record_target import RecordTarget
from nvmesim.model.request_kinds import (
    Replay,
    Replayed,
    RequestKind,
    arrival_arrays,
    flushed_kinds,
    read_replay,
    request_kinds,
)
from nvmesim.model.volume import VolumeTarget
from nvmesim.network.builder import (
    Bucket,
    Builder,
    BurstRow,
    FlowRow,
    GroupRow,
    LoadRows,
    Plans,
    Row,
    UserRow,
    const,
    op,
    plan_arrays,
    station_arrays,
)
from nvmesim.network.distributions import exponential_table
from nvmesim.network.network import SCALE_ONE, Kind, Network, Op
from nvmesim.raid.planner.pieces import planning
from nvmesim.scenario.resolved import ResolvedScenario, Target, WorkloadGroup
from nvmesim.units import PS_PER_S

REPLAY_THREADS = 16
"""Threads that a replayed trace is spread over, if the scenario does not ask for more."""

AnyTarget = DriveTarget | VolumeTarget


def lower(scenario: ResolvedScenario) -> Lowered:
    """Return *scenario* as a network, with the way back to its names.

    Raises ScenarioError for what no model exists for, GeometryError for an array that cannot be.
    """
    with planning():
        return _Lowering(scenario).lowered()


@dataclass(frozen=True)
class _Part:
    """The threads of one workload group on one socket, by number."""

    index: int
    group: WorkloadGroup
    socket: int
    threads: list[int]

    @property
    def streams(self) -> int:
        """Sequential streams on each target: one a thread, or one; 0 for random requests."""
        if self.group.access != "sequential":
            return 0
        return 1 if self.group.interlocked else len(self.threads)


class _Lowering:
    def __init__(self, scenario: ResolvedScenario) -> None:
        self.scenario = scenario
        self.b, self.plans, self.load = Builder(), Plans(), LoadRows()
        self.flows: list[FlowInfo] = []
        self.n_phases = 1
        self.warnings: list[str] = []
        self.host = Host(self.b, scenario)
        self.paths = Paths(self.b, scenario)
        self.drives = self._drives()
        self.commands = Commands(self.b, scenario, self.drives, self.paths, self.plans)
        self.targets: dict[tuple[str, int], AnyTarget] = {}
        # Targets (kind, index, part) that threads of several sockets use.
        used: dict[tuple[str, int, int], set[int]] = {}
        for group in self.scenario.workload:
            on = {socket for socket, _ in self._spread(group)}
            for t in group.targets:
                used.setdefault((t.kind, t.index, t.part), set()).update(on)
        self._shared = {key for key, sockets in used.items() if len(sockets) > 1}
        self._traces: dict[tuple[Path, float], Replay] = {}
        self._arrivals: dict[int, Replayed] = {}
        self._started: list[tuple[_Part, int]] = []
        self._cached: dict[tuple[int, int, bool], list[tuple[RequestKind, float]]] = {}
        self.rebuilds: list[RebuildInfo] = []

    def lowered(self) -> Lowered:
        for index, group in enumerate(self.scenario.workload):
            for socket, threads in self._spread(group):
                self._add_group(_Part(index, group, socket, threads))
        for part, number in self._started:
            self._add_users(part, number)
        n_threads = len(self.host.thread_gate)
        self._add_background()
        self.warnings += caveats(self.scenario)
        self.plans.pad(self.n_phases)
        # An END of its own, so that the last operation always is one.
        self.b.program([op(Op.END)])
        if n_threads:  # else a rebuild alone
            first = min(self.host.thread_gate)
            self.b.report("threads", "thread", first, n_threads, resource="threads")
        n = len(self.scenario.workload)
        arrays: dict[str, Any] = {
            **station_arrays(self.b),
            **plan_arrays(self.plans),
            **arrival_arrays([user.group for user in self.load.users], self._arrivals),
            **self.load.arrays(n if n > 1 else 0),
            **self.host.arrays(),
        }
        network = Network(**arrays, n_members=len(self.scenario.drives))
        return Lowered(
            scenario=self.scenario, network=network, stations=tuple(self.b.infos),
            flows=tuple(self.flows), children=tuple(self.commands.infos),
            warnings=tuple(self.warnings), assumptions=self.scenario.assumptions,
            rebuilds=tuple(self.rebuilds),
        )  # fmt: skip

    def _drives(self) -> dict[int, DriveModel]:
        groups = self.scenario.workload
        rebuild = any(v.rebuild for v in self.scenario.volumes)
        writes = rebuild or any(g.read < 1 or g.trace is not None for g in groups)
        in_flight = sum(g.in_flight for g in groups if not g.is_open)
        opened = rebuild or any(g.is_open for g in groups)
        wanted = in_flight * self._fan_out()
        return {
            drive.index: DriveModel(
                self.b, drive, writes=writes, host_ps=self._host_share(drive.index),
                mixed=writes and any(g.read > 0 or g.trace is not None for g in groups),
                tags=opened or wanted > drive.profile.tags.value,
                syncs=any(g.sync_every or g.write_through for g in groups),
            )
            for drive in self.scenario.drives
        }  # fmt: skip

    def _fan_out(self) -> int:
        """Most commands that one request may have outstanding at one drive: a bound."""
        chunks = [v.chunk for v in self.scenario.volumes if v.chunk]
        sizes = [size for g in self.scenario.workload for size, _ in g.block_sizes]
        if not chunks or not sizes:
            return 1
        rows = [v.raid.stripe_cache and v.engine.merge != "none" for v in self.scenario.volumes]
        # md sends rows of 4 KiB, which may not merge
        return 2 + max(sizes) // (4096 if any(rows) else min(chunks))

    def _host_share(self, drive: int) -> int:
        """Host time that a profile with host_included already holds, ps.

        The scenario's stack then adds only what exceeds it.
        """
        where = self.scenario.drives[drive]
        if not where.profile.host_included or not self.scenario.workload:
            return 0
        group = self.scenario.workload[0]
        cycles = request_cycles(self.scenario.stack, group, 4096)
        own = self.host.ps(cycles.alone, where.socket) + round(self.scenario.stack.latency.value)
        held = where.profile.host_submit
        return own if held is None else min(own, round(held.value))

    def _spread(self, group: WorkloadGroup) -> list[tuple[int, list[int]]]:
        """Thread numbers of the group by socket."""
        n = group.n_threads
        if group.trace is not None:  # a trace does not say how many threads it came from
            n = max(n, min(REPLAY_THREADS, sum(s.logical_cpus for s in self.scenario.sockets)))
        homes = [s.index for s in self.scenario.sockets]
        homes = homes if group.socket is None else [group.socket]
        return [(s, list(range(i, n, len(homes)))) for i, s in enumerate(homes) if i < n]

    def _memory(self, socket: int, group: WorkloadGroup | None = None) -> int:
        """Return the socket of the buffers of threads of *socket*.

        That is what the group says, or their own socket, or the first that has DIMMs.
        """
        if group is not None and group.buffers is not None:
            return group.buffers
        sockets = self.scenario.sockets
        if sockets[socket].has_memory:
            return socket
        return next(s.index for s in sockets if s.has_memory)

    def _target(self, target: Target) -> AnyTarget:
        key = (target.kind, target.index)
        if key not in self.targets:
            if target.kind == "drive":
                self.targets[key] = DriveTarget(target.index, self.commands)
            else:
                volume = self.scenario.volumes[target.index]
                kind = RecordTarget if volume.raid.records else VolumeTarget
                self.targets[key] = kind(self.b, self.scenario, volume, self.commands, self.paths)
        return self.targets[key]

    def _add_group(self, part: _Part) -> None:
        group, streams = part.group, part.streams
        replay = self._replay(group)
        plain = request_kinds(group) if replay is None else list(replay.kinds)
        kinds = flushed_kinds(plain, group.sync_every)
        number, first_flow = len(self.load.groups), len(self.load.flows)
        first_threshold = self.load.add_thresholds([share for _, _, share, _ in kinds])
        # Threads start apart; a large odd step spreads them over any cycle.
        first_stream = len(self.load.stream_start)
        self.load.stream_start += [i * 7919 for i in range(streams)] * len(group.targets)
        for place, target in enumerate(group.targets):
            stream = first_stream + place * streams if streams else -1
            for write, n_bytes, share, flushes in kinds:
                kind = self._request_kind(part, target, write, n_bytes, flushes)
                self._add_flow(part, place, kind, stream, share * group.n_threads)
        gap, rate = -1, group.rate
        if rate is not None:
            gap = self._lengths(PS_PER_S * group.n_threads / rate, group.arrivals == "paced")
        bursts = self._bursts(group) if gap >= 0 else BurstRow()
        self.load.groups.append(
            GroupRow(
                first_flow, len(kinds), first_threshold, len(group.targets), 1,
                2 if replay else int(rate is not None), gap,
                group.think_ps // max(1, group.think_every), bursts,
            )
        )  # fmt: skip
        self.load.max_targets = max(self.load.max_targets, len(group.targets))
        if replay is not None:
            self._arrivals[number] = Replayed(replay, first_flow, len(group.targets))
        # Threads are numbered in a row, after all stations that targets need.
        self._started.append((part, number))

    def _lengths(self, mean_ps: float, fixed: bool) -> int:
        """Row of a table of times: exponential ones, or all the same."""
        table = exponential_table(mean_ps)
        return self.b.dist(np.full_like(table, round(mean_ps)) if fixed else table)

    def _bursts(self, group: WorkloadGroup) -> BurstRow:
        """Distributions of the lengths of bursts and pauses, and the factors on gaps in each.

        Random lengths are exponential: Poisson arrivals so modulated are a Markov-modulated Poisson
        process of two states (Fischer and Meier-Hellstern, Performance Evaluation 18, 1993).
        """
        bursts = group.bursts
        if bursts is None:
            return BurstRow()
        quiet, is_fixed = bursts.quiet * bursts.peak, bursts.lengths == "fixed"
        slow = round(SCALE_ONE / quiet) if quiet * (1 << 12) > 1 else 0
        on, off = (self._lengths(ps, is_fixed) for ps in (bursts.on, bursts.off))
        return BurstRow(on, off, round(SCALE_ONE / bursts.peak), slow)

    def _replay(self, group: WorkloadGroup) -> Replay | None:
        """Arrivals of the group's trace, read once."""
        if group.trace is None:
            return None
        key = (group.trace, group.speed)
        if key not in self._traces:
            self._traces[key] = read_replay(group.trace, group.speed)
            self.warnings += self._traces[key].notes
        return self._traces[key]

    def _add_background(self) -> None:
        """Rebuilds, and what write-back caches write later."""
        for (_, index, _), written in self._cached.items():
            target = self.targets["volume", index]
            assert isinstance(target, VolumeTarget)
            self._add_background_group(destage_group(target, written))
        for volume in (v for v in self.scenario.volumes if v.rebuild):
            target = self._target(Target("volume", volume.index, volume.name))
            assert isinstance(target, VolumeTarget)
            counter = self.b.station(f"{volume.name} rebuild", Kind.DELAY)
            memory = self._memory(self.scenario.drives[volume.members[0]].socket)
            group, info = rebuild_group(
                target, self.scenario, self.commands, self.host, counter, memory
            )
            self.rebuilds.append(info)
            self._add_background_group(group, measured=not self.scenario.workload)

    def _add_background_group(self, group: BackgroundGroup, *, measured: bool = False) -> None:
        load, number = self.load, len(self.load.groups)
        shares = sum(flow.share for flow in group.flows)
        first_threshold = load.add_thresholds([flow.share / shares for flow in group.flows])
        first_flow, stream = len(load.flows), -1
        if group.is_stream:
            stream = len(load.stream_start)
            load.stream_start.append(0)
        for flow in group.flows:
            info = FlowInfo(-1, 0, flow.write, flow.n_bytes, group.deferred)
            self._add_rows(info, flow.rows, flow.planned, flow.planned.n_phases, stream)
        load.groups.append(
            GroupRow(first_flow, len(group.flows), first_threshold, measured=int(measured))
        )
        for i, (users, interval) in enumerate(group.users):
            thread = self.host.add_thread(f"{group.name}{i}", group.socket, interval, 0)
            load.users += [UserRow(number, thread)] * users

    def _request_kind(
        self, part: _Part, target: Target, write: bool, n_bytes: int, flushes: bool
    ) -> RequestKind:
        group, model = part.group, self._target(target)
        for drive in model.members:
            self.drives[drive].check(write)
        volume = model.volume if isinstance(model, VolumeTarget) else None
        depth = 1 if group.is_open else max(1, group.in_flight // len(group.targets))
        return RequestKind(
            write, n_bytes, group.access, group.align or n_bytes, group.offset, group.span, depth,
            part.socket, self._memory(part.socket, group), max(1, part.streams),
            write and group.write_through,
            flushes, self.scenario.stack.flushes_all, group.journal(volume) if flushes else "",
        )  # fmt: skip

    def _add_flow(
        self, part: _Part, place: int, kind: RequestKind, stream: int, share: float
    ) -> None:
        index, target = part.index, part.group.targets[place]
        model = self._target(target)
        if isinstance(model, VolumeTarget) and model.is_cached(kind):
            key = kind.socket, target.index, kind.write
            self._cached.setdefault(key, []).append((kind, share))
        try:
            planned = model.plan(kind)
        except LimitError as error:
            raise error.at(f"workload.{index}.block_size") from None
        rows = self._request_rows(part, target, model, kind, planned)
        info = FlowInfo(index, place, kind.write, kind.n_bytes)
        more = int(planned.flush_phase >= 0) * (3 if kind.journal else 1)
        self._add_rows(info, rows, planned, planned.n_phases + more, stream)

    def _add_rows(
        self, info: FlowInfo, rows: Sequence[Row], planned: Planned, n_phases: int, stream: int
    ) -> None:
        """Add one flow; with several workloads each has a histogram of its own."""
        self.n_phases = max(self.n_phases, n_phases)
        own = info.group if len(self.scenario.workload) > 1 else -1
        self.flows.append(info)
        self.load.flows.append(
            FlowRow(
                self.b.program(rows), int(info.write), info.n_bytes,
                planned.order_start, planned.order_len, stream, own,
            )
        )  # fmt: skip

    def _request_rows(
        self, part: _Part, target: Target, model: AnyTarget, kind: RequestKind, planned: Planned
    ) -> list[Row]:
        index, group = part.index, part.group
        shared = (target.kind, target.index, target.part) in self._shared
        stack = self.scenario.stack
        distance = self._distance(model, group, kind, shared)
        volume = model if isinstance(model, VolumeTarget) else None
        array = None if volume is None else volume.volume
        of_stack, of_engine = sharing_cycles(self.scenario, target, array)
        cycles = request_cycles(
            stack, group, kind.n_bytes, distance=distance, write=kind.write,
            further=of_stack + member_cycles(self.scenario, array),
            splits=0.0 if volume is None else volume.split_by_thread(kind),
        )  # fmt: skip
        engine, per_child = (0.0, 0.0) if volume is None else volume.host_cycles()
        in_turn = isinstance(model, RecordTarget)
        if volume is None or volume.thread_sends(kind):
            per_child += self.scenario.command_cycles(model.members)
        submit = self.host.submit_rows(
            cycles, engine + of_engine, per_child, kind.socket,
            closed=not (group.is_open or in_turn),
            locks=[] if volume is None else volume.lock_rows(kind),
        )  # fmt: skip
        # A pool's thread sleeps until its request is done: it is let go behind that.
        submit, held = (submit[:-2], submit[-2:]) if in_turn else (submit, [])
        handed = self.host.ps(cycles.handed, kind.socket)
        sq_thread = self.host.sq_thread(index, group, kind.socket) if group.sqpoll else -1
        if group.sqpoll:
            submit += [const(sq_thread, handed), op(Op.MARK)]
        rows = [*submit, *self._limit_rows(index, group, kind.n_bytes)]
        rows += self.host.section_rows(stack, group, target, kind.write, shared)
        if latency := round(stack.latency.value):
            delay = self.b.named("stack latency", "delay", Kind.DELAY)
            rows.append(op(Op.VISIT, delay, -1, latency))
        copied = 2 * stack.copies.value * kind.n_bytes  # each copy reads and writes the data once
        if copied:
            rows += self.paths.memory_rows(kind.memory, copied)
        rows += model.request_rows(kind, planned.n_phases)
        interrupt = self.host.ps(cycles.interrupt, kind.socket)
        done = [const(sq_thread, interrupt)] if group.sqpoll and interrupt else []
        if in_turn:
            return [*rows, *done, *self.host.woken_rows(cycles, kind.socket), *held, op(Op.END)]
        if group.sqpoll:  # interrupts come to the CPU of the kernel's thread
            cycles = replace(cycles, interrupt=0.0, handler=0.0)
        done += self.host.complete_rows(cycles, kind.socket, group.interrupts)
        if kind.flushes:  # submitted once the write is answered, waited for, and reaped
            flush = model.flush_rows(kind, planned.flush_phase)
            submitted = [row for row in submit if row.code != Op.MARK]
            done += [op(Op.ANSWER), *submitted, *flush, *(done if flush else [])]
        return [*rows, *done, op(Op.END)]

    def _limit_rows(self, index: int, group: WorkloadGroup, n_bytes: int) -> list[Row]:
        """Token buckets that a request of *n_bytes* passes, the sustained ones first.

        All threads of a group share them.
        """
        limits, rows = group.limits, []
        if limits is None:
            return []
        for what, rate, takes, saved in (
            ("IOPS limit", limits.iops, 1, limits.burst),
            ("bandwidth limit", limits.bandwidth, n_bytes, limits.burst),
            ("IOPS peak", limits.peak_iops, 1, 0),
            ("bandwidth peak", limits.peak_bandwidth, n_bytes, 0),
        ):
            if rate is not None:
                bucket = self.b.named(
                    f"{group.name} {what}", "limit", Kind.LIMIT,
                    own=Bucket(saved), group=index, resource="limit",
                )  # fmt: skip
                rows.append(const(bucket, round(PS_PER_S * takes / rate)))
        return rows

    def _distance(
        self, model: AnyTarget, group: WorkloadGroup, kind: RequestKind, shared: bool
    ) -> Distance:
        """How far drives, memory and interrupts are from the threads of one program."""
        far = [self.scenario.drives[d].socket != kind.socket for d in model.members]
        return Distance(
            drive=sum(far) / len(far),
            memory=float(kind.memory != kind.socket),
            interrupts=float(group.interrupts not in (None, kind.socket)),
            shared=shared,
        )

    def _add_users(self, part: _Part, number: int) -> None:
        group, socket = part.group, part.socket
        n_targets, stack = len(group.targets), self.scenario.stack
        interval = 0 if group.rate_limit is None else round(PS_PER_S / group.rate_limit)
        batch = batch_of(stack, group), stack.per_batch.value
        for position, t in enumerate(part.threads):
            place = t // group.threads if group.threads_are_per_target else -1
            if group.trace is not None or n_targets == 1:  # each arrival of a trace names its own
                place = 0
            name = f"{group.name} thread{t}"
            thread = self.host.add_thread(name, socket, interval, t % n_targets, *batch)
            stream = 0 if group.interlocked or group.access == "random" else position
            spread = group.outstanding_per == "thread-target" and place < 0
            if group.is_open:
                self.load.users.append(UserRow(number, thread, place, stream))
                continue
            for j in range(n_targets if spread else 1):
                where = j if spread else place
                user = UserRow(number, thread, where, stream)
                self.load.users += [user] * group.outstanding
