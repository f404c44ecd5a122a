"""Plan tables: the same as planning every request, only fast."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nvmesim.errors import InputError
from nvmesim.raid import tables as raid_table
from nvmesim.raid.arrays import PlanTable, table_plan
from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.planner.parity import StripeCache
from nvmesim.raid.planner.plan import raw_plan
from nvmesim.raid.tables import plan_table
from tests.raid.expected import expectation
from tests.raid.md_truth import table_mean

KIB = 1024
LAYOUTS = {
    0: [None],
    1: [None],
    5: ["left-symmetric", "left-asymmetric", "right-symmetric", "parity-first"],
    6: ["left-symmetric", "right-asymmetric", "parity-last"],
    10: ["near2", "near3", "far2", "offset2"],
}


@st.composite
def geometries(draw) -> RaidGeometry:
    level = draw(st.sampled_from([0, 1, 5, 6, 10]))
    members = draw(st.integers({0: 2, 1: 2, 5: 3, 6: 4, 10: 3}[level], 7))
    spare = {0: 0, 1: 1, 5: 1, 6: 2, 10: 1}[level]
    lost = draw(st.sets(st.integers(0, members - 1), max_size=spare))
    return RaidGeometry(
        level,
        members,
        draw(st.sampled_from([8, 16, 64])) * KIB,
        draw(st.sampled_from(LAYOUTS[level])),
        degraded=tuple(lost),
        kernel=draw(st.sampled_from(["6.1", "6.12"])),
        rmw_level=draw(st.sampled_from([0, 1, 2])),
        max_sectors=draw(st.sampled_from([32, 1280])) * KIB,
    )


def check_arrays(table: PlanTable) -> None:
    assert table.plan_phase_ptr[0] == table.phase_child_ptr[0] == table.child_alt_ptr[0] == 0
    assert table.plan_phase_ptr[-1] == len(table.phase_child_ptr) - 1
    assert table.phase_child_ptr[-1] == len(table.child_bytes) == len(table.child_alt_ptr) - 1
    assert table.child_alt_ptr[-1] == len(table.child_alt)
    assert np.unique(np.diff(table.plan_phase_ptr)).size == 1
    assert np.all(np.diff(table.phase_child_ptr) >= 0)
    assert np.all(np.diff(table.child_alt_ptr) >= 1)
    assert table.child_alt.min() >= 0
    assert table.child_alt.max() < table.n_members
    assert table.order.min() >= 0
    assert table.order.max() < table.n_plans
    assert table.child_bios.min() >= 1
    dtypes = [
        table.plan_phase_ptr, table.phase_child_ptr, table.child_alt_ptr, table.child_bytes,
        table.child_alt, table.child_bios, table.order,
    ]  # fmt: skip
    assert [a.dtype for a in dtypes] == [np.int64] * 4 + [np.int32] * 3
    assert table.child_is_write.dtype == np.bool_


@settings(max_examples=150, deadline=None)
@given(
    geometries(),
    st.sampled_from(["read", "write"]),
    st.sampled_from([512, 4096, 12288, 16384, 65536, 98304]),
    st.sampled_from([512, 4096, 8192, 65536]),
    st.sampled_from([0, 4096, 8192]),
)
@example(RaidGeometry(6, 7, 64 * KIB, max_sectors=32 * KIB), "read", 65536, 512, 0)  # turned
def test_every_random_request_has_its_plan(geometry, op, block_size, align, offset):
    table = plan_table(geometry, op, block_size, align=align, offset=offset)
    check_arrays(table)
    for k in range(0, len(table.order), max(1, len(table.order) // 40)):
        plan = table_plan(raw_plan(geometry, op, offset + k * align, block_size))
        found = table.plan(int(table.order[k]))
        assert tuple(tuple(sorted(phase)) for phase in found) == plan  # a phase is sent at once


@settings(max_examples=60, deadline=None)
@given(geometries(), st.sampled_from(["read", "write"]), st.sampled_from([4096, 12288, 65536]))
def test_a_turned_layout_is_planned_alike(geometry, op, block_size):
    usual = plan_table(geometry, op, block_size, align=4096)
    limit = raid_table.MANY_CLASSES
    raid_table.MANY_CLASSES = 0
    try:
        turned = plan_table(geometry, op, block_size, align=4096)
    finally:
        raid_table.MANY_CLASSES = limit
    check_arrays(turned)
    np.testing.assert_allclose(table_mean(turned), table_mean(usual))
    for name in ("member_read_bytes", "member_write_bytes"):
        np.testing.assert_allclose(
            getattr(expectation(turned), name), getattr(expectation(usual), name), atol=1e-6
        )


@settings(max_examples=60, deadline=None)
@given(
    geometries(),
    st.sampled_from(["read", "write"]),
    st.sampled_from([512, 4096, 8192, 16384, 24576, 98304]),
)
def test_a_stream_is_what_the_stripe_cache_makes_of_it(geometry, op, block_size):
    """A cycle with a warm cache: what a plain run settles to, member for member."""
    table = plan_table(geometry, op, block_size, "sequential")
    check_arrays(table)
    assert table.is_sequential
    cache = StripeCache(geometry.stripe_cache)
    n_cycle = len(table.order)
    sums = np.zeros((2, table.n_members))
    for k in range(2 * n_cycle):
        for phase in raw_plan(geometry, op, k * block_size, block_size, cache):
            for members, is_write, _, n_bytes, _ in phase:
                if k >= n_cycle:
                    sums[int(is_write), members[0]] += n_bytes
    mean = expectation(table)
    np.testing.assert_allclose(mean.member_read_bytes * n_cycle, sums[0], atol=1e-3)
    np.testing.assert_allclose(mean.member_write_bytes * n_cycle, sums[1], atol=1e-3)


def test_parity_writes_come_in_two_phases_and_rows_are_forgotten_in_time():
    """256 rows a chunk still fit the stripe cache, 512 are gone when the stream comes back."""
    kept = plan_table(RaidGeometry(5, 4, 1024 * KIB), "write", 4096, "sequential")
    lost = plan_table(RaidGeometry(5, 4, 2048 * KIB), "write", 4096, "sequential")
    assert expectation(kept).reads == pytest.approx(2 / 3)
    assert expectation(lost).reads == pytest.approx(2)
    table = plan_table(RaidGeometry(5, 4, 64 * KIB), "write", 64 * KIB)
    for index in range(table.n_plans):
        reads, writes = table.plan(index)
        assert not any(child[1] for child in reads)
        assert all(child[1] for child in writes)


def test_the_bitmap_has_its_own_phase_in_front():
    geometry = RaidGeometry(5, 4, 64 * KIB, bitmap="internal")
    clean = plan_table(geometry, "write", 4096, first_dirty=0.25)
    hot = plan_table(geometry, "write", 4096)
    assert len(clean.plan(0)) == len(hot.plan(0)) == 3
    assert expectation(clean).writes == pytest.approx(2 + 0.25 * 4)
    assert expectation(clean).write_bytes == pytest.approx(8192 + 0.25 * 4 * 512)
    assert expectation(hot).writes == 2
    stream = plan_table(geometry, "write", 64 * KIB, "sequential")
    assert expectation(stream).writes == pytest.approx(2 + 4 * 64 * KIB / (3 << 26))
    check_arrays(clean)
    check_arrays(stream)
    external = RaidGeometry(5, 4, 64 * KIB, bitmap="external")
    assert expectation(plan_table(external, "write", 4096, first_dirty=1.0)).writes == 2


@pytest.mark.parametrize("limit", [{"max_sectors": 10 * KIB}, {"max_segments": 2}])
def test_commands_of_the_stripe_cache_are_whole_pages_within_the_limits(limit):
    table = plan_table(RaidGeometry(5, 4, 64 * KIB, **limit), "write", 192 * KIB)
    assert set(table.child_bytes[table.child_is_write].tolist()) == {8 * KIB}


def test_spans_and_zones_count_by_their_length():
    sizes = (1024 * KIB, 2048 * KIB, 2048 * KIB)
    geometry = RaidGeometry(0, 3, 64 * KIB, member_size=sizes)
    mean = expectation(plan_table(geometry, "write", 4096))
    np.testing.assert_allclose(mean.member_writes, np.array(sizes) / sum(sizes), rtol=2e-3)
    geometry = RaidGeometry(0, 4, 64 * KIB)
    mean = expectation(plan_table(geometry, "read", 4096, span=128 * KIB))
    np.testing.assert_allclose(mean.member_reads, [0.5, 0.5, 0, 0])


def test_a_rebuild_moves_a_table_from_degraded_to_written_through():
    geometry = RaidGeometry(5, 4, 64 * KIB, rebuilding=(1,))
    means = [
        expectation(
            plan_table(RaidGeometry(5, 4, 64 * KIB, rebuilding=(1,), rebuilt=part), op, 4096)
        )
        for op in ("read", "write")
        for part in (0.0, 0.5, 1.0)
    ]
    assert [m.reads for m in means[:3]] == pytest.approx([1.5, 1.25, 1.0], rel=2e-3)
    assert [m.writes for m in means[3:]] == pytest.approx([2.0, 2.0, 2.0])
    assert means[0].member_reads[1] == 0
    assert means[2].member_reads[1] == pytest.approx(0.25)
    assert means[3].member_writes[1] == pytest.approx(0.5)
    assert geometry.lost == (1,)


def test_reads_of_a_mirror_list_all_copies_md_prefers_the_first():
    near = plan_table(RaidGeometry(10, 4, 64 * KIB), "read", 4096)
    assert sorted(near.plan(i)[0][0][0] for i in range(near.n_plans)) == [(0, 1), (2, 3)]
    far = RaidGeometry(10, 4, 64 * KIB, "far2", rotational=(True,) * 4)
    assert {plan_table(far, "read", 4096).plan(i)[0][0][0] for i in range(4)} == {
        (0,), (1,), (2,), (3,)
    }  # fmt: skip
    mixed = RaidGeometry(10, 4, 64 * KIB, rotational=(True, False, True, False))
    table = plan_table(mixed, "read", 4096)
    assert sorted(table.plan(i)[0][0][0] for i in range(table.n_plans)) == [(1,), (3,)]
    first = plan_table(RaidGeometry(1, 3, read_policy="first"), "read", 4096)
    assert first.child_alt.tolist() == [0]
    assert plan_table(RaidGeometry(1, 3, degraded=(0,)), "read", 4096).child_alt.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"block_size": 1000}, "block_size is 1000 bytes"),
        ({"align": 100}, "align is 100"),
        ({"offset": 5}, "offset is 5"),
        ({"span": 1024}, "span is 1024"),
        ({"depth": 0}, "depth is 0"),
    ],
)
def test_sizes_that_no_request_has(changes, text):
    geometry = RaidGeometry(5, 4, 65536)
    arguments = {"op": "write", "block_size": 4096} | changes
    with pytest.raises(InputError, match=text):
        plan_table(geometry, **arguments)


@pytest.mark.parametrize(("offset", "cut"), [(0, 0), (4096, 1), (1 << 20, 0)])
def test_a_stream_on_a_mirror_is_cut_where_its_barriers_change(offset, cut):
    """Once in 64 requests of 1 MiB, where they start beside a boundary of 64 MiB."""
    table = plan_table(RaidGeometry(1, 2), "write", 1 << 20, "sequential", offset=offset)
    commands = [len(table.plan(plan)[0]) for plan in table.order]
    assert (commands.count(4), commands.count(2)) == ((1, 63) if cut else (0, 1))
