"""The kernel's heaps against a sorted list."""

from __future__ import annotations

import numpy as np
import pytest

from nvmesim.engine.kernel_heap import (
    heap_insert,
    heap_pop,
    heap_push,
    heap_replace,
    heap_second,
    replace_first,
    sort_pending,
)
from nvmesim.engine.kernel_state import FOREVER

ROOM = 90


def empty() -> np.ndarray:
    heap = np.zeros((ROOM, 2), np.int64)
    heap[:, 0] = FOREVER
    return heap


def check(heap: np.ndarray, expected: list[tuple[int, int]]) -> None:
    """The entries are those *expected*, none is before its parent, FOREVER is behind them."""
    n = len(expected)
    assert sorted(map(tuple, heap[:n].tolist())) == sorted(expected)
    times = heap[:, 0]
    for i in range(1, n):
        assert times[(i - 1) // 4] <= times[i]
    assert (times[n:] == FOREVER).all()
    if n:
        assert times[0] == min(t for t, _ in expected)
    if n > 1:
        assert heap_second(heap) == sorted(t for t, _ in expected)[1]


@pytest.mark.parametrize("most", [3, 30, 10**12])
def test_events_come_in_order(most: int) -> None:
    """Pushes, replacements and pops in any order; *most* 3: nearly all are ties."""
    rng = np.random.default_rng(most)
    heap, held = empty(), []
    for number in range(600):
        t = int(rng.integers(0, most))
        what = rng.integers(0, 4)
        if what < 2 and len(held) < ROOM - 6:
            heap_push(heap, len(held), t, number)
            held.append((t, number))
        elif held:
            held.remove((int(heap[0, 0]), int(heap[0, 1])))
            if what == 2:
                heap_replace(heap, len(held) + 1, t, number)
                held.append((t, number))
            else:
                heap_pop(heap, len(held) + 1)
        check(heap, held)


def test_a_hole_at_the_root_takes_the_next_event() -> None:
    heap = empty()
    n = heap_insert(heap, 0, False, 5, 1)
    n = heap_insert(heap, n, False, 3, 2)
    assert n == 2
    assert heap_insert(heap, n, True, 9, 3) == 2
    check(heap, [(5, 1), (9, 3)])


def test_the_last_event_leaves_nothing() -> None:
    heap = empty()
    heap_push(heap, 0, 7, 1)
    heap_pop(heap, 1)
    check(heap, [])


def test_times_up_to_the_end_of_the_simulation() -> None:
    heap = empty()
    for number, t in enumerate((FOREVER - 1, 0, FOREVER - 1)):
        heap_push(heap, number, t, number)
    check(heap, [(FOREVER - 1, 0), (0, 1), (FOREVER - 1, 2)])


@pytest.mark.parametrize("n", [1, 2, 4, 5, 6, 21, 64])
def test_servers_of_a_pool_by_when_they_are_free(n: int) -> None:
    """The pool lies among others: what is before and behind it stays."""
    rng = np.random.default_rng(n)
    base = 7
    free = np.full(base + n + 12, -1, np.int64)
    free[base : base + n + 4] = FOREVER
    free[base : base + n] = 0
    held = [0] * n
    for _ in range(40 * n):
        value = int(rng.integers(0, 50))
        held.remove(int(free[base]))
        held.append(value)
        replace_first(free, base, n, value)
        assert sorted(free[base : base + n].tolist()) == sorted(held)
        assert free[base] == min(held)
        assert (free[:base] == -1).all()
        assert (free[base + n : base + n + 4] == FOREVER).all()
        assert (free[base + n + 4 :] == -1).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 20, 61])
def test_arrivals_of_an_instant_by_station_and_order(n: int) -> None:
    rng = np.random.default_rng(n)
    for most in (2, 1000):
        pending = rng.integers(0, most, (n + 3, 4)).astype(np.int64)
        pending[:, 1] = rng.permutation(n + 3)
        before = pending.copy()
        sort_pending(pending, n)
        rows = [tuple(row) for row in before[:n, :3].tolist()]
        assert [tuple(row) for row in pending[:n, :3].tolist()] == sorted(rows)
        assert (pending[n:] == before[n:]).all()
