"""Heaps of the kernel: far events by time, and the servers of a pool by when they are free.

Both are 4-ary. Behind their entries they are FOREVER, so that a node always has four children to
compare: selects instead of branches, which a processor cannot predict here.

An event is two words, (time, number), so that the four children of a node are one cache line
(`compiled.aligned` puts entry 1 at the start of one). Ties need no order (`contract`, rule 1).
"""

from __future__ import annotations

from numba import uint64

from nvmesim.engine.compiled.kernel_jit import compiled, inlined
from nvmesim.engine.compiled.kernel_state import FOREVER


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
    heap[n, 0] = FOREVER
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
