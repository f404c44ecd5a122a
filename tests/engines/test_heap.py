"""The kernel's heaps and its wheel against a sorted list."""

import numpy as np
import pytest

from nvmesim.engine.compiled.kernel_draws import compiled
from nvmesim.engine.compiled.kernel_events import (
    earliest,
    first_slot,
    heap_pop,
    heap_push,
    heap_replace,
    lowest_bit,
    put_seldom,
    replace_first,
    sort_pending,
    take,
)
from nvmesim.engine.compiled.kernel_state import (
    FIRST_NODE,
    FOREVER,
    SHIFT,
    SUMMARY,
    WHEEL,
    WHEEL_SLOTS,
    Room,
)

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


def test_the_last_event_and_the_end_of_the_simulation() -> None:
    heap = empty()
    heap_push(heap, 0, 7, 1)
    heap_pop(heap, 1)
    check(heap, [])
    heap = empty()
    for number, t in enumerate((FOREVER - 1, 0, FOREVER - 1)):
        heap_push(heap, number, t, number)
    check(heap, [(FOREVER - 1, 0), (0, 1), (FOREVER - 1, 2)])
    for i in range(64):
        assert bit(np.int64(-1) << i) == i
        assert bit(np.int64(1) << i) == i


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


def wheel(events: int, shift: int) -> Room:
    """Room for *events*, of which five have negative numbers."""
    none = np.zeros(0, np.int64)
    slots, words = np.full(WHEEL_SLOTS, -1, np.int64), np.zeros(WHEEL, np.int64)
    words[SHIFT], words[FIRST_NODE] = shift, 5
    node = np.zeros((events + 5, 2), np.int64)
    return Room(none, empty(), none, none[:, None], none, slots, words, node)


@compiled
def next_slot(words, now):  # type: ignore[no-untyped-def]
    return first_slot(words, now)


@compiled
def next_time(room, slot):  # type: ignore[no-untyped-def]
    return earliest(room, slot)


@compiled
def due_at(room, slot, t):  # type: ignore[no-untyped-def]
    return take(room, slot, t)


@compiled
def bit(word):  # type: ignore[no-untyped-def]
    return lowest_bit(word)


@pytest.mark.parametrize("shift", [0, 2, 9])
@pytest.mark.parametrize("reach", [3, 200, 30_000])
def test_events_of_the_wheel_come_in_order(shift: int, reach: int) -> None:
    """Events wait for up to *reach* ps; most far ones go to the heap where slots are narrow."""
    rng = np.random.default_rng(reach + shift)
    room, n, now = wheel(60, shift), 0, 0
    held: dict[int, int] = {}
    far = 0
    for _ in range(4000):
        for event in rng.integers(-5, 60, 2).tolist():
            if event not in held:
                held[event] = now + 1 + int(rng.integers(0, reach))
                n = put_seldom(room, n, now, held[event], event)
        far = max(far, n)
        slot = next_slot(room.wheel, now)
        soon = next_time(room, slot)
        t = min(soon, room.heap[0, 0])
        assert t == min(held.values())
        expected = sorted(event for event, at in held.items() if at == t)
        found = []
        k = due_at(room, slot, t) if soon == t else -1
        while k >= 0:
            found.append(k - 5)
            k = int(room.node[k, 1])
        while room.heap[0, 0] == t:
            found.append(int(room.heap[0, 1]))
            heap_pop(room.heap, n)
            n -= 1
        assert sorted(found) == expected
        for event in expected:
            del held[event]
        now = t
    assert (far > 0) == (reach > WHEEL_SLOTS << shift)
    words = room.wheel[:SUMMARY]
    assert [w for w in range(SUMMARY) if words[w]] == [
        w for w in range(SUMMARY) if room.wheel[SUMMARY] >> w & 1
    ]
