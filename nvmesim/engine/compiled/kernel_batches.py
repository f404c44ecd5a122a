"""Gates where one token works for several: a thread's batches, and turns.

The kernel's twins of `reference.batcher.Batcher` and `reference.stations.Turn`.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from nvmesim.engine.compiled.kernel_jit import compiled, inlined
from nvmesim.engine.compiled.kernel_state import (
    A_VISITS,
    A_WAIT,
    ARRIVED,
    BATCH_BASE,
    BATCH_LEFT,
    BATCH_MOST,
    CLOSED_AT,
    FRONT_HEAD,
    FRONT_TAIL,
    HEAD,
    IDLE_SINCE,
    MEMBERS,
    N_WAITING,
    NEXT,
    PC,
    SETUP,
    SLOTS,
    STAYING,
    TOUCHED,
)
from nvmesim.engine.compiled.kernel_stations import enqueue, interrupt, seize, woken
from nvmesim.network.network import O_ALONE, O_FRONT, O_FURTHER, O_HALF, O_HANDLER, O_TICK, O_WAKE


@compiled
def admit_batched(net, run, tokens, k, s, t):
    """Token *k* arrives at batcher *s*: return whether it passes; else it waits."""
    station = run.station
    v, u = uint64(s), uint64(k)
    pc = uint64(tokens[u, PC])
    front = net.ops[pc, O_FRONT] == 1
    run.acc[v, A_VISITS] += 1
    if net.ops[pc, O_HANDLER] > 0:
        interrupt(net, run, tokens, u, pc, t)
    idle = station[v, SLOTS] > 0 and station[v, HEAD] < 0 and station[v, FRONT_HEAD] < 0
    if idle and (front or station[v, STAYING] < 0):
        if not front:
            tokens[u, SETUP] += net.die[v, BATCH_BASE]
        seize(run, v, np.int64(1), t)
        if net.ops[pc, O_WAKE] > 0:
            slept = t - station[v, IDLE_SINCE]
            tokens[u, SETUP] += woken(net.ops[pc, O_WAKE], slept, net.ops[pc, O_HALF])
        tokens[u, PC] = np.int64(pc) + 1
        return True
    tokens[u, ARRIVED] = t
    if not front:
        station[v, N_WAITING] += 1
        enqueue(station, tokens, v, k)
        return False
    tokens[u, NEXT] = -1
    if station[v, FRONT_HEAD] < 0:
        station[v, FRONT_HEAD] = k
    else:
        tokens[uint64(station[v, FRONT_TAIL]), NEXT] = k
    station[v, FRONT_TAIL] = k
    return False


@compiled
def stay(run, tokens, k, s, t):
    """Keep token *k* at batcher *s* until the doorbell."""
    station = run.station
    tokens[k, ARRIVED] = t
    tokens[k, NEXT] = station[s, STAYING]
    station[s, STAYING] = k


@compiled
def go_on(net, run, tokens, resume, n_resume, s, t):
    """Let thread *s* go on: its batch, what it submits, the doorbell, the next batch."""
    station = run.station
    station[s, TOUCHED] = 0
    if station[s, SLOTS] == 0:
        return n_resume
    column = HEAD
    if station[s, BATCH_LEFT] == 0:
        if station[s, FRONT_HEAD] >= 0:
            column = FRONT_HEAD
        else:
            k = station[s, STAYING]
            station[s, STAYING] = -1
            while k >= 0:
                run.acc[s, A_WAIT] += t - tokens[k, ARRIVED]
                resume[n_resume] = k
                n_resume += 1
                k = tokens[k, NEXT]
            if station[s, HEAD] < 0:
                return n_resume
            station[s, BATCH_LEFT] = min(net.die[s, BATCH_MOST], station[s, N_WAITING])
            tokens[station[s, HEAD], SETUP] += net.die[s, BATCH_BASE]
    if column == HEAD:
        station[s, BATCH_LEFT] -= 1
        station[s, N_WAITING] -= 1
    k = station[s, column]
    station[s, column] = tokens[k, NEXT]
    seize(run, s, np.int64(1), t)
    run.acc[s, A_WAIT] += t - tokens[k, ARRIVED]
    tokens[k, PC] += 1
    resume[n_resume] = k
    return n_resume + 1


@inlined
def same_tick(net, run, pc, s, t):
    """True if who came to turn *s* at t, by operation *pc*, did in the tick in which it closed."""
    tick = net.ops[pc, O_TICK]
    return tick > 0 and t // tick == run.station[s, CLOSED_AT] // tick


@compiled
def join(net, run, tokens, k, s, t):
    """Token *k* arrives at turn *s*: return whether it goes on; else it waits."""
    station = run.station
    pc = tokens[k, PC]
    run.acc[s, A_VISITS] += 1
    if station[s, SLOTS] == 0 or station[s, HEAD] >= 0:
        tokens[k, ARRIVED] = t
        station[s, N_WAITING] += 1
        enqueue(station, tokens, s, k)
        return False
    if same_tick(net, run, pc, s, t):
        tokens[k, PC] = pc + 1 + net.ops[pc, O_ALONE]
    else:
        seize(run, s, np.int64(1), t)
        tokens[k, PC] = pc + 1
    return True


@compiled
def close(station, s, t):
    """Make those who wait at turn *s* its members."""
    station[s, MEMBERS] = station[s, N_WAITING]
    station[s, CLOSED_AT] = t


@compiled
def next_turn(net, run, tokens, resume, n_resume, s, t):
    """Let the members of turn *s* go on; of the others the first leads, or all go on alone."""
    station = run.station
    station[s, TOUCHED] = 0
    while station[s, HEAD] >= 0:
        k = station[s, HEAD]
        pc = tokens[k, PC]
        further = np.int64(0)
        leads = False
        if station[s, MEMBERS] > 0:
            station[s, MEMBERS] -= 1
            further = net.ops[pc, O_FURTHER]
        elif same_tick(net, run, pc, s, tokens[k, ARRIVED]):
            further = net.ops[pc, O_ALONE]
        else:
            leads = True
            seize(run, s, np.int64(1), t)
        station[s, N_WAITING] -= 1
        station[s, HEAD] = tokens[k, NEXT]
        run.acc[s, A_WAIT] += t - tokens[k, ARRIVED]
        tokens[k, PC] = pc + 1 + further
        resume[n_resume] = k
        n_resume += 1
        if leads:
            break
    return n_resume
