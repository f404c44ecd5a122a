"""Events by time: a timing wheel for those that come soon, a heap for the others.

A slot of the wheel holds the events of 2**shift ps, as a list in no order; a bitmap tells the next
slot that holds any. Slots are counted around: from that of the present instant, `WHEEL_SLOTS` lie
ahead, and what is farther goes on the heap. The next event is the sooner of both structures' first,
so the width of a slot changes nothing but the speed; `compiled` chooses it. Ties need no order
(`contract`, rule 1), so lists need none.

An event is a node of the wheel, by its number: each is waited for once at a time.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import config, uint64
from numba.core import types
from numba.extending import intrinsic

from nvmesim.engine.compiled.kernel_heap import heap_push
from nvmesim.engine.compiled.kernel_jit import compiled, inlined
from nvmesim.engine.compiled.kernel_state import FIRST_NODE, FOREVER, SHIFT, SUMMARY, WHEEL_SLOTS


def _plain_lowest_bit(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1


@intrinsic
def _lowest_bit(_context: Any, _word: Any) -> Any:
    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))  # never asked of 0

    return types.int64(types.int64), code


lowest_bit: Any = _plain_lowest_bit if getattr(config, "DISABLE_JIT", False) else _lowest_bit
"""lowest_bit(word): number of the lowest bit that is set in an int64, which is not 0."""


@inlined
def put(room, n, now, t, e):
    """Wait for event e at t > now; return how many are on the heap, of which there were n."""
    wheel = room.wheel
    shift = wheel[SHIFT]
    place = t >> shift
    if place - (now >> shift) < WHEEL_SLOTS:
        i = uint64(place & (WHEEL_SLOTS - 1))
        node = e + wheel[FIRST_NODE]
        room.node[uint64(node), 0] = t
        room.node[uint64(node), 1] = room.slots[i]
        room.slots[i] = node
        word = i >> uint64(6)
        wheel[word] |= np.int64(1) << np.int64(i & uint64(63))
        wheel[SUMMARY] |= np.int64(1) << np.int64(word)
        return n
    heap_push(room.heap, n, t, e)
    return n + 1


@compiled
def put_seldom(room, n, now, t, e):
    """`put`, where a call costs less than its text."""
    return put(room, n, now, t, e)


@inlined
def first_slot(wheel, now):
    """Return the slot of the wheel's next events, -1 if there are none."""
    here = (now >> wheel[SHIFT]) & (WHEEL_SLOTS - 1)
    word = here >> 6
    bits = wheel[uint64(word)] & (np.int64(-1) << (here & 63))
    if bits == 0:
        words = wheel[SUMMARY] & (np.int64(-2) << word)
        if words == 0:  # around
            words = wheel[SUMMARY]
            if words == 0:
                return np.int64(-1)
        word = lowest_bit(words)
        bits = wheel[uint64(word)]
    return (word << 6) + lowest_bit(bits)


@inlined
def earliest(room, slot):
    """Return the earliest time in a *slot*, FOREVER for none."""
    if slot < 0:
        return np.int64(FOREVER)
    k = room.slots[uint64(slot)]
    t = room.node[uint64(k), 0]
    k = room.node[uint64(k), 1]
    while k >= 0:
        t = min(t, room.node[uint64(k), 0])
        k = room.node[uint64(k), 1]
    return t


@inlined
def take(room, slot, t):
    """Take the events of time *t* out of a *slot*; return the first node of their list."""
    wheel, node = room.wheel, room.node
    i = uint64(slot)
    due = np.int64(-1)
    left = np.int64(-1)
    k = room.slots[i]
    if node[uint64(k), 1] < 0:  # most often it is the only one
        due = k
        k = np.int64(-1)
    while k >= 0:
        after = node[uint64(k), 1]
        if node[uint64(k), 0] == t:
            node[uint64(k), 1] = due
            due = k
        else:
            node[uint64(k), 1] = left
            left = k
        k = after
    room.slots[i] = left
    if left < 0:
        word = i >> uint64(6)
        bits = wheel[word] & ~(np.int64(1) << np.int64(i & uint64(63)))
        wheel[word] = bits
        if bits == 0:
            wheel[SUMMARY] &= ~(np.int64(1) << np.int64(word))
    return due
