"""The compiled engine: keeps the kernel's state and turns a call of it into a `Batch`."""

from __future__ import annotations

import numpy as np

from nvmesim.engine import kernel
from nvmesim.engine.contract import (
    HIST_BINS,
    REQUEST_FIELDS,
    Acc,
    Batch,
    Ints,
    Status,
    deadlock,
    run_key,
)
from nvmesim.network import HORIZON_PS, Kind, Network


def kernel_net(net: Network) -> kernel.Net:
    """Return the arrays of a checked *net* in the kernel's order."""
    return kernel.Net(
        net.station_kind, net.station_servers, net.station_scale, net.scale,
        net.die_dist, net.die_gate, net.die_suspend_ps, net.die_gc,
        net.round_most, net.round_base_ps, net.round_base_dist, net.round_in_order,
        net.round_gathers,
        net.limit_saved_ps,
        net.gc_on_dist, net.gc_off_dist, net.gc_factor,
        net.dist, net.series, net.series_ptr, net.series_block, net.ops,
        net.plan_phase_ptr, net.phase_child_ptr, net.child_alt_ptr, net.alt_program,
        net.alt_member, net.order, net.flow_program, net.flow_write, net.flow_order_ptr,
        net.flow_order_len, net.flow_stream, net.group_flow, net.group_kinds,
        net.group_threshold_ptr, net.threshold, net.group_targets, net.group_measured,
        net.group_open, net.group_gap_dist, net.group_think_ps, net.group_on_dist,
        net.group_off_dist, net.group_on_slow, net.group_off_slow, net.flow_class,
        net.thread_gate, net.thread_cpu,
        net.thread_interval_ps, net.user_group, net.user_thread, net.user_target,
        net.user_stream, net.arrival_ps, net.arrival_flow, net.user_arrival_ptr,
    )  # fmt: skip


def _initial(net: Network, seed: int, replication: int, record: int) -> kernel.Run:
    n, n_users = net.n_stations, len(net.user_group)
    many = np.where(net.station_kind == Kind.FIFO, net.station_servers, 0)
    many[net.station_servers == 1] = 0
    pointer = np.concatenate([[0], np.cumsum(many)])

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    cursor = net.user_arrival_ptr[:-1].copy() if len(net.user_arrival_ptr) else zeros(n_users)
    keys = np.array([run_key(seed, replication, 0), run_key(seed, replication, 1)], np.int64)
    minus = np.full(n, -1, np.int64)
    return kernel.Run(
        scalars=zeros(kernel.N_SCALARS), keys=keys, free_at=zeros(n),
        server_ptr=pointer[:-1].astype(np.int64), server_free=zeros(max(1, int(pointer[-1]))),
        inside=zeros(n), slots=net.station_servers - net.slots_held(), held_since=zeros(n),
        head=minus.copy(), tail=minus.copy(), touched=zeros(n), backlog=net.die_backlog.copy(),
        programs=zeros(n), program_end=minus.copy(), checked=np.minimum(net.die_backlog, 1),
        gc_episode=zeros(len(net.gc_factor)), gc_end=zeros(len(net.gc_factor)),
        interrupt_end=zeros(len(net.thread_gate), net.n_batch_targets),
        idle_since=zeros(n),
        thread_next=net.thread_first.copy(), thread_due=zeros(len(net.thread_gate)),
        stream=net.stream_start.copy() if net.n_streams else zeros(1),
        target_count=zeros(len(net.flow_program)), user_cursor=cursor, user_paced=zeros(n_users),
        user_phase=zeros(n_users), user_phase_end=zeros(n_users),
        member_load=zeros(max(1, net.n_members)), series_count=zeros(n),
        **_statistics(net),
        record=zeros(record, len(REQUEST_FIELDS)),
    )  # fmt: skip


def _statistics(net: Network) -> dict[str, Ints]:
    """What a batch counts, at zero.

    New arrays are cheaper than old ones cleared and copied: the system hands out zeros, and few of
    the histogram's bins are ever touched.
    """
    shapes = {
        "completed": (2,), "latency_sum": (2, 2), "latency_max": (2, 2),
        "histogram": (2, 2, HIST_BINS), "flows": (len(net.flow_program),),
        "alts": (max(1, len(net.alt_program)),), "plans": (len(net.plan_phase_ptr) - 1,),
        "acc": (net.n_stations, len(Acc)), "syncs": (HIST_BINS,),
        "classes": (net.n_classes, HIST_BINS),
    }  # fmt: skip
    return {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}


def _longer(array: Ints, n: int) -> Ints:
    """Copy of *array* with *n* rows of zeros more."""
    return np.concatenate([array, np.zeros((n, *array.shape[1:]), np.int64)])


class CompiledEngine:
    """A network run by the Numba kernel; see `contract.Engine`.

    Memory depends on what is outstanding, not on how many requests are simulated.
    """

    def __init__(
        self, net: Network, *, seed: int = 1, replication: int = 0, record: bool = False
    ) -> None:
        net.check()
        self._network = net
        self._net = kernel_net(net)
        n_users = len(net.user_group)
        slots = max(64, 2 * n_users, 2 * net.max_burst)
        self._run = _initial(net, seed, replication, 1 << 18 if record else 0)
        slack = net.n_stations + n_users + 8
        self._tokens = np.zeros((slots, kernel.TOKEN_FIELDS), np.int64)
        self._tokens[:, kernel.SCALED] = -1
        self._heap_t = np.full(slots + slack, kernel.FOREVER, np.int64)
        self._heap_e = np.zeros(slots + slack, np.int64)
        self._free = np.arange(slots, dtype=np.int64)[::-1].copy()
        self._pending = np.zeros((slots + slack, 3), np.int64)
        self._resume = np.zeros(slots + net.max_burst, np.int64)
        self._run.scalars[kernel.N_FREE] = slots
        self._start_users()

    def _start_users(self) -> None:
        """At time 0 users submit (those of a trace at its first arrival), dies start programs."""
        net, run = self._network, self._run
        first = np.zeros(len(net.user_group), np.int64)
        begins = np.ones(len(first), bool)
        replayed = np.flatnonzero(net.group_open[net.user_group] == 2)
        for user in replayed:
            start, end = net.user_arrival_ptr[user], net.user_arrival_ptr[user + 1]
            begins[user] = end > start
            if end > start:
                first[user] = net.arrival_ps[start]
        users = np.flatnonzero(begins)
        users = users[np.argsort(first[users], kind="stable")]  # a sorted array is a heap
        dies = np.flatnonzero(net.die_backlog)
        n = len(dies) + len(users)
        self._heap_t[:n] = np.concatenate([np.zeros(len(dies), np.int64), first[users]])
        self._heap_e[:n] = np.concatenate([-1 - dies, -1 - net.n_stations - users])
        run.scalars[kernel.N_HEAP] = n

    def _make_room(self) -> None:
        """Keep room to record every request that could complete in one instant."""
        run = self._run
        if len(run.record) and len(run.record) < 4 * len(self._tokens):
            larger = np.zeros((8 * len(self._tokens), len(REQUEST_FIELDS)), np.int64)
            n = int(run.scalars[kernel.N_RECORDS])
            larger[:n] = run.record[:n]
            self._run = run._replace(record=larger)

    def advance(self, completions: int, until_ps: int = HORIZON_PS) -> Batch:
        """Run until so many measured requests have completed, or the clock would pass until_ps.

        Raises DeadlockError when requests are left and no event is.
        """
        self._make_room()
        self._run = run = self._run._replace(**_statistics(self._network))
        start = int(run.scalars[kernel.NOW])
        run.scalars[kernel.DONE] = 0
        while (status := self._call(completions, until_ps)) == kernel.GROW:
            self._grow()
        live = int(run.scalars[kernel.LIVE])
        if status == Status.IDLE and live:
            raise deadlock(self._network, np.flatnonzero(run.head >= 0), live)
        return self._batch(Status(status), start)

    def _call(self, completions: int, until_ps: int) -> int:
        return int(
            kernel.advance(
                self._net, self._run, self._tokens, self._heap_t, self._heap_e, self._free,
                self._pending, self._resume, completions, until_ps,
            )
        )  # fmt: skip

    def _grow(self) -> None:
        """Double everything that is sized by the number of tokens."""
        old = len(self._tokens)
        self._tokens = _longer(self._tokens, old)
        self._tokens[old:, kernel.SCALED] = -1
        self._heap_t = _longer(self._heap_t, old)
        self._heap_t[-old:] = kernel.FOREVER
        self._heap_e = _longer(self._heap_e, old)
        self._pending = _longer(self._pending, old)
        self._resume = _longer(self._resume, old)
        self._free = _longer(self._free, old)
        n_free = int(self._run.scalars[kernel.N_FREE])
        self._free[n_free : n_free + old] = np.arange(2 * old - 1, old - 1, -1)
        self._run.scalars[kernel.N_FREE] = n_free + old

    def _batch(self, status: Status, start: int) -> Batch:
        run, net = self._run, self._network
        end = int(run.scalars[kernel.NOW])
        gates = net.station_kind == Kind.GATE
        run.acc[gates, Acc.SERVICE] += net.station_servers[gates] * (end - start) - run.slots[
            gates
        ] * (end - run.held_since[gates])
        run.held_since[gates] = end
        return Batch(
            status, start, end,
            run.completed, run.latency_sum, run.latency_max, run.histogram, run.flows, run.alts,
            run.plans, run.acc, int(run.scalars[kernel.LIVE]), run.syncs,
            run.classes,
        )  # fmt: skip

    def records(self) -> Ints:
        """Return and forget int64[n, 7], a row a completion: see `contract.REQUEST_FIELDS`."""
        n = int(self._run.scalars[kernel.N_RECORDS])
        self._run.scalars[kernel.N_RECORDS] = 0
        return self._run.record[:n].copy()
