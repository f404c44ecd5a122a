"""Geometry and single requests: what is refused, and the shape of a plan."""

import re

import pytest

from nvmesim.errors import GeometryError, LimitError
from nvmesim.raid.geometry import RaidGeometry, survives
from nvmesim.raid.planner.pieces import planning
from tests.raid.requests import plan_request

KIB = 1024


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"degraded": (0, 1)}, "raid5 of 4 members has failed; missing: 0 and 1"),
        ({"degraded": (0,), "rebuilding": (1,)}, "has failed"),
        ({"max_sectors": 100}, "max_sectors is 100 bytes"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(keys, text):
    arguments = {"level": 5, "members": 4, "chunk": 64 * KIB} | keys
    with pytest.raises(GeometryError, match=re.escape(text)) as caught:
        RaidGeometry(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("level", "members", "most"), [(0, 4, 0), (1, 3, 2), (5, 4, 1), (6, 5, 2)])
def test_which_losses_an_array_survives(level, members, most):
    """Of raid10 every set of missing members is tried in `test_brute`."""
    for lost in (tuple(range(most)), tuple(range(most + 1))):
        lives = len(lost) <= most
        assert survives(level, members, "", lost) == lives
        if not lives:
            with pytest.raises(GeometryError, match="has failed"):
                RaidGeometry(level, members, 64 * KIB, degraded=lost)


def test_texts_are_taken_for_level_and_chunk():
    geometry = RaidGeometry("raid10", 4, "64 KiB", "n2")
    assert (geometry.level, geometry.chunk, geometry.layout) == (10, 65536, "near2")


def test_the_least_that_is_taken():
    geometry = RaidGeometry(5, 4, 4 * KIB, max_sectors=4 * KIB, max_segments=1, stripe_cache=17)
    assert geometry.max_segments == 1
    assert RaidGeometry("raid1", 2).chunk == 0


def test_a_plan_keeps_member_offsets():
    plan = plan_request(RaidGeometry(5, 4, 64 * KIB), "write", 192 * KIB + 4096, 4096)
    assert [child.member_offset for phase in plan.phases for child in phase] == [
        64 * KIB + 4096
    ] * 4
    assert {child.member_alternatives for child in plan.phases[1]} == {(3,), (2,)}


def test_flush_and_bitmap_reach_every_live_member():
    geometry = RaidGeometry(5, 4, 64 * KIB, degraded=(3,), bitmap="internal")
    plan = plan_request(geometry, "write", 0, 4096, first_dirty=True, flush=True)
    first, *_, last = plan.phases
    assert [(c.member_alternatives, c.n_bytes) for c in first] == [((m,), 512) for m in range(3)]
    assert [(c.member_alternatives, c.n_bytes) for c in last] == [((m,), 0) for m in range(3)]
    assert {(c.member_offset, c.n_bios) for c in (*first, *last)} == {(0, 1)}


def test_a_rebuilding_member_is_read_below_the_point_only():
    geometry = RaidGeometry(
        5, 4, 64 * KIB, rebuilding=(0,), rebuilt=0.5, member_size=64 * KIB * 100
    )
    low = plan_request(geometry, "read", 0, 4096)
    high = plan_request(geometry, "read", 192 * KIB * 80, 4096)
    assert low.count("read")[0] == 1
    assert high.count("read")[0] == 3


def test_reads_spare_members_that_are_mostly_written():
    for lost, readers in (((), (1, 2)), ((1,), (2,)), ((1, 2), (0,))):
        geometry = RaidGeometry(1, 3, write_mostly=(0,), degraded=lost)
        ((child,),) = plan_request(geometry, "read", 0, 4 * KIB).phases
        assert child.member_alternatives == readers


@pytest.mark.parametrize(
    ("kernel", "bitmap", "bios"), [("6.1", "none", 2), ("6.12", "none", 1), ("6.12", "internal", 2)]
)
def test_chunks_of_a_mirrored_write_merge_where_md_plugs(kernel, bitmap, bios):
    geometry = RaidGeometry(10, 4, 64 * KIB, kernel=kernel, bitmap=bitmap)
    (children,) = plan_request(geometry, "write", 0, 256 * KIB).phases
    assert {c.n_bios for c in children} == {bios}
    assert sum(c.n_bytes for c in children) == 512 * KIB
    stripes = RaidGeometry(0, 2, 64 * KIB, kernel=kernel, bitmap=bitmap)
    (children,) = plan_request(stripes, "write", 0, 256 * KIB).phases
    assert {c.n_bios for c in children} == {2 if kernel == "6.1" else 1}


def test_a_large_request_is_cut_where_linux_cuts_it_unless_told_otherwise():
    """max_sectors_kb is 1,280 where nobody sets it (BLK_DEF_MAX_SECTORS)."""
    (children,) = plan_request(RaidGeometry(1, 2), "write", 0, 2048 * KIB).phases
    of_one = [(c.member_offset, c.n_bytes) for c in children if c.member_alternatives == (0,)]
    assert of_one == [(0, 1280 * KIB), (1280 * KIB, 768 * KIB)]


def test_the_far_copy_begins_at_half_of_the_members_that_are_given():
    far = RaidGeometry(10, 4, 64 * KIB, "far2", member_size=1024 * KIB)
    assert far.address_map.locate(0) == [(0, 0), (1, 512 * KIB)]
    assert RaidGeometry(10, 4, 64 * KIB, "near2").address_map.member_sizes is None


@pytest.mark.parametrize(
    ("geometry", "pieces"),
    [
        (RaidGeometry(5, 4, 64 * KIB), 72),  # rows of 4 KiB
        (RaidGeometry(0, 4, 64 * KIB), 13),  # chunks
        (RaidGeometry(1, 2), 138),  # no chunks: blocks of 4 KiB, twice
    ],
)
def test_a_plan_costs_its_pieces_and_eight(geometry, pieces):
    with planning(pieces):
        plan_request(geometry, "read", 0, 256 * KIB)
    with planning(pieces - 1), pytest.raises(LimitError, match=f"more than {pieces - 1} in all"):
        plan_request(geometry, "read", 0, 256 * KIB)
