"""How requests begin, fork and are answered in the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from nvmesim.engine import contract
from nvmesim.engine.compiled import kernel_state as state
from nvmesim.engine.compiled.kernel_draws import below, compiled, inlined, mix, quantile
from nvmesim.engine.compiled.kernel_stations import scaled


@inlined
def bin_of(value):
    """Histogram bin of a latency in ps, as `contract.bin_index`."""
    exact = value if value < (1 << 52) else (value >> 16) << 16
    exponent = (np.float64(exact).view(np.int64) >> 52) - 1023
    shift: Any = max(0, exponent - contract.HIST_BITS)
    return (shift << contract.HIST_BITS) + (value >> shift)


@inlined
def answer(net, run, tokens, k, t, n_records):
    """Count request *k* as completed at t; return 1 if its group is measured."""
    u = uint64(k)
    user = tokens[u, state.USER]
    group = net.user[uint64(user), state.U_GROUP]
    flow = tokens[u, state.FLOW]
    measured = net.group[uint64(group), state.G_MEASURED]
    if measured == 1:
        w = uint64(net.flow[uint64(flow), state.F_WRITE])
        lat = t - tokens[u, state.SUBMIT]
        clat = t - tokens[u, state.ISSUE]
        run.completed[w] += 1
        run.latency_sum[w, 0] += lat
        run.latency_sum[w, 1] += clat
        run.latency_max[w, 0] = max(run.latency_max[w, 0], lat)
        run.latency_max[w, 1] = max(run.latency_max[w, 1], clat)
        run.histogram[w, 0, uint64(bin_of(lat))] += 1
        run.histogram[w, 1, uint64(bin_of(clat))] += 1
        own = net.flow[uint64(flow), state.F_CLASS]
        if own >= 0:
            run.classes[uint64(own), uint64(bin_of(lat))] += 1
    run.flows[uint64(flow)] += 1
    if run.record.shape[0] > 0:
        row = run.record[n_records]
        row[0] = tokens[u, state.ORDER] >> contract.ORDER_SHIFT
        row[1] = group
        row[2] = user
        row[3] = flow
        row[4] = tokens[u, state.SUBMIT]
        row[5] = tokens[u, state.ISSUE]
        row[6] = t
    return measured


@inlined
def paced(net, run, user, t):
    """Return when a user of a closed loop may submit under its thread's rate limit, -1: now."""
    thread = uint64(net.user[uint64(user), state.U_THREAD])
    interval = net.thread[thread, state.T_INTERVAL]
    if interval > 0 and net.group[uint64(net.user[uint64(user), state.U_GROUP]), state.G_OPEN] == 0:
        if run.user_paced[user] == 0:
            due = max(t, run.thread_due[thread])
            run.thread_due[thread] = due + interval
            if due > t:
                run.user_paced[user] = 1
                return due
        run.user_paced[user] = 0
    return np.int64(-1)


@inlined
def choose_target(net, run, user, group):
    """First flow of a request's target: fixed, or of the thread's round robin."""
    place = net.user[user, state.U_TARGET]
    if place < 0:
        thread = uint64(net.user[user, state.U_THREAD])
        place = run.thread_next[thread]
        step = place + 1
        run.thread_next[thread] = step if step < net.group[group, state.G_TARGETS] else 0
    return net.group[group, state.G_FLOW] + place * net.group[group, state.G_KINDS]


@inlined
def choose_kind(net, group, kinds, key):
    """Kind of a request: drawn."""
    kind = np.int64(0)
    drawn = below(mix(key, contract.PURPOSE_KIND), 1 << 32)
    base = net.group[group, state.G_THRESHOLD]
    while kind < kinds - 1 and drawn >= net.threshold[uint64(base + kind)]:
        kind += 1
    return kind


@inlined
def choose_plan(net, run, user, flow, key):
    """Plan of a request: the next of its sequential stream, or drawn."""
    length = net.flow[flow, state.F_LENGTH]
    stream = net.flow[flow, state.F_STREAM]
    if stream >= 0:
        at = uint64(stream + net.user[user, state.U_STREAM])
        place = run.stream[at] % length
        run.stream[at] += 1
    else:
        place = below(mix(key, contract.PURPOSE_PLAN), length)
    return net.order[uint64(net.flow[flow, state.F_ORDER] + place)]


@compiled
def stretched(net, run, group, user, t, gap):
    """Return the time that a *gap* of *user* takes from t on through bursts and pauses."""
    key = mix(mix(run.background[0], group), contract.PURPOSE_BURST)
    now = t
    while True:
        while run.user_phase_end[user] <= now:
            run.user_phase[user] += 1
            phase = run.user_phase[user]
            row = net.group[group, state.G_ON] if phase & 1 else net.group[group, state.G_OFF]
            run.user_phase_end[user] += max(1, quantile(net.dist, row, mix(key, phase)))
        on = run.user_phase[user] & 1
        slow = net.group[group, state.G_ON_SLOW] if on else net.group[group, state.G_OFF_SLOW]
        room = run.user_phase_end[user] - now
        if slow > 0:
            need = scaled(gap, slow)
            if need <= room:
                return max(1, now + need - t)
            gap = max(0, gap - room // slow * 65536 - ((room % slow) << 16) // slow)
        now += room


@inlined
def submit(net, run, tokens, k, user, number, t):
    """Make token *k* the request *number*; return when an open loop's user submits again, -1."""
    u, v = uint64(k), uint64(user)
    group = uint64(net.user[v, state.U_GROUP])
    opened = net.group[group, state.G_OPEN]
    kinds = net.group[group, state.G_KINDS]
    if opened == 2:
        flow = net.arrival_flow[run.user_cursor[v]]
        first = uint64(flow - (flow - net.group[group, state.G_FLOW]) % kinds)
    else:
        flow = choose_target(net, run, v, group)
        first = uint64(flow)
    key = mix(run.target_key[first], run.target_count[first])
    run.target_count[first] += 1
    if opened != 2 and kinds > 1:
        flow += choose_kind(net, group, kinds, key)
    plan = choose_plan(net, run, v, uint64(flow), key)
    tokens[u, state.PC] = net.flow[uint64(flow), state.F_PROGRAM]
    tokens[u, state.KEY] = key
    tokens[u, state.LANE] = 0
    tokens[u, state.SETUP] = 0
    tokens[u, state.ROOT] = k
    tokens[u, state.PARENT] = -1
    tokens[u, state.ORDER] = number << contract.ORDER_SHIFT
    tokens[u, state.USER] = user
    tokens[u, state.SUBMIT] = t
    tokens[u, state.ISSUE] = t
    tokens[u, state.PLAN] = plan
    tokens[u, state.FLOW] = flow
    if opened == 1:
        gap = max(
            1, quantile(net.dist, net.group[group, state.G_GAP], mix(key, contract.PURPOSE_GAP))
        )
        if net.group[group, state.G_ON] >= 0:
            gap = stretched(net, run, group, user, t, gap)
        return t + gap
    if opened == 2:
        run.user_cursor[v] += 1
        at = run.user_cursor[v]
        if at < net.user_arrival[user + 1]:
            return max(t, net.arrival_ps[at])
    return np.int64(-1)


@inlined
def begin_child(net, run, tokens, c, k, root, child, ordinal):
    """Make token *c* a child of *k*; return whether it knows its program (one alternative)."""
    u, r, row = uint64(c), uint64(root), uint64(child)
    word = ordinal << contract.CHILD_SHIFT
    tokens[u, state.KEY] = mix(tokens[r, state.KEY], word)
    tokens[u, state.LANE] = 0
    tokens[u, state.SETUP] = 0
    tokens[u, state.ROOT] = root
    tokens[u, state.PARENT] = k
    tokens[u, state.ORDER] = tokens[r, state.ORDER] + word
    if net.child[row, state.C_COUNT] == 1:
        member = net.child[row, state.C_MEMBER]
        run.alts[uint64(net.child[row, state.C_ALT])] += 1
        run.member_load[uint64(member)] += 1
        tokens[u, state.MEMBER] = member
        tokens[u, state.PC] = net.child[row, state.C_PROGRAM]
        return True
    tokens[u, state.PC] = child  # until the chooser has decided
    return False


@compiled
def choose_member(child, alt_program, alt_member, load, alts, tokens, k):
    """Give child *k* the member with the fewest outstanding children (md, rule 3)."""
    row = tokens[k, state.PC]
    best = child[row, state.C_ALT]
    least = load[alt_member[best]]
    for alt in range(best + 1, child[row, state.C_ALT] + child[row, state.C_COUNT]):
        other = load[alt_member[alt]]
        if other < least:
            least = other
            best = alt
    member = alt_member[best]
    alts[best] += 1
    load[member] += 1
    tokens[k, state.MEMBER] = member
    tokens[k, state.PC] = alt_program[best]


@inlined
def begin_unit(tokens, c, k, unit, program, is_spread):
    """Make token *c* the *unit*-th unit of *k*, on its lane or as far beyond if *is_spread*."""
    u, p = uint64(c), uint64(k)
    tokens[u, state.PC] = program
    tokens[u, state.KEY] = mix(tokens[p, state.KEY], -unit)  # no purpose is negative
    tokens[u, state.LANE] = tokens[p, state.LANE]
    if is_spread:
        tokens[u, state.LANE] += unit
    tokens[u, state.SETUP] = 0
    tokens[u, state.ROOT] = tokens[p, state.ROOT]
    tokens[u, state.PARENT] = k
    tokens[u, state.ORDER] = tokens[p, state.ORDER] + unit
    tokens[u, state.MEMBER] = -1


@inlined
def end_child(run, tokens, k):
    """Join child or unit *k* with its parent; return whether it was the last."""
    u = uint64(k)
    member = tokens[u, state.MEMBER]
    if member >= 0:
        run.member_load[uint64(member)] -= 1
    parent = uint64(tokens[u, state.PARENT])
    left = tokens[parent, state.LEFT] - 1
    tokens[parent, state.LEFT] = left
    return left == 0
