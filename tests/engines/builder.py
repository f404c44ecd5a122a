"""Networks in a few lines, for the tests of the engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nvmesim.network.network import PURPOSE_FIRST_FREE, SCALE_ONE, Kind, Network, Op
from nvmesim.rng import TABLE, table_levels

Row = tuple[int, ...]
Child = list[tuple[int, int]]
"""Alternatives: (program, member)."""


def visit(station: int, ps: int = 0, dist: int = -1, after: int = 0, per_child: int = 0) -> Row:
    return (Op.VISIT, station, dist, ps, after, per_child)


def bank(first: int, n: int, ps: int = 0, dist: int = -1) -> Row:
    return (Op.VISIT_BANK, first, dist, ps, n, 0)


def lane(first: int, n: int, ps: int = 0, dist: int = -1) -> Row:
    return (Op.VISIT_LANE, first, dist, ps, n, 0)


def on_cpu(ps: int = 0, dist: int = -1, per_child: int = 0) -> Row:
    return (Op.VISIT_CPU, 0, dist, ps, 0, per_child)


def sample(station: int, series: int, ps: int = 0) -> Row:
    return (Op.VISIT_SERIES, station, series, ps, 0, 0)


def acquire(gate: int, slots: int = 1) -> Row:
    return (Op.ACQUIRE, gate, slots, 0, 0, 0)


def release(gate: int, slots: int = 1) -> Row:
    return (Op.RELEASE, gate, slots, 0, 0, 0)


def acquire_thread(
    wake_ps: int = 0, interrupt_ps: int = 0, shared: int = 0, half_ps: int = 0, first: int = 0
) -> Row:
    return (Op.ACQUIRE_THREAD, wake_ps, interrupt_ps, shared, half_ps, first)


RELEASE_THREAD: Row = (Op.RELEASE_THREAD, 0, 0, 0, 0, 0)
MARK: Row = (Op.MARK, 0, 0, 0, 0, 0)
ANSWER: Row = (Op.ANSWER, 0, 0, 0, 0, 0)


def fork(phase: int = 0) -> Row:
    return (Op.FORK, phase, 0, 0, 0, 0)


def split(n: int, program: int) -> Row:
    return (Op.SPLIT, n, program, 0, 0, 0)


def destage(first: int, n_dies: int, programs: int = 1) -> Row:
    return (Op.DESTAGE, first, programs, 0, n_dies, 0)


@dataclass
class Station:
    name: str
    kind: Kind
    servers: int = 1
    scale: int = -1
    die_dist: int = -1
    die_gate: int = -1
    suspend_ps: int = -1
    gc: int = -1
    backlog: int = 0
    most: int = 1
    base_ps: int = 0
    base_dist: int = -1
    in_order: int = 0
    gathers: int = 0
    saved_ps: int = 0


@dataclass
class User:
    thread: int = 0
    target: int = 0
    stream: int = 0
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    """(time, flow of the group)."""


@dataclass
class Flow:
    program: int
    plans: Sequence[int] = (0,)
    write: int = 0
    stream: int = -1
    own: int = -1
    """Class whose histogram it counts in."""


class NetworkBuilder:
    """Add stations, then programs, plans, threads and groups; ids are what the methods return."""

    def __init__(self) -> None:
        self.stations: list[Station] = []
        self.scale: list[int] = []
        self.gc: list[tuple[int, int, int]] = []
        self.dists: list[npt.NDArray[np.int64]] = []
        self.series: list[list[int]] = []
        self.series_block: list[int] = []
        self.ops: list[Row] = []
        self.plans: list[list[list[Child]]] = []
        self.flows: list[Flow] = []
        self.groups: list[dict[str, Any]] = []
        self.thresholds: list[int] = []
        self.threads: list[tuple[int, int, int, int]] = []
        self.users: list[tuple[int, User]] = []
        self.n_streams = 0

    # Stations.

    def station(self, kind: Kind, servers: int = 1, name: str = "", **die: int) -> int:
        self.stations.append(Station(name or f"s{len(self.stations)}", kind, servers, **die))
        return len(self.stations) - 1

    def fifo(self, servers: int = 1, name: str = "", scale: Sequence[int] = ()) -> int:
        start = len(self.scale) if len(scale) else -1
        self.scale += scale
        return self.station(Kind.FIFO, servers, name, scale=start)

    def fifos(self, servers: Sequence[int]) -> int:
        """Return the first of several FIFO stations."""
        first = len(self.stations)
        for c in servers:
            self.fifo(c)
        return first

    def delay(self, name: str = "") -> int:
        return self.station(Kind.DELAY, 1, name)

    def gate(self, slots: int = 1, name: str = "") -> int:
        return self.station(Kind.GATE, slots, name)

    def rounds(
        self,
        most: int = 1 << 20,
        base_ps: int = 0,
        base_dist: int = -1,
        in_order: int = 0,
        gathers: int = 0,
    ) -> int:
        return self.station(
            Kind.ROUNDS,
            most=most,
            base_ps=base_ps,
            base_dist=base_dist,
            in_order=in_order,
            gathers=gathers,
        )

    def limit(self, saved_ps: int = 0, name: str = "") -> int:
        return self.station(Kind.LIMIT, 1, name, saved_ps=saved_ps)

    def dies(
        self,
        n: int,
        program: int,
        gate: int = -1,
        suspend_ps: int = -1,
        gc: int = -1,
        backlogs: Sequence[int] = (),
    ) -> int:
        """Return the first of *n* dies whose programs take the distribution *program*.

        Of *backlogs* each die begins with its own.
        """
        first = len(self.stations)
        die = {"die_dist": program, "die_gate": gate, "suspend_ps": suspend_ps, "gc": gc}
        for i in range(n):
            self.station(Kind.DIE, **die, backlog=backlogs[i] if backlogs else 0)
        return first

    def episodes(self, on: int, off: int, factor: int) -> int:
        self.gc.append((on, off, factor))
        return len(self.gc) - 1

    # Times.

    def dist(self, ppf: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> int:
        """Distribution with the quantile function *ppf*, in ps."""
        self.dists.append(np.rint(ppf(table_levels())).astype(np.int64))
        return len(self.dists) - 1

    def exponential(self, mean_ps: float) -> int:
        return self.dist(lambda p: -mean_ps * np.log1p(-p))

    def uniform(self, low: int, high: int) -> int:
        return self.dist(lambda p: low + (high - low) * p)

    def samples(self, values: Sequence[int], block: int = 1) -> int:
        self.series.append(list(values))
        self.series_block.append(block)
        return len(self.series) - 1

    # Programs.

    def program(self, *rows: Row) -> int:
        start = len(self.ops)
        for row in (*rows, (Op.END, 0, 0, 0, 0, 0)):
            self.ops.append((*row, PURPOSE_FIRST_FREE + 2 * len(self.ops)))
        return start

    def plan(self, *phases: Sequence[Child]) -> int:
        self.plans.append([list(phase) for phase in phases])
        return len(self.plans) - 1

    # Load.

    def thread(self, gate: int = -1, cpu: int = -1, interval_ps: int = 0, first: int = 0) -> int:
        """Add a thread; without a gate or a CPU of its own it gets ones that cost nothing."""
        gate = self.gate(1 << 20) if gate < 0 else gate
        cpu = self.delay() if cpu < 0 else cpu
        self.threads.append((gate, cpu, interval_ps, first))
        return len(self.threads) - 1

    def stream(self, n: int = 1) -> int:
        self.n_streams += n
        return self.n_streams - n

    def group(
        self,
        targets: Sequence[Sequence[Flow]],
        users: Sequence[User],
        *,
        shares: Sequence[float] = (1.0,),
        gap: int = -1,
        think_ps: int = 0,
        replay: bool = False,
        measured: int = 1,
        bursts: tuple[int, int, int, int] = (-1, -1, SCALE_ONE, SCALE_ONE),
    ) -> int:
        """Add a group: *targets* holds a flow a kind, *shares* their probabilities."""
        first = len(self.flows)
        for flows in targets:
            self.flows += flows
        self.groups.append(
            {
                "flow": first, "kinds": len(targets[0]), "threshold": len(self.thresholds),
                "targets": len(targets), "measured": measured, "gap": gap, "think": think_ps,
                "open": 2 if replay else int(gap >= 0), "bursts": bursts,
            }
        )  # fmt: skip
        levels = np.rint(np.cumsum(shares) * (1 << 32)).astype(np.int64)
        levels[-1] = 1 << 32
        self.thresholds += levels.tolist()
        group = len(self.groups) - 1
        for user in users:
            user.arrivals = [(at, first + flow) for at, flow in user.arrivals]
            self.users.append((group, user))
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
        if not self.plans:
            self.plan()
        st, groups, users = self.stations, self.groups, [u for _, u in self.users]
        phases = [phase for plan in self.plans for phase in plan]
        children = [child for phase in phases for child in phase]
        alternatives = [alt for child in children for alt in child]
        arrivals = [arrival for user in users for arrival in user.arrivals]
        replays = any(g["open"] == 2 for g in groups)
        series = [value for row in self.series for value in row]
        return Network(
            station_names=tuple(s.name for s in st),
            station_kind=ints(s.kind for s in st),
            station_servers=ints(s.servers for s in st),
            station_scale=ints(s.scale for s in st),
            scale=ints(self.scale),
            die_dist=ints(s.die_dist for s in st),
            die_gate=ints(s.die_gate for s in st),
            die_suspend_ps=ints(s.suspend_ps for s in st),
            die_gc=ints(s.gc for s in st),
            die_backlog=ints(s.backlog for s in st),
            round_most=ints(s.most for s in st),
            round_base_ps=ints(s.base_ps for s in st),
            round_base_dist=ints(s.base_dist for s in st),
            round_in_order=ints(s.in_order for s in st),
            round_gathers=ints(s.gathers for s in st),
            limit_saved_ps=ints(s.saved_ps for s in st),
            flow_class=ints(f.own for f in self.flows),
            n_classes=1 + max((f.own for f in self.flows), default=-1),
            group_on_dist=ints(g["bursts"][0] for g in groups),
            group_off_dist=ints(g["bursts"][1] for g in groups),
            group_on_slow=ints(g["bursts"][2] for g in groups),
            group_off_slow=ints(g["bursts"][3] for g in groups),
            gc_on_dist=ints(row[0] for row in self.gc),
            gc_off_dist=ints(row[1] for row in self.gc),
            gc_factor=ints(row[2] for row in self.gc),
            dist=np.array(self.dists, np.int64).reshape(-1, TABLE),
            series=ints(series),
            series_ptr=pointer(self.series),
            series_block=ints(self.series_block),
            ops=np.array(self.ops, np.int64),
            plan_phase_ptr=pointer(self.plans),
            phase_child_ptr=pointer(phases),
            child_alt_ptr=pointer(children),
            alt_program=ints(alt[0] for alt in alternatives),
            alt_member=ints(alt[1] for alt in alternatives),
            n_members=1 + max((alt[1] for alt in alternatives), default=-1),
            order=ints(plan for flow in self.flows for plan in flow.plans),
            flow_program=ints(f.program for f in self.flows),
            flow_write=ints(f.write for f in self.flows),
            flow_bytes=ints(4096 for _ in self.flows),
            flow_order_ptr=pointer([f.plans for f in self.flows])[:-1].copy(),
            flow_order_len=ints(len(f.plans) for f in self.flows),
            flow_stream=ints(f.stream for f in self.flows),
            group_flow=ints(g["flow"] for g in groups),
            group_kinds=ints(g["kinds"] for g in groups),
            group_threshold_ptr=ints(g["threshold"] for g in groups),
            threshold=ints(self.thresholds),
            group_targets=ints(g["targets"] for g in groups),
            group_measured=ints(g["measured"] for g in groups),
            group_open=ints(g["open"] for g in groups),
            group_gap_dist=ints(g["gap"] for g in groups),
            group_think_ps=ints(g["think"] for g in groups),
            thread_gate=ints(t[0] for t in self.threads),
            thread_cpu=ints(t[1] for t in self.threads),
            thread_interval_ps=ints(t[2] for t in self.threads),
            thread_first=ints(t[3] for t in self.threads),
            n_batch_targets=max(g["targets"] for g in groups),
            user_group=ints(group for group, _ in self.users),
            user_thread=ints(u.thread for u in users),
            user_target=ints(u.target for u in users),
            user_stream=ints(u.stream for u in users),
            n_streams=self.n_streams,
            stream_start=ints(3 * i for i in range(self.n_streams)),
            arrival_ps=ints(a[0] for a in arrivals),
            arrival_flow=ints(a[1] for a in arrivals),
            user_arrival_ptr=pointer([u.arrivals for u in users]) if replays else ints(()),
        )


def ints(values: object) -> npt.NDArray[np.int64]:
    return np.array(list(values), np.int64)  # type: ignore[call-overload]


def pointer(rows: Sequence[Sequence[object]]) -> npt.NDArray[np.int64]:
    """Row starts of *rows* laid behind each other."""
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
