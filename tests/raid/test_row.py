"""One stripe row: md's choice between rmw and rcw, against the rule as written down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.planner.parity import RowTask, settle_row
from nvmesim.raid.tables import plan_table
from tests.raid.expected import expectation


def popcount(mask: int) -> int:
    return mask.bit_count()


@st.composite
def healthy_rows(draw) -> RowTask:
    parity = draw(st.sampled_from([1, 2]))
    members = draw(st.integers(2 + parity, 9))
    q = 1 << (members - 2) if parity == 2 else 0
    data = (1 << (members - parity)) - 1
    everything = (1 << members) - 1
    return RowTask(
        members,
        draw(st.sampled_from([0, 1, 2])),
        parity_p=1 << (members - 1),
        parity_q=q,
        lost=0,
        absent=0,
        cached=draw(st.integers(0, everything)),
        overwrite=draw(st.integers(1, data)),
    )


@given(healthy_rows())
def test_healthy_rows_follow_the_rule(task):
    """rmw = missing of data written and parity, rcw = missing of the other data; a tie is rcw."""
    parity = task.parity_p | task.parity_q
    data = ((1 << task.members) - 1) & ~parity
    rmw = popcount((task.overwrite | parity) & ~task.cached)
    rcw = popcount(data & ~task.overwrite & ~task.cached)
    if task.rmw_level == 0:
        reads = rcw
    elif rmw == 0 or rcw == 0:
        reads = 0
    elif rmw < rcw or (rmw == rcw and task.rmw_level == 2):
        reads = rmw
    else:
        reads = rcw
    work = settle_row(task)
    assert len(work.reads) == reads
    assert sum(1 << member for member in work.writes) == task.overwrite | parity
    assert work.cached & (task.overwrite | parity) == task.overwrite | parity


@st.composite
def degraded_rows(draw) -> RowTask:
    parity = draw(st.sampled_from([1, 2]))
    members = draw(st.integers(2 + parity, 8))
    lost = sum(
        1 << member
        for member in draw(st.sets(st.integers(0, members - 1), min_size=1, max_size=parity))
    )
    data = (1 << (members - parity)) - 1
    is_read = draw(st.booleans())
    wanted = draw(st.integers(1, data))
    partial = 0 if is_read else wanted & draw(st.integers(0, data))
    return RowTask(
        members,
        draw(st.sampled_from([0, 1, 2])),
        parity_p=1 << (members - 1),
        parity_q=1 << (members - 2) if parity == 2 else 0,
        lost=lost,
        absent=lost,
        overwrite=0 if is_read else wanted & ~partial,
        partial=partial,
        to_read=wanted if is_read else 0,
    )


@given(degraded_rows())
def test_degraded_rows_come_to_an_end_and_spare_the_lost(task):
    work = settle_row(task)
    lost = [member for member in range(task.members) if task.lost >> member & 1]
    assert not set(lost) & {*work.reads, *work.writes}
    assert len(set(work.reads)) == len(work.reads)
    known = sum(1 << member for member in work.reads)
    unknown = task.members - popcount(known)
    if task.to_read & task.lost:
        # What was lost is computed: from all others, or with two lost from all that are left.
        assert unknown == popcount(task.lost)
    if task.overwrite | task.partial:
        parity = task.parity_p | task.parity_q
        assert sum(1 << m for m in work.writes) == (
            (task.overwrite | task.partial | parity) & ~task.lost
        )
        # The new parity must follow from what is read and written: either every other data block
        # is known, or the old parity with the old contents of what is overwritten.
        data = ((1 << task.members) - 1) & ~parity
        everything = popcount(known) >= task.members - popcount(parity)
        rcw = not data & ~task.overwrite & ~known
        rmw = not (task.overwrite | task.partial | parity) & ~known
        assert everything or rcw or rmw


@pytest.mark.parametrize("n", range(3, 25))
def test_commands_of_a_random_4k_write_on_raid5(n):
    """Three members: 1 read + 2 writes; four: 2 + 2 by reconstruct; more: 2 + 2 by rmw."""
    mean = expectation(plan_table(RaidGeometry(5, n, 65536), "write", 4096))
    assert (mean.reads, mean.writes) == pytest.approx((min(2, n - 2), 2))
    assert (mean.read_bytes, mean.write_bytes) == pytest.approx((4096 * min(2, n - 2), 8192))
    assert mean.member_writes == pytest.approx([2 / n] * n)
    plan = plan_table(RaidGeometry(5, n, 65536), "write", 4096).plan(0)
    read = {alternatives[0] for alternatives, *_ in plan[0]}
    written = {alternatives[0] for alternatives, *_ in plan[1]}
    assert read.isdisjoint(written) if n <= 4 else read == written


def test_two_lost_blocks_are_computed_together():
    """md fetches all that it has, and then knows the whole row (fetch_block, compute_6)."""
    for lost in (0b01001, 0b10010):
        task = RowTask(5, 0, parity_p=16, parity_q=1, lost=lost, absent=lost, to_read=0b01110)
        work = settle_row(task)
        assert work.cached == 0b11111
        assert sum(1 << member for member in work.reads) == 0b11111 & ~lost
    # Means of random 4 KiB as measured; with fewer lost the measured cases say it.
    lost = RaidGeometry(6, 6, 65536, degraded=(0, 1))
    read, write = (expectation(plan_table(lost, op, 4096)) for op in ("read", "write"))
    assert (read.reads, write.reads, write.writes) == pytest.approx((2, 3.5, 2.0))
