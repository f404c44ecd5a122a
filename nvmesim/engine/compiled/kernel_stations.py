"""A token's visit to a station or gate: the kernel's twin of `stations.py`.

Indices are unsigned where it is hot: no test for a negative one.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from nvmesim.engine import contract
from nvmesim.engine.compiled import kernel_state as state
from nvmesim.engine.compiled.kernel_draws import below, compiled, inlined, mix, quantile
from nvmesim.engine.compiled.kernel_events import put_seldom, replace_first
from nvmesim.network import network


@inlined
def scaled(work, factor):
    """Return (work * factor) >> 16 by halves, so that the product cannot wrap."""
    return (work >> 16) * factor + (((work & 0xFFFF) * factor) >> 16)


@inlined
def thread_of(net, tokens, k):
    """Thread of token *k*'s request."""
    root = uint64(tokens[uint64(k), state.ROOT])
    return uint64(net.user[uint64(tokens[root, state.USER]), state.U_THREAD])


@inlined
def touch(station, pending, n_pending, s):
    """Ask for a look at *s* behind the arrivals of the next phase B; return the new n_pending."""
    if station[s, state.TOUCHED] == 1:
        return n_pending
    station[s, state.TOUCHED] = 1
    pending[n_pending, state.P_PLACE] = s
    pending[n_pending, state.P_ORDER] = contract.TOUCH_ORDER
    pending[n_pending, state.P_TOKEN] = state.TOUCH
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
    code = net.ops[pc, network.O_CODE]
    s = net.ops[pc, network.O_STATION]
    if code == state.VISIT_BANK:
        lane = below(
            mix(tokens[u, state.KEY], net.ops[pc, network.O_PURPOSE]), net.ops[pc, network.O_BANK]
        )
        tokens[u, state.LANE] = lane
        s += lane
    elif code == state.VISIT_LANE:
        lane = tokens[u, state.LANE]
        s += lane if lane < net.ops[pc, network.O_BANK] else lane % net.ops[pc, network.O_BANK]
    elif code == state.VISIT_CPU:
        s = net.thread[thread_of(net, tokens, k), state.T_CPU]
    elif code == state.ACQUIRE_THREAD:
        s = net.thread[thread_of(net, tokens, k), state.T_GATE]
    return s


@inlined
def serve_chain(net, run, tokens, k, s, t):
    """Serve token *k* at *s*, and at once at the stations that are chained to it; as `serve`."""
    pc = uint64(tokens[uint64(k), state.PC])
    while True:
        t = serve(net, run, tokens, k, s, t)
        if net.ops[pc, state.CHAIN] == 0:
            return t
        pc += uint64(1)
        s = place_of(net, tokens, k, pc)


@inlined
def serve(net, run, tokens, k, s, t):
    """Fix the service of token *k*, which arrives at *s* at *t*; return when it goes on."""
    station = run.station
    v, u = uint64(s), uint64(k)
    pc = uint64(tokens[u, state.PC])
    code = net.ops[pc, network.O_CODE]
    work = net.ops[pc, network.O_SERVICE]
    row = net.ops[pc, network.O_DIST]
    if code == state.VISIT_SERIES:
        work += sample(
            net.series,
            net.series_ptr,
            net.series_block,
            run.series_count,
            run.background[0],
            row,
            s,
        )
    elif row >= 0 and code != state.VISIT_UNORDERED:
        work += quantile(
            net.dist, uint64(row), mix(tokens[u, state.KEY], net.ops[pc, network.O_PURPOSE] + 1)
        )
    if code == state.VISIT_CPU:
        work += tokens[u, state.SETUP]
        tokens[u, state.SETUP] = 0
    if net.ops[pc, network.O_CHILD] > 0:
        plan = tokens[uint64(tokens[u, state.ROOT]), state.PLAN]
        n = net.phase_child[net.plan_phase[plan + 1]] - net.phase_child[net.plan_phase[plan]]
        if code == state.VISIT_CPU:
            n = max(0, n - 1)
        work += net.ops[pc, network.O_CHILD] * n
    work = max(1, work)
    service = work
    kind = station[v, state.KIND]
    if kind == state.LINE:
        start = max(t, station[v, state.FREE_AT])
        station[v, state.FREE_AT] = start + service
    elif kind == state.POOL:
        at = station[v, state.AT]
        start = max(t, run.server_free[uint64(at)])
        replace_first(run.server_free, at, station[v, state.SERVERS], start + service)
    elif kind == state.RING:
        pos = station[v, state.POS]
        place = uint64(station[v, state.AT] + pos)
        start = max(t, run.server_free[place])
        run.server_free[place] = start + service
        pos += 1
        station[v, state.POS] = 0 if pos == station[v, state.SERVERS] else pos
    elif kind == state.DELAY:
        start = t
    elif kind == state.SCALED:
        station[v, state.INSIDE] += 1
        busy = min(station[v, state.INSIDE], station[v, state.SERVERS])
        service = max(1, scaled(service, net.scale[station[v, state.SCALE] + busy - 1]))
        tokens[u, state.INSIDE_OF] = s
        at = station[v, state.AT]
        start = max(t, run.server_free[uint64(at)])
        replace_first(run.server_free, at, station[v, state.SERVERS], start + service)
    elif kind == state.DIE:
        start = read_die(station, v, net.die[v, state.DIE_SUSPEND], service, t)
    elif kind == state.LIMIT:
        # FREE_AT is when the bucket would be full again
        start = max(
            t, station[v, state.FREE_AT] + service - max(net.die[v, state.LIMIT_SAVED], service)
        )
        station[v, state.FREE_AT] = max(station[v, state.FREE_AT], start) + service
        run.acc[v, state.A_SERVICE] += service - 1
        service = np.int64(1)
    elif kind == state.SLEEPER:
        start = max(t, station[v, state.FREE_AT])
        if start > station[v, state.FREE_AT]:
            service += woken(
                net.die[v, state.WAKE],
                start - station[v, state.FREE_AT],
                net.die[v, state.WAKE_HALF],
            )
        station[v, state.FREE_AT] = start + service
    else:
        tokens[u, state.WORK] = work
        tokens[u, state.ARRIVED] = t
        enqueue(station, tokens, v, k)
        return np.int64(-1)
    after = np.int64(0)
    if code == state.VISIT_UNORDERED:
        bits = mix(tokens[u, state.KEY], net.ops[pc, network.O_PURPOSE] + 1)
        first = t + network.IN_ORDER * service
        if start > first:
            start = first + scaled(start - first, quantile(net.dist, uint64(row), bits))
        after = net.ops[pc, network.O_DELAY]
    elif code == state.VISIT:
        after = net.ops[pc, network.O_DELAY]
    run.acc[v, state.A_VISITS] += 1
    run.acc[v, state.A_WAIT] += start - t
    run.acc[v, state.A_SERVICE] += service
    run.acc[v, state.A_WORK] += work
    tokens[u, state.PC] = np.int64(pc) + 1
    return start + service + after


@compiled
def sample(series, series_ptr, series_block, counts, background, row, s):
    """Next sample of station *s*'s block bootstrap of a series."""
    block = series_block[row]
    first = series_ptr[row]
    n = counts[s]
    counts[s] += 1
    key = mix(mix(background, s), contract.PURPOSE_SERIES)
    room = series_ptr[row + 1] - first - block + 1
    return series[first + below(mix(key, n // block), room) + n % block]


@inlined
def read_die(station, v, suspend, service, t):
    """Start of a service at a die: behind earlier ones, and the program, or suspending it."""
    free = station[v, state.FREE_AT]
    start = max(t, free)
    end = station[v, state.PROGRAM_END]
    if end > t:
        if free <= t and 0 <= suspend < end - t:
            start = t + suspend
            station[v, state.PROGRAM_END] = end + suspend + service
        elif free <= t:
            start = end
        elif free < end:  # it is suspended
            station[v, state.PROGRAM_END] = end + service
    station[v, state.FREE_AT] = start + service
    return start


# Gates.


@inlined
def hold(run, gate, t):
    """Subtract the slot-time that was free at *gate* since its slots last changed."""
    station = run.station
    run.acc[gate, state.A_SERVICE] += station[gate, state.SLOTS] * (
        station[gate, state.HELD_SINCE] - t
    )
    station[gate, state.HELD_SINCE] = t


@inlined
def seize(run, gate, amount, t):
    """Take *amount* slots."""
    hold(run, gate, t)
    run.station[gate, state.SLOTS] -= amount


@inlined
def release(run, gate, amount, t):
    """Give *amount* slots back."""
    hold(run, gate, t)
    run.station[gate, state.SLOTS] += amount


@inlined
def enqueue(station, tokens, s, k):
    """Put token *k* behind those that wait at *s*."""
    tokens[uint64(k), state.NEXT] = -1
    if station[s, state.HEAD] < 0:
        station[s, state.HEAD] = k
    else:
        tokens[uint64(station[s, state.TAIL]), state.NEXT] = k
    station[s, state.TAIL] = k


@inlined
def interrupt(net, run, tokens, u, pc, t):
    """Charge an interrupt to token *u*, unless one runs: that serves all that arrives meanwhile."""
    root = uint64(tokens[u, state.ROOT])
    user = uint64(tokens[root, state.USER])
    group = uint64(net.user[user, state.U_GROUP])
    place = (tokens[root, state.FLOW] - net.group[group, state.G_FLOW]) // net.group[
        group, state.G_KINDS
    ]
    thread = uint64(net.user[user, state.U_THREAD])
    end = run.interrupt_end[thread, uint64(place)]
    if t >= end:
        tokens[u, state.SETUP] += net.ops[pc, network.O_INTERRUPT]
        end = t + net.ops[pc, network.O_INTERRUPT]
    run.interrupt_end[thread, uint64(place)] = end + net.ops[pc, network.O_HANDLER] - 1


@inlined
def admit(net, run, tokens, k, s, t):
    """Token *k* arrives at gate *s*: return whether it passes; else it is in the queue."""
    station = run.station
    v, u = uint64(s), uint64(k)
    pc = uint64(tokens[u, state.PC])
    run.acc[v, state.A_VISITS] += 1
    by_thread = net.ops[pc, network.O_CODE] != state.ACQUIRE
    amount = np.int64(1) if by_thread else net.ops[pc, network.O_SLOTS]
    if by_thread and net.ops[pc, network.O_HANDLER] > 0:
        interrupt(net, run, tokens, u, pc, t)
    if station[v, state.HEAD] < 0 and station[v, state.SLOTS] >= amount:
        seize(run, v, amount, t)
        if by_thread and net.ops[pc, network.O_WAKE] > 0:
            slept = t - station[v, state.IDLE_SINCE]
            tokens[u, state.SETUP] += woken(
                net.ops[pc, network.O_WAKE], slept, net.ops[pc, network.O_HALF]
            )
        tokens[u, state.PC] = np.int64(pc) + 1
        return True
    tokens[u, state.ARRIVED] = t
    if by_thread and net.ops[pc, network.O_FRONT] == 1:
        tokens[u, state.NEXT] = station[v, state.HEAD]
        if station[v, state.HEAD] < 0:
            station[v, state.TAIL] = k
        station[v, state.HEAD] = k
    else:
        enqueue(station, tokens, v, k)
    return False


@inlined
def grant(net, run, tokens, resume, n_resume, s, t):
    """Let those who wait at gate *s* pass, in order, while there are slots; new n_resume."""
    station = run.station
    v = uint64(s)
    station[v, state.TOUCHED] = 0
    while station[v, state.HEAD] >= 0:
        k = station[v, state.HEAD]
        u = uint64(k)
        pc = uint64(tokens[u, state.PC])
        amount = (
            net.ops[pc, network.O_SLOTS]
            if net.ops[pc, network.O_CODE] == state.ACQUIRE
            else np.int64(1)
        )
        if station[v, state.SLOTS] < amount:
            break
        seize(run, v, amount, t)
        run.acc[v, state.A_WAIT] += t - tokens[u, state.ARRIVED]
        station[v, state.HEAD] = tokens[u, state.NEXT]
        tokens[u, state.PC] = np.int64(pc) + 1
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
    station[v, state.TOUCHED] = 0
    if (
        station[v, state.PROGRAM_END] >= 0
        or station[v, state.BACKLOG] == 0
        or station[v, state.CHECKED] == 1
    ):
        return np.int64(-1)
    if station[v, state.FREE_AT] > t:
        station[v, state.CHECKED] = 1
        return station[v, state.FREE_AT]
    station[v, state.BACKLOG] -= 1
    run.programs[v] += 1
    number = run.programs[v]
    every = net.die[v, state.DIE_EVERY]
    row = net.die[v, state.DIE_DIST]
    if every > 0 and t < station[v, state.BATCH_END]:
        row = net.die[v, state.DIE_SLOW]
    key = mix(mix(run.background[0], s), contract.PURPOSE_PROGRAM)
    work = quantile(net.dist, row, mix(key, number))
    work = max(1, work)
    if every > 0 and number % every == 0:
        key = mix(mix(run.background[0], s), contract.PURPOSE_BATCH)
        length = quantile(net.dist, net.die[v, state.DIE_BATCH], mix(key, number // every))
        station[v, state.BATCH_END] = t + work + length
    station[v, state.PROGRAM_END] = t + work
    run.acc[v, state.A_SERVICE] += work
    run.acc[v, state.A_WORK] += work
    return t + work


@compiled
def start_round(net, run, tokens, room, n_heap, s, t):
    """Take those who wait at *s* as a round, and note its end; return how many events there are."""
    station = run.station
    most = net.die[s, state.ROUND_MOST]
    base = net.die[s, state.ROUND_BASE]
    gathered = station[s, state.BACKLOG]
    if gathered == 0:
        run.programs[s] += 1
        row = net.die[s, state.ROUND_DIST]
        if row >= 0:
            key = mix(mix(run.background[0], s), contract.PURPOSE_ROUND)
            base += quantile(net.dist, row, mix(key, run.programs[s]))
        if net.die[s, state.ROUND_GATHERS] == 1 and base > 0:
            station[s, state.BACKLOG] = base
            station[s, state.PROGRAM_END] = t + base
            return put_seldom(room, n_heap, t, t + base, -1 - s)
    else:
        base = gathered
        station[s, state.BACKLOG] = 0
    share = base // most
    end = t + base - gathered
    k = station[s, state.HEAD]
    members = 0
    while k >= 0 and members < most:
        end += tokens[k, state.WORK]
        k = tokens[k, state.NEXT]
        members += 1
    for member in range(members):
        k = station[s, state.HEAD]
        station[s, state.HEAD] = tokens[k, state.NEXT]
        work = tokens[k, state.WORK]
        service = work + base if member == 0 else work
        run.acc[s, state.A_VISITS] += 1
        run.acc[s, state.A_WAIT] += end - service - tokens[k, state.ARRIVED]
        run.acc[s, state.A_SERVICE] += service
        run.acc[s, state.A_WORK] += work + share
        pc = tokens[k, state.PC]
        tokens[k, state.PC] = pc + 1
        after = (
            net.ops[pc, network.O_DELAY]
            if net.ops[pc, network.O_CODE] == state.VISIT
            else np.int64(0)
        )
        n_heap = put_seldom(room, n_heap, t, end + after, k)
    station[s, state.PROGRAM_END] = end
    return put_seldom(room, n_heap, t, end, -1 - s)
