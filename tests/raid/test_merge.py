"""The plug: bios into commands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.pieces import MAX_REQUESTS, joined, merge_bios, merge_rows
from tests.raid.requests import plan_request

KIB = 1024
runs = st.lists(
    st.tuples(
        st.permutations(range(4)).flatmap(
            lambda order: st.integers(1, 4).map(lambda n: tuple(order[:n]))
        ),
        st.integers(0, 60),
        st.integers(1, 60),
    ),
    max_size=6,
)


@given(runs, st.booleans(), st.sampled_from([4, 20, 64]))
def test_runs_of_rows_merge_as_their_bios_do(found, newest_first, max_rows):
    bios = [
        (member, row * BLOCK, BLOCK)
        for members, first, n_rows in found
        for row in range(first, first + n_rows)
        for member in members
    ]
    slow = merge_bios(bios, newest_first, max_rows * BLOCK)
    fast = merge_rows(found, newest_first, max_rows * BLOCK)
    assert [(c.member, c.start, c.end, c.bios) for c in fast] == [
        (c.member, c.start, c.end, c.bios) for c in slow
    ]


@given(runs, st.booleans())
def test_merging_loses_no_byte(found, newest_first):
    commands = merge_rows(found, newest_first, 128 * BLOCK)
    bios = sum(len(members) * n_rows for members, _, n_rows in found)
    assert sum(c.bios for c in commands) == bios
    assert sum(c.end - c.start for c in commands) == bios * BLOCK


@pytest.mark.parametrize(
    ("op", "kernel", "level", "members", "chunk", "offset", "size", "commands", "bios"),
    [
        ("write", "6.1", 0, 4, 64, 32, 128, 3, 4),
        ("write", "6.1", 0, 8, 512, 256, 4096, 16, 16),
        ("write", "6.12", 10, 4, 64, 0, 256, 8, 8),
        ("write", "6.1", 5, 4, 64, 0, 192, 4, 64),
        ("write", "6.12", 5, 4, 64, 0, 192, 4, 64),
        ("write", "6.1", 5, 4, 512, 0, 3072, 8, 1024),
        ("read", "6.1", 5, 4, 64, 32, 192, 4, 4),  # reads are not merged
    ],
)
def test_commands_as_measured(op, kernel, level, members, chunk, offset, size, commands, bios):
    """Those that `test_md_cases` does not hold to the last command."""
    geometry = RaidGeometry(level, members, chunk * KIB, kernel=kernel)
    plan = plan_request(geometry, op, offset * KIB, size * KIB)
    assert plan.count(op)[:2] == (commands, bios)


def test_a_plug_of_one_member_is_sent_at_half_the_requests() -> None:
    """BLK_MAX_REQUEST_COUNT, doubled as soon as several queues are in the plug (blk-core.c)."""

    def apart(member: int, numbers: range) -> list[tuple[int, int, int]]:
        return [(member, number << 20, 4096) for number in numbers]

    # the first is sent alone, so that as many as two members may have fit behind it
    one = apart(0, range(MAX_REQUESTS))
    bios = [*one, *apart(0, range(100, 101)), *apart(1, range(1))]
    bios += apart(0, range(200, 200 + MAX_REQUESTS + 10))
    held = merge_bios([*bios, (1, 4096, 4096)], True, 1 << 20)
    assert [c.bios for c in held if c.member == 1] == [2]
    # one member more from the start: all count for the same plug, which is sent in between
    sent = merge_bios([*apart(1, range(9, 10)), *bios, (1, 4096, 4096)], True, 1 << 20)
    assert [c.bios for c in sent if c.member == 1] == [1, 1, 1]


@pytest.mark.parametrize(("size", "bios"), [(128 * KIB, [1, 1]), (124 * KIB, [2])])
def test_a_plug_whose_newest_request_is_large_is_sent(size, bios):
    """BLK_PLUG_FLUSH_SIZE itself is large enough; what was sent merges with nothing."""
    found = merge_bios([(0, 0, size), (1, 0, 4096), (0, size, 4096)], True, 1 << 20)
    assert [c.bios for c in found if c.member == 0] == bios


def test_what_touches_is_joined_up_to_the_largest_command():
    children = [((0,), True, start, 4096, 1) for start in (0, 4096, 8192)]
    sizes = {
        most: [child[3] for child in joined(children, most)] for most in (4096, 8191, 8192, 12288)
    }
    assert sizes == {4096: [4096] * 3, 8191: [4096] * 3, 8192: [8192, 4096], 12288: [12288]}
