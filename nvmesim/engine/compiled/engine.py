"""The compiled engine: keeps the kernel's state and turns a call of it into a `Batch`."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Ints
from nvmesim.engine.compiled import kernel_state as state
from nvmesim.engine.compiled.native import loop_of
from nvmesim.engine.contract import (
    HIST_BINS,
    REQUEST_FIELDS,
    Acc,
    Batch,
    Status,
    by_completion,
    chained,
    deadlock,
    run_key,
)
from nvmesim.limits import need
from nvmesim.network.check import REMEMBERED, check
from nvmesim.network.network import (
    GATES,
    HORIZON_PS,
    N_FIELDS,
    O_CODE,
    O_INTERRUPT,
    O_WAKE,
    VISITS,
    Kind,
    Network,
    Op,
)
from nvmesim.rng import mix

FIRST_SHIFT: Final = 18
"""Slots of the wheel are 2**this ps wide until a batch has shown how often events are."""
SLOT_WIDTH: Final = 0.5  # mean times between visits that a slot is wide; 4 are 5 % slower
LEAST_VISITS: Final = 1000  # visits of a batch that tells that time
CPU, BANKS = int(Op.VISIT_CPU), frozenset(map(int, (Op.VISIT_BANK, Op.VISIT_LANE)))


def aligned(rows: int, columns: int, first: int = 0) -> Ints:
    """int64[rows, columns] of zeros; the row *first* begins a cache line of 64 bytes."""
    words = np.zeros(rows * columns + 8, np.int64)
    skip = (-(words.ctypes.data // 8 + first * columns)) % 8
    return words[skip : skip + rows * columns].reshape(rows, columns)


def _records(width: int, *columns: Ints) -> Ints:
    """Rows of *width* words, of what belongs together."""
    rows = aligned(len(columns[0]), width)
    for i, column in enumerate(columns):
        rows[:, i] = column
    return rows


def kernel_net(net: Network, structure: bytes = b"") -> state.Net:
    """Return the arrays of a checked *net* as the kernel's records; *structure* is its digest."""
    ops = aligned(len(net.ops), state.OPS)
    ops[:, :N_FIELDS] = net.ops
    ops[:, state.CHAIN] = _chained(net, structure)
    first = net.child_alt_ptr[:-1]
    return state.Net(
        die=_records(
            state.DIES,
            net.die_dist, net.die_gate, net.die_suspend_ps, net.limit_saved_ps,
            net.round_most, net.round_base_ps, net.round_base_dist, net.round_gathers,
            net.wake_ps, net.wake_half_ps, net.batch_most, net.batch_ps,
            net.die_every, net.die_batch_dist, net.die_slow_dist,
        ),
        scale=net.scale, dist=net.dist,
        series=net.series, series_ptr=net.series_ptr, series_block=net.series_block,
        ops=ops, plan_phase=net.plan_phase_ptr, phase_child=net.phase_child_ptr,
        child=_records(state.CHILDREN, first, np.diff(net.child_alt_ptr), net.alt_program[first],
                       net.alt_member[first]),
        alt_program=net.alt_program, alt_member=net.alt_member, order=net.order,
        flow=_records(state.FLOWS, net.flow_program, net.flow_write, net.flow_order_ptr,
                      net.flow_order_len, net.flow_stream, net.flow_class),
        group=_records(
            state.GROUPS,
            net.group_flow, net.group_kinds, net.group_threshold_ptr, net.group_targets,
            net.group_measured, net.group_open, net.group_gap_dist, net.group_think_ps,
            net.group_on_dist, net.group_off_dist, net.group_on_slow, net.group_off_slow,
        ),
        threshold=net.threshold,
        thread=_records(state.THREADS, net.thread_gate, net.thread_cpu, net.thread_interval_ps),
        user=_records(state.USERS, net.user_group, net.user_thread, net.user_target,
                      net.user_stream),
        arrival_ps=net.arrival_ps, arrival_flow=net.arrival_flow,
        user_arrival=net.user_arrival_ptr,
    )  # fmt: skip


_chains: dict[bytes, npt.NDArray[np.bool_]] = {}


def _chained(net: Network, structure: bytes) -> npt.NDArray[np.bool_]:
    """bool[n_ops]: as `chained`; times do not matter to it."""
    found = _chains.get(structure)
    if found is None or not structure:
        found = chained(net)
        while len(_chains) >= REMEMBERED:
            _chains.pop(next(iter(_chains)), None)
        _chains[structure] = found
    return found


def _always_as_long(net: Network) -> npt.NDArray[np.bool_]:
    """bool[n_stations]: whether every visit takes the same time: then servers need no heap."""
    least = np.full(net.n_stations, state.FOREVER)
    most = np.zeros(net.n_stations, np.int64)
    setups = net.ops[:, O_CODE] == Op.ACQUIRE_THREAD
    charged = bool(net.ops[setups, O_WAKE : O_INTERRUPT + 1].any())
    visits = (net.ops[:, O_CODE] >= min(VISITS)) & (net.ops[:, O_CODE] <= max(VISITS))
    for code, a, dist, service, d, per_child, _ in net.ops[visits].tolist():
        if code == CPU:
            at: Ints | slice = net.thread_cpu
        else:
            at = slice(a, a + d if code in BANKS else a + 1)
        varies = dist >= 0 or per_child > 0 or (code == CPU and charged)
        least[at] = np.minimum(least[at], 0 if varies else max(1, service))
        most[at] = np.maximum(most[at], max(1, service))
    return np.asarray(least == most)


def _kinds(net: Network) -> Ints:
    """int64[n_stations]: what each station is to the state."""
    kinds = np.zeros(net.n_stations, np.int64)
    for kind, number in (
        (Kind.DELAY, state.DELAY), (Kind.GATE, state.GATE),
        (Kind.DIE, state.DIE), (Kind.ROUNDS, state.ROUNDS), (Kind.LIMIT, state.LIMIT),
        (Kind.SLEEPER, state.SLEEPER), (Kind.BATCHER, state.BATCHER), (Kind.TURN, state.TURN),
    ):  # fmt: skip
        kinds[net.station_kind == kind] = number
    several = (net.station_kind == Kind.FIFO) & (net.station_servers > 1)
    kinds[several] = np.where(_always_as_long(net), state.RING, state.POOL)[several]
    kinds[net.station_scale >= 0] = state.SCALED
    return kinds


def _stations(net: Network) -> tuple[Ints, Ints]:
    """Records of the stations at time 0, and the times at which their servers are free."""
    kinds = _kinds(net)
    rows = aligned(net.n_stations, state.STATION_FIELDS)
    several = np.isin(kinds, (state.POOL, state.RING, state.SCALED))
    # a heap's entry 1 begins half a cache line; behind its entries FOREVER
    size = np.where(several, (net.station_servers + 8) // 4 * 4, 0)
    ends = np.cumsum(size)
    free = np.ravel(aligned(int(ends[-1]) + 8, 1))
    free[:] = state.FOREVER
    at = ends - size + 3
    for s in np.flatnonzero(several):
        free[at[s] : at[s] + net.station_servers[s]] = 0
    rows[:, state.KIND] = kinds
    rows[:, state.SERVERS] = net.station_servers
    rows[:, state.AT] = at
    rows[:, state.PROGRAM_END] = -1
    rows[:, state.SCALE] = net.station_scale
    rows[:, state.SLOTS] = net.station_servers - net.slots_held()
    rows[:, state.HEAD] = -1
    rows[:, state.TAIL] = -1
    rows[:, state.BACKLOG] = net.die_backlog
    rows[:, state.CHECKED] = np.minimum(net.die_backlog, 1)
    rows[kinds == state.TURN, state.CLOSED_AT] = -1
    batchers = np.flatnonzero(kinds == state.BATCHER)
    for column in (state.FRONT_HEAD, state.FRONT_TAIL, state.STAYING):
        rows[batchers, column] = -1
    return rows, free


def _initial(net: Network, seed: int, replication: int, record: int) -> state.EngineRun:
    n, n_users, n_flows = net.n_stations, len(net.user_group), len(net.flow_program)
    stations, server_free = _stations(net)

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    cursor = net.user_arrival_ptr[:-1].copy() if len(net.user_arrival_ptr) else zeros(n_users)
    key = run_key(seed, replication, 0)
    return state.EngineRun(
        scalars=zeros(state.N_SCALARS),
        background=np.array([run_key(seed, replication, 1)], np.int64),
        station=stations, server_free=server_free, programs=zeros(n),
        interrupt_end=zeros(len(net.thread_gate), net.n_batch_targets),
        thread_next=net.thread_first.copy(), thread_due=zeros(len(net.thread_gate)),
        stream=net.stream_start.copy() if net.n_streams else zeros(1),
        target_key=np.array([mix(key, flow) for flow in range(n_flows)], np.int64),
        target_count=zeros(n_flows), user_cursor=cursor, user_paced=zeros(n_users),
        user_phase=zeros(n_users), user_phase_end=zeros(n_users),
        member_load=zeros(max(1, net.n_members)), series_count=zeros(n),
        **_statistics(net),
        record=zeros(record, len(REQUEST_FIELDS)),
    )  # fmt: skip


def _statistics(net: Network) -> dict[str, Ints]:
    """Counters of a batch, at zero: new arrays, which are cheaper than old ones cleared."""
    shapes = {
        "completed": (2,), "latency_sum": (2, 2), "latency_max": (2, 2),
        "histogram": (2, 2, HIST_BINS), "flows": (len(net.flow_program),),
        "alts": (max(1, len(net.alt_program)),),
        "syncs": (HIST_BINS,), "classes": (net.n_classes, HIST_BINS),
    }  # fmt: skip
    counts = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
    return {**counts, "acc": aligned(net.n_stations, len(Acc))}


def _longer(array: Ints, n: int, first: int = 0) -> Ints:
    """Copy of *array* with *n* rows of zeros more; its row *first* begins a cache line."""
    columns = int(np.prod(array.shape[1:]))
    longer = aligned(len(array) + n, columns, first).reshape(-1, *array.shape[1:])
    longer[: len(array)] = array
    return longer


def _room(net: Network, slots: int) -> state.Room:
    """Room for *slots* tokens, and at time 0 for all that waits."""
    others = net.n_stations + len(net.user_group)  # events that are not a token's
    slack = others + 8
    room = state.Room(
        tokens=aligned(slots, state.TOKEN_FIELDS),
        heap=aligned(slots + slack, state.HEAP, 1),
        free=np.arange(slots, dtype=np.int64)[::-1].copy(),
        pending=np.zeros((slots + slack, state.PENDING), np.int64),
        resume=np.zeros(slots + net.max_burst, np.int64),
        slots=np.full(state.WHEEL_SLOTS, -1, np.int64),
        wheel=np.zeros(state.WHEEL, np.int64),
        node=np.zeros((slots + slack, 2), np.int64),
    )
    room.wheel[state.SHIFT] = FIRST_SHIFT
    room.wheel[state.FIRST_NODE] = others
    room.tokens[:, state.INSIDE_OF] = -1
    room.heap[:, 0] = state.FOREVER
    return room


TOKEN_BYTES: Final = 8 * (state.TOKEN_FIELDS + state.HEAP + state.PENDING + 4)
"""Of a slot for one request or command under way, in all arrays of `state.Room`."""
RECORD_BYTES: Final = 8 * 8 * len(REQUEST_FIELDS)  # of a slot, where rows of requests are recorded


def _check_memory(slots: int, record: bool) -> None:
    """Raise LimitError unless so many slots, beside half as many while they grow, may be had."""
    each = TOKEN_BYTES + (RECORD_BYTES if record else 0)
    need(
        slots * each * 3 // 2,
        f"{slots // 2:,} requests and commands in flight at once (outstanding, block_size, rate)",
    )


class CompiledEngine:
    """A network run by the compiled kernel; memory depends on what is outstanding alone."""

    def __init__(
        self, net: Network, *, seed: int = 1, replication: int = 0, record: bool = False
    ) -> None:
        structure = check(net)
        self._network = net
        self._loop = loop_of(kernel_net(net, structure))
        self._gates = np.flatnonzero(np.isin(net.station_kind, GATES))
        self._slots = net.station_servers[self._gates]
        slots = max(64, 2 * len(net.user_group), 2 * net.max_burst)
        _check_memory(slots, record)
        self._run = _initial(net, seed, replication, 1 << 18 if record else 0)
        self._room = _room(net, slots)
        self._run.scalars[state.N_FREE] = slots
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
        heap = self._room.heap
        heap[:n, 0] = np.concatenate([np.zeros(len(dies), np.int64), first[users]])
        heap[:n, 1] = np.concatenate([-1 - dies, -1 - net.n_stations - users])
        run.scalars[state.N_HEAP] = n

    def advance(self, completions: int, until_ps: int = HORIZON_PS) -> Batch:
        """Run until so many measured requests have completed, or the clock would pass until_ps.

        DeadlockError when requests are left and no event is.
        """
        record, slots = self._run.record, len(self._room.tokens)
        if len(record) and len(record) < 4 * slots:  # all may complete in one instant
            larger = np.zeros((8 * slots, len(REQUEST_FIELDS)), np.int64)
            n = int(self._run.scalars[state.N_RECORDS])
            larger[:n] = record[:n]
            record = larger
        self._run = run = self._run._replace(record=record, **_statistics(self._network))
        start = int(run.scalars[state.NOW])
        run.scalars[state.DONE] = 0
        until = min(until_ps, state.FOREVER - 1)
        while (status := self._loop(run, self._room, completions, until)) == state.GROW:
            self._grow()
        self._widen(int(run.scalars[state.NOW]) - start)
        live = int(run.scalars[state.LIVE])
        if status == Status.IDLE and live:
            batcher = run.station[:, state.KIND] == state.BATCHER
            front = batcher & (run.station[:, state.FRONT_HEAD] >= 0)
            waiting = np.flatnonzero((run.station[:, state.HEAD] >= 0) | front)
            raise deadlock(self._network, waiting, live)
        return self._batch(Status(status), start)

    def _grow(self) -> None:
        """Double everything that is sized by the number of tokens."""
        old = len(self._room.tokens)
        _check_memory(2 * old, len(self._run.record) > 0)
        self._room = room = state.Room(
            _longer(self._room.tokens, old), _longer(self._room.heap, old, 1),
            _longer(self._room.free, old), _longer(self._room.pending, old),
            _longer(self._room.resume, old), self._room.slots, self._room.wheel,
            _longer(self._room.node, old),
        )  # fmt: skip
        room.tokens[old:, state.INSIDE_OF] = -1
        room.heap[-old:, 0] = state.FOREVER
        n_free = int(self._run.scalars[state.N_FREE])
        room.free[n_free : n_free + old] = np.arange(2 * old - 1, old - 1, -1)
        self._run.scalars[state.N_FREE] = n_free + old

    def _widen(self, duration: int) -> None:
        """Make slots of the wheel as wide as the mean time between visits, to a factor of 2."""
        visits = int(self._run.acc[:, Acc.VISITS].sum())
        shift = int(duration * SLOT_WIDTH // max(1, visits)).bit_length()
        if visits < LEAST_VISITS or abs(shift - int(self._room.wheel[state.SHIFT])) < 2:
            return
        room, scalars = self._room, self._run.scalars
        after, nodes = room.node[:, 1].tolist(), []
        for node in room.slots[room.slots >= 0].tolist():
            while node >= 0:
                nodes.append(node)
                node = after[node]
        at = np.array(nodes, np.int64)
        waiting = np.column_stack([room.node[at, 0], at - room.wheel[state.FIRST_NODE]])
        events = np.concatenate([room.heap[: scalars[state.N_HEAP]], waiting])
        room.heap[:] = 0
        room.heap[:, 0] = state.FOREVER
        # sorted, which is a heap
        room.heap[: len(events)] = events[np.lexsort((events[:, 1], events[:, 0]))]
        scalars[state.N_HEAP] = len(events)
        room.slots[:] = -1
        room.wheel[: state.SUMMARY + 1] = 0
        room.wheel[state.SHIFT] = shift

    def _batch(self, status: Status, start: int) -> Batch:
        run = self._run
        end = int(run.scalars[state.NOW])
        gates = self._gates
        free = run.station[gates, state.SLOTS] * (end - run.station[gates, state.HELD_SINCE])
        run.acc[gates, Acc.SERVICE] += self._slots * (end - start) - free
        run.station[gates, state.HELD_SINCE] = end
        return Batch(
            status, start, end,
            run.completed, run.latency_sum, run.latency_max, run.histogram, run.flows, run.alts,
            run.acc, int(run.scalars[state.LIVE]), run.syncs, run.classes,
        )  # fmt: skip

    def records(self) -> Ints:
        """Return and forget int64[n, 7], a row a completion: see `contract.REQUEST_FIELDS`."""
        n = int(self._run.scalars[state.N_RECORDS])
        self._run.scalars[state.N_RECORDS] = 0
        return by_completion(self._run.record[:n])
