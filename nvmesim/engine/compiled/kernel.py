"""The compiled engine's loop: one function, no objects, resumable between instants.

`contract.py` defines the order of events; the comments here say where each rule lives. The state is
arrays that the caller keeps (`kernel_state`): `EngineRun` never grows, `Room` grows with what is
outstanding (`compiled.CompiledEngine._grow`). Events wait in a wheel or a heap (`kernel_events`).

Event numbers: e >= 0 is a token that departs; -1 - s is a check of die s, or the end of a round of
station s; -1 - n_stations - u is a timer of user u.

One instant, in full (`contract`, rules 1 to 3):

    take every event of the instant       departed tokens go to `resume`, touches to `pending`
    until nothing is left:
        phase A: each token of `resume` walks its program until it arrives somewhere (`pending`)
        phase B: `pending`, sorted by (station, order), is dispatched; who passes goes to `resume`

Nearly always one event is all there is in an instant, and that has a shorter way which gives the
same result. While a pass of the loop comes from a *single* token (`sources` == 1), arrivals happen
in the order of tokens already, and a visit reads nothing that the rest of phase A could change: it
is served where the token stands, without `pending`. If nothing else is left to do (no other token,
no touch), a gate is decided at once as well, and the token walks on. What stays in phase B is what
can depend on others: gates with more than one token about, rounds, choosers, touches, submissions.

Speed (docs/speed.md has the measurements): no array is rebound in the loop, since Numba would count
references at every event, ten times slower; helpers are inlined by LLVM (`kernel_draws.inlined`),
so that files can be small; indices are unsigned where it is hot; what belongs together is one row,
whose length the compiler knows (`kernel_state.ROWS`).
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from nvmesim.engine import contract
from nvmesim.engine.compiled import kernel_state as state
from nvmesim.engine.compiled.kernel_batches import (
    admit_batched,
    close,
    go_on,
    join,
    next_turn,
    stay,
)
from nvmesim.engine.compiled.kernel_draws import below, entry, mix, part
from nvmesim.engine.compiled.kernel_events import (
    earliest,
    first_slot,
    heap_pop,
    put,
    put_seldom,
    sort_pending,
    take,
)
from nvmesim.engine.compiled.kernel_requests import (
    answer,
    begin_child,
    begin_unit,
    bin_of,
    choose_member,
    end_child,
    paced,
    submit,
)
from nvmesim.engine.compiled.kernel_stations import (
    admit,
    grant,
    next_program,
    place_of,
    release,
    serve_chain,
    start_round,
    thread_of,
    touch,
)
from nvmesim.network import network


@part
def _advance(net, run, room, target, until):
    """Run instants until *target* measured completions, no event, or an event beyond *until*."""
    tokens, heap, free = room.tokens, room.heap, room.free
    pending, resume = room.pending, room.resume
    ops = net.ops
    station = run.station
    n_stations = station.shape[0]
    chooser = n_stations
    source = n_stations + 1
    first_timer = -1 - n_stations
    now = run.scalars[state.NOW]
    n_heap = run.scalars[state.N_HEAP]
    n_free = run.scalars[state.N_FREE]
    next_request = run.scalars[state.NEXT_REQUEST]
    live = run.scalars[state.LIVE]
    n_records = run.scalars[state.N_RECORDS]
    mid = run.scalars[state.MID] != 0
    n_resume = run.scalars[state.N_RESUME]
    n_pending = run.scalars[state.N_PENDING]
    sources = run.scalars[state.SOURCES]
    must_sort = run.scalars[state.MUST_SORT] != 0
    t = now
    first_node = room.wheel[state.FIRST_NODE]
    soon = np.int64(state.FOREVER)
    slot = np.int64(-1)
    capacity = tokens.shape[0]
    burst = resume.shape[0] - capacity  # most children of one operation, see compiled.py
    done = run.scalars[state.DONE]
    recorded = min(run.record.shape[0], 1)
    status = 0

    while True:
        if not mid:
            if done >= target:
                break
            if recorded and n_records + 2 * capacity > run.record.shape[0]:
                status = 3
                break
            slot = first_slot(room.wheel, now)
            soon = earliest(room, slot)
            t = min(soon, heap[0, 0])
            if t > until:
                status = 2 if t < state.FOREVER else 1
                break
            now = t
            n_resume = 0
            n_pending = 0
            sources = 0
            must_sort = False
        # Phase A, first part: every event of this instant (none is left if it was interrupted).
        due = np.int64(-1)
        if not mid and soon == t:
            due = take(room, slot, t)
        mid = False
        while due >= 0 or heap[0, 0] == t:
            if due >= 0:
                e = due - first_node
                due = room.node[uint64(due), 1]
            else:
                e = heap[0, 1]
                heap_pop(heap, n_heap)
                n_heap -= 1
            sources += 1
            if e >= 0:
                u = uint64(e)
                inside = tokens[u, state.INSIDE_OF]
                if inside >= 0:
                    station[uint64(inside), state.INSIDE] -= 1
                    tokens[u, state.INSIDE_OF] = -1
                resume[n_resume] = e
                n_resume += 1
            elif e > first_timer:
                s = -1 - e
                station[s, state.CHECKED] = 0
                end = station[s, state.PROGRAM_END]
                if end > t:  # reads suspended it meanwhile
                    n_heap = put_seldom(room, n_heap, t, end, e)
                    continue
                must_sort = True
                if end >= 0:
                    station[s, state.PROGRAM_END] = -1
                    gate = net.die[s, state.DIE_GATE]
                    if gate >= 0:
                        release(run, gate, 1, t)
                        if station[gate, state.HEAD] >= 0:
                            n_pending = touch(station, pending, n_pending, gate)
                n_pending = touch(station, pending, n_pending, s)
            else:
                pending[n_pending, state.P_PLACE] = source
                pending[n_pending, state.P_ORDER] = first_timer - e
                pending[n_pending, state.P_TOKEN] = first_timer - e
                n_pending += 1
        # Rounds of phase A and phase B until the instant is quiet.
        while n_resume > 0 or n_pending > 0:
            while n_resume > 0:
                if n_free < burst:
                    mid = True
                    break
                n_resume -= 1
                k = resume[n_resume]
                while True:
                    u = uint64(k)
                    pc = uint64(tokens[u, state.PC])
                    code = ops[pc, network.O_CODE]
                    if code <= state.ACQUIRE_THREAD and code != state.END and code != state.RELEASE:
                        # A station or gate.
                        s = place_of(net, tokens, k, pc)
                        if sources == 1:
                            if code < state.ACQUIRE:
                                if station[uint64(s), state.KIND] < state.ROUNDS:
                                    goes_on = serve_chain(net, run, tokens, k, s, t)
                                    n_heap = put(room, n_heap, t, goes_on, k)
                                    break
                            elif (
                                n_resume == 0
                                and n_pending == 0
                                and station[uint64(s), state.KIND] == state.GATE
                            ):
                                if admit(net, run, tokens, k, s, t):
                                    continue
                                break
                        pending[n_pending, state.P_PLACE] = s
                        pending[n_pending, state.P_ORDER] = tokens[u, state.ORDER]
                        pending[n_pending, state.P_TOKEN] = k
                        n_pending += 1
                        break
                    if code == state.END:
                        if tokens[u, state.PARENT] >= 0:
                            last = end_child(run, tokens, k)
                            free[n_free] = k
                            n_free += 1
                            if not last:
                                break
                            k = tokens[u, state.PARENT]
                            continue
                        user = tokens[u, state.USER]
                        group = net.user[user, state.U_GROUP]
                        live -= 1
                        if tokens[u, state.SUBMIT] >= 0:
                            done += answer(net, run, tokens, k, t, n_records)
                            n_records += recorded
                        elif net.group[group, state.G_MEASURED] == 1:
                            run.syncs[bin_of(t - tokens[u, state.ISSUE])] += 1
                        free[n_free] = k
                        n_free += 1
                        if net.group[group, state.G_OPEN] == 0:
                            think = net.group[group, state.G_THINK]
                            if think > 0:
                                n_heap = put_seldom(room, n_heap, t, t + think, first_timer - user)
                            else:
                                pending[n_pending, state.P_PLACE] = source
                                pending[n_pending, state.P_ORDER] = user
                                pending[n_pending, state.P_TOKEN] = user
                                n_pending += 1
                        break
                    tokens[u, state.PC] = np.int64(pc) + 1
                    if code == state.FORK:
                        root = tokens[u, state.ROOT]
                        plan = uint64(tokens[uint64(root), state.PLAN])
                        phase = uint64(net.plan_phase[plan] + ops[pc, network.O_PHASE])
                        first = net.phase_child[phase]
                        n = net.phase_child[phase + uint64(1)] - first
                        if n == 0:
                            continue
                        tokens[u, state.LEFT] = n
                        ordinal = first - net.phase_child[uint64(net.plan_phase[plan])] + n
                        for child in range(first + n - 1, first - 1, -1):
                            n_free -= 1
                            c = free[n_free]
                            if begin_child(net, run, tokens, c, k, root, child, ordinal):
                                resume[n_resume] = c
                                n_resume += 1
                            else:
                                must_sort = True
                                pending[n_pending, state.P_PLACE] = chooser
                                pending[n_pending, state.P_ORDER] = tokens[uint64(c), state.ORDER]
                                pending[n_pending, state.P_TOKEN] = c
                                n_pending += 1
                            ordinal -= 1
                        break
                    if code == state.SPLIT:
                        n = ops[pc, network.O_UNITS]
                        tokens[u, state.LEFT] = n
                        lanes = ops[pc, network.O_BANK]
                        if lanes > 0:
                            drawn = mix(tokens[u, state.KEY], ops[pc, network.O_PURPOSE])
                            tokens[u, state.LANE] = below(drawn, lanes)
                        for unit in range(n, 0, -1):
                            n_free -= 1
                            c = free[n_free]
                            begin_unit(tokens, c, k, unit, ops[pc, network.O_PROGRAM], lanes > 0)
                            resume[n_resume] = c
                            n_resume += 1
                        break
                    if code == state.DESTAGE:
                        for unit in range(ops[pc, network.O_PROGRAMS]):
                            bits = mix(mix(tokens[u, state.KEY], contract.PURPOSE_DESTAGE), unit)
                            s = ops[pc, network.O_DIES] + below(bits, ops[pc, network.O_BANK])
                            station[s, state.BACKLOG] += 1
                            must_sort = True
                            n_pending = touch(station, pending, n_pending, s)
                    elif code == state.MARK:
                        tokens[uint64(tokens[u, state.ROOT]), state.ISSUE] = t
                    elif code == state.ANSWER:
                        done += answer(net, run, tokens, k, t, n_records)
                        n_records += recorded
                        tokens[u, state.SUBMIT] = state.ANSWERED
                        tokens[u, state.ISSUE] = t
                    elif code == state.JOIN:
                        tokens[u, state.PC] = np.int64(pc)
                        pending[n_pending, state.P_PLACE] = ops[pc, network.O_TURN]
                        pending[n_pending, state.P_ORDER] = tokens[u, state.ORDER]
                        pending[n_pending, state.P_TOKEN] = k
                        n_pending += 1
                        break
                    elif code == state.CLOSE:
                        close(station, ops[pc, network.O_TURN], t)
                    elif code == state.LEAVE:
                        release(run, ops[pc, network.O_TURN], 1, t)
                        tokens[u, state.PC] += ops[pc, network.O_FURTHER]
                        if station[ops[pc, network.O_TURN], state.HEAD] >= 0:
                            must_sort = True
                            n_pending = touch(station, pending, n_pending, ops[pc, network.O_TURN])
                    else:  # RELEASE, RELEASE_THREAD
                        if code == state.RELEASE:
                            gate = ops[pc, network.O_GATE]
                            amount = ops[pc, network.O_SLOTS]
                        else:
                            gate = net.thread[thread_of(net, tokens, k), state.T_GATE]
                            amount = np.int64(1)
                        v = uint64(gate)
                        release(run, v, amount, t)
                        station[v, state.IDLE_SINCE] = t
                        works = station[v, state.KIND] == state.BATCHER
                        if works or station[v, state.HEAD] >= 0:
                            must_sort = True
                            n_pending = touch(station, pending, n_pending, gate)
                            if works and code != state.RELEASE and ops[pc, network.O_STAYS] == 1:
                                stay(run, tokens, k, gate, t)
                                break
            if mid or n_free < n_pending:  # as many could submit
                mid = True
                break
            # Phase B. One source's arrivals are in token order already, station by station.
            if n_pending > 1 and (sources > 1 or must_sort):
                sort_pending(pending, n_pending)
            must_sort = False
            todo = n_pending
            n_pending = 0  # rows are written again only behind the one that is read
            for i in range(todo):
                s = pending[i, state.P_PLACE]
                k = pending[i, state.P_TOKEN]
                if s < n_stations:
                    kind = station[uint64(s), state.KIND]
                    if k >= 0:
                        if kind == state.GATE:
                            if admit(net, run, tokens, k, s, t):
                                resume[n_resume] = k
                                n_resume += 1
                            continue
                        if kind == state.BATCHER:
                            if admit_batched(net, run, tokens, k, s, t):
                                resume[n_resume] = k
                                n_resume += 1
                            continue
                        if kind == state.TURN:
                            if join(net, run, tokens, k, s, t):
                                resume[n_resume] = k
                                n_resume += 1
                            continue
                        goes_on = serve_chain(net, run, tokens, k, s, t)
                        if goes_on >= 0:
                            n_heap = put_seldom(room, n_heap, t, goes_on, k)
                        elif station[uint64(s), state.PROGRAM_END] < 0:
                            must_sort = True
                            n_pending = touch(station, pending, n_pending, s)
                    elif kind == state.GATE:
                        n_resume = grant(net, run, tokens, resume, n_resume, s, t)
                    elif kind == state.BATCHER:
                        n_resume = go_on(net, run, tokens, resume, n_resume, s, t)
                    elif kind == state.TURN:
                        n_resume = next_turn(net, run, tokens, resume, n_resume, s, t)
                    elif kind == state.ROUNDS:
                        station[s, state.TOUCHED] = 0
                        if station[s, state.PROGRAM_END] < 0 and station[s, state.HEAD] >= 0:
                            n_heap = start_round(net, run, tokens, room, n_heap, s, t)
                    else:
                        look = next_program(net, run, s, t)
                        if look >= 0:
                            n_heap = put_seldom(room, n_heap, t, look, -1 - s)
                elif s == chooser:
                    choose_member(
                        net.child,
                        net.alt_program,
                        net.alt_member,
                        run.member_load,
                        run.alts,
                        tokens,
                        k,
                    )
                    resume[n_resume] = k
                    n_resume += 1
                else:
                    # The source: user k submits.
                    due = paced(net, run, k, t)
                    if due < 0:
                        n_free -= 1
                        c = free[n_free]
                        due = submit(net, run, tokens, c, k, next_request, t)
                        next_request += 1
                        live += 1
                        resume[n_resume] = c
                        n_resume += 1
                    if due > t:
                        n_heap = put_seldom(room, n_heap, t, due, first_timer - k)
                    elif due >= 0:
                        must_sort = True
                        pending[n_pending, state.P_PLACE] = source
                        pending[n_pending, state.P_ORDER] = k
                        pending[n_pending, state.P_TOKEN] = k
                        n_pending += 1
            sources = n_resume
        if mid:
            status = state.GROW
            break

    run.scalars[state.NOW] = now
    run.scalars[state.N_HEAP] = n_heap
    run.scalars[state.N_FREE] = n_free
    run.scalars[state.NEXT_REQUEST] = next_request
    run.scalars[state.LIVE] = live
    run.scalars[state.N_RECORDS] = n_records
    run.scalars[state.DONE] = done
    run.scalars[state.MID] = mid
    run.scalars[state.N_RESUME] = n_resume
    run.scalars[state.N_PENDING] = n_pending
    run.scalars[state.SOURCES] = sources
    run.scalars[state.MUST_SORT] = must_sort
    return status


@entry
def advance(net, run, room, target, until):
    """See `_advance`."""
    return _advance(net, run, room, target, until)
