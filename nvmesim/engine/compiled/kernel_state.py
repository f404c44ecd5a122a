"""State of the kernel, and where it is: rows of int64, so that one visit touches few cache lines.

A row is a *packed record*: what a visit reads and writes together lies together, and one pointer
leads to all of it. The `Network` keeps one array a quantity, which is easier to check
and to build; `compiled.py` turns one into the other. Nothing here needs Numba: machine code that an
earlier run has left works on these rows without it (`native.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from nvmesim.engine.contract import HIST_BINS, REQUEST_FIELDS, Acc
from nvmesim.network.network import Op
from nvmesim.rng import TABLE

Array = np.ndarray

# What a station is here: a FIFO station is a LINE, a RING, a POOL or SCALED.
LINE = 0  # one server
POOL = 1  # several; a heap of the times they are free
RING = 2  # several, and every service as long: the times they are free come in order
SCALED = 3  # one or several, whose speed depends on how many are busy
# Below ROUNDS a visit is served at once.
DELAY, DIE, LIMIT, SLEEPER, ROUNDS, GATE, BATCHER, TURN = range(4, 12)

END, VISIT, VISIT_BANK, VISIT_LANE = (
    int(o) for o in (Op.END, Op.VISIT, Op.VISIT_BANK, Op.VISIT_LANE)
)
VISIT_CPU, VISIT_SERIES, VISIT_UNORDERED, ACQUIRE, RELEASE = (
    int(o) for o in (Op.VISIT_CPU, Op.VISIT_SERIES, Op.VISIT_UNORDERED, Op.ACQUIRE, Op.RELEASE)
)
ACQUIRE_THREAD, RELEASE_THREAD, FORK, SPLIT = (
    int(o) for o in (Op.ACQUIRE_THREAD, Op.RELEASE_THREAD, Op.FORK, Op.SPLIT)
)
DESTAGE, MARK, ANSWER = int(Op.DESTAGE), int(Op.MARK), int(Op.ANSWER)
JOIN, CLOSE, LEAVE = int(Op.JOIN), int(Op.CLOSE), int(Op.LEAVE)

# Columns of `tokens`: what a visit needs, then the rest. A root (the request itself) and a child
# share some columns.
PC, KEY, INSIDE_OF, LANE, SETUP, ROOT, PARENT, LEFT = range(8)
WORK = LEFT  # of a token that waits for a round: no child of it is left then
ORDER, NEXT, MEMBER, ARRIVED, SUBMIT, ISSUE, PLAN, FLOW = range(8, 16)
USER = MEMBER  # child: its member; root: its user
TOKEN_FIELDS = 16
ANSWERED = -1  # in SUBMIT: the request is counted, and ISSUE is when it was answered

# Columns of `station`: what a visit needs, then what gates and dies need.
KIND = 0
FREE_AT = 1  # when the one server (or a die's reads) is free
SERVERS = 2
AT = 3  # several servers: where their times begin in `server_free`
POS = 4  # RING: place of the earliest among them
PROGRAM_END = 5  # end of the program or round in service, -1: none
SCALE = 6  # first of its rows in `scale`
INSIDE = 7  # tokens inside a station with a scale
SLOTS = 8  # free slots of a gate
HELD_SINCE = 9  # when they last changed
HEAD = 10  # first token that waits at a gate or for a round, -1
TAIL = 11
TOUCHED = 12  # a touch is pending
IDLE_SINCE = 13  # when a gate's slots were last released
BACKLOG = 14  # programs that wait for a die; of rounds, base that has passed
CHECKED = 15  # a check of the die is on the heap
STATION_FIELDS = 16
# Of a batcher, which has no server: those at the front, those that stay, and its batch.
FRONT_HEAD, FRONT_TAIL, STAYING = FREE_AT, AT, POS
BATCH_LEFT = INSIDE  # of the batch in work, those that still wait
N_WAITING = BACKLOG  # tokens that wait at the back
# Of a turn: its members, and when it closed last (N_WAITING is of both).
MEMBERS, CLOSED_AT = INSIDE, FREE_AT
BATCH_END = IDLE_SINCE  # of a die: when its last batch of garbage collection ends

# Columns of `die`: what a die's programs, a station's rounds, a bucket, a sleeper need.
DIE_DIST, DIE_GATE, DIE_SUSPEND, LIMIT_SAVED = range(4)
ROUND_MOST, ROUND_BASE, ROUND_DIST, ROUND_GATHERS = range(4, 8)
WAKE, WAKE_HALF = range(8, 10)
BATCH_MOST, BATCH_BASE = range(10, 12)
DIE_EVERY, DIE_BATCH, DIE_SLOW = range(12, 15)

# Columns of `group`, `user`, `thread`, `flow` and `child`.
G_FLOW, G_KINDS, G_THRESHOLD, G_TARGETS, G_MEASURED, G_OPEN, G_GAP, G_THINK = range(8)
G_ON, G_OFF, G_ON_SLOW, G_OFF_SLOW = range(8, 12)
U_GROUP, U_THREAD, U_TARGET, U_STREAM = range(4)
T_GATE, T_CPU, T_INTERVAL = range(3)
F_PROGRAM, F_WRITE, F_ORDER, F_LENGTH, F_STREAM, F_CLASS = range(6)
C_ALT, C_COUNT, C_PROGRAM, C_MEMBER = range(4)  # the last two: of the first alternative

A_VISITS, A_WAIT, A_SERVICE, A_WORK = (int(column) for column in Acc)  # columns of `acc`
P_PLACE, P_ORDER, P_TOKEN = range(3)  # columns of `pending`

CHAIN = 7  # column of `ops`: this visit takes that of the next operation along (`contract.chained`)

# Words of `wheel`: a bit for each slot, then these.
WHEEL_SLOTS = 4096
SUMMARY = WHEEL_SLOTS // 64  # a bit for each of those words: it is not 0
SHIFT = SUMMARY + 1  # a slot is 2**this ps wide
FIRST_NODE = SUMMARY + 2  # node of event 0
WHEEL = SUMMARY + 3

# Lengths of rows.
HEAP, OPS, DIES, GROUPS, USERS, THREADS, FLOWS, CHILDREN, ACCOUNTS, PENDING = (
    2, 8, 15, 12, 4, 4, 8, 4, 4, 4,
)  # fmt: skip

# Scalars that outlive a call.
NOW, N_HEAP, N_FREE, NEXT_REQUEST, LIVE, N_RECORDS, DONE = range(7)
# What is left of an instant that stopped for want of room; MID: it did.
MID, N_RESUME, N_PENDING, SOURCES, MUST_SORT = range(7, 12)
N_SCALARS = 12

GROW = 4
"""Status: `compiled` must make room for more tokens and call again."""

FOREVER = 1 << 62  # behind the last entry of the heap
TOUCH = -1  # entity of a pending touch


class Net(NamedTuple):
    """The parts of a `network.Network` that the loop reads, in kernel form."""

    die: Array  # int64[n_stations, DIES]
    scale: Array
    dist: Array
    series: Array
    series_ptr: Array
    series_block: Array
    ops: Array  # int64[n_ops, 8]: code, a, b, c, d, e, purpose, CHAIN
    plan_phase: Array
    phase_child: Array
    child: Array  # int64[n_children, 4]
    alt_program: Array
    alt_member: Array
    order: Array
    flow: Array  # int64[n_flows, 8]
    group: Array  # int64[n_groups, 12]
    threshold: Array
    thread: Array  # int64[n_threads, 4]
    user: Array  # int64[n_users, 4]
    arrival_ps: Array
    arrival_flow: Array
    user_arrival: Array


class EngineRun(NamedTuple):
    """State of fixed size, and the statistics of the current batch."""

    scalars: Array  # int64[N_SCALARS]
    background: Array  # int64[1]: key of background processes
    station: Array  # int64[n_stations, STATION_FIELDS]
    server_free: Array  # int64[*]: times at which the servers of a POOL or RING are free
    programs: Array  # int64[n_stations]: programs started on a die, or rounds
    interrupt_end: Array  # int64[n_threads, n_batch_targets]: end of the last interrupt
    thread_next: Array  # int64[n_threads]: next target of the round robin
    thread_due: Array  # int64[n_threads]: earliest next submission under a rate limit
    stream: Array  # int64[n_streams]: position of sequential streams
    target_key: Array  # int64[n_flows]: what keys of a target's requests begin with, by first flow
    target_count: Array  # int64[n_flows]: submissions to a group's target, by its first flow
    user_cursor: Array  # int64[n_users]: next arrival of a replayed trace
    user_paced: Array  # int64[n_users]: its timer was the rate limit's
    user_phase: Array  # int64[n_users]: number of its burst (odd) or pause
    user_phase_end: Array  # int64[n_users]: its end
    member_load: Array  # int64[n_members]: outstanding children
    series_count: Array  # int64[n_stations]
    completed: Array  # int64[2]
    latency_sum: Array  # int64[2, 2]
    latency_max: Array  # int64[2, 2]
    histogram: Array  # int64[2, 2, HIST_BINS]
    syncs: Array  # int64[HIST_BINS]
    classes: Array  # int64[n_classes, HIST_BINS]
    flows: Array  # int64[n_flows]
    alts: Array  # int64[n_alts]
    acc: Array  # int64[n_stations, 4]
    record: Array  # int64[capacity, 7]; capacity 0: no recording


class Room(NamedTuple):
    """Arrays whose size follows the number of outstanding tokens, and that grow with it."""

    tokens: Array  # int64[n, TOKEN_FIELDS]
    heap: Array  # int64[n + slack, HEAP]: events by time
    free: Array  # int64[n]: numbers of tokens that are free, as a stack
    pending: Array  # int64[n + slack, PENDING]: arrivals and touches of the instant
    resume: Array  # int64[n + most children of one operation]: tokens that walk on
    slots: Array  # int64[WHEEL_SLOTS]: first node of the events in it, -1
    wheel: Array  # int64[WHEEL]
    node: Array  # int64[n + slack, 2]: time of an event, and the next node of its slot, -1


ENTRY: Final = "nvmesim_advance"
"""Name of the function in the object file."""
ARRAY_WORDS: Final = 4
"""Words of an array in the table that the function takes: its address, and up to three lengths."""
ROWS: dict[str, tuple[int | None, ...]] = {
    "die": (DIES,), "dist": (TABLE,), "ops": (OPS,), "child": (CHILDREN,), "flow": (FLOWS,),
    "group": (GROUPS,), "thread": (THREADS,), "user": (USERS,),
    "station": (STATION_FIELDS,), "interrupt_end": (None,), "latency_sum": (2,),
    "latency_max": (2,), "histogram": (2, HIST_BINS), "classes": (HIST_BINS,),
    "acc": (ACCOUNTS,), "record": (len(REQUEST_FIELDS),),
    "tokens": (TOKEN_FIELDS,), "heap": (HEAP,), "pending": (PENDING,),
    "node": (2,),
}  # fmt: skip
"""Shape of a row, by array; the others are rows of one number. None: known only at run time."""
