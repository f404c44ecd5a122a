"""Events by time: a timing wheel for those that come soon, a heap for the others.

A slot of the wheel holds the events of 2**shift ps, as a list in no order; a bitmap tells the next
slot that holds any. Slots are counted around: from that of the present instant, `WHEEL_SLOTS` lie
ahead, and what is farther goes on the heap. The next event is the sooner of both structures' first,
so the width of a slot changes nothing but the speed; `compiled` chooses it. Ties need no order
(`contract`, rule 1), so lists need none. An event is a node of the wheel, by its number: each is
waited for once at a time.

Heaps, of events and of the servers of a pool by when they are free, are 4-ary. Behind their entries
they are FOREVER, so that a node always has four children to compare: selects instead of branches,
which a processor cannot predict here. An event is two words, (time, number), so that the four
children of a node are one cache line (`engine.aligned` puts entry 1 at the start of one).
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import config, uint64
from numba.core import types
from numba.extending import intrinsic

from nvmesim.engine.compiled import kernel_state as state
from nvmesim.engine.compiled.kernel_draws import compiled, inlined


@inlined
def least_of_four(first, second, third, fourth):
    """Return which is the least (0 to 3), and the least."""
    low = min(first, second)
    high = min(third, fourth)
    which = uint64(2) + uint64(fourth < third) if high < low else uint64(second < first)
    return which, min(low, high)


@inlined
def heap_push(heap, n, t, e):
    """Push (t, e) on a heap of n events."""
    i = uint64(n)
    while i > uint64(0):
        up = (i - uint64(1)) >> uint64(2)
        if heap[up, 0] <= t:
            break
        heap[i, 0] = heap[up, 0]
        heap[i, 1] = heap[up, 1]
        i = up
    heap[i, 0] = t
    heap[i, 1] = e


@inlined
def heap_replace(heap, n, t, e):
    """Replace the root of a heap of n events by (t, e)."""
    i = uint64(0)
    size = uint64(n)
    while True:
        child = (i << uint64(2)) + uint64(1)
        if child >= size:
            break
        best, least = least_of_four(
            heap[child, 0], heap[child + uint64(1), 0],
            heap[child + uint64(2), 0], heap[child + uint64(3), 0],
        )  # fmt: skip
        if least >= t:
            break
        best += child
        heap[i, 0] = least
        heap[i, 1] = heap[best, 1]
        i = best
    heap[i, 0] = t
    heap[i, 1] = e


@inlined
def heap_pop(heap, n):
    """Remove the root of a heap of n events."""
    n -= 1
    t = heap[n, 0]
    heap[n, 0] = state.FOREVER
    if n > 0:
        heap_replace(heap, n, t, heap[n, 1])


@inlined
def replace_first(free, base, n, value):
    """Replace the least of the 4-ary heap free[base : base + n] by *value*."""
    root = uint64(base)
    size = uint64(n)
    i = uint64(0)
    while True:
        child = (i << uint64(2)) + uint64(1)
        if child >= size:
            break
        at = root + child
        best, least = least_of_four(
            free[at], free[at + uint64(1)], free[at + uint64(2)], free[at + uint64(3)]
        )
        if least >= value:
            break
        free[root + i] = least
        i = child + best
    free[root + i] = value


@compiled
def sort_pending(pending, n):
    """Sort pending[:n] by (station, order): rule 2. Heap sort, so no fan-out is quadratic."""
    for start in range((n - 2) // 2, -1, -1):
        _sift(pending, start, n)
    for end in range(n - 1, 0, -1):
        for f in range(3):
            pending[0, f], pending[end, f] = pending[end, f], pending[0, f]
        _sift(pending, 0, end)


@compiled
def _sift(pending, root, n):
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
def _before(pending, i, j):
    if pending[i, 0] != pending[j, 0]:
        return pending[i, 0] < pending[j, 0]
    return pending[i, 1] < pending[j, 1]


# The wheel.


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
    shift = wheel[state.SHIFT]
    place = t >> shift
    if place - (now >> shift) < state.WHEEL_SLOTS:
        i = uint64(place & (state.WHEEL_SLOTS - 1))
        node = e + wheel[state.FIRST_NODE]
        room.node[uint64(node), 0] = t
        room.node[uint64(node), 1] = room.slots[i]
        room.slots[i] = node
        word = i >> uint64(6)
        wheel[word] |= np.int64(1) << np.int64(i & uint64(63))
        wheel[state.SUMMARY] |= np.int64(1) << np.int64(word)
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
    here = (now >> wheel[state.SHIFT]) & (state.WHEEL_SLOTS - 1)
    word = here >> 6
    bits = wheel[uint64(word)] & (np.int64(-1) << (here & 63))
    if bits == 0:
        words = wheel[state.SUMMARY] & (np.int64(-2) << word)
        if words == 0:  # around
            words = wheel[state.SUMMARY]
            if words == 0:
                return np.int64(-1)
        word = lowest_bit(words)
        bits = wheel[uint64(word)]
    return (word << 6) + lowest_bit(bits)


@inlined
def earliest(room, slot):
    """Return the earliest time in a *slot*, FOREVER for none."""
    if slot < 0:
        return np.int64(state.FOREVER)
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
            wheel[state.SUMMARY] &= ~(np.int64(1) << np.int64(word))
    return due
