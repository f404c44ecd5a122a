"""Networks in a few lines, for the tests of the engines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nvmesim.network.builder import (
    Batches,
    Bucket,
    Builder,
    BurstRow,
    ChildRow,
    DiePrograms,
    FlowRow,
    GroupRow,
    LoadRows,
    Plans,
    Row,
    Station,
    ThreadBatch,
    UserRow,
    WakeUp,
    ints,
    op,
    plan_arrays,
    station_arrays,
)
from nvmesim.network.network import PURPOSE_FIRST_FREE, Kind, Network, Op
from nvmesim.rng import table_levels

Child = list[tuple[int, int]]  # alternatives: (program, member)


def visit(station: int, ps: int = 0, dist: int = -1, after: int = 0, per_child: int = 0) -> Row:
    return op(Op.VISIT, station, dist, ps, after, per_child)


def unordered(station: int, ps: int, dist: int, after: int = 0) -> Row:
    return op(Op.VISIT_UNORDERED, station, dist, ps, after)


def bank(first: int, n: int, ps: int = 0, dist: int = -1) -> Row:
    return op(Op.VISIT_BANK, first, dist, ps, n)


def lane(first: int, n: int, ps: int = 0, dist: int = -1) -> Row:
    return op(Op.VISIT_LANE, first, dist, ps, n)


def on_cpu(ps: int = 0, dist: int = -1, per_child: int = 0) -> Row:
    return op(Op.VISIT_CPU, 0, dist, ps, 0, per_child)


def sample(station: int, series: int, ps: int = 0) -> Row:
    return op(Op.VISIT_SERIES, station, series, ps)


def acquire(gate: int, slots: int = 1) -> Row:
    return op(Op.ACQUIRE, gate, slots)


def release(gate: int, slots: int = 1) -> Row:
    return op(Op.RELEASE, gate, slots)


def acquire_thread(
    wake_ps: int = 0, interrupt_ps: int = 0, shared: int = 0, half_ps: int = 0, first: int = 0
) -> Row:
    return op(Op.ACQUIRE_THREAD, wake_ps, interrupt_ps, shared, half_ps, first)


RELEASE_THREAD = op(Op.RELEASE_THREAD)
STAY = op(Op.RELEASE_THREAD, 1)
MARK = op(Op.MARK)
ANSWER = op(Op.ANSWER)


def in_turn(
    turn: int, before: Sequence[Row], after: Sequence[Row] = (), alone: Sequence[Row] = (),
    tick: int = 0,
) -> list[Row]:  # fmt: skip
    """A turn that closes between *before* and *after*; *alone*: done instead in its tick."""
    lead = [*before, op(Op.CLOSE, turn), *after, op(Op.LEAVE, turn, len(alone))]
    join = op(Op.JOIN, turn, len(lead) + len(alone), len(lead), tick)
    return [join, *lead, *alone]


def fork(phase: int = 0) -> Row:
    return op(Op.FORK, phase)


def split(n: int, program: int, lanes: int = 0) -> Row:
    return op(Op.SPLIT, n, program, 0, lanes)


def destage(first: int, n_dies: int, programs: int = 1) -> Row:
    return op(Op.DESTAGE, first, programs, 0, n_dies)


@dataclass
class User:
    thread: int = 0
    target: int = 0
    stream: int = 0
    arrivals: list[tuple[int, int]] = field(default_factory=list)  # (time, flow of the group)


@dataclass
class Flow:
    program: int
    plans: Sequence[int] = (0,)
    write: int = 0
    stream: int = -1
    own: int = -1  # class whose histogram it counts in


class NetworkBuilder:
    """Add stations, then programs, plans, threads and groups; ids are what the methods return."""

    def __init__(self) -> None:
        self._b = Builder()
        self._plans = Plans()
        self._load = LoadRows()
        self._members = 0
        self._threads: list[tuple[int, int, int, int]] = []
        self._arrivals: list[list[tuple[int, int]]] = []

    @property
    def stations(self) -> list[Station]:
        return self._b.stations

    @property
    def tables(self) -> list[npt.NDArray[np.int64]]:
        return self._b.tables

    # Stations.

    def station(self, kind: Kind, servers: int = 1, name: str = "", **more: Any) -> int:
        return self._b.station(name or f"s{len(self.stations)}", kind, servers, **more)

    def fifo(self, servers: int = 1, name: str = "", scale: Sequence[int] = ()) -> int:
        return self.station(Kind.FIFO, servers, name, scale=scale)

    def fifos(self, servers: Sequence[int]) -> int:
        """Return the first of several FIFO stations."""
        first = len(self.stations)
        for n in servers:
            self.fifo(n)
        return first

    def delay(self, name: str = "") -> int:
        return self.station(Kind.DELAY, 1, name)

    def gate(self, slots: int = 1, name: str = "") -> int:
        return self.station(Kind.GATE, slots, name)

    def rounds(
        self, most: int = 1 << 20, base_ps: int = 0, base_dist: int = -1, gathers: int = 0,
    ) -> int:  # fmt: skip
        batches = Batches(most, base_ps, base_dist, bool(gathers))
        return self.station(Kind.ROUNDS, own=batches)

    def limit(self, saved_ps: int = 0, name: str = "") -> int:
        return self.station(Kind.LIMIT, 1, name, own=Bucket(saved_ps))

    def batcher(self, most: int = 1, base_ps: int = 0, name: str = "") -> int:
        return self.station(Kind.BATCHER, 1, name, own=ThreadBatch(most, base_ps))

    def turn(self, name: str = "") -> int:
        return self.station(Kind.TURN, 1, name)

    def sleeper(self, wake_ps: int = 0, half_ps: int = 0, name: str = "") -> int:
        return self.station(Kind.SLEEPER, 1, name, own=WakeUp(wake_ps, half_ps))

    def dies(
        self, n: int, program: int, gate: int = -1, suspend_ps: int = -1,
        backlogs: Sequence[int] = (), batches: tuple[int, int, int] = (0, -1, -1),
    ) -> int:  # fmt: skip
        """Return the first of *n* dies whose programs take the distribution *program*.

        Of *backlogs* each die begins with its own; *batches*: after how many programs comes one,
        and the distributions of its length and of a program's time in it.
        """
        first = len(self.stations)
        for backlog in backlogs or [0] * n:
            self.station(Kind.DIE, own=DiePrograms(program, gate, suspend_ps, backlog, *batches))
        return first

    # Times.

    def dist(self, ppf: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> int:
        """Distribution with the quantile function *ppf*, in ps."""
        return self._b.dist(np.rint(ppf(table_levels())).astype(np.int64))

    def exponential(self, mean_ps: float) -> int:
        return self.dist(lambda p: -mean_ps * np.log1p(-p))

    def uniform(self, low: int, high: int) -> int:
        return self.dist(lambda p: low + (high - low) * p)

    def samples(self, values: Sequence[int], block: int = 1) -> int:
        return self._b.add_series(ints(values), block)

    # Programs.

    def program(self, *rows: Row) -> int:
        start = len(self._b.ops)
        numbered = enumerate([*rows, op(Op.END)], start)
        return self._b.program(
            [Row(*row[:6], PURPOSE_FIRST_FREE + 2 * slot) for slot, row in numbered]
        )

    def plan(self, *phases: Sequence[Child]) -> int:
        alternatives = [alternative for phase in phases for child in phase for alternative in child]
        self._members = max([self._members, *(member + 1 for _, member in alternatives)])
        return self._plans.plan(
            [[ChildRow(*zip(*child, strict=True)) for child in phase] for phase in phases]
        )

    # Load.

    def thread(self, gate: int = -1, cpu: int = -1, interval_ps: int = 0, first: int = 0) -> int:
        """Add a thread; without a gate or a CPU of its own it gets ones that cost nothing."""
        gate = self.gate(1 << 20) if gate < 0 else gate
        cpu = self.delay() if cpu < 0 else cpu
        self._threads.append((gate, cpu, interval_ps, first))
        return len(self._threads) - 1

    def stream(self, n: int = 1) -> int:
        first = len(self._load.stream_start)
        self._load.stream_start += [3 * (first + i) for i in range(n)]
        return first

    def group(
        self, targets: Sequence[Sequence[Flow]], users: Sequence[User], *,
        shares: Sequence[float] = (1.0,), gap: int = -1, think_ps: int = 0, replay: bool = False,
        measured: int = 1, bursts: tuple[int, int, int, int] = BurstRow(),
    ) -> int:  # fmt: skip
        """Add a group: *targets* holds a flow a kind, *shares* their probabilities."""
        load, group, first = self._load, len(self._load.groups), len(self._load.flows)
        for flow in (flow for flows in targets for flow in flows):
            order = self._plans.add_order(np.array(flow.plans))
            load.flows.append(
                FlowRow(flow.program, flow.write, 4096, *order, flow.stream, flow.own)
            )
        load.groups.append(
            GroupRow(
                first, len(targets[0]), load.add_thresholds(shares), len(targets), measured,
                2 if replay else int(gap >= 0), gap, think_ps, BurstRow(*bursts),
            )
        )  # fmt: skip
        load.max_targets = max(load.max_targets, len(targets))
        load.users += [UserRow(group, u.thread, u.target, u.stream) for u in users]
        self._arrivals += [[(at, first + flow) for at, flow in u.arrivals] for u in users]
        return group

    def closed(self, program: int, users: int, think_ps: int = 0, plan: int | None = None) -> int:
        """*users* in a closed loop through one program."""
        plan = self.plan() if plan is None else plan
        thread = self.thread()
        flow = Flow(program, [plan])
        return self.group([[flow]], [User(thread) for _ in range(users)], think_ps=think_ps)

    def opened(self, program: int, gap: int, plan: int | None = None) -> int:
        """An open loop through one program."""
        plan = self.plan() if plan is None else plan
        return self.group([[Flow(program, [plan])]], [User(self.thread())], gap=gap)

    # The network.

    def build(self) -> Network:
        if len(self._plans.phase_ptr) == 1:
            self.plan()
        load = self._load
        gates, cpus, intervals, firsts = zip(*self._threads, strict=True)
        arrivals = [arrival for own in self._arrivals for arrival in own]
        starts = np.cumsum([0, *map(len, self._arrivals)])
        return Network(
            **station_arrays(self._b),
            **plan_arrays(self._plans),
            **load.arrays(1 + max(flow.own for flow in load.flows)),
            n_members=self._members,
            thread_gate=ints(gates),
            thread_cpu=ints(cpus),
            thread_interval_ps=ints(intervals),
            thread_first=ints(firsts),
            arrival_ps=ints([at for at, _ in arrivals]),
            arrival_flow=ints([flow for _, flow in arrivals]),
            user_arrival_ptr=ints(starts if any(g.open == 2 for g in load.groups) else []),
        )
