"""The compiled engine's loop: one function, no objects, resumable between instants.

`contract.py` defines the order of events; the comments here say where each rule lives. The state is
arrays that the caller keeps (`kernel_state`): `EngineRun` never grows, `Room` grows with what is
outstanding (`compiled.CompiledEngine._grow`). Events wait in a wheel or a heap (`kernel_wheel`).

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
references at every event, ten times slower; helpers are inlined by LLVM (`kernel_jit.inlined`),
so that files can be small; indices are unsigned where it is hot; what belongs together is one row,
whose length the compiler knows (`kernel_state.ROWS`).
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from nvmesim.engine.compiled.kernel_batches import (
    admit_batched,
    close,
    go_on,
    join,
    next_turn,
    stay,
)
from nvmesim.engine.compiled.kernel_draws import below, mix
from nvmesim.engine.compiled.kernel_heap import heap_pop, sort_pending
from nvmesim.engine.compiled.kernel_jit import entry, part
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
from nvmesim.engine.compiled.kernel_state import (
    ACQUIRE,
    ACQUIRE_THREAD,
    ANSWER,
    ANSWERED,
    BACKLOG,
    BATCHER,
    CHECKED,
    CLOSE,
    DESTAGE,
    DIE_GATE,
    DONE,
    END,
    FIRST_NODE,
    FOREVER,
    FORK,
    G_MEASURED,
    G_OPEN,
    G_THINK,
    GATE,
    GROW,
    HEAD,
    IDLE_SINCE,
    INSIDE,
    INSIDE_OF,
    ISSUE,
    JOIN,
    KEY,
    KIND,
    LEAVE,
    LEFT,
    LIVE,
    MARK,
    MID,
    MUST_SORT,
    N_FREE,
    N_HEAP,
    N_PENDING,
    N_RECORDS,
    N_RESUME,
    NEXT_REQUEST,
    NOW,
    ORDER,
    P_ORDER,
    P_PLACE,
    P_TOKEN,
    PARENT,
    PC,
    PLAN,
    PROGRAM_END,
    RELEASE,
    ROOT,
    ROUNDS,
    SOURCES,
    SPLIT,
    SUBMIT,
    T_GATE,
    TOUCHED,
    TURN,
    U_GROUP,
    USER,
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
from nvmesim.engine.compiled.kernel_wheel import earliest, first_slot, put, put_seldom, take
from nvmesim.engine.contract import PURPOSE_DESTAGE
from nvmesim.network.network import (
    O_BANK,
    O_CODE,
    O_DIES,
    O_FURTHER,
    O_GATE,
    O_PHASE,
    O_PROGRAM,
    O_PROGRAMS,
    O_SLOTS,
    O_STAYS,
    O_TURN,
    O_UNITS,
)


@part
def _advance(net, run, room, target, until):
    """Run instants until *target* measured completions, no event, or an event beyond *until*.

    Returns a `contract.Status`, or GROW: growing is up to the caller (see above).
    """
    tokens, heap, free = room.tokens, room.heap, room.free
    pending, resume = room.pending, room.resume
    ops = net.ops
    station = run.station
    n_stations = station.shape[0]
    chooser = n_stations
    source = n_stations + 1
    first_timer = -1 - n_stations
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
    first_node = room.wheel[FIRST_NODE]
    soon = np.int64(FOREVER)
    slot = np.int64(-1)
    capacity = tokens.shape[0]
    burst = resume.shape[0] - capacity  # most children of one operation, see compiled.py
    done = run.scalars[DONE]
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
                status = 2 if t < FOREVER else 1
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
                inside = tokens[u, INSIDE_OF]
                if inside >= 0:
                    station[uint64(inside), INSIDE] -= 1
                    tokens[u, INSIDE_OF] = -1
                resume[n_resume] = e
                n_resume += 1
            elif e > first_timer:
                s = -1 - e
                station[s, CHECKED] = 0
                end = station[s, PROGRAM_END]
                if end > t:  # reads suspended it meanwhile
                    n_heap = put_seldom(room, n_heap, t, end, e)
                    continue
                must_sort = True
                if end >= 0:
                    station[s, PROGRAM_END] = -1
                    gate = net.die[s, DIE_GATE]
                    if gate >= 0:
                        release(run, gate, 1, t)
                        if station[gate, HEAD] >= 0:
                            n_pending = touch(station, pending, n_pending, gate)
                n_pending = touch(station, pending, n_pending, s)
            else:
                pending[n_pending, P_PLACE] = source
                pending[n_pending, P_ORDER] = first_timer - e
                pending[n_pending, P_TOKEN] = first_timer - e
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
                    pc = uint64(tokens[u, PC])
                    code = ops[pc, O_CODE]
                    if code <= ACQUIRE_THREAD and code != END and code != RELEASE:
                        # A station or gate.
                        s = place_of(net, tokens, k, pc)
                        if sources == 1:
                            if code < ACQUIRE:
                                if station[uint64(s), KIND] < ROUNDS:
                                    goes_on = serve_chain(net, run, tokens, k, s, t)
                                    n_heap = put(room, n_heap, t, goes_on, k)
                                    break
                            elif (
                                n_resume == 0
                                and n_pending == 0
                                and station[uint64(s), KIND] == GATE
                            ):
                                if admit(net, run, tokens, k, s, t):
                                    continue
                                break
                        pending[n_pending, P_PLACE] = s
                        pending[n_pending, P_ORDER] = tokens[u, ORDER]
                        pending[n_pending, P_TOKEN] = k
                        n_pending += 1
                        break
                    if code == END:
                        if tokens[u, PARENT] >= 0:
                            last = end_child(run, tokens, k)
                            free[n_free] = k
                            n_free += 1
                            if not last:
                                break
                            k = tokens[u, PARENT]
                            continue
                        user = tokens[u, USER]
                        group = net.user[user, U_GROUP]
                        live -= 1
                        if tokens[u, SUBMIT] >= 0:
                            done += answer(net, run, tokens, k, t, n_records)
                            n_records += recorded
                        elif net.group[group, G_MEASURED] == 1:
                            run.syncs[bin_of(t - tokens[u, ISSUE])] += 1
                        free[n_free] = k
                        n_free += 1
                        if net.group[group, G_OPEN] == 0:
                            think = net.group[group, G_THINK]
                            if think > 0:
                                n_heap = put_seldom(room, n_heap, t, t + think, first_timer - user)
                            else:
                                pending[n_pending, P_PLACE] = source
                                pending[n_pending, P_ORDER] = user
                                pending[n_pending, P_TOKEN] = user
                                n_pending += 1
                        break
                    tokens[u, PC] = np.int64(pc) + 1
                    if code == FORK:
                        root = tokens[u, ROOT]
                        plan = uint64(tokens[uint64(root), PLAN])
                        phase = uint64(net.plan_phase[plan] + ops[pc, O_PHASE])
                        first = net.phase_child[phase]
                        n = net.phase_child[phase + uint64(1)] - first
                        if n == 0:
                            continue
                        tokens[u, LEFT] = n
                        ordinal = first - net.phase_child[uint64(net.plan_phase[plan])] + n
                        for child in range(first + n - 1, first - 1, -1):
                            n_free -= 1
                            c = free[n_free]
                            if begin_child(net, run, tokens, c, k, root, child, ordinal):
                                resume[n_resume] = c
                                n_resume += 1
                            else:
                                must_sort = True
                                pending[n_pending, P_PLACE] = chooser
                                pending[n_pending, P_ORDER] = tokens[uint64(c), ORDER]
                                pending[n_pending, P_TOKEN] = c
                                n_pending += 1
                            ordinal -= 1
                        break
                    if code == SPLIT:
                        n = ops[pc, O_UNITS]
                        tokens[u, LEFT] = n
                        for unit in range(n, 0, -1):
                            n_free -= 1
                            c = free[n_free]
                            begin_unit(tokens, c, k, unit, ops[pc, O_PROGRAM])
                            resume[n_resume] = c
                            n_resume += 1
                        break
                    if code == DESTAGE:
                        for unit in range(ops[pc, O_PROGRAMS]):
                            bits = mix(mix(tokens[u, KEY], PURPOSE_DESTAGE), unit)
                            s = ops[pc, O_DIES] + below(bits, ops[pc, O_BANK])
                            station[s, BACKLOG] += 1
                            must_sort = True
                            n_pending = touch(station, pending, n_pending, s)
                    elif code == MARK:
                        tokens[uint64(tokens[u, ROOT]), ISSUE] = t
                    elif code == ANSWER:
                        done += answer(net, run, tokens, k, t, n_records)
                        n_records += recorded
                        tokens[u, SUBMIT] = ANSWERED
                        tokens[u, ISSUE] = t
                    elif code == JOIN:
                        tokens[u, PC] = np.int64(pc)
                        pending[n_pending, P_PLACE] = ops[pc, O_TURN]
                        pending[n_pending, P_ORDER] = tokens[u, ORDER]
                        pending[n_pending, P_TOKEN] = k
                        n_pending += 1
                        break
                    elif code == CLOSE:
                        close(station, ops[pc, O_TURN], t)
                    elif code == LEAVE:
                        release(run, ops[pc, O_TURN], 1, t)
                        tokens[u, PC] += ops[pc, O_FURTHER]
                        if station[ops[pc, O_TURN], HEAD] >= 0:
                            must_sort = True
                            n_pending = touch(station, pending, n_pending, ops[pc, O_TURN])
                    else:  # RELEASE, RELEASE_THREAD
                        if code == RELEASE:
                            gate = ops[pc, O_GATE]
                            amount = ops[pc, O_SLOTS]
                        else:
                            gate = net.thread[thread_of(net, tokens, k), T_GATE]
                            amount = np.int64(1)
                        v = uint64(gate)
                        release(run, v, amount, t)
                        station[v, IDLE_SINCE] = t
                        works = station[v, KIND] == BATCHER
                        if works or station[v, HEAD] >= 0:
                            must_sort = True
                            n_pending = touch(station, pending, n_pending, gate)
                            if works and code != RELEASE and ops[pc, O_STAYS] == 1:
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
                s = pending[i, P_PLACE]
                k = pending[i, P_TOKEN]
                if s < n_stations:
                    kind = station[uint64(s), KIND]
                    if k >= 0:
                        if kind == GATE:
                            if admit(net, run, tokens, k, s, t):
                                resume[n_resume] = k
                                n_resume += 1
                            continue
                        if kind == BATCHER:
                            if admit_batched(net, run, tokens, k, s, t):
                                resume[n_resume] = k
                                n_resume += 1
                            continue
                        if kind == TURN:
                            if join(net, run, tokens, k, s, t):
                                resume[n_resume] = k
                                n_resume += 1
                            continue
                        goes_on = serve_chain(net, run, tokens, k, s, t)
                        if goes_on >= 0:
                            n_heap = put_seldom(room, n_heap, t, goes_on, k)
                        elif station[uint64(s), PROGRAM_END] < 0:
                            must_sort = True
                            n_pending = touch(station, pending, n_pending, s)
                    elif kind == GATE:
                        n_resume = grant(net, run, tokens, resume, n_resume, s, t)
                    elif kind == BATCHER:
                        n_resume = go_on(net, run, tokens, resume, n_resume, s, t)
                    elif kind == TURN:
                        n_resume = next_turn(net, run, tokens, resume, n_resume, s, t)
                    elif kind == ROUNDS:
                        station[s, TOUCHED] = 0
                        if station[s, PROGRAM_END] < 0 and station[s, HEAD] >= 0:
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
                        pending[n_pending, P_PLACE] = source
                        pending[n_pending, P_ORDER] = k
                        pending[n_pending, P_TOKEN] = k
                        n_pending += 1
            sources = n_resume
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


@entry
def advance(net, run, room, target, until):
    """See `_advance`."""
    return _advance(net, run, room, target, until)
