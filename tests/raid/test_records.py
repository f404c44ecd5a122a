"""Records of ZFS: the layout of a raidz as published and by laws, and pools end to end."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nvmesim as ns
from nvmesim.errors import GeometryError, ScenarioError
from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.planner.records import (
    SECTOR,
    allocated_sectors,
    raidz_columns,
    record_columns,
    record_start,
)
from nvmesim.raid.tables import plan_table
from tests.raid.expected import expectation
from tests.raid.requests import plan_request
from tests.raid.volumes import ready_for, scenario, simulated
from tests.servers import bare, one_server

KIB = 1024


@st.composite
def raidzs(draw):
    parity = draw(st.integers(1, 3))
    return draw(st.integers(parity + 1, 12)), parity


@st.composite
def geometries(draw):
    members, parity = draw(raidzs())
    return RaidGeometry(f"raidz{parity}", members, SECTOR << draw(st.integers(0, 8)))


# What M. Bruning and a reader of his printed of two pools (github i3v/zfs_raidz_striping): raidz of
# five, 512 B sectors, records of 128 KiB, by vdev_raidz_map_alloc, checked with zdb and dd.
PRINTED = [
    (0x14C00, [(1, 0x4200), (2, 0x4200), (3, 0x4200), (4, 0x4200), (0, 0x4400)]),
    (0x54400, [(4, 0x10C00), (0, 0x10E00), (1, 0x10E00), (2, 0x10E00), (3, 0x10E00)]),
]


@pytest.mark.parametrize(("offset", "places"), PRINTED)
def test_the_layout_of_a_real_raidz(offset, places):
    columns = raidz_columns(offset // 512, 0x20000 // 512, 5, 1)
    assert [(c.member, c.start * 512, c.sectors * 512) for c in columns] == [
        (member, start, 0x8000) for member, start in places
    ]
    assert allocated_sectors(0x20000 // 512, 5, 1) * 512 == 0x28000  # zdb's asize


@pytest.mark.parametrize(
    ("sectors", "members", "parity", "allocated"),
    [
        (1, 3, 1, 2),  # OpenZFS documentation, RAIDZ: one block of data and one of parity
        (2, 4, 1, 4),  # 8 KiB on four: parity and a padding
        (1, 6, 2, 3),  # openzfs 548: 4 KiB take 12 on a raidz2
        (6, 6, 2, 12),  # C. Siebenmann: a raidz2 takes 9 or 12 blocks, never 10 or 11
        (32, 7, 2, 48),
        (32, 5, 1, 40),
    ],
)
def test_sectors_that_a_record_takes(sectors, members, parity, allocated):
    assert allocated_sectors(sectors, members, parity) == allocated


@given(raidzs(), st.integers(0, 10_000), st.integers(1, 300))
def test_a_record_is_one_run_of_sectors_over_the_members(raidz, start, sectors):
    members, parity = raidz
    columns = raidz_columns(start, sectors, members, parity)
    taken = {
        (column.start + i) * members + column.member
        for column in columns
        for i in range(column.sectors)
    }
    rows = -(-sectors // (members - parity))
    assert taken == set(range(start, start + sectors + parity * rows))
    assert sum(c.sectors for c in columns[parity:]) == sectors
    assert {c.sectors for c in columns[:parity]} == {rows}
    assert len({c.member for c in columns}) == len(columns)
    allocated = allocated_sectors(sectors, members, parity)
    assert 0 <= allocated - len(taken) <= parity
    assert allocated % (parity + 1) == 0


@given(raidzs(), st.integers(0, 5_000), st.integers(1, 300))
def test_a_swap_changes_which_member_has_parity_and_nothing_else(raidz, start, sectors):
    members, _ = raidz
    plain, swapped = (raidz_columns(start, sectors, members, 1, swapped=s) for s in (False, True))
    assert {*plain} == {*swapped}
    assert plain[0].sectors == plain[1].sectors


@given(geometries(), st.integers(0, 500))
def test_records_lie_apart_and_begin_wherever_they_can(geometry, first):
    members, parity = geometry.members, geometry.record.parity
    sectors = geometry.chunk // SECTOR
    allocated = allocated_sectors(sectors, members, parity)
    starts = [record_start(k, sectors, members, parity)[0] for k in range(first, first + 30)]
    assert all(b - a >= allocated for a, b in pairwise(starts))
    period = members * geometry.record.turns
    for k in range(first, first + 12):
        here, again = record_columns(geometry, k), record_columns(geometry, k + period)
        assert [(c.member, c.sectors) for c in here] == [(c.member, c.sectors) for c in again]


@pytest.mark.parametrize("parity", [1, 2, 3])
@pytest.mark.parametrize("members", [4, 5, 6, 9])
def test_reads_are_spread_evenly_over_the_members(parity, members):
    """A raidz3 begins its records at multiples of four sectors: not at each of an even number."""
    table = plan_table(RaidGeometry(f"raidz{parity}", members, 128 * KIB), "read", 4 * KIB)
    found = expectation(table)
    assert found.read_bytes == pytest.approx(128 * KIB)
    if parity < 3 or members % 2:
        assert np.ptp(found.member_reads) == pytest.approx(0.0)


@given(geometries(), st.integers(0, 400), st.integers(1, 300), st.booleans())
def test_a_request_reads_and_writes_whole_records(geometry, first, sectors, write):
    offset, length = first * SECTOR, sectors * SECTOR
    plan = plan_request(geometry, "write" if write else "read", offset, length)
    record = geometry.chunk
    touched = (offset + length - 1) // record - offset // record + 1
    whole = max(0, (offset + length) // record - -(-offset // record))
    assert plan.count("read")[2] == (touched - whole if write else touched) * record
    if not write:
        return
    rows = -(-(record // SECTOR) // geometry.data_disks)
    least = touched * (record + geometry.record.parity * rows * SECTOR)
    # What lies between two writes of a member, padding above all, goes with them.
    assert least <= plan.count("write")[2] <= least + 2 * touched * geometry.members * SECTOR
    assert all(not phase or child.op == "read" for phase in plan.phases[:1] for child in phase)


@pytest.mark.parametrize("parity", [1, 2, 3])
def test_what_is_missing_is_made_of_the_rest_and_its_parity(parity):
    whole = RaidGeometry(f"raidz{parity}", 7, 128 * KIB)
    lost = RaidGeometry(f"raidz{parity}", 7, 128 * KIB, degraded=(2,))
    for k in range(14):
        here = {
            c.member_alternatives[0] for c in plan_request(whole, "read", k << 17, 4096).phases[0]
        }
        there = {
            c.member_alternatives[0] for c in plan_request(lost, "read", k << 17, 4096).phases[0]
        }
        assert there == ({0, 1, 3, 4, 5, 6} if 2 in here else here)
        assert 2 not in _members(plan_request(lost, "write", k << 17, 128 * KIB).phases[1])


def _members(phase):
    return {child.member_alternatives[0] for child in phase}


def test_records_of_mirrors_streams_and_neighbours():
    pool = RaidGeometry("zfs-mirror", 6, 128 * KIB)
    plan = plan_request(pool, "write", 128 * KIB, 4096)
    assert plan.count("read") == (1, 1, 128 * KIB)
    assert plan.phases[0][0].member_alternatives == (2, 3)
    assert plan.count("write") == (2, 2, 256 * KIB)
    pool = RaidGeometry("raidz1", 5, 128 * KIB)
    table = plan_table(pool, "read", 4 * KIB, access="sequential")
    assert expectation(table).read_bytes == pytest.approx(4 * KIB)
    assert sum(len(table.plan(int(i))[0]) > 0 for i in table.order) == len(table.order) // 32
    # Sixteen records of 16 KiB on a raidz1 of five, six sectors each: 20 a member, 80 KiB.
    plan = plan_request(RaidGeometry("raidz1", 5, 16 * KIB), "write", 0, 256 * KIB)
    assert plan.count("write")[0] < 16
    assert max(child.n_bytes for child in plan.phases[1]) <= 128 * KIB


RAIDZ = {"raid": "raidz1"}
TURN = {"threads": 64, "outstanding": 1}


def run(volume, load, count=5, requests=20_000):
    return bare(scenario(volume, load, count=count), requests=requests)


def test_small_reads_of_large_records_do_what_one_drive_does_of_their_columns():
    """Each read takes four of five drives: 5/4 of one drive's rate, ten reads outstanding there."""
    pool = run(RAIDZ, {**TURN, "read": 1.0, "block_size": "4 KiB"})
    load = {"block_size": "32 KiB", "threads": 1, "outstanding": 10}
    one = bare(one_server("intel-p4610-1.6tb", load, cpu="epyc-9654"), requests=20_000)
    assert pool.total.iops.value == pytest.approx(1.25 * one.total.iops.value, rel=0.06)
    assert sum(m.read_bytes_per_request for m in pool.members) == pytest.approx(128 * KIB, rel=1e-3)


def test_a_thread_is_served_request_by_request_and_offered_smaller_records():
    shallow, deep = (
        run(RAIDZ, {"threads": 4, "outstanding": depth, "read": 1.0}) for depth in (1, 16)
    )
    assert deep.total.iops.value == pytest.approx(shallow.total.iops.value, rel=0.03)
    assert deep.total.latency.mean == pytest.approx(16 * shallow.total.latency.mean, rel=0.03)
    result = ns.simulate(scenario(RAIDZ, {**TURN, "read": 1.0}, count=5), requests=20_000)
    assert result.bottleneck.verdict == "latency-bound"
    assert "zfs reads" in result.bottleneck.sentence
    assert result.bottleneck.reliefs[0].change == "recordsize 4 KiB"


@pytest.mark.parametrize(("threads", "gb_per_s"), [(1, 2.45), (8, 6.4)])
def test_a_stream_is_read_ahead_of_its_thread(threads, gb_per_s):
    """One thread copies 128 KiB in 33 us and passes the stack; more do what the drives do."""
    load = {"access": "sequential", "block_size": "128 KiB", "read": 1.0, "threads": threads}
    for depth in (1, 16):
        found = run({"raid": "zfs-mirror"}, {**load, "outstanding": depth}, count=2)
        rate = found.total.iops.value * 128 * KIB
        assert rate == pytest.approx(gb_per_s * 1e9, rel=0.02)
        waited = threads * depth / found.total.iops.value
        assert found.total.latency.mean == pytest.approx(waited, rel=0.02)
    read = sum(m.read_bytes_per_request for m in found.members)
    assert read == pytest.approx(128 * KIB, rel=0.02)


def test_small_writes_read_their_record_and_whole_ones_do_not():
    found = run(RAIDZ, {**TURN, "read": 0.0, "block_size": "4 KiB"}, requests=40_000).members
    assert sum(m.read_bytes_per_request for m in found) == pytest.approx(128 * KIB, rel=0.01)
    assert sum(m.write_bytes_per_request for m in found) == pytest.approx(160 * KIB, rel=0.02)
    sizes = [m.write_bytes_per_request / m.writes_per_request for m in found]
    assert min(sizes) > 96 * KIB  # several records' columns in a command
    load = {**TURN, "read": 0.0, "block_size": "128 KiB"}
    found = run({"raid": "zfs-mirror"}, load, count=4).members
    assert sum(m.reads_per_request for m in found) == 0
    assert sum(m.write_bytes_per_request for m in found) == pytest.approx(256 * KIB, rel=0.02)


@pytest.mark.parametrize("access", ["sequential", "random"])
def test_a_write_may_be_larger_than_what_is_flushed_at_once(access):
    """One thread makes 1 MiB dirty in 617 us, eight commands a drive, and passes the stack."""
    load = {"threads": 1, "outstanding": 1, "read": 0.0, "block_size": "1 MiB", "access": access}
    found = run({"raid": "zfs-mirror"}, load, count=4, requests=4_000)
    assert found.total.iops.value == pytest.approx(1586, rel=0.02)
    written = sum(m.write_bytes_per_request for m in found.members)
    assert written == pytest.approx(2048 * KIB, rel=0.05)


def test_what_gathers_is_bounded_and_without_it_a_write_waits_for_the_drives():
    load = {**TURN, "read": 0.0, "block_size": "128 KiB"}
    for cache, gathers in (("0 B", False), ("64 KiB", True), ("4 GiB", True)):
        ready = ready_for(
            {**RAIDZ, "engine": {"extends": "openzfs", "cache": cache}}, load, count=5
        )
        gates = [s for s in ready.lowered.stations if s.name == "volume0 dirty data"]
        assert bool(gates) == gathers
        ready.make(ready.lowered.network, seed=3).advance(500, 1 << 60)


def test_threads_pass_the_same_locks_and_limit_what_arrives():
    asked = scenario(RAIDZ, count=5).to_dict() | {"workload": [{"rate": "10k"}]}
    found = bare(asked, requests=5_000)
    assert found.bottleneck.verdict == "unstable"
    assert found.bottleneck.station == "threads"
    # Small records on many drives: 3.2 us each, so that more threads bring nothing.
    load = {"threads": 128, "outstanding": 1, "read": 1.0}
    found = run({"raid": "zfs-mirror", "recordsize": "4 KiB"}, load, count=12)
    assert found.total.iops.value == pytest.approx(1 / 3.2e-6, rel=0.05)
    assert found.bottleneck.verdict == "raid-engine"


def test_vdevs_share_the_load_and_members_are_sent_what_the_planner_says():
    one = run(RAIDZ, {**TURN, "read": 1.0})
    two = run({**RAIDZ, "columns": 5}, {**TURN, "threads": 128, "read": 1.0}, count=10)
    assert two.total.iops.value == pytest.approx(2 * one.total.iops.value, rel=0.05)
    ready = ready_for({"raid": "raidz2"}, {"read": 1.0, "threads": 16}, count=6)
    sent = simulated(ready, 6_000)
    assert sent[:, 4].sum() == pytest.approx(128 * KIB, rel=1e-3)  # some are under way


REFUSED = [
    ({"recordsize": "100 KiB"}, "recordsize is 100 KiB; a power of two from 4 KiB to 16 MiB"),
    ({"recordsize": "2 KiB"}, "recordsize is 2 KiB; a power of two"),
    ({"recordsize": "32 MiB"}, "recordsize is 32 MiB; a power of two"),
    ({"chunk": "64 KiB"}, "chunk is not for raidz1, which has recordsize"),
    ({"check": True}, "check is not for raidz1: resilver and scrub are not modelled"),
    ({"degraded": [0], "rebuild": True}, "rebuild is not for raidz1: resilver"),
    ({"bitmap": "internal"}, "bitmap is not for raidz1; leave it out"),
    ({"columns": 3}, "5 members do not make vdevs of 3; take a multiple of 3"),
    ({"layout": "near2"}, "raidz1 has no layouts"),
    ({"engine": "linux-md"}, "raid is 'raidz1'; linux-md has raid0"),
    ({"degraded": [0, 1]}, "raidz1 survives 1 missing of 5"),
    ({"raid": "raidz2", "columns": 2}, "columns is 2; raidz2 needs at least 3"),
    ({"raid": "zfs-mirror"}, "5 members do not make vdevs of 2"),
    ({"raid": "raidz2", "members": [0, 1]}, "raidz2 needs at least 3 members, it has 2"),
    ({"raid": "zfs-mirror", "columns": 2}, "mirrors have none, layout = \"near3\""),
    ({"raid": "raid5", "recordsize": "64 KiB"}, "only ZFS .* has records, raid5 has chunk"),
]  # fmt: skip
NOT_MODELLED = [({"fsync": 1}, "intent log"), ({"sync": "dsync"}, "intent log is not modelled")]


@pytest.mark.parametrize(
    ("more", "load", "message"),
    [(more, None, text) for more, text in REFUSED] + [({}, *synced) for synced in NOT_MODELLED],
)
def test_what_no_pool_is(more, load, message):
    with pytest.raises((GeometryError, ScenarioError), match=message):
        ready_for({**RAIDZ, **more}, load, count=5)
