"""The narrow waist: stations, gates and flow programs as flat arrays.

Everything above this module talks of drives and RAID; everything below it talks of these arrays.
A *token* (a request, or a child that it forked) walks through a *program*: operations that visit a
station, acquire or release a gate, fork children and wait for them. What a request forks is looked
up in its *plan*; a plan has phases, a phase has children, a child has one program per alternative.

Time is int64 picoseconds. No array holds a unit to convert.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np

from nvmesim.array_types import Ints
from nvmesim.limits import MOST_COMMANDS

MAX_CHILDREN = MOST_COMMANDS
"""Children of one plan, and units of one split."""
SCALE_ONE = 1 << 16
IN_ORDER = 8
"""Services that a wait at a station without order (`Op.VISIT_UNORDERED`) is in order: few who wait
have nobody to overtake. Measured: p99 of full drives with one thread is nearest with 4 to 8 (39
rows of random reads of 18 sources, `calibration/held-out`)."""
"""A service factor of 1 in `Network.scale`."""
HORIZON_PS = 1 << 61
"""Largest time and largest service: sums of two of them still fit int64 (26 days)."""
PURPOSE_FIRST_FREE = 16
"""Purposes of operations start here (engines use the lower ones); a bank visit takes two."""
N_FIELDS = 7
"""Columns of `Network.ops`: code, a, b, c, d, e, purpose."""
O_CODE, O_PURPOSE = 0, 6
# What a to e are to each kind of operation (`Op`).
O_STATION, O_DIST, O_SERVICE, O_DELAY, O_CHILD = range(1, 6)  # a visit
O_BANK = 4  # stations of the bank that is visited, or whose dies are programmed
O_GATE, O_SLOTS = 1, 2
O_WAKE, O_INTERRUPT, O_HANDLER, O_HALF, O_FRONT = range(1, 6)  # of a thread's gate
O_STAYS = 1  # of a thread that is released
O_PHASE = 1
O_UNITS, O_PROGRAM = 1, 2  # of a split
O_DIES, O_PROGRAMS = 1, 2  # of a destage
O_TURN, O_FURTHER, O_ALONE, O_TICK = range(1, 5)


class Kind(IntEnum):
    """Kind of a station."""

    FIFO = 0
    """``servers`` servers, one first-come-first-served queue, service fixed at its start."""
    DELAY = 1
    """Infinitely many servers."""
    GATE = 2
    """``servers`` slots, held from acquire to release; a FIFO queue of those who wait."""
    DIE = 3
    """One server with two classes: tokens first-come-first-served, and behind them programs,
    which start only when the die falls idle and belong to no token. Each ``die_every``-th program
    is followed by a batch (garbage collection): until its length has passed, programs that start
    take ``die_slow_dist`` and not ``die_dist``."""
    ROUNDS = 4
    """One server that, when it falls idle, takes all that wait, up to ``round_most``, as one round:
    the base, then the services of its members, one after the other. They leave at the round's end.
    With ``round_gathers`` the base comes before the taking, so that the round holds what came
    meanwhile as well. A host thread that serves a virtual disk's queue works so."""
    LIMIT = 5
    """A token bucket: a visit's service is what it takes, in time that the bucket needs to refill.
    First come, first served; who arrives while enough is saved up (``limit_saved_ps`` at most, or
    what it takes if that is more) leaves at once, 1 ps later."""
    SLEEPER = 6
    """One server, first come first served, that sleeps when nobody waits: who finds it idle for s
    ps waits for its wake-up as well, ``wake_ps`` x s / (s + ``wake_half_ps``); half 0: always
    ``wake_ps``. A thread of the kernel that others hand their work to is one."""
    BATCHER = 7
    """A thread's gate, one slot, for a thread that works in batches. It takes what waits (those
    that acquired it from the back), ``batch_most`` at most, as one batch, whose first is charged
    ``batch_ps``; then those at the front, which are what the batch made it submit. Who submitted
    stays until the thread has nothing more to submit: one doorbell for all."""
    TURN = 8
    """Work that one token does for all who wait for it: a commit of a journal, a flush. The first
    to come leads (`Op.JOIN`); those who wait when it closes (`Op.CLOSE`) are members and go on with
    it when it leaves (`Op.LEAVE`). Of those who came later the first leads next."""


class Op(IntEnum):
    """Operations of a program: the columns a, b, c, d, e mean what is said here.

    Service of a visit is c ps plus, if b >= 0, a draw from distribution b; at least 1 ps.
    """

    END = 0
    """The token ends: a child is joined by its parent, a request completes."""
    VISIT = 1
    """Station a; after the departure the token is delayed d ps more; e ps are added per child of
    the request's plan."""
    VISIT_BANK = 2
    """One of the d stations from a on, drawn; the token remembers which (its lane)."""
    VISIT_LANE = 3
    """Station a + lane mod d."""
    VISIT_CPU = 4
    """The CPU station of the request's thread, with what its gate charged (the setup); e ps are
    added per child of the request's plan beyond the first."""
    VISIT_SERIES = 5
    """Delay station a; service from series b, in runs of the series' block length."""
    VISIT_UNORDERED = 6
    """As VISIT, of a station that takes those who wait in no order: of what a token would wait in
    order, the part beyond `IN_ORDER` times its service is multiplied by a draw from distribution b,
    in units of `SCALE_ONE`. Its mean is 1, so that the station is as busy as in order."""
    ACQUIRE = 7
    """b slots of gate a."""
    RELEASE = 8
    """b slots of gate a."""
    ACQUIRE_THREAD = 9
    """The gate of the request's thread. Setup, paid at the next CPU visit: if the gate was idle for
    s ps, a x s / (s + d) ps (a wake-up costs more the longer the thread slept, half of a at d;
    d = 0: always a); and b ps if c > 0 and no interrupt of this thread and target runs. One serves
    all that arrives while it runs: for b ps, and c - 1 ps for each that it serves. With e = 1 the
    token goes to the front of the queue."""
    RELEASE_THREAD = 10
    """The gate of the request's thread. With a = 1, if that works in batches, the token stays until
    the thread has submitted its batch."""
    FORK = 11
    """The children of phase a of the request's plan; continue when the last has ended."""
    SPLIT = 12
    """a children with the program at b; continue when the last has ended. On the token's lane, or
    with d > 0 on neighbouring lanes, the first of them drawn from d."""
    DESTAGE = 13
    """b programs on drawn dies of the bank of d stations from a on; the token goes on at once."""
    MARK = 14
    """The request is issued: fio's clat counts from here."""
    ANSWER = 15
    """The request is answered: its latency ends here, and the token goes on (a flush that its
    user waits for). From here to the end is counted apart."""
    JOIN = 16
    """Turn a: who leads goes on here, a member b operations further. With d > 0, who would lead and
    came within the tick of d ps in which the last turn closed goes on c operations further."""
    CLOSE = 17
    """Turn a: those who wait now are the members."""
    LEAVE = 18
    """Turn a: its members go on, another may lead; the token goes on b operations further."""


THREAD_GATES = (Kind.GATE, Kind.BATCHER)
GATES = (*THREAD_GATES, Kind.TURN)
VISITS = (
    Op.VISIT, Op.VISIT_BANK, Op.VISIT_LANE, Op.VISIT_CPU, Op.VISIT_SERIES, Op.VISIT_UNORDERED,
)  # fmt: skip


@dataclass(frozen=True)
class Network:
    """A lowered fork-join queueing network: all that an engine reads.

    Ids index the arrays directly; a pointer array of n + 1 entries delimits n rows (CSR).
    """

    station_names: tuple[str, ...]
    station_kind: Ints  # [n_stations] Kind
    station_servers: Ints  # [n_stations] servers or slots, >= 1
    station_scale: Ints  # [n_stations] start of its rows in `scale`, -1: none
    scale: Ints  # [*] service factor / SCALE_ONE by number busy, 1..servers

    die_dist: Ints  # [n_stations] distribution of a program's time, -1: no programs
    die_gate: Ints  # [n_stations] gate whose slot a finished program releases, -1: none
    die_suspend_ps: Ints  # [n_stations] a read waits so long for a program, -1: for its end
    die_backlog: Ints  # [n_stations] programs that wait at time 0, each in a slot of the die's gate
    round_most: Ints  # [n_stations] most members of a round, >= 1
    round_base_ps: Ints  # [n_stations] what a round takes besides its members, >= 0
    round_base_dist: Ints  # [n_stations] distribution of what is added to that, -1: none
    round_gathers: Ints  # [n_stations] 1: the base comes first, then all that wait are taken

    dist: Ints  # [n_dists, rng.TABLE] quantile tables, ps
    series: Ints  # [*] samples, ps, all series behind each other
    series_ptr: Ints  # [n_series + 1]
    series_block: Ints  # [n_series] length of a run of consecutive samples, >= 1

    ops: Ints  # [n_ops, N_FIELDS]

    plan_phase_ptr: Ints  # [n_plans + 1] into phases
    phase_child_ptr: Ints  # [n_phases + 1] into children
    child_alt_ptr: Ints  # [n_children + 1] into alternatives
    alt_program: Ints  # [n_alts] first operation of the child's program
    alt_member: Ints  # [n_alts] member whose outstanding children decide, >= 0
    n_members: int
    order: Ints  # [*] plan ids that flows draw from or go through

    flow_program: Ints  # [n_flows] first operation
    flow_write: Ints  # [n_flows] 1: writes
    flow_bytes: Ints  # [n_flows]
    flow_order_ptr: Ints  # [n_flows] first entry in `order`
    flow_order_len: Ints  # [n_flows] entries, >= 1
    flow_stream: Ints  # [n_flows] -1: drawn; else first of the stream counters (sequential)

    group_flow: Ints  # [n_groups] first flow; flow = this + target * kinds + kind
    group_kinds: Ints  # [n_groups] kinds (operation x size) per target
    group_threshold_ptr: Ints  # [n_groups] first of its kinds' cumulative thresholds
    threshold: Ints  # [*] cumulative probability x 2**32; the last is 2**32
    group_targets: Ints  # [n_groups]
    group_measured: Ints  # [n_groups] 0: background, not in the statistics
    group_open: Ints  # [n_groups] 0 closed loop; 1 gaps from gap_dist; 2 arrivals from `arrival_*`
    group_gap_dist: Ints  # [n_groups] distribution of the gaps of an open loop, -1
    group_think_ps: Ints  # [n_groups] pause of a user after a completion

    thread_gate: Ints  # [n_threads] gate of the thread
    thread_cpu: Ints  # [n_threads] station of its CPUs
    thread_interval_ps: Ints  # [n_threads] least time between two submissions, 0: none
    thread_first: Ints  # [n_threads] target its round robin starts at
    n_batch_targets: int  # targets per thread that share interrupts, >= 1

    user_group: Ints  # [n_users]
    user_thread: Ints  # [n_users]
    user_target: Ints  # [n_users] target within the group, -1: round robin of its thread
    user_stream: Ints  # [n_users] added to flow_stream: which counter it advances
    n_streams: int
    stream_start: Ints  # [n_streams] where in the cyclic order a stream starts

    die_every: Ints  # [n_stations] programs a batch, 0: none
    die_batch_dist: Ints  # [n_stations] a batch's length
    die_slow_dist: Ints  # [n_stations] a program's time in one
    limit_saved_ps: Ints  # [n_stations] a full bucket
    wake_ps: Ints  # [n_stations] a wake-up at most
    wake_half_ps: Ints  # [n_stations] sleep that costs half of it
    batch_most: Ints  # [n_stations] that one batch takes
    batch_ps: Ints  # [n_stations] cost of a batch besides those
    flow_class: Ints  # [n_flows] its own histogram, -1: none
    n_classes: int
    group_on_dist: Ints  # [n_groups] burst's length, -1: none
    group_off_dist: Ints  # [n_groups] time between bursts
    group_on_slow: Ints  # [n_groups] on gaps / SCALE_ONE
    group_off_slow: Ints  # [n_groups] between; 0: none arrives

    arrival_ps: Ints
    arrival_flow: Ints
    user_arrival_ptr: Ints

    @property
    def n_stations(self) -> int:
        """Number of stations and gates."""
        return len(self.station_kind)

    @property
    def max_burst(self) -> int:
        """Most children that one operation makes."""
        phases = int(np.diff(self.phase_child_ptr).max(initial=0))
        splits = self.ops[self.ops[:, O_CODE] == Op.SPLIT, O_UNITS]
        return max(1, phases, int(splits.max(initial=0)))

    def slots_held(self) -> Ints:
        """int64[n_stations]: slots of gates that the programs of `die_backlog` hold at time 0."""
        held = np.zeros(self.n_stations, np.int64)
        gated = self.die_gate >= 0
        np.add.at(held, self.die_gate[gated], self.die_backlog[gated])
        return held


# -- what stations are in the server --------------------------------------------------------------

Direction = Literal["up", "down"]
StationKind = Literal[
    "cpu", "thread", "drive", "link", "lock", "raid-engine", "gate", "delay", "limit"
]  # fmt: skip
Burns = Literal["", "service", "all"]


@dataclass(frozen=True)
class StationInfo:
    """One station of a report: it may stand for several of the network (the dies of a drive)."""

    name: str
    """As "drive0 dies", "socket0 cpu", "drive0 port up", "upi 0>1", "quad uplink up"."""
    kind: StationKind
    first: int
    """First station of the network."""
    count: int = 1
    """How many consecutive stations it stands for."""
    servers: int = 1
    """Servers in all."""
    drive: int | None = None
    """The drive it is part of; likewise socket and adapter."""
    socket: int | None = None
    adapter: int | None = None
    resource: str = ""
    """Resource that an upgrade would add to: "cores", "dies", "commands", "read_bandwidth",
    "write_bandwidth", "program", "port", "root", "uplink", "interconnect", "memory", "section",
    "guest-section", "sq-threads", "engine", "threads", ""."""
    direction: Direction | None = None
    """Of a link: "up" towards the memory, "down" towards the drive."""
    group: int | None = None
    """The workload group whose limit it is."""
    ends: tuple[int, int] | None = None
    """Of a way between sockets: (from, to)."""
    burns: Burns = ""
    """CPU time at a station that is not a CPU's: the service of a thread of its own,
    or all of a lock that spins, the wait with it."""
