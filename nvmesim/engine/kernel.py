"""The compiled engine's loop: one function, no objects, resumable between instants.

`contract.py` defines the order of events; the comments here say where each rule lives. The state is
arrays that the caller keeps: `Run` never grows, the rest (`tokens`, `heap_*`, `pending`, `resume`)
grows with what is outstanding (`compiled.CompiledEngine._grow`).

Event numbers on the heap: e >= 0 is a token that departs; -1 - s is a check of die s, or the end of
a round of station s;
-1 - n_stations - u is a timer of user u.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, uint64

from nvmesim.engine.contract import (
    CHILD_SHIFT,
    HIST_BITS,
    ORDER_SHIFT,
    PURPOSE_BURST,
    PURPOSE_DESTAGE,
    PURPOSE_GAP,
    PURPOSE_GC,
    PURPOSE_KIND,
    PURPOSE_PLAN,
    PURPOSE_PROGRAM,
    PURPOSE_ROUND,
    PURPOSE_SERIES,
    TOUCH_ORDER,
)
from nvmesim.network import Kind, Op
from nvmesim.rng import below, mix, quantile

Array = np.ndarray

# Nothing here allocates; counting references to arrays that others own would cost 10 to 25 %.
_LEAN: dict[str, Any] = {"cache": True, "_nrt": False}
compiled: Any = njit(**_LEAN)
inlined: Any = njit(inline="always", **_LEAN)

FIFO, DELAY, GATE, DIE, ROUNDS, LIMIT = (
    int(k) for k in (Kind.FIFO, Kind.DELAY, Kind.GATE, Kind.DIE, Kind.ROUNDS, Kind.LIMIT)
)
END, VISIT, VISIT_BANK, VISIT_LANE = (
    int(o) for o in (Op.END, Op.VISIT, Op.VISIT_BANK, Op.VISIT_LANE)
)
VISIT_CPU, VISIT_SERIES, ACQUIRE, RELEASE = (
    int(o) for o in (Op.VISIT_CPU, Op.VISIT_SERIES, Op.ACQUIRE, Op.RELEASE)
)
ACQUIRE_THREAD, RELEASE_THREAD, FORK, SPLIT = (
    int(o) for o in (Op.ACQUIRE_THREAD, Op.RELEASE_THREAD, Op.FORK, Op.SPLIT)
)
DESTAGE, MARK, ANSWER = int(Op.DESTAGE), int(Op.MARK), int(Op.ANSWER)

# Columns of `tokens`. A root (the request itself) and a child share some columns.
PC, PARENT, LEFT, ROOT, ORDER, LANE, SETUP, NEXT = range(8)
MEMBER = USER = 8  # child: its member; root: its user
WORK = LEFT  # of a token that waits for a round: no child of it is left then
ARRIVED, KEY, SUBMIT, ISSUE, PLAN, FLOW, SCALED = 9, 10, 11, 12, 13, 14, 15
TOKEN_FIELDS = 16

# Scalars that outlive a call.
NOW, N_HEAP, N_FREE, NEXT_REQUEST, LIVE, N_RECORDS, DONE = range(7)
# What is left of an instant that stopped for want of room; MID: it did.
MID, N_RESUME, N_PENDING, SOURCES, MUST_SORT = range(7, 12)
N_SCALARS = 12

GROW = 4
"""Status: `compiled` must make room for more tokens and call again."""

FOREVER = 1 << 62  # behind the last entry of the heap
ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)
TOUCH = -1  # entity of a pending touch
ANSWERED = -1  # in SUBMIT: the request is counted, and ISSUE is when it was answered


class Net(NamedTuple):
    """The arrays of `network.Network` that the loop reads, in kernel form."""

    kind: Array
    servers: Array
    scale_ptr: Array
    scale: Array
    die_dist: Array
    die_gate: Array
    die_suspend: Array
    die_gc: Array
    round_most: Array
    round_base: Array
    round_base_dist: Array
    round_in_order: Array
    round_gathers: Array
    limit_saved: Array
    gc_on: Array
    gc_off: Array
    gc_factor: Array
    dist: Array
    series: Array
    series_ptr: Array
    series_block: Array
    ops: Array
    plan_phase: Array
    phase_child: Array
    child_alt: Array
    alt_program: Array
    alt_member: Array
    order: Array
    flow_program: Array
    flow_write: Array
    flow_order_ptr: Array
    flow_order_len: Array
    flow_stream: Array
    group_flow: Array
    group_kinds: Array
    group_threshold: Array
    threshold: Array
    group_targets: Array
    group_measured: Array
    group_open: Array
    group_gap: Array
    group_think: Array
    group_on: Array
    group_off: Array
    group_on_slow: Array
    group_off_slow: Array
    flow_class: Array
    thread_gate: Array
    thread_cpu: Array
    thread_interval: Array
    user_group: Array
    user_thread: Array
    user_target: Array
    user_stream: Array
    arrival_ps: Array
    arrival_flow: Array
    user_arrival: Array


class Run(NamedTuple):
    """State of fixed size, and the statistics of the current batch."""

    scalars: Array  # int64[N_SCALARS]
    keys: Array  # int64[2]: key of the run, key of background processes
    free_at: Array  # int64[n_stations]: when the one server (or a die's reads) is free
    server_ptr: Array  # int64[n_stations]: first row in server_free of a station with several
    server_free: Array  # int64[*]: heap of the times the servers are free
    inside: Array  # int64[n_stations]: tokens inside a station with a scale
    slots: Array  # int64[n_stations]: free slots of a gate
    held_since: Array  # int64[n_stations]: when the slots last changed
    head: Array  # int64[n_stations]: first token that waits at a gate or for a round, -1
    tail: Array
    touched: Array  # int64[n_stations]: a touch is pending
    backlog: Array  # int64[n_stations]: programs that wait for a die
    programs: Array  # int64[n_stations]: programs started on a die, or rounds
    program_end: Array  # int64[n_stations]: end of the program or round in service, -1: none
    checked: Array  # int64[n_stations]: a check of the die is on the heap
    gc_episode: Array  # int64[n_gc]: number of the current episode or pause
    gc_end: Array  # int64[n_gc]: its end
    interrupt_end: Array  # int64[n_threads, n_batch_targets]: end of the last interrupt
    idle_since: Array  # int64[n_stations]: when a gate's slots were last released
    thread_next: Array  # int64[n_threads]: next target of the round robin
    thread_due: Array  # int64[n_threads]: earliest next submission under a rate limit
    stream: Array  # int64[n_streams]: position of sequential streams
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
    plans: Array  # int64[n_plans]
    acc: Array  # int64[n_stations, 4]
    record: Array  # int64[capacity, 7]; capacity 0: no recording


@inlined
def heap_push(heap_t, heap_e, n, t, e):  # type: ignore[no-untyped-def]
    """Push (t, e) on a 4-ary heap of n entries ordered by t; ties need no order (rule 1)."""
    i = uint64(n)
    while i > 0:
        up = (i - ONE) >> TWO
        if heap_t[up] <= t:
            break
        heap_t[i] = heap_t[up]
        heap_e[i] = heap_e[up]
        i = up
    heap_t[i] = t
    heap_e[i] = e


@inlined
def heap_replace(heap_t, heap_e, n, t, e):  # type: ignore[no-untyped-def]
    """Replace the root of a 4-ary heap of n entries by (t, e).

    Behind its entries the heap is FOREVER, so that a node has four children to compare: selects
    instead of branches, which a processor cannot predict here.
    """
    i = uint64(0)
    size = uint64(n)
    while True:
        child = (i << TWO) + ONE
        if child >= size:
            break
        first, second = heap_t[child], heap_t[child + ONE]
        third, fourth = heap_t[child + TWO], heap_t[child + THREE]
        low = child + uint64(second < first)
        high = child + TWO + uint64(fourth < third)
        least = min(first, second)
        other = min(third, fourth)
        best = high if other < least else low
        least = min(least, other)
        if least >= t:
            break
        heap_t[i] = least
        heap_e[i] = heap_e[best]
        i = best
    heap_t[i] = t
    heap_e[i] = e


@inlined
def heap_pop(heap_t, heap_e, n):  # type: ignore[no-untyped-def]
    """Remove the root of a 4-ary heap of n entries."""
    n -= 1
    t = heap_t[n]
    heap_t[n] = FOREVER
    if n > 0:
        heap_replace(heap_t, heap_e, n, t, heap_e[n])


@inlined
def heap_second(heap_t):  # type: ignore[no-untyped-def]
    """Return the least time but for the root's."""
    return min(min(heap_t[1], heap_t[2]), min(heap_t[3], heap_t[4]))


@compiled
def heap_insert(heap_t, heap_e, n, hole, t, e):  # type: ignore[no-untyped-def]
    """Push (t, e), or put it in the place of the root if that is a *hole*; return the new n."""
    if hole:
        heap_replace(heap_t, heap_e, n, t, e)
        return n
    heap_push(heap_t, heap_e, n, t, e)
    return n + 1


@inlined
def replace_first(free, base, n, value):  # type: ignore[no-untyped-def]
    """Replace the least of the binary heap free[base : base + n] by *value*."""
    root = uint64(base)
    last = uint64(n - 1)
    i = uint64(0)
    while True:
        child = (i << ONE) + ONE
        if child >= last:  # no child, or one
            if child == last and free[root + child] < value:
                free[root + i] = free[root + child]
                i = child
            break
        left, right = free[root + child], free[root + child + ONE]
        least = min(left, right)
        if least >= value:
            break
        free[root + i] = least
        i = child + uint64(right < left)
    free[root + i] = value


@inlined
def scaled(work, factor):  # type: ignore[no-untyped-def]
    """Return (work * factor) >> 16 by halves, so that the product cannot wrap."""
    return (work >> 16) * factor + (((work & 0xFFFF) * factor) >> 16)


@inlined
def bin_of(value):  # type: ignore[no-untyped-def]
    """Histogram bin of a latency in ps, as `contract.bin_index`."""
    shift = 0
    rest = value >> (HIST_BITS + 1)
    while rest >= 256:
        rest >>= 8
        shift += 8
    while rest > 0:
        rest >>= 1
        shift += 1
    return (shift << HIST_BITS) + (value >> shift)


@compiled
def sort_pending(pending, n):  # type: ignore[no-untyped-def]
    """Sort pending[:n] by (station, order): rule 2. Heap sort, so no fan-out is quadratic."""
    for start in range((n - 2) // 2, -1, -1):
        _sift(pending, start, n)
    for end in range(n - 1, 0, -1):
        for f in range(3):
            pending[0, f], pending[end, f] = pending[end, f], pending[0, f]
        _sift(pending, 0, end)


@compiled
def _sift(pending, root, n):  # type: ignore[no-untyped-def]
    while True:
        child = 2 * root + 1
        if child >= n:
            return
        if child + 1 < n and _before(pending, child, child + 1):
            child += 1
        if not _before(pending, root, child):
            return
        for f in range(3):
            pending[root, f], pending[child, f] = pending[child, f], pending[root, f]
        root = child


@inlined
def _before(pending, i, j):  # type: ignore[no-untyped-def]
    if pending[i, 0] != pending[j, 0]:
        return pending[i, 0] < pending[j, 0]
    return pending[i, 1] < pending[j, 1]


@compiled
def episode_factor(net, run, gc, t):  # type: ignore[no-untyped-def]
    """Advance drive *gc*'s alternating process to t; return its factor (1 << 16: no episode).

    Times are keyed by (drive, episode), so they do not depend on the load (DESIGN 4).
    """
    while run.gc_end[gc] <= t:
        run.gc_episode[gc] += 1
        episode = run.gc_episode[gc]
        row = net.gc_on[gc] if episode & 1 else net.gc_off[gc]
        key = mix(mix(run.keys[1], gc), PURPOSE_GC)
        run.gc_end[gc] += max(1, quantile(net.dist, row, mix(key, episode)))
    return net.gc_factor[gc] if run.gc_episode[gc] & 1 else 1 << 16


@compiled
def stretched(net, run, group, user, t, gap):  # type: ignore[no-untyped-def]
    """Return the time that a *gap* of *user* takes from t on through bursts and pauses.

    `contract.stretched_ps` says how it passes; each user follows the same bursts of its group.
    """
    key = mix(mix(run.keys[1], group), PURPOSE_BURST)
    now = t
    while True:
        while run.user_phase_end[user] <= now:
            run.user_phase[user] += 1
            phase = run.user_phase[user]
            row = net.group_on[group] if phase & 1 else net.group_off[group]
            run.user_phase_end[user] += max(1, quantile(net.dist, row, mix(key, phase)))
        slow = net.group_on_slow[group] if run.user_phase[user] & 1 else net.group_off_slow[group]
        room = run.user_phase_end[user] - now
        if slow > 0:
            need = scaled(gap, slow)
            if need <= room:
                return max(1, now + need - t)
            gap = max(0, gap - room // slow * 65536 - ((room % slow) << 16) // slow)
        now += room


@inlined
def hold(run, gate, t):  # type: ignore[no-untyped-def]
    """Subtract the slot-time that was free at *gate* since its slots last changed.

    The caller of `advance` adds slots x window, so what is left is the slot-time held.
    """
    run.acc[gate, 2] += run.slots[gate] * (run.held_since[gate] - t)
    run.held_since[gate] = t


@compiled
def answer(net, run, tokens, k, t, n_records):  # type: ignore[no-untyped-def]
    """Count request *k* as completed at t; return 1 if its group is measured."""
    user = tokens[k, USER]
    group = net.user_group[user]
    flow = tokens[k, FLOW]
    measured = net.group_measured[group]
    if measured == 1:
        w = net.flow_write[flow]
        lat = t - tokens[k, SUBMIT]
        clat = t - tokens[k, ISSUE]
        run.completed[w] += 1
        run.latency_sum[w, 0] += lat
        run.latency_sum[w, 1] += clat
        run.latency_max[w, 0] = max(run.latency_max[w, 0], lat)
        run.latency_max[w, 1] = max(run.latency_max[w, 1], clat)
        run.histogram[w, 0, bin_of(lat)] += 1
        run.histogram[w, 1, bin_of(clat)] += 1
        if net.flow_class[flow] >= 0:
            run.classes[net.flow_class[flow], bin_of(lat)] += 1
    run.flows[flow] += 1
    if run.record.shape[0] > 0:
        row = run.record[n_records]
        row[0] = tokens[k, ORDER] >> ORDER_SHIFT
        row[1] = group
        row[2] = user
        row[3] = flow
        row[4] = tokens[k, SUBMIT]
        row[5] = tokens[k, ISSUE]
        row[6] = t
    return measured


@inlined
def seize(run, gate, amount, t):  # type: ignore[no-untyped-def]
    """Take *amount* slots."""
    hold(run, gate, t)
    run.slots[gate] -= amount


@inlined
def enqueue(run, tokens, s, k):  # type: ignore[no-untyped-def]
    """Put token *k* behind those that wait at station *s*."""
    tokens[k, NEXT] = -1
    if run.head[s] < 0:
        run.head[s] = k
    else:
        tokens[run.tail[s], NEXT] = k
    run.tail[s] = k


@compiled
def start_round(net, run, tokens, heap_t, heap_e, n_heap, hole, s, t):  # type: ignore[no-untyped-def]
    """Take those who wait at *s* as a round, and note its end; return how many events there are.

    If *s* gathers, the base comes first: then its end is noted, and what waits is taken there.
    """
    most = net.round_most[s]
    base = net.round_base[s]
    gathered = run.backlog[s]  # base that has passed
    if gathered == 0:
        run.programs[s] += 1
        row = net.round_base_dist[s]
        if row >= 0:
            key = mix(mix(run.keys[1], s), PURPOSE_ROUND)
            base += quantile(net.dist, row, mix(key, run.programs[s]))
        if net.round_gathers[s] == 1 and base > 0:
            run.backlog[s] = base
            run.program_end[s] = t + base
            return heap_insert(heap_t, heap_e, n_heap, hole, t + base, -1 - s)
    else:
        base = gathered
        run.backlog[s] = 0
    share = base // most
    end = t + base - gathered
    k = run.head[s]
    members = 0
    while k >= 0 and members < most:
        end += tokens[k, WORK]
        k = tokens[k, NEXT]
        members += 1
    at = t - gathered
    for member in range(members):
        k = run.head[s]
        run.head[s] = tokens[k, NEXT]
        work = tokens[k, WORK]
        service = work + base if member == 0 else work
        at += service
        leaves = at if net.round_in_order[s] == 1 else end
        run.acc[s, 0] += 1
        run.acc[s, 1] += leaves - service - tokens[k, ARRIVED]
        run.acc[s, 2] += service
        run.acc[s, 3] += work + share
        pc = tokens[k, PC]
        tokens[k, PC] = pc + 1
        after = net.ops[pc, 4] if net.ops[pc, 0] == VISIT else np.int64(0)
        n_heap = heap_insert(heap_t, heap_e, n_heap, hole, leaves + after, k)
        hole = False
    run.program_end[s] = end
    return heap_insert(heap_t, heap_e, n_heap, hole, end, -1 - s)


@njit(nogil=True, **_LEAN)
def advance(net, run, tokens, heap_t, heap_e, free, pending, resume, target, until):  # type: ignore[no-untyped-def]
    """Run instants until *target* measured completions, no event, or an event beyond *until*.

    Returns a `contract.Status`, or GROW. Growing here would rebind the arrays within the loop, and
    Numba then counts references at every event: ten times slower.
    """
    n_stations = net.kind.shape[0]
    chooser = n_stations
    source = n_stations + 1
    first_timer = -1 - n_stations
    ops = net.ops
    now = run.scalars[NOW]
    n_heap = run.scalars[N_HEAP]
    n_free = run.scalars[N_FREE]
    next_request = run.scalars[NEXT_REQUEST]
    live = run.scalars[LIVE]
    n_records = run.scalars[N_RECORDS]
    mid = run.scalars[MID] != 0
    n_resume = run.scalars[N_RESUME]
    n_pending = run.scalars[N_PENDING]
    sources = run.scalars[SOURCES]
    must_sort = run.scalars[MUST_SORT] != 0
    t = now
    hole = False  # the root of the heap is taken, and its place free
    capacity = tokens.shape[0]
    burst = resume.shape[0] - capacity  # most children of one operation, see compiled.py
    done = run.scalars[DONE]
    recorded = min(run.record.shape[0], 1)
    status = 0

    while True:
        if not mid:
            if done >= target:
                break
            if run.record.shape[0] > 0 and n_records + 2 * capacity > run.record.shape[0]:
                status = 3
                break
            if n_heap == 0:
                status = 1
                break
            t = heap_t[0]
            if t > until:
                status = 2
                break
            now = t
            n_resume = 0
            n_pending = 0
            sources = 0
            must_sort = False
        mid = False
        # Phase A, first part: every event of this instant (none is left if it was interrupted).
        while n_heap > 0 and heap_t[0] == t:
            e = heap_e[0]
            sources += 1
            if heap_second(heap_t) > t:
                # The instant's last: the next push takes its place, which saves half the work.
                hole = True
                heap_t[0] = FOREVER
            else:
                heap_pop(heap_t, heap_e, n_heap)
                n_heap -= 1
            if e >= 0:
                station = tokens[e, SCALED]
                if station >= 0:
                    run.inside[station] -= 1
                    tokens[e, SCALED] = -1
                resume[n_resume] = e
                n_resume += 1
            elif e > first_timer:
                s = -1 - e
                run.checked[s] = 0
                end = run.program_end[s]
                if end >= 0:
                    if end > t:  # reads suspended it meanwhile
                        n_heap = heap_insert(heap_t, heap_e, n_heap, hole, end, e)
                        hole = False
                        continue
                    run.program_end[s] = -1
                    gate = net.die_gate[s]
                    if gate >= 0:
                        hold(run, gate, t)
                        run.slots[gate] += 1
                        if run.head[gate] >= 0 and run.touched[gate] == 0:
                            run.touched[gate] = 1
                            must_sort = True
                            pending[n_pending, 0] = gate
                            pending[n_pending, 1] = TOUCH_ORDER
                            pending[n_pending, 2] = TOUCH
                            n_pending += 1
                if run.touched[s] == 0:
                    run.touched[s] = 1
                    pending[n_pending, 0] = s
                    pending[n_pending, 1] = TOUCH_ORDER
                    pending[n_pending, 2] = TOUCH
                    n_pending += 1
            else:
                pending[n_pending, 0] = source
                pending[n_pending, 1] = first_timer - e
                pending[n_pending, 2] = first_timer - e
                n_pending += 1
        # Rounds of phase A and phase B until the instant is quiet.
        while n_resume > 0 or n_pending > 0:
            while n_resume > 0:
                if n_free < burst:
                    mid = True
                    break
                n_resume -= 1
                k = resume[n_resume]
                pc = tokens[k, PC]
                while True:
                    code = ops[pc, 0]
                    if code <= ACQUIRE and code != END:
                        # A station or gate: it decides in phase B.
                        if code == VISIT_BANK:
                            lane = below(mix(tokens[k, KEY], ops[pc, 6]), ops[pc, 4])
                            tokens[k, LANE] = lane
                            s = ops[pc, 1] + lane
                        elif code == VISIT_LANE:
                            s = ops[pc, 1] + tokens[k, LANE] % ops[pc, 4]
                        elif code == VISIT_CPU:
                            root = tokens[k, ROOT]
                            s = net.thread_cpu[net.user_thread[tokens[root, USER]]]
                        else:
                            s = ops[pc, 1]
                        tokens[k, PC] = pc
                        pending[n_pending, 0] = s
                        pending[n_pending, 1] = tokens[k, ORDER]
                        pending[n_pending, 2] = k
                        n_pending += 1
                        break
                    if code == ACQUIRE_THREAD:
                        root = tokens[k, ROOT]
                        tokens[k, PC] = pc
                        pending[n_pending, 0] = net.thread_gate[net.user_thread[tokens[root, USER]]]
                        pending[n_pending, 1] = tokens[k, ORDER]
                        pending[n_pending, 2] = k
                        n_pending += 1
                        break
                    if code in (RELEASE, RELEASE_THREAD):
                        if code == RELEASE:
                            gate = ops[pc, 1]
                            amount = ops[pc, 2]
                        else:
                            root = tokens[k, ROOT]
                            gate = net.thread_gate[net.user_thread[tokens[root, USER]]]
                            amount = np.int64(1)
                        hold(run, gate, t)
                        run.slots[gate] += amount
                        run.idle_since[gate] = t
                        if run.head[gate] >= 0 and run.touched[gate] == 0:
                            run.touched[gate] = 1
                            must_sort = True
                            pending[n_pending, 0] = gate
                            pending[n_pending, 1] = TOUCH_ORDER
                            pending[n_pending, 2] = TOUCH
                            n_pending += 1
                        pc += 1
                    elif code == MARK:
                        tokens[tokens[k, ROOT], ISSUE] = t
                        pc += 1
                    elif code == ANSWER:
                        done += answer(net, run, tokens, k, t, n_records)
                        n_records += recorded
                        tokens[k, SUBMIT] = ANSWERED
                        tokens[k, ISSUE] = t
                        pc += 1
                    elif code == FORK:
                        root = tokens[k, ROOT]
                        plan = tokens[root, PLAN]
                        phase = net.plan_phase[plan] + ops[pc, 1]
                        first = net.phase_child[phase]
                        n = net.phase_child[phase + 1] - first
                        pc += 1
                        if n == 0:
                            continue
                        tokens[k, PC] = pc
                        tokens[k, LEFT] = n
                        ordinal = first - net.phase_child[net.plan_phase[plan]] + n
                        for i in range(n - 1, -1, -1):
                            n_free -= 1
                            c = free[n_free]
                            child = first + i
                            tokens[c, PARENT] = k
                            tokens[c, ROOT] = root
                            tokens[c, ORDER] = tokens[root, ORDER] + (ordinal << CHILD_SHIFT)
                            tokens[c, KEY] = mix(tokens[root, KEY], ordinal << CHILD_SHIFT)
                            tokens[c, SETUP] = 0
                            tokens[c, LANE] = 0
                            ordinal -= 1
                            alt = net.child_alt[child]
                            if net.child_alt[child + 1] - alt == 1:
                                run.alts[alt] += 1
                                member = net.alt_member[alt]
                                run.member_load[member] += 1
                                tokens[c, MEMBER] = member
                                tokens[c, PC] = net.alt_program[alt]
                                resume[n_resume] = c
                                n_resume += 1
                            else:
                                tokens[c, PC] = child  # until the chooser has decided
                                must_sort = True
                                pending[n_pending, 0] = chooser
                                pending[n_pending, 1] = tokens[c, ORDER]
                                pending[n_pending, 2] = c
                                n_pending += 1
                        break
                    elif code == SPLIT:
                        n = ops[pc, 1]
                        tokens[k, PC] = pc + 1
                        tokens[k, LEFT] = n
                        root = tokens[k, ROOT]
                        for unit in range(n, 0, -1):
                            n_free -= 1
                            c = free[n_free]
                            tokens[c, PARENT] = k
                            tokens[c, ROOT] = root
                            tokens[c, ORDER] = tokens[k, ORDER] + unit
                            tokens[c, KEY] = mix(tokens[k, KEY], -unit)  # no purpose is negative
                            tokens[c, SETUP] = 0
                            tokens[c, LANE] = tokens[k, LANE]
                            tokens[c, MEMBER] = -1
                            tokens[c, PC] = ops[pc, 2]
                            resume[n_resume] = c
                            n_resume += 1
                        break
                    elif code == DESTAGE:
                        for unit in range(ops[pc, 2]):
                            bits = mix(mix(tokens[k, KEY], PURPOSE_DESTAGE), unit)
                            s = ops[pc, 1] + below(bits, ops[pc, 4])
                            run.backlog[s] += 1
                            if run.touched[s] == 0:
                                run.touched[s] = 1
                                must_sort = True
                                pending[n_pending, 0] = s
                                pending[n_pending, 1] = TOUCH_ORDER
                                pending[n_pending, 2] = TOUCH
                                n_pending += 1
                        pc += 1
                    else:  # END
                        parent = tokens[k, PARENT]
                        if parent >= 0:
                            if tokens[k, MEMBER] >= 0:
                                run.member_load[tokens[k, MEMBER]] -= 1
                            free[n_free] = k
                            n_free += 1
                            tokens[parent, LEFT] -= 1
                            if tokens[parent, LEFT] > 0:
                                break
                            k = parent
                            pc = tokens[k, PC]
                            continue
                        user = tokens[k, USER]
                        group = net.user_group[user]
                        live -= 1
                        if tokens[k, SUBMIT] >= 0:
                            done += answer(net, run, tokens, k, t, n_records)
                            n_records += recorded
                        elif net.group_measured[group] == 1:
                            run.syncs[bin_of(t - tokens[k, ISSUE])] += 1
                        free[n_free] = k
                        n_free += 1
                        if net.group_open[group] == 0:
                            if net.group_think[group] > 0:
                                n_heap = heap_insert(
                                    heap_t,
                                    heap_e,
                                    n_heap,
                                    hole,
                                    t + net.group_think[group],
                                    first_timer - user,
                                )
                                hole = False
                            else:
                                pending[n_pending, 0] = source
                                pending[n_pending, 1] = user
                                pending[n_pending, 2] = user
                                n_pending += 1
                        break
            if mid or n_free < n_pending:  # as many could submit
                mid = True
                break
            # Phase B. One source's arrivals are in token order already, station by station.
            if n_pending > 1 and (sources > 1 or must_sort):
                sort_pending(pending, n_pending)
            must_sort = False
            todo = n_pending
            n_pending = 0
            for i in range(todo):
                s = pending[i, 0]
                k = pending[i, 2]
                if 0 <= s < n_stations:  # the 0 spares a test for -1 at every index
                    kind = net.kind[s]
                    if kind == GATE:
                        if k >= 0:
                            pc = tokens[k, PC]
                            run.acc[s, 0] += 1
                            code = ops[pc, 0]
                            amount = ops[pc, 2] if code == ACQUIRE else np.int64(1)
                            by_thread = code != ACQUIRE
                            if by_thread and ops[pc, 3] == 1:
                                # An interrupt serves all that arrives while it runs.
                                root = tokens[k, ROOT]
                                thread = net.user_thread[tokens[root, USER]]
                                flow = tokens[root, FLOW]
                                group = net.user_group[tokens[root, USER]]
                                place = (flow - net.group_flow[group]) // net.group_kinds[group]
                                if t >= run.interrupt_end[thread, place]:
                                    tokens[k, SETUP] += ops[pc, 2]
                                    run.interrupt_end[thread, place] = t + ops[pc, 2]
                            if run.head[s] < 0 and run.slots[s] >= amount:
                                seize(run, s, amount, t)
                                if by_thread and ops[pc, 1] > 0:
                                    # As contract.wake_up_ps.
                                    wake = ops[pc, 1]
                                    if ops[pc, 4] > 0:
                                        slept = t - run.idle_since[s]
                                        wake = np.int64(wake * (slept / (slept + ops[pc, 4])))
                                    tokens[k, SETUP] += wake
                                tokens[k, PC] = pc + 1
                                resume[n_resume] = k
                                n_resume += 1
                            else:
                                tokens[k, ARRIVED] = t
                                if by_thread and ops[pc, 5] == 1:
                                    tokens[k, NEXT] = run.head[s]
                                    if run.head[s] < 0:
                                        run.tail[s] = k
                                    run.head[s] = k
                                else:
                                    enqueue(run, tokens, s, k)
                        else:
                            run.touched[s] = 0
                            while run.head[s] >= 0:
                                k = run.head[s]
                                pc = tokens[k, PC]
                                code = ops[pc, 0]
                                amount = ops[pc, 2] if code == ACQUIRE else np.int64(1)
                                if run.slots[s] < amount:
                                    break
                                seize(run, s, amount, t)
                                run.acc[s, 1] += t - tokens[k, ARRIVED]
                                run.head[s] = tokens[k, NEXT]
                                tokens[k, PC] = pc + 1
                                resume[n_resume] = k
                                n_resume += 1
                        continue
                    if k < 0 and kind == ROUNDS:
                        run.touched[s] = 0
                        if run.program_end[s] < 0 and run.head[s] >= 0:
                            n_heap = start_round(
                                net, run, tokens, heap_t, heap_e, n_heap, hole, s, t
                            )
                            hole = False
                        continue
                    if k < 0:  # touch of a die: start a program if it is idle
                        run.touched[s] = 0
                        if run.program_end[s] >= 0 or run.backlog[s] == 0 or run.checked[s] == 1:
                            continue
                        if run.free_at[s] > t:
                            run.checked[s] = 1
                            n_heap = heap_insert(
                                heap_t, heap_e, n_heap, hole, run.free_at[s], -1 - s
                            )
                            hole = False
                            continue
                        run.backlog[s] -= 1
                        run.programs[s] += 1
                        key = mix(mix(run.keys[1], s), PURPOSE_PROGRAM)
                        work = quantile(net.dist, net.die_dist[s], mix(key, run.programs[s]))
                        gc = net.die_gc[s]
                        if gc >= 0:
                            work = scaled(work, episode_factor(net, run, gc, t))
                        work = max(1, work)
                        run.program_end[s] = t + work
                        run.acc[s, 2] += work
                        run.acc[s, 3] += work
                        n_heap = heap_insert(heap_t, heap_e, n_heap, hole, t + work, -1 - s)
                        hole = False
                        continue
                    # A visit: its service is fixed here.
                    pc = tokens[k, PC]
                    code = ops[pc, 0]
                    work = ops[pc, 3]
                    row = ops[pc, 2]
                    if code == VISIT_SERIES:
                        block = net.series_block[row]
                        first = net.series_ptr[row]
                        n = run.series_count[s]
                        run.series_count[s] += 1
                        key = mix(mix(run.keys[1], s), PURPOSE_SERIES)
                        room = net.series_ptr[row + 1] - first - block + 1
                        start = below(mix(key, n // block), room)
                        work += net.series[first + start + n % block]
                    elif row >= 0:
                        work += quantile(net.dist, row, mix(tokens[k, KEY], ops[pc, 6] + 1))
                    if code == VISIT_CPU:
                        work += tokens[k, SETUP]
                        tokens[k, SETUP] = 0
                    if ops[pc, 5] > 0:
                        plan = tokens[tokens[k, ROOT], PLAN]
                        n = (
                            net.phase_child[net.plan_phase[plan + 1]]
                            - net.phase_child[net.plan_phase[plan]]
                        )
                        if code == VISIT_CPU:
                            n = max(0, n - 1)
                        work += ops[pc, 5] * n
                    work = max(1, work)
                    service = work
                    if kind == ROUNDS:
                        tokens[k, WORK] = work
                        tokens[k, ARRIVED] = t
                        enqueue(run, tokens, s, k)
                        if run.program_end[s] < 0 and run.touched[s] == 0:
                            run.touched[s] = 1
                            must_sort = True  # n_pending <= i: the row has been read
                            pending[n_pending, 0] = s
                            pending[n_pending, 1] = TOUCH_ORDER
                            pending[n_pending, 2] = TOUCH
                            n_pending += 1
                        continue
                    if kind == FIFO:
                        c = net.servers[s]
                        scale = net.scale_ptr[s]
                        if scale >= 0:
                            busy = min(run.inside[s] + 1, c)
                            service = max(1, scaled(service, net.scale[scale + busy - 1]))
                            run.inside[s] += 1
                            tokens[k, SCALED] = s
                        if c == 1:
                            start = max(t, run.free_at[s])
                            run.free_at[s] = start + service
                        else:
                            at = run.server_ptr[s]
                            start = max(t, run.server_free[at])
                            replace_first(run.server_free, at, c, start + service)
                    elif kind == DELAY:
                        start = t
                    elif kind == LIMIT:
                        # free_at is when the bucket would be full again
                        saved = max(net.limit_saved[s], service)
                        start = max(t, run.free_at[s] + service - saved)
                        run.free_at[s] = max(run.free_at[s], start) + service
                        run.acc[s, 2] += service - 1
                        service = np.int64(1)
                    else:  # DIE
                        start = max(t, run.free_at[s])
                        end = run.program_end[s]
                        if end > t:
                            suspend = net.die_suspend[s]
                            if suspend < 0:
                                start = max(start, end)
                            else:
                                if run.free_at[s] <= t:
                                    start = t + suspend
                                    run.program_end[s] += suspend
                                run.program_end[s] += service
                        run.free_at[s] = start + service
                    run.acc[s, 0] += 1
                    run.acc[s, 1] += start - t
                    run.acc[s, 2] += service
                    run.acc[s, 3] += work
                    tokens[k, PC] = pc + 1
                    after = ops[pc, 4] if code == VISIT else np.int64(0)
                    n_heap = heap_insert(heap_t, heap_e, n_heap, hole, start + service + after, k)
                    hole = False
                elif s == chooser:
                    # Fewest outstanding children; a tie goes to the first named (md, rule 3).
                    child = tokens[k, PC]
                    best = net.child_alt[child]
                    least = run.member_load[net.alt_member[best]]
                    for alt in range(best + 1, net.child_alt[child + 1]):
                        load = run.member_load[net.alt_member[alt]]
                        if load < least:
                            least = load
                            best = alt
                    member = net.alt_member[best]
                    run.alts[best] += 1
                    run.member_load[member] += 1
                    tokens[k, MEMBER] = member
                    tokens[k, PC] = net.alt_program[best]
                    resume[n_resume] = k
                    n_resume += 1
                else:
                    # The source: user k submits.
                    user = k
                    group = net.user_group[user]
                    thread = net.user_thread[user]
                    opened = net.group_open[group]
                    interval = net.thread_interval[thread]
                    if interval > 0 and opened == 0 and run.user_paced[user] == 0:
                        due = max(t, run.thread_due[thread])
                        run.thread_due[thread] = due + interval
                        if due > t:
                            run.user_paced[user] = 1
                            n_heap = heap_insert(
                                heap_t, heap_e, n_heap, hole, due, first_timer - user
                            )
                            hole = False
                            continue
                    run.user_paced[user] = 0
                    n_free -= 1
                    k = free[n_free]
                    kinds = net.group_kinds[group]
                    if opened == 2:
                        flow = net.arrival_flow[run.user_cursor[user]]
                        first = flow - (flow - net.group_flow[group]) % kinds
                    else:
                        place = net.user_target[user]
                        if place < 0:
                            place = run.thread_next[thread]
                            step = place + 1
                            run.thread_next[thread] = step if step < net.group_targets[group] else 0
                        first = net.group_flow[group] + place * kinds
                        flow = first
                    number = run.target_count[first]
                    run.target_count[first] += 1
                    key = mix(mix(run.keys[0], first), number)
                    if opened != 2 and kinds > 1:
                        u = below(mix(key, PURPOSE_KIND), 1 << 32)
                        base = net.group_threshold[group]
                        while flow < first + kinds - 1 and u >= net.threshold[base + flow - first]:
                            flow += 1
                    length = net.flow_order_len[flow]
                    stream = net.flow_stream[flow]
                    if stream >= 0:
                        stream += net.user_stream[user]
                        at = run.stream[stream] % length
                        run.stream[stream] += 1
                    else:
                        at = below(mix(key, PURPOSE_PLAN), length)
                    plan = net.order[net.flow_order_ptr[flow] + at]
                    run.plans[plan] += 1
                    tokens[k, PC] = net.flow_program[flow]
                    tokens[k, PARENT] = -1
                    tokens[k, ROOT] = k
                    tokens[k, ORDER] = next_request << ORDER_SHIFT
                    tokens[k, KEY] = key
                    tokens[k, SETUP] = 0
                    tokens[k, LANE] = 0
                    tokens[k, USER] = user
                    tokens[k, SUBMIT] = t
                    tokens[k, ISSUE] = t
                    tokens[k, PLAN] = plan
                    tokens[k, FLOW] = flow
                    next_request += 1
                    live += 1
                    resume[n_resume] = k
                    n_resume += 1
                    if opened == 1:
                        gap = max(
                            1, quantile(net.dist, net.group_gap[group], mix(key, PURPOSE_GAP))
                        )
                        if net.group_on[group] >= 0:
                            gap = stretched(net, run, group, user, t, gap)
                        n_heap = heap_insert(
                            heap_t, heap_e, n_heap, hole, t + gap, first_timer - user
                        )
                        hole = False
                    elif opened == 2:
                        run.user_cursor[user] += 1
                        at = run.user_cursor[user]
                        if at < net.user_arrival[user + 1]:
                            due = net.arrival_ps[at]
                            if due > t:
                                n_heap = heap_insert(
                                    heap_t, heap_e, n_heap, hole, due, first_timer - user
                                )
                                hole = False
                            else:  # n_pending <= i: the row has been read
                                must_sort = True
                                pending[n_pending, 0] = source
                                pending[n_pending, 1] = user
                                pending[n_pending, 2] = user
                                n_pending += 1
            sources = n_resume
        if hole:
            heap_pop(heap_t, heap_e, n_heap)
            n_heap -= 1
            hole = False
        if mid:
            status = GROW
            break

    run.scalars[NOW] = now
    run.scalars[N_HEAP] = n_heap
    run.scalars[N_FREE] = n_free
    run.scalars[NEXT_REQUEST] = next_request
    run.scalars[LIVE] = live
    run.scalars[N_RECORDS] = n_records
    run.scalars[DONE] = done
    run.scalars[MID] = mid
    run.scalars[N_RESUME] = n_resume
    run.scalars[N_PENDING] = n_pending
    run.scalars[SOURCES] = sources
    run.scalars[MUST_SORT] = must_sort
    return status
