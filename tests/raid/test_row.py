"""One stripe row: md's choice between rmw and rcw, against the rule as written down."""

import pytest

from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.planner.parity import RowTask, settle_row
from nvmesim.raid.tables import plan_table
from tests.raid.expected import expectation


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


def test_what_a_raid6_without_two_members_reads_and_writes():
    """Means of random 4 KiB as measured; with fewer lost the measured cases and `brute` say it."""
    lost = RaidGeometry(6, 6, 65536, degraded=(0, 1))
    read, write = (expectation(plan_table(lost, op, 4096)) for op in ("read", "write"))
    assert (read.reads, write.reads, write.writes) == pytest.approx((2, 3.5, 2.0))
