"""From a resolved scenario to a network: the only place that knows both.

Every workload group becomes one network group per socket that its threads run on, so that programs
know where the memory is. Threads without a socket are spread over the sockets in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nvmesim.errors import LimitError, ScenarioError
from nvmesim.model.arrays.background import BackgroundGroup, destage_group, rebuild_group
from nvmesim.model.arrays.record_target import RecordTarget
from nvmesim.model.arrays.volume import VolumeTarget
from nvmesim.model.caveats import caveats
from nvmesim.model.commands import Commands, DriveTarget, Planned, check_can
from nvmesim.model.drive import DriveModel, HostShare
from nvmesim.model.host import Cycles, Distance, Host, request_cycles
from nvmesim.model.load.replay import Replay, Replayed, arrival_arrays, read_replay
from nvmesim.model.load.request import RequestKind, request_kinds
from nvmesim.model.load.sync import flushed_kinds, sync_rows
from nvmesim.model.load.tenants import Limiters, burst_row
from nvmesim.model.lowered import FlowInfo, Lowered, RebuildInfo
from nvmesim.model.path import Paths, peer
from nvmesim.model.rings import SqThreads, thread_batch
from nvmesim.model.sharers import member_cycles, sharing_cycles
from nvmesim.network.builder import (
    Builder,
    Plans,
    Row,
    op,
    plan_arrays,
    station_arrays,
)
from nvmesim.network.distributions import exponential_table
from nvmesim.network.load import FlowRow, GroupRow, LoadRows, UserRow
from nvmesim.network.network import Kind, Network, Op
from nvmesim.network.roles import StationInfo
from nvmesim.raid.planner.budget import planning
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


class _Lowering:
    def __init__(self, scenario: ResolvedScenario) -> None:
        self.scenario = scenario
        self.b = Builder()
        self.plans = Plans()
        self.load = LoadRows()
        self.flows: list[FlowInfo] = []
        self.n_phases = 1
        self.warnings: list[str] = []
        pooled = any(g.floating == "pool" for g in scenario.workload)
        self.host = Host(
            self.b, scenario.sockets, scenario.background,
            contention=scenario.stack.contention.value, pooled=pooled and len(scenario.sockets) > 1,
        )  # fmt: skip
        self.paths = Paths(self.b, scenario)
        self.drives = self._drives()
        self.commands = Commands(self.b, scenario, self.drives, self.paths, self.plans)
        self.targets: dict[tuple[str, int], AnyTarget] = {}
        self._stack_station = -1
        self._sq_threads = SqThreads(self.b)
        self._limiters = Limiters(self.b)
        self._shared = self._shared_targets()
        self._traces: dict[tuple[Path, float], Replay] = {}
        self._arrivals: dict[int, Replayed] = {}
        self._started: list[tuple[WorkloadGroup, int, int, list[int]]] = []
        self._cached: dict[tuple[int, int], list[tuple[RequestKind, float]]] = {}
        self.rebuilds: list[RebuildInfo] = []

    def lowered(self) -> Lowered:
        for index, group in enumerate(self.scenario.workload):
            for socket, n_threads in self._spread(group):
                self._add_group(index, group, socket, n_threads)
        for started in self._started:
            self._add_users(*started)
        self._n_threads = len(self.host.thread_gate)
        self._add_background()
        self.warnings += caveats(self.scenario)
        self.plans.pad(self.n_phases)
        # An END of its own, so that the last operation always is one.
        self.b.program([op(Op.END)])
        return Lowered(
            scenario=self.scenario,
            network=self._network(),
            stations=tuple(self._used_stations()),
            flows=tuple(self.flows),
            children=tuple(self.commands.infos),
            warnings=tuple(self.warnings),
            assumptions=self.scenario.assumptions,
            rebuilds=tuple(self.rebuilds),
        )

    def _used_stations(self) -> list[StationInfo]:
        gates = [s for s in self.b.infos if s.kind != "thread"]
        if not self._n_threads:  # a rebuild alone
            return gates
        first, count = min(self.host.thread_gate), self._n_threads
        self.b.report("threads", "thread", first, count, resource="threads")
        return [*gates, self.b.infos[-1]]

    # -- drives ---------------------------------------------------------------------------------

    def _drives(self) -> dict[int, DriveModel]:
        rebuild = any(v.rebuild for v in self.scenario.volumes)
        writes = rebuild or any(g.read < 1 or g.trace is not None for g in self.scenario.workload)
        in_flight = sum(g.in_flight for g in self.scenario.workload if not g.is_open)
        opened = rebuild or any(g.is_open for g in self.scenario.workload)
        syncs = any(g.sync_every or g.write_through for g in self.scenario.workload)
        models = {}
        for drive in self.scenario.drives:
            tags = opened or in_flight * self._fan_out() > drive.profile.tags.value
            models[drive.index] = DriveModel(
                self.b,
                drive,
                writes=writes,
                tags=tags,
                host=self._host_share(drive.index),
                syncs=syncs,
            )
        return models

    def _fan_out(self) -> int:
        """Most commands that one request may have outstanding at one drive: a bound."""
        chunks = [v.chunk for v in self.scenario.volumes if v.chunk]
        sizes = [size for g in self.scenario.workload for size, _ in g.block_sizes]
        if not chunks or not sizes:
            return 1
        rows = [v.raid.stripe_cache and v.engine.merge != "none" for v in self.scenario.volumes]
        # md sends rows of 4 KiB, which may not merge
        return 2 + max(sizes) // (4096 if any(rows) else min(chunks))

    def _host_share(self, drive: int) -> HostShare:
        """Host time that a profile with host_included already holds.

        The scenario's stack then adds only what exceeds it.
        """
        where = self.scenario.drives[drive]
        if not where.profile.host_included or not self.scenario.workload:
            return HostShare()
        group = self.scenario.workload[0]
        cycles = request_cycles(self.scenario.stack, group, 4096)
        own = self.host.ps(cycles.alone, where.socket) + round(self.scenario.stack.latency.value)
        held = where.profile.host_submit
        share = own if held is None else min(own, round(held.value))
        return HostShare(share, share)

    # -- groups ---------------------------------------------------------------------------------

    def _spread(self, group: WorkloadGroup) -> list[tuple[int, list[int]]]:
        """Thread numbers of the group by socket."""
        n = group.n_threads
        if group.trace is not None:  # a trace does not say how many threads it came from
            n = max(n, min(REPLAY_THREADS, sum(s.logical_cpus for s in self.scenario.sockets)))
        if group.socket is not None:
            return [(group.socket, list(range(n)))]
        homes = [s.index for s in self.scenario.sockets]
        return [(s, list(range(i, n, len(homes)))) for i, s in enumerate(homes) if i < n]

    def _memory(self, socket: int, group: WorkloadGroup | None = None) -> int:
        """Return where the buffers of threads of *socket* are: a socket, or a `path.peer`.

        That is what the group says, or their own socket, or the first that has DIMMs.
        """
        if group is not None and group.peer is not None:
            return peer(group.peer)
        if group is not None and group.buffers is not None:
            return group.buffers
        sockets = self.scenario.sockets
        if sockets[socket].has_memory:
            return socket
        fitted = [s.index for s in sockets if s.has_memory]
        if not fitted:
            raise ScenarioError(
                "server.sockets: no socket has memory; leave out memory = false on one of them"
            )
        return fitted[0]

    def _shared_targets(self) -> set[tuple[str, int, int]]:
        """Targets (kind, index, part) that threads of several sockets use."""
        used: dict[tuple[str, int, int], set[int]] = {}
        for group in self.scenario.workload:
            on = {socket for socket, _ in self._spread(group)}
            for t in group.targets:
                used.setdefault((t.kind, t.index, t.part), set()).update(on)
        return {key for key, sockets in used.items() if len(sockets) > 1}

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

    def _add_group(self, index: int, group: WorkloadGroup, socket: int, threads: list[int]) -> None:
        replay = self._replay(group)
        plain = request_kinds(group) if replay is None else list(replay.kinds)
        kinds = flushed_kinds(plain, group.sync_every)
        number = len(self.load.groups)
        first_flow = len(self.load.flows)
        first_threshold = self.load.add_thresholds([share for _, _, share, _ in kinds])
        sequential = group.access == "sequential"
        streams = len(self.load.stream_start)
        n_streams = self._add_streams(group, threads, sequential)
        for place, target in enumerate(group.targets):
            base = streams + place * (n_streams // len(group.targets)) if sequential else -1
            for write, n_bytes, share, flushes in kinds:
                self._add_flow(
                    index, group, place, target, write, n_bytes, socket, base, flushes=flushes,
                    share=share * group.n_threads, streams=n_streams // len(group.targets),
                )  # fmt: skip
        gap = -1
        if group.rate is not None:
            mean = PS_PER_S * group.n_threads / group.rate
            table = (
                exponential_table(mean)
                if group.arrivals == "poisson"
                else np.full_like(exponential_table(1e6), round(mean))
            )
            gap = self.b.dist(table)
        bursts = burst_row(self.b, group.bursts if gap >= 0 else None)
        self.load.groups.append(
            GroupRow(
                first_flow, len(kinds), first_threshold, len(group.targets), 1,
                2 if replay else int(group.rate is not None), gap,
                group.think_ps // max(1, group.think_every), bursts,
            )
        )  # fmt: skip
        self.load.max_targets = max(self.load.max_targets, len(group.targets))
        if replay is not None:
            self._arrivals[number] = Replayed(replay, first_flow, len(group.targets))
        # Threads are numbered in a row, after all stations that targets need.
        self._started.append((group, number, socket, threads))

    def _replay(self, group: WorkloadGroup) -> Replay | None:
        """Arrivals of the group's trace, read once."""
        if group.trace is None:
            return None
        key = (group.trace, group.speed)
        if key not in self._traces:
            self._traces[key] = read_replay(group.trace, group.speed)
            self.warnings += self._traces[key].notes
        return self._traces[key]

    # -- background -----------------------------------------------------------------------------

    def _add_background(self) -> None:
        """Rebuilds, and what write-back caches write later."""
        for key, written in self._cached.items():
            target = self.targets["volume", key[1]]
            if isinstance(target, VolumeTarget):
                self._add_background_group(destage_group(target, written))
        for volume in (v for v in self.scenario.volumes if v.rebuild):
            target = self._target(Target("volume", volume.index, volume.name))
            if isinstance(target, VolumeTarget):
                name = f"{volume.name} rebuild"
                counter = self.b.station(name, Kind.DELAY)
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

    def _add_streams(self, group: WorkloadGroup, threads: list[int], sequential: bool) -> int:
        """Counters of sequential streams: one per target and thread, or one per target."""
        if not sequential:
            return 0
        per_target = 1 if group.interlocked else len(threads)
        n = per_target * len(group.targets)
        # Threads start apart; a large odd step spreads them over any cycle.
        self.load.stream_start += [(i % per_target) * 7919 for i in range(n)]
        return n

    def _add_flow(
        self,
        index: int,
        group: WorkloadGroup,
        place: int,
        target: Target,
        write: bool,
        n_bytes: int,
        socket: int,
        stream: int,
        *,
        share: float,
        streams: int,
        flushes: bool = False,
    ) -> None:
        model = self._target(target)
        memory = self._memory(socket, group)
        for drive in model.members:
            check_can(self.drives[drive], write)
        volume = model.volume if isinstance(model, VolumeTarget) else None
        kind = RequestKind(
            write, n_bytes, group.access, group.align or n_bytes, group.offset,
            group.span, self._depth(group), socket, memory, max(1, streams),
            write and group.write_through, flushes, self.scenario.stack.flushes_all,
            group.journal(volume) if flushes else "",
        )  # fmt: skip
        if isinstance(model, VolumeTarget) and model.is_cached(kind):
            self._cached.setdefault((socket, target.index), []).append((kind, share))
        planned = self._planned(index, model, kind)
        rows = self._request_rows(index, group, target, model, kind, planned)
        info = FlowInfo(index, place, write, n_bytes)
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

    def _planned(self, index: int, model: AnyTarget, kind: RequestKind) -> Planned:
        """The plans of *kind* on its target; the error of what is too much names its key."""
        try:
            return model.plan(kind)
        except LimitError as error:
            raise error.at(f"workload.{index}.block_size") from None

    def _depth(self, group: WorkloadGroup) -> int:
        if group.is_open:
            return 1
        return max(1, group.in_flight // len(group.targets))

    def _request_rows(
        self,
        index: int,
        group: WorkloadGroup,
        target: Target,
        model: AnyTarget,
        kind: RequestKind,
        planned: Planned,
    ) -> list[Row]:
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
        submit = self.host.submit_rows(
            cycles, engine + of_engine + self._adapter_cycles(model), per_child, kind.socket,
            closed=not (group.is_open or in_turn),
            locks=[] if volume is None else volume.lock_rows(kind),
        )  # fmt: skip
        # A pool's thread sleeps until its request is done: it is let go behind that.
        submit, held = (submit[:-2], submit[-2:]) if in_turn else (submit, [])
        handed = self.host.ps(cycles.handed, kind.socket)
        submit += self._sq_threads.submits(index, group, handed, kind.socket)
        rows = [*submit, *self._limiters.rows(index, group, kind.n_bytes)]
        rows += self.host.section_rows(stack, group, target, kind.write, shared)
        if latency := round(stack.latency.value):
            rows.append(op(Op.VISIT, self._latency_station(), -1, latency))
        rows += [*self._copy_rows(kind), *model.request_rows(kind, planned.n_phases)]
        interrupt = self.host.ps(cycles.interrupt, kind.socket)
        done = self._sq_threads.interrupts(index, group, interrupt, kind.socket)
        if in_turn:
            return [*rows, *done, *self.host.woken_rows(cycles, kind.socket), *held, op(Op.END)]
        done += self.host.complete_rows(cycles.reaped(group), kind.socket, group.interrupts)
        if kind.flushes:
            flush = model.flush_rows(kind, planned.flush_phase)
            done += sync_rows(submit, flush, done if flush else [])
        return [*rows, *done, op(Op.END)]

    def _copy_rows(self, kind: RequestKind) -> list[Row]:
        """Memory traffic of the stack's copies of the data: each reads and writes it once."""
        moved = 2 * self.scenario.stack.copies.value * kind.n_bytes
        return self.paths.memory_rows(kind.memory, moved) if moved and kind.memory >= 0 else []

    def _latency_station(self) -> int:
        if self._stack_station < 0:
            self._stack_station = self.b.station("stack latency", Kind.DELAY)
            self.b.report("stack latency", "delay", self._stack_station)
        return self._stack_station

    def _distance(
        self, model: AnyTarget, group: WorkloadGroup, kind: RequestKind, shared: bool
    ) -> Distance:
        """How far drives, memory and interrupts are from the threads of one program.

        Threads that float over all sockets are as often on each of them.
        """
        homes = [self.scenario.drives[d].socket for d in model.members]
        floats = group.floating == "pool" and group.socket is None
        threads = [s.index for s in self.scenario.sockets] if floats else [kind.socket]

        def share(places: list[int]) -> float:
            pairs = [(t, p) for t in threads for p in places]
            return sum(t != p for t, p in pairs) / len(pairs)

        return Distance(
            drive=share(homes),
            memory=share([kind.memory]) if kind.memory >= 0 else 0.0,
            interrupts=0.0 if group.interrupts is None else share([group.interrupts]),
            shared=shared,
        )

    def _adapter_cycles(self, model: AnyTarget) -> float:
        """Mean host cycles that adapters (VMD) add per command of the target's drives."""
        adapters = [self.scenario.drives[d].adapter for d in model.members]
        costs = [
            0.0 if a is None else self.scenario.adapters[a].cycles_per_command for a in adapters
        ]
        return sum(costs) / len(costs)

    def _add_users(
        self, group: WorkloadGroup, number: int, socket: int, threads: list[int]
    ) -> None:
        n_targets = len(group.targets)
        per_target = group.threads if group.threads_are_per_target else None
        interval = 0
        if group.rate_limit is not None:
            interval = round(PS_PER_S / group.rate_limit)
        batch = thread_batch(self.scenario.stack, group)
        for position, t in enumerate(threads):
            place = -1
            if group.trace is not None:
                place = 0  # each arrival names its own
            elif per_target is not None:
                place = t // per_target
            elif n_targets == 1:
                place = 0
            name = f"{group.name} thread{t}"
            thread = self.host.add_thread(name, socket, interval, t % n_targets, batch)
            stream = 0 if group.interlocked or group.access == "random" else position
            spread = group.outstanding_per == "thread-target" and place < 0
            if group.is_open:
                self.load.users.append(UserRow(number, thread, place, stream))
                continue
            for j in range(n_targets if spread else 1):
                where = j if spread else place
                user = UserRow(number, thread, where, stream)
                self.load.users += [user] * group.outstanding

    # -- arrays ---------------------------------------------------------------------------------

    def _network(self) -> Network:
        n = len(self.scenario.workload)
        arrays: dict[str, Any] = {
            **station_arrays(self.b),
            **plan_arrays(self.plans),
            **arrival_arrays([user.group for user in self.load.users], self._arrivals),
            **self.load.arrays(n if n > 1 else 0),
            **self.host.arrays(),
        }
        return Network(**arrays, n_members=len(self.scenario.drives))


__all__ = ["Cycles", "lower", "request_kinds"]
