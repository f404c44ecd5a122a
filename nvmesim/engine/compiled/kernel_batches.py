"""Gates where one token works for several: a thread's batches, and turns.

The kernel's twins of `reference.shared_gates`.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from nvmesim.engine.compiled import kernel_state as state
from nvmesim.engine.compiled.kernel_draws import compiled, inlined
from nvmesim.engine.compiled.kernel_stations import enqueue, interrupt, seize, woken
from nvmesim.network import network


@compiled
def admit_batched(net, run, tokens, k, s, t):
    """Token *k* arrives at batcher *s*: return whether it passes; else it waits."""
    station = run.station
    v, u = uint64(s), uint64(k)
    pc = uint64(tokens[u, state.PC])
    front = net.ops[pc, network.O_FRONT] == 1
    run.acc[v, state.A_VISITS] += 1
    if net.ops[pc, network.O_HANDLER] > 0:
        interrupt(net, run, tokens, u, pc, t)
    idle = (
        station[v, state.SLOTS] > 0
        and station[v, state.HEAD] < 0
        and station[v, state.FRONT_HEAD] < 0
    )
    if idle and (front or station[v, state.STAYING] < 0):
        if not front:
            tokens[u, state.SETUP] += net.die[v, state.BATCH_BASE]
        seize(run, v, np.int64(1), t)
        if net.ops[pc, network.O_WAKE] > 0:
            slept = t - station[v, state.IDLE_SINCE]
            tokens[u, state.SETUP] += woken(
                net.ops[pc, network.O_WAKE], slept, net.ops[pc, network.O_HALF]
            )
        tokens[u, state.PC] = np.int64(pc) + 1
        return True
    tokens[u, state.ARRIVED] = t
    if not front:
        station[v, state.N_WAITING] += 1
        enqueue(station, tokens, v, k)
        return False
    tokens[u, state.NEXT] = -1
    if station[v, state.FRONT_HEAD] < 0:
        station[v, state.FRONT_HEAD] = k
    else:
        tokens[uint64(station[v, state.FRONT_TAIL]), state.NEXT] = k
    station[v, state.FRONT_TAIL] = k
    return False


@compiled
def stay(run, tokens, k, s, t):
    """Keep token *k* at batcher *s* until the doorbell."""
    station = run.station
    tokens[k, state.ARRIVED] = t
    tokens[k, state.NEXT] = station[s, state.STAYING]
    station[s, state.STAYING] = k


@compiled
def go_on(net, run, tokens, resume, n_resume, s, t):
    """Let thread *s* go on: its batch, what it submits, the doorbell, the next batch."""
    station = run.station
    station[s, state.TOUCHED] = 0
    if station[s, state.SLOTS] == 0:
        return n_resume
    column = state.HEAD
    if station[s, state.BATCH_LEFT] == 0:
        if station[s, state.FRONT_HEAD] >= 0:
            column = state.FRONT_HEAD
        else:
            k = station[s, state.STAYING]
            station[s, state.STAYING] = -1
            while k >= 0:
                run.acc[s, state.A_WAIT] += t - tokens[k, state.ARRIVED]
                resume[n_resume] = k
                n_resume += 1
                k = tokens[k, state.NEXT]
            if station[s, state.HEAD] < 0:
                return n_resume
            station[s, state.BATCH_LEFT] = min(
                net.die[s, state.BATCH_MOST], station[s, state.N_WAITING]
            )
            tokens[station[s, state.HEAD], state.SETUP] += net.die[s, state.BATCH_BASE]
    if column == state.HEAD:
        station[s, state.BATCH_LEFT] -= 1
        station[s, state.N_WAITING] -= 1
    k = station[s, column]
    station[s, column] = tokens[k, state.NEXT]
    seize(run, s, np.int64(1), t)
    run.acc[s, state.A_WAIT] += t - tokens[k, state.ARRIVED]
    tokens[k, state.PC] += 1
    resume[n_resume] = k
    return n_resume + 1


@inlined
def same_tick(net, run, pc, s, t):
    """True if who came to turn *s* at t, by operation *pc*, did in the tick in which it closed."""
    tick = net.ops[pc, network.O_TICK]
    return tick > 0 and t // tick == run.station[s, state.CLOSED_AT] // tick


@compiled
def join(net, run, tokens, k, s, t):
    """Token *k* arrives at turn *s*: return whether it goes on; else it waits."""
    station = run.station
    pc = tokens[k, state.PC]
    run.acc[s, state.A_VISITS] += 1
    if station[s, state.SLOTS] == 0 or station[s, state.HEAD] >= 0:
        tokens[k, state.ARRIVED] = t
        station[s, state.N_WAITING] += 1
        enqueue(station, tokens, s, k)
        return False
    if same_tick(net, run, pc, s, t):
        tokens[k, state.PC] = pc + 1 + net.ops[pc, network.O_ALONE]
    else:
        seize(run, s, np.int64(1), t)
        tokens[k, state.PC] = pc + 1
    return True


@compiled
def close(station, s, t):
    """Make those who wait at turn *s* its members."""
    station[s, state.MEMBERS] = station[s, state.N_WAITING]
    station[s, state.CLOSED_AT] = t


@compiled
def next_turn(net, run, tokens, resume, n_resume, s, t):
    """Let the members of turn *s* go on; of the others the first leads, or all go on alone."""
    station = run.station
    station[s, state.TOUCHED] = 0
    while station[s, state.HEAD] >= 0:
        k = station[s, state.HEAD]
        pc = tokens[k, state.PC]
        further = np.int64(0)
        leads = False
        if station[s, state.MEMBERS] > 0:
            station[s, state.MEMBERS] -= 1
            further = net.ops[pc, network.O_FURTHER]
        elif same_tick(net, run, pc, s, tokens[k, state.ARRIVED]):
            further = net.ops[pc, network.O_ALONE]
        else:
            leads = True
            seize(run, s, np.int64(1), t)
        station[s, state.N_WAITING] -= 1
        station[s, state.HEAD] = tokens[k, state.NEXT]
        run.acc[s, state.A_WAIT] += t - tokens[k, state.ARRIVED]
        tokens[k, state.PC] = pc + 1 + further
        resume[n_resume] = k
        n_resume += 1
        if leads:
            break
    return n_resume
