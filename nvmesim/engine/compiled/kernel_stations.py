"""A token's visit to a station or gate: the kernel's twin of `stations.py`.

Indices are unsigned where it is hot: no test for a negative one.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from nvmesim.engine.compiled.kernel_draws import below, mix, quantile
from nvmesim.engine.compiled.kernel_heap import replace_first
from nvmesim.engine.compiled.kernel_jit import compiled, inlined
from nvmesim.engine.compiled.kernel_state import (
    A_SERVICE,
    A_VISITS,
    A_WAIT,
    A_WORK,
    ACQUIRE,
    ACQUIRE_THREAD,
    ARRIVED,
    AT,
    BACKLOG,
    BATCH_END,
    CHAIN,
    CHECKED,
    DELAY,
    DIE,
    DIE_BATCH,
    DIE_DIST,
    DIE_EVERY,
    DIE_GC,
    DIE_SLOW,
    DIE_SUSPEND,
    FLOW,
    FREE_AT,
    G_FLOW,
    G_KINDS,
    HEAD,
    HELD_SINCE,
    IDLE_SINCE,
    INSIDE,
    INSIDE_OF,
    KEY,
    KIND,
    LANE,
    LIMIT,
    LIMIT_SAVED,
    LINE,
    NEXT,
    P_ORDER,
    P_PLACE,
    P_TOKEN,
    PC,
    PLAN,
    POOL,
    POS,
    PROGRAM_END,
    RING,
    ROOT,
    ROUND_BASE,
    ROUND_DIST,
    ROUND_GATHERS,
    ROUND_MOST,
    ROUND_ORDER,
    SCALE,
    SCALED,
    SERVERS,
    SETUP,
    SLEEPER,
    SLOTS,
    T_CPU,
    T_GATE,
    TAIL,
    TOUCH,
    TOUCHED,
    U_GROUP,
    U_THREAD,
    USER,
    VISIT,
    VISIT_BANK,
    VISIT_CPU,
    VISIT_LANE,
    VISIT_SERIES,
    WAKE,
    WAKE_HALF,
    WORK,
)
from nvmesim.engine.compiled.kernel_wheel import put_seldom
from nvmesim.engine.contract import (
    PURPOSE_BATCH,
    PURPOSE_GC,
    PURPOSE_PROGRAM,
    PURPOSE_ROUND,
    PURPOSE_SERIES,
    TOUCH_ORDER,
)
from nvmesim.network.network import (
    O_BANK,
    O_CHILD,
    O_CODE,
    O_DELAY,
    O_DIST,
    O_FRONT,
    O_HALF,
    O_HANDLER,
    O_INTERRUPT,
    O_PURPOSE,
    O_SERVICE,
    O_SLOTS,
    O_STATION,
    O_WAKE,
)


@inlined
def scaled(work, factor):
    """Return (work * factor) >> 16 by halves, so that the product cannot wrap."""
    return (work >> 16) * factor + (((work & 0xFFFF) * factor) >> 16)


@inlined
def thread_of(net, tokens, k):
    """Thread of token *k*'s request."""
    root = uint64(tokens[uint64(k), ROOT])
    return uint64(net.user[uint64(tokens[root, USER]), U_THREAD])


@inlined
def touch(station, pending, n_pending, s):
    """Ask for a look at *s* behind the arrivals of the next phase B; return the new n_pending."""
    if station[s, TOUCHED] == 1:
        return n_pending
    station[s, TOUCHED] = 1
    pending[n_pending, P_PLACE] = s
    pending[n_pending, P_ORDER] = TOUCH_ORDER
    pending[n_pending, P_TOKEN] = TOUCH
    return n_pending + 1


@inlined
def woken(most, slept, half):
    """As contract.wake_up_ps."""
    return np.int64(most * (slept / (slept + half))) if half > 0 else np.int64(most)


# Visits.


@inlined
def place_of(net, tokens, k, pc):
    """Station or gate of token *k*'s operation *pc*; draws the lane of a bank."""
    u = uint64(k)
    code = net.ops[pc, O_CODE]
    s = net.ops[pc, O_STATION]
    if code == VISIT_BANK:
        lane = below(mix(tokens[u, KEY], net.ops[pc, O_PURPOSE]), net.ops[pc, O_BANK])
        tokens[u, LANE] = lane
        s += lane
    elif code == VISIT_LANE:
        lane = tokens[u, LANE]
        s += lane if lane < net.ops[pc, O_BANK] else lane % net.ops[pc, O_BANK]
    elif code == VISIT_CPU:
        s = net.thread[thread_of(net, tokens, k), T_CPU]
    elif code == ACQUIRE_THREAD:
        s = net.thread[thread_of(net, tokens, k), T_GATE]
    return s


@inlined
def serve_chain(net, run, tokens, k, s, t):
    """Serve token *k* at *s*, and at once at the stations that are chained to it; as `serve`."""
    pc = uint64(tokens[uint64(k), PC])
    while True:
        t = serve(net, run, tokens, k, s, t)
        if net.ops[pc, CHAIN] == 0:
            return t
        pc += uint64(1)
        s = place_of(net, tokens, k, pc)


@inlined
def serve(net, run, tokens, k, s, t):
    """Fix the service of token *k*, which arrives at *s* at *t*; return when it goes on.

    -1: it waits for a round.
    """
    station = run.station
    v, u = uint64(s), uint64(k)
    pc = uint64(tokens[u, PC])
    code = net.ops[pc, O_CODE]
    work = net.ops[pc, O_SERVICE]
    row = net.ops[pc, O_DIST]
    if code == VISIT_SERIES:
        work += sample(
            net.series,
            net.series_ptr,
            net.series_block,
            run.series_count,
            run.background[0],
            row,
            s,
        )
    elif row >= 0:
        work += quantile(net.dist, uint64(row), mix(tokens[u, KEY], net.ops[pc, O_PURPOSE] + 1))
    if code == VISIT_CPU:
        work += tokens[u, SETUP]
        tokens[u, SETUP] = 0
    if net.ops[pc, O_CHILD] > 0:
        plan = tokens[uint64(tokens[u, ROOT]), PLAN]
        n = net.phase_child[net.plan_phase[plan + 1]] - net.phase_child[net.plan_phase[plan]]
        if code == VISIT_CPU:
            n = max(0, n - 1)
        work += net.ops[pc, O_CHILD] * n
    work = max(1, work)
    service = work
    kind = station[v, KIND]
    if kind == LINE:
        start = max(t, station[v, FREE_AT])
        station[v, FREE_AT] = start + service
    elif kind == POOL:
        at = station[v, AT]
        start = max(t, run.server_free[uint64(at)])
        replace_first(run.server_free, at, station[v, SERVERS], start + service)
    elif kind == RING:
        pos = station[v, POS]
        place = uint64(station[v, AT] + pos)
        start = max(t, run.server_free[place])
        run.server_free[place] = start + service
        pos += 1
        station[v, POS] = 0 if pos == station[v, SERVERS] else pos
    elif kind == DELAY:
        start = t
    elif kind == SCALED:
        station[v, INSIDE] += 1
        busy = min(station[v, INSIDE], station[v, SERVERS])
        service = max(1, scaled(service, net.scale[station[v, SCALE] + busy - 1]))
        tokens[u, INSIDE_OF] = s
        at = station[v, AT]
        start = max(t, run.server_free[uint64(at)])
        replace_first(run.server_free, at, station[v, SERVERS], start + service)
    elif kind == DIE:
        start = read_die(station, v, net.die[v, DIE_SUSPEND], service, t)
    elif kind == LIMIT:
        # FREE_AT is when the bucket would be full again
        start = max(t, station[v, FREE_AT] + service - max(net.die[v, LIMIT_SAVED], service))
        station[v, FREE_AT] = max(station[v, FREE_AT], start) + service
        run.acc[v, A_SERVICE] += service - 1
        service = np.int64(1)
    elif kind == SLEEPER:
        start = max(t, station[v, FREE_AT])
        if start > station[v, FREE_AT]:
            service += woken(net.die[v, WAKE], start - station[v, FREE_AT], net.die[v, WAKE_HALF])
        station[v, FREE_AT] = start + service
    else:
        tokens[u, WORK] = work
        tokens[u, ARRIVED] = t
        enqueue(station, tokens, v, k)
        return np.int64(-1)
    run.acc[v, A_VISITS] += 1
    run.acc[v, A_WAIT] += start - t
    run.acc[v, A_SERVICE] += service
    run.acc[v, A_WORK] += work
    tokens[u, PC] = np.int64(pc) + 1
    after = net.ops[pc, O_DELAY] if code == VISIT else np.int64(0)
    return start + service + after


@compiled
def sample(series, series_ptr, series_block, counts, background, row, s):
    """Next sample of station *s*'s block bootstrap of a series."""
    block = series_block[row]
    first = series_ptr[row]
    n = counts[s]
    counts[s] += 1
    key = mix(mix(background, s), PURPOSE_SERIES)
    room = series_ptr[row + 1] - first - block + 1
    return series[first + below(mix(key, n // block), room) + n % block]


@inlined
def read_die(station, v, suspend, service, t):
    """Start of a service at a die: behind earlier ones, and the program, or suspending it."""
    start = max(t, station[v, FREE_AT])
    end = station[v, PROGRAM_END]
    if end > t:
        if suspend < 0:
            start = max(start, end)
        else:
            if station[v, FREE_AT] <= t:
                start = t + suspend
                end += suspend
            station[v, PROGRAM_END] = end + service
    station[v, FREE_AT] = start + service
    return start


# Gates.


@inlined
def hold(run, gate, t):
    """Subtract the slot-time that was free at *gate* since its slots last changed.

    The caller of `advance` adds slots x window, so what is left is the slot-time held.
    """
    station = run.station
    run.acc[gate, A_SERVICE] += station[gate, SLOTS] * (station[gate, HELD_SINCE] - t)
    station[gate, HELD_SINCE] = t


@inlined
def seize(run, gate, amount, t):
    """Take *amount* slots."""
    hold(run, gate, t)
    run.station[gate, SLOTS] -= amount


@inlined
def release(run, gate, amount, t):
    """Give *amount* slots back."""
    hold(run, gate, t)
    run.station[gate, SLOTS] += amount


@inlined
def enqueue(station, tokens, s, k):
    """Put token *k* behind those that wait at *s*."""
    tokens[uint64(k), NEXT] = -1
    if station[s, HEAD] < 0:
        station[s, HEAD] = k
    else:
        tokens[uint64(station[s, TAIL]), NEXT] = k
    station[s, TAIL] = k


@inlined
def interrupt(net, run, tokens, u, pc, t):
    """Charge an interrupt to token *u*, unless one runs: that serves all that arrives meanwhile."""
    root = uint64(tokens[u, ROOT])
    user = uint64(tokens[root, USER])
    group = uint64(net.user[user, U_GROUP])
    place = (tokens[root, FLOW] - net.group[group, G_FLOW]) // net.group[group, G_KINDS]
    thread = uint64(net.user[user, U_THREAD])
    end = run.interrupt_end[thread, uint64(place)]
    if t >= end:
        tokens[u, SETUP] += net.ops[pc, O_INTERRUPT]
        end = t + net.ops[pc, O_INTERRUPT]
    run.interrupt_end[thread, uint64(place)] = end + net.ops[pc, O_HANDLER] - 1


@inlined
def admit(net, run, tokens, k, s, t):
    """Token *k* arrives at gate *s*: return whether it passes; else it is in the queue."""
    station = run.station
    v, u = uint64(s), uint64(k)
    pc = uint64(tokens[u, PC])
    run.acc[v, A_VISITS] += 1
    by_thread = net.ops[pc, O_CODE] != ACQUIRE
    amount = np.int64(1) if by_thread else net.ops[pc, O_SLOTS]
    if by_thread and net.ops[pc, O_HANDLER] > 0:
        interrupt(net, run, tokens, u, pc, t)
    if station[v, HEAD] < 0 and station[v, SLOTS] >= amount:
        seize(run, v, amount, t)
        if by_thread and net.ops[pc, O_WAKE] > 0:
            slept = t - station[v, IDLE_SINCE]
            tokens[u, SETUP] += woken(net.ops[pc, O_WAKE], slept, net.ops[pc, O_HALF])
        tokens[u, PC] = np.int64(pc) + 1
        return True
    tokens[u, ARRIVED] = t
    if by_thread and net.ops[pc, O_FRONT] == 1:
        tokens[u, NEXT] = station[v, HEAD]
        if station[v, HEAD] < 0:
            station[v, TAIL] = k
        station[v, HEAD] = k
    else:
        enqueue(station, tokens, v, k)
    return False


@inlined
def grant(net, run, tokens, resume, n_resume, s, t):
    """Let those who wait at gate *s* pass, in order, while there are slots; new n_resume."""
    station = run.station
    v = uint64(s)
    station[v, TOUCHED] = 0
    while station[v, HEAD] >= 0:
        k = station[v, HEAD]
        u = uint64(k)
        pc = uint64(tokens[u, PC])
        amount = net.ops[pc, O_SLOTS] if net.ops[pc, O_CODE] == ACQUIRE else np.int64(1)
        if station[v, SLOTS] < amount:
            break
        seize(run, v, amount, t)
        run.acc[v, A_WAIT] += t - tokens[u, ARRIVED]
        station[v, HEAD] = tokens[u, NEXT]
        tokens[u, PC] = np.int64(pc) + 1
        resume[n_resume] = k
        n_resume += 1
    return n_resume


# Dies and rounds.


@inlined
def next_program(net, run, s, t):
    """Look at die *s*: return when to look again, -1 for no need.

    A program starts if one waits and the die is idle; the look is at its end.
    """
    station = run.station
    v = uint64(s)
    station[v, TOUCHED] = 0
    if station[v, PROGRAM_END] >= 0 or station[v, BACKLOG] == 0 or station[v, CHECKED] == 1:
        return np.int64(-1)
    if station[v, FREE_AT] > t:
        station[v, CHECKED] = 1
        return station[v, FREE_AT]
    station[v, BACKLOG] -= 1
    run.programs[v] += 1
    number = run.programs[v]
    every = net.die[v, DIE_EVERY]
    row = net.die[v, DIE_DIST]
    if every > 0 and t < station[v, BATCH_END]:
        row = net.die[v, DIE_SLOW]
    key = mix(mix(run.background[0], s), PURPOSE_PROGRAM)
    work = quantile(net.dist, row, mix(key, number))
    gc = net.die[v, DIE_GC]
    if gc >= 0:
        work = scaled(
            work,
            episode_factor(
                net.dist,
                net.gc_on,
                net.gc_off,
                net.gc_factor,
                run.gc_episode,
                run.gc_end,
                run.background[0],
                gc,
                t,
            ),
        )
    work = max(1, work)
    if every > 0 and number % every == 0:
        key = mix(mix(run.background[0], s), PURPOSE_BATCH)
        length = quantile(net.dist, net.die[v, DIE_BATCH], mix(key, number // every))
        station[v, BATCH_END] = t + work + length
    station[v, PROGRAM_END] = t + work
    run.acc[v, A_SERVICE] += work
    run.acc[v, A_WORK] += work
    return t + work


@compiled
def episode_factor(dist, on, off, factor, episodes, ends, background, gc, t):
    """Advance drive *gc*'s alternating process to t; return its factor (1 << 16: no episode).

    Times are keyed by (drive, episode), so they do not depend on the load (DESIGN 4).
    """
    while ends[gc] <= t:
        episodes[gc] += 1
        episode = episodes[gc]
        row = on[gc] if episode & 1 else off[gc]
        key = mix(mix(background, gc), PURPOSE_GC)
        ends[gc] += max(1, quantile(dist, row, mix(key, episode)))
    return factor[gc] if episodes[gc] & 1 else 1 << 16


@compiled
def start_round(net, run, tokens, room, n_heap, s, t):
    """Take those who wait at *s* as a round, and note its end; return how many events there are.

    If *s* gathers, the base comes first: then its end is noted, and what waits is taken there.
    """
    station = run.station
    most = net.die[s, ROUND_MOST]
    base = net.die[s, ROUND_BASE]
    gathered = station[s, BACKLOG]
    if gathered == 0:
        run.programs[s] += 1
        row = net.die[s, ROUND_DIST]
        if row >= 0:
            key = mix(mix(run.background[0], s), PURPOSE_ROUND)
            base += quantile(net.dist, row, mix(key, run.programs[s]))
        if net.die[s, ROUND_GATHERS] == 1 and base > 0:
            station[s, BACKLOG] = base
            station[s, PROGRAM_END] = t + base
            return put_seldom(room, n_heap, t, t + base, -1 - s)
    else:
        base = gathered
        station[s, BACKLOG] = 0
    share = base // most
    end = t + base - gathered
    k = station[s, HEAD]
    members = 0
    while k >= 0 and members < most:
        end += tokens[k, WORK]
        k = tokens[k, NEXT]
        members += 1
    at = t - gathered
    for member in range(members):
        k = station[s, HEAD]
        station[s, HEAD] = tokens[k, NEXT]
        work = tokens[k, WORK]
        service = work + base if member == 0 else work
        at += service
        leaves = at if net.die[s, ROUND_ORDER] == 1 else end
        run.acc[s, A_VISITS] += 1
        run.acc[s, A_WAIT] += leaves - service - tokens[k, ARRIVED]
        run.acc[s, A_SERVICE] += service
        run.acc[s, A_WORK] += work + share
        pc = tokens[k, PC]
        tokens[k, PC] = pc + 1
        after = net.ops[pc, O_DELAY] if net.ops[pc, O_CODE] == VISIT else np.int64(0)
        n_heap = put_seldom(room, n_heap, t, leaves + after, k)
    station[s, PROGRAM_END] = end
    return put_seldom(room, n_heap, t, end, -1 - s)
