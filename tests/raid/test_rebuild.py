"""Rebuild and check as background load."""

import pytest

from nvmesim.errors import GeometryError
from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.tables import check_plan_table, rebuild_plan_table
from tests.raid.expected import expectation
from tests.raid.test_table import check_arrays
from tests.servers import bare, one_server

KIB = 1024


@pytest.mark.parametrize(
    ("level", "members", "lost", "sources"),
    [(5, 4, (1,), 3), (5, 8, (1,), 7), (6, 6, (1,), 5), (6, 6, (1, 2), 4)],
)
def test_parity_levels_read_every_survivor(level, members, lost, sources):
    geometry = RaidGeometry(level, members, 64 * KIB, degraded=lost)
    table = rebuild_plan_table(geometry, 1)
    check_arrays(table)
    mean = expectation(table)
    assert mean.reads == sources
    assert mean.writes == 1
    assert mean.member_writes[1] == 1
    assert mean.read_bytes == sources * table.request_bytes


@pytest.mark.parametrize(
    ("level", "layout", "sources"),
    [(1, None, {(1, 2, 3)}), (10, "near2", {(1,)}), (10, "far2", {(1,), (3,)})],
)
def test_mirrors_read_one_copy_of_what_is_lost(level, layout, sources):
    geometry = RaidGeometry(level, 4, 64 * KIB, layout, degraded=(0,))
    table = rebuild_plan_table(geometry, 0)
    check_arrays(table)
    assert {table.plan(i)[0][0][0] for i in range(table.n_plans)} == sources
    assert table.request_bytes == 64 * KIB


def test_a_check_reads_all_members_by_plugs_of_rows_or_blocks():
    assert expectation(check_plan_table(RaidGeometry(1, 3))).reads == 3
    assert expectation(check_plan_table(RaidGeometry(6, 6, 64 * KIB))).writes == 0
    assert expectation(check_plan_table(RaidGeometry(10, 4, 64 * KIB))).read_bios == 4
    with pytest.raises(GeometryError, match="nothing to check"):
        check_plan_table(RaidGeometry(0, 4, 64 * KIB))
    # Sizes as stated beside the constants; a chunk that is smaller is all.
    for level, chunk, size, bios in (
        (5, 512, 128, 32), (5, 64, 64, 16), (6, 512, 128, 32), (10, 512, 64, 1), (10, 16, 16, 1),
        (1, 0, 64, 1),
    ):  # fmt: skip
        table = check_plan_table(RaidGeometry(level, 4, chunk * KIB))
        for alternatives, is_write, n_bytes, n_bios in table.plan(0)[0]:
            assert len(alternatives) == 1
            assert (is_write, n_bytes, n_bios) == (False, size * KIB, bios)


@pytest.mark.parametrize(
    ("geometry", "member", "text"),
    [
        (RaidGeometry(0, 4, 64 * KIB), 0, "raid0 has no redundancy"),
        (RaidGeometry(5, 4, 64 * KIB), 0, "member 0 is not missing.* missing: none"),
        (RaidGeometry(6, 4, 64 * KIB, degraded=(1, 2)), 0, "is not missing.* missing: 1, 2"),
    ],
)
def test_nothing_to_rebuild(geometry, member, text):
    with pytest.raises(GeometryError, match=text):
        rebuild_plan_table(geometry, member)


@pytest.mark.parametrize(
    ("level", "members", "bios"), [(5, 3, 16), (6, 5, 16), (1, 3, 1), (10, 4, 1)]
)
def test_rows_are_restored_one_by_one_and_mirrors_at_once(level, members, bios):
    geometry = RaidGeometry(level, members, (level != 1) * 64 * KIB, degraded=(0,))
    reads, writes = rebuild_plan_table(geometry, 0).plan(0)
    assert {n_bios for *_, n_bios in (*reads, *writes)} == {bios}


def test_a_mirror_that_rebuilds_begins_as_a_degraded_one_and_soon_equals_a_healthy_one():
    """md sends reads of the restored part to the member that has less to do: the new one."""

    def iops(**volume):
        load = {"block_size": "8 KiB", "read": 0.7, "threads": 16, "outstanding": 8}
        tables = one_server("intel-p4610-1.6tb", load, 4, volume={"raid": "raid10", **volume})
        found = bare(tables, requests=40_000, over_time=False)
        assert any("rebuilt = 0" in text for text in found.assumptions) is (volume == REBUILDS)
        return found.total.iops.value

    healthy, degraded = iops(), iops(degraded=[0])
    assert degraded < 0.87 * healthy
    assert iops(**REBUILDS, rebuilt=0.0) == pytest.approx(degraded, rel=0.02)
    assert iops(**REBUILDS) == pytest.approx(healthy, rel=0.05)


REBUILDS = {"degraded": [0], "rebuild": True}
