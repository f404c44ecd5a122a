"""Pairing of block events against a plain matcher, and what it says of what does not match."""

import re
from collections import defaultdict, deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvmesim.capture.lines import Notes
from nvmesim.capture.requests import (
    OUT_BYTES,
    OUT_COMPLETE,
    OUT_DEPTH,
    OUT_ISSUE,
    OUT_OP,
    READ,
    WRITE,
)
from nvmesim.capture.requests.pairing import Events, Pairer
from nvmesim.errors import CaptureError
from nvmesim.warning import has
from tests.capture.contract import counted

DEVICE = (259 << 20) | 1
S = 10**9
Event = tuple[str, int, int, int]
"""Action, time, sector, sectors."""


def events(rows: list[Event], device: int = DEVICE, op: int = READ) -> Events:
    table = np.array([(t, device, s, n) for _, t, s, n in rows], np.int64).reshape(-1, 4)
    codes = np.array([[ord(a) for a, *_ in rows], [op] * len(rows)], np.uint8)
    return Events(table, codes)


def pair(rows: list[Event]) -> tuple[list[tuple[int, int, int]], list[str]]:
    """(issue, complete, depth) of each request, and the warnings."""
    pairer, notes = Pairer(), Notes()
    out = pairer.feed(events(rows))
    pairer.finish(notes)
    picked = out[[OUT_ISSUE, OUT_COMPLETE, OUT_DEPTH]]
    return [tuple(r) for r in picked.T.tolist()], notes.warnings


def plain(rows: list[Event]) -> list[tuple[int, int, int]]:
    """The rule in plain Python: FIFO per key, the depth counts this request."""
    waiting: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
    flying, result = 0, []
    for action, time, sector, n in rows:
        queue = waiting[sector, n]
        if action == "D" and (not queue or all(t != time for t, _ in queue)):
            flying += 1
            queue.append((time, flying))
        elif action == "C" and queue:
            issue, depth = queue.popleft()
            flying -= 1
            result.append((issue, time, depth))
    return result


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("DDC"), st.integers(0, 3), st.integers(0, 3), st.sampled_from([8, 16])
        ),
        min_size=1,
        max_size=120,
    ),
    st.integers(1, 40),
)
def test_equals_a_plain_matcher_in_batches_of_any_size(steps, size) -> None:
    times = np.cumsum([gap for _, gap, _, _ in steps]).tolist()
    rows = [(a, t, 8 * s, n) for (a, _, s, n), t in zip(steps, times, strict=True)]
    rows = [("D", 0, 999, 8), ("C", 0, 999, 8), *rows]
    pairer = Pairer()
    parts = [pairer.feed(events(rows[i : i + size])) for i in range(0, len(rows), size)]
    out = np.concatenate(parts, axis=1)[[OUT_ISSUE, OUT_COMPLETE, OUT_DEPTH]]
    assert [tuple(r) for r in out.T.tolist()] == plain(rows)


def rows(text: str) -> list[Event]:
    """``D1:0+8 C3:0+8``: action, time, sector, sectors."""
    return [
        (action, int(time), int(sector), int(n))
        for action, time, sector, n in re.findall(r"(\w)(\d+):(\d+)\+(\d+)", text)
    ]


@pytest.mark.parametrize(
    ("text", "found", "said"),
    [
        # the depth is what is outstanding at the issue
        ("D1:0+8 D2:8+8 C3:0+8 D4:16+8 C5:16+8 C9:8+8", [(1, 3, 1), (4, 5, 2), (2, 9, 2)], []),
        # md's bios end with their last completion
        ("Q1:0+32 Q2:64+8 C3:0+8 C4:64+8 C6:16+16 C7:8+8", [(2, 4, 2), (1, 7, 1)], []),
        # queue events of a device with commands do not count
        ("Q1:0+8 D2:0+8 C5:0+8 Q6:8+8 D8:8+8 C9:8+8", [(2, 5, 1), (8, 9, 1)], []),
        (
            "D1:0+8 R5:0+8 D6:0+8 C9:0+8",
            [(6, 9, 1)],
            ["1 requeued commands (timed from their last issue)"],
        ),
        (
            "D1:8+8 C90:0+8 D50:0+8 C95:8+8",
            [(50, 90, 2), (1, 95, 1)],
            ["1 events out of order (sorted by time)"],
        ),
        (
            f"D1:0+8 C9:0+8 D{10**18}:8+8 D20:16+8 C30:16+8",
            [(1, 9, 1), (20, 30, 1)],
            ["1 events at an impossible time (left out)"],
        ),
    ],
    ids=["depth", "bios", "queue events", "requeued", "disorder", "impossible time"],
)
def test_pairs(text: str, found: list[tuple[int, int, int]], said: list[str]) -> None:
    assert pair(rows(text)) == (found, said)


def test_a_completion_of_a_later_batch_is_not_before_its_issue() -> None:
    # the fuzzer's: sorting ends where a batch does
    pairer, notes = Pairer(), Notes()
    pairer.feed(events([("D", 800, 0, 8)]))
    assert pairer.feed(events([("C", 5, 0, 8)])).shape[1] == 0
    pairer.finish(notes)
    assert len(notes.warnings) == 3
    assert notes.warnings[2].startswith("1 events out of order")
    for code in ("no-issue", "no-completion"):
        assert counted(notes.warnings, code) == 1


def test_a_second_trace_in_the_file_goes_on_in_time() -> None:
    first = [("D", 5 * S, 0, 8), ("C", 6 * S, 0, 8), ("D", 7 * S, 8, 8)]
    again = [("D", 0, 0, 8), ("C", S // 2, 0, 8), ("C", S, 8, 8)]
    found, warnings = pair(first + again)
    assert found == [(5 * S, 6 * S, 1), (7 * S, 7 * S + S // 2, 1)]
    assert has(warnings, "clock-steps-back")
    assert counted(warnings, "no-completion") == 1


def test_clock_steps_beyond_a_century_are_refused() -> None:
    late = 2 * 10**18
    with pytest.raises(CaptureError, match="clock steps back by more than a century"):
        pair(rows(f"D{late}:0+8 C{late + 5}:0+8 D0:0+8 C5:0+8" * 4))


def test_many_outstanding_make_the_pool_grow() -> None:
    n = 20_000
    rows = [("D", i, 8 * i, 8) for i in range(n)] + [("C", n + i, 8 * i, 8) for i in range(n)]
    found, warnings = pair(rows)
    assert [r[2] for r in found] == list(range(1, n + 1))
    assert not warnings


def test_memory_is_bounded_when_completions_are_missing(monkeypatch) -> None:
    monkeypatch.setattr("nvmesim.capture.requests.pairing.MAX_FLYING", 1 << 13)
    n = 30_000
    pairer, notes = Pairer(), Notes()
    pairer.feed(events([("D", i, 8 * i, 8) for i in range(n)]))
    assert pairer._in_flight <= 1 << 13
    pairer.finish(notes)
    assert notes.warnings[0].startswith(f"{n} issues with no completion")


def test_issues_older_than_any_timeout_are_dropped_from_the_depth() -> None:
    pairer, notes = Pairer(), Notes()
    pairer.feed(events([("D", 1, 0, 8)]))
    pairer.feed(events([("D", 500 * S, 8, 8)]))
    out = pairer.feed(events([("D", 501 * S, 16, 8), ("C", 502 * S, 16, 8)]))
    assert out[OUT_DEPTH].tolist() == [2]
    pairer.finish(notes)
    assert notes.warnings[0].startswith("2 issues")


def test_operations_stay_with_their_requests() -> None:
    pairer = Pairer()
    pairer.feed(events([("D", 1, 0, 8)], op=WRITE))
    out = pairer.feed(events([("C", 2, 0, 8)], op=READ))
    assert out[[OUT_OP, OUT_BYTES]].T.tolist() == [[WRITE, 4096]]
