"""The smallest drive: rows tell a latency and a bandwidth, and no ceiling that they do not show.

Rows and held-out rows are published measurements: github mdcallag/mytools e1ba3d9 (synchronous
writers, 300 s a run) and linux-block, S. Hajnoczi, 20 May 2021 (a virtio-blk guest by size).
"""

from dataclasses import replace

import numpy as np
import pytest

from nvmesim.calibrate.bench import free_host, measure
from nvmesim.calibrate.drive.fit import fit_drive
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.smallest.line import line_of
from nvmesim.catalog.load import with_alternative
from nvmesim.catalog.profile import DriveProfile


def row(size, jobs, iops, *, read=0.0, drives=1, depth=1):
    raid = "raid0:524288" if drives > 1 else ""
    return Point("", read, True, size, jobs, depth, iops, None, targets=drives, raid=raid)


def predicted(fit, point):
    return measure(fit.profile, free_host(fit.profile.link), point, requests=10_000).iops


K, M = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def consumer():
    """One consumer drive at 1 and 4 jobs: 16 KiB tell no ceiling, 2 MiB a bandwidth."""
    rows = [(16 * K, 1, 43398.6), (16 * K, 4, 162961.8), (2 * M, 1, 2617.6), (2 * M, 4, 3258.2)]
    return fit_drive([row(*r) for r in rows])


@pytest.mark.parametrize(
    ("size", "jobs", "iops"),
    [(16 * K, 2, 85565.0), (16 * K, 16, 409602.1), (16 * K, 32, 405574.9), (2 * M, 32, 3258.6)],
)
def test_large_writes_tell_the_bandwidth_that_stops_small_ones(consumer, size, jobs, iops):
    assert not consumer.misses
    assert predicted(consumer, row(size, jobs, iops)) == pytest.approx(iops, rel=0.08)


def test_a_bandwidth_of_writes_is_not_the_drain_of_their_buffer():
    """By one depth: latency and bandwidth meet both rows, and large writes beyond them."""
    rows = [row(4 * K, 4, 138e3), row(128 * K, 4, 16.2e3)]
    fit = fit_drive(rows)
    assert [predicted(fit, p) for p in rows] == pytest.approx([p.iops for p in rows], rel=0.01)
    deep = Point("", 0.0, False, 128 * K, 8, 8, 1.0, None)
    assert predicted(fit, deep) == pytest.approx(16.2e3, rel=0.02)


def test_many_writers_of_one_depth_wait_for_a_ceiling():
    """16 at 136 us are no latency of flash: two such drives halve it (an m5d instance, psync)."""
    fit = fit_drive([row(4 * K, 16, 117463.0), row(16 * K, 16, 32233.0)])
    assert predicted(fit, row(4 * K, 16, 234675.0, drives=2)) == pytest.approx(234675, rel=0.1)


def test_repeats_of_one_load_tell_no_bandwidth():
    """On two file systems, a fifth apart: flash stays a bank of dies, which reads ahead."""
    one = Point("", 1.0, True, 4096, 1, 1, 16.7e3, None, filesystem="ext4")
    fit = fit_drive([one, replace(one, iops=13.8e3, filesystem="xfs")])
    assert not any("a latency and a bandwidth" in text for text in fit.warnings)


def ceilings(fit):
    """float64[n_draws]: most small writes/s, in units of the fitted profile's."""
    joint = fit.profile.joint
    columns = dict(zip(joint.names, np.array(joint.factors).T, strict=True))
    return columns.get("write.commands", 1 / columns.get("write.program", 1.0))


def test_a_ceiling_that_only_large_writes_tell_is_theirs(consumer):
    """Small writes alone leave it open; 2 MiB ones move what small ones can."""
    assert "write.program" in consumer.profile.untold
    small = fit_drive([row(16 * K, 1, 43398.6), row(16 * K, 4, 162961.8)])
    open_, told = ceilings(small), ceilings(consumer)
    assert open_.max() / open_.min() > 3 > 1.5 > told.max() / told.min()


def test_small_writes_may_last_far_less_than_large_ones_move():
    """4 KiB alone and 1 MiB at depth: fresh flash moves as much, what lasts a fifth."""
    deep = Point("", 0.0, False, M, 4, 32, 2600.0, None)
    fit = fit_drive([row(4 * K, 1, 60e3), deep])
    moved = 2600.0 * M
    found = predicted(fit, Point("", 0.0, True, 4 * K, 8, 64, 1.0, None)) * 4 * K
    assert 0.4 * moved < found < 0.9 * moved
    assert 0.05 < np.mean(ceilings(fit) < 0.5) < 0.3


@pytest.mark.parametrize("read", [1.0, 0.0])
def test_two_numbers_tell_all_sizes_of_a_guest(read):
    """4 and 128 KiB are fitted, 16 and 64 KiB predicted."""
    iops = {1.0: (149426, 118939, 34886, 17655), 0.0: (138578, 102089, 32364, 16154)}[read]
    small, middle, large, most = (
        row(size * K, 4, x, read=read) for size, x in zip((4, 16, 64, 128), iops, strict=True)
    )
    fit = fit_drive([small, most])
    assert not fit.misses
    for held_out in (middle, large):
        assert predicted(fit, held_out) == pytest.approx(held_out.iops, rel=0.04)
    if read:  # the media is no flash: a sequential reader finds nothing read ahead
        sequential = replace(small, random=False)
        assert predicted(fit, sequential) == pytest.approx(146032, rel=0.04)


def test_an_array_of_local_disks_serves_in_batches():
    """Two cloud disks as RAID0: neither a bank of dies nor a capped controller does this."""
    rows = [(16 * K, 1, 9866.5), (16 * K, 4, 23949.6), (2 * M, 1, 390.6), (2 * M, 4, 390.6)]
    fit = fit_drive([row(*r, drives=2) for r in rows])
    assert fit.profile.rounds is not None
    for size, jobs, iops in ((16 * K, 2, 17407), (16 * K, 8, 41570), (16 * K, 16, 49712)):
        assert predicted(fit, row(size, jobs, iops, drives=2)) == pytest.approx(iops, rel=0.15)


def test_a_ceiling_must_be_seen():
    rising = [row(4 * K, n, 43e3 * n) for n in (1, 2, 4)]
    flat = [row(4 * K, n, x) for n, x in ((1, 43e3), (4, 120e3), (16, 121e3))]
    assert not line_of(rising).has_ceiling
    assert line_of(flat).cap == pytest.approx(120.5e3, rel=0.02)


VOLUME = {8: 14411.0, 32: 33871.0}
"""Random requests/s of 8 KiB by depth of a Hyper-V volume; at 120 in flight it does 56k to 63k."""


@pytest.mark.parametrize("read", [1.0, 0.7])
def test_one_risen_row_tells_no_cap(read):
    """A cap, dies that meet by chance, or batches: all make both rows, and part beyond them."""
    rows = [row(8 * K, n, x, read=read) for n, x in VOLUME.items()]
    fit = fit_drive(rows)
    assert not fit.misses
    kept = DriveProfile.model_validate(fit.profile.model_dump(mode="json"))  # as a scenario has it
    explained = [kept, *(with_alternative(kept, a) for a in kept.alternatives)]
    assert len(explained) == 3

    def rates(jobs):
        asked = row(8 * K, jobs, 1.0, read=read)
        host = free_host(fit.profile.link)
        return sorted(measure(p, host, asked, requests=20_000).iops for p in explained)

    assert rates(32) == pytest.approx([VOLUME[32]] * 3, rel=0.08)
    capped, *others = rates(120)
    assert capped == pytest.approx(VOLUME[32], rel=0.05)
    assert all(1.25 * capped < other < 2 * capped for other in others)
    assert any("IOPS no longer grow would decide" in w for w in fit.warnings)


def test_two_flat_rows_tell_a_cap():
    rows = [row(8 * K, n, x, read=1.0) for n, x in {**VOLUME, 128: 34000.0}.items()]
    fit = fit_drive(rows)
    assert not fit.profile.alternatives
    assert predicted(fit, row(8 * K, 512, 1.0, read=1.0)) == pytest.approx(34000, rel=0.05)


def stream(jobs, iops, read=1.0, size=512 * K):
    return Point("", read, False, size, 1, jobs, iops, None)


def test_mixes_beside_streams_tell_random_requests():
    """One shallow mix and a deeper one that does more; one deep mix alone tells no latency."""
    streams = [stream(8, 1658.0), stream(16, 2306.0)]
    mixes = [row(8 * K, n, x, read=0.7) for n, x in VOLUME.items()]
    fit = fit_drive([*streams, *mixes])
    assert max(abs(fit.residuals)) < 0.05
    deep = fit_drive([*streams, mixes[1]])
    unknown, known = (f.profile.read.base.value + f.profile.read.die.value for f in (deep, fit))
    assert unknown < 100e6 < 500e6 < known


@pytest.mark.parametrize("rows", [{1: 208.0, 8: 1500.0}, {8: 1658.0, 16: 2306.0}, {8: 1658.0}])
def test_large_sequential_reads_of_a_remote_disk_are_met(rows):
    """At low depth they wait longer than those of any drive; deeper ones that do more show it."""
    fit = fit_drive([stream(n, x) for n, x in rows.items()])
    assert not fit.misses
    assert max(abs(fit.residuals)) < 0.02
    read, (shallow, *more) = fit.profile.read, rows.items()
    took = shallow[0] / shallow[1]
    if not more:  # several in flight at a ceiling, for all that is known
        assert read.stream_large is None
        return
    bytes_s = fit.profile.read_bandwidth
    assert read.stream_large.value / 1e12 == pytest.approx(took, rel=0.2)
    assert bytes_s.high > 1.5 * bytes_s.value > 1.5 * 0.98 * more[0][1] * 512 * K


def test_one_flush_at_a_time_is_told_by_two_depths(consumer):
    """The same drive with fdatasync after each write: 32 jobs get little more than four."""
    plain = [j.point for j in consumer.points]
    synced = [
        replace(row(16 * K, jobs, iops), sync="fdatasync", mean_s=mean * 1e-6)
        for jobs, iops, mean in ((1, 2100.8, 27.6), (4, 2602.6, 567.7))
    ]
    fit = fit_drive([*plain, *synced])
    write = fit.profile.write
    assert write.volatile
    assert write.flush.value == pytest.approx(447e6, rel=0.05)  # measured: 447 us
    assert write.flush_serial.value < write.flush.value
    most = replace(row(16 * K, 32, 3061.8), sync="fdatasync")
    assert predicted(fit, most) == pytest.approx(most.iops, rel=0.25)


def test_a_short_flush_is_of_a_drive_with_capacitors():
    plain = [row(16 * K, 1, 49474.0), row(2 * M, 4, 708.0)]
    synced = replace(row(16 * K, 1, 46720.6), sync="fdatasync", mean_s=19.9e-6)
    fit = fit_drive([*plain, synced])
    assert (fit.profile.write.volatile, fit.profile.write.flush) == (False, None)


SYNCED_983 = {1: 4000, 8: 22570}
"""Requests/s by jobs."""


def test_sequential_writes_with_flushes_tell_latencies_and_no_stream():
    """Published rows of a Samsung 983 DCT, 4 KiB with fdatasync after each write."""
    rows = [
        replace(row(4 * K, jobs, iops), random=False, sync="fdatasync")
        for jobs, iops in SYNCED_983.items()
    ]
    fit = fit_drive(rows)
    assert not fit.misses
    assert max(abs(fit.residuals)) < 0.03


@pytest.mark.parametrize(("iops", "is_volatile"), [(1420, True), (18e3, False)])
def test_a_lone_write_that_waits_for_flash_is_of_a_volatile_cache(iops, is_volatile):
    """Eight threads share flushes: four times the writes of one, give or take."""
    rows = [replace(row(4 * K, 1, iops), random=False, sync="fdatasync")]
    fit = fit_drive(rows, captured_on="linux-libaio,pcie4 x4,2.4 GHz")
    write = fit.profile.write
    assert not fit.misses
    assert write.volatile is is_volatile
    eight = replace(row(4 * K, 8, iops), random=False, sync="fdatasync")
    if is_volatile:
        assert write.flush.value + write.base.value == pytest.approx(1e12 / iops, rel=0.05)
        assert predicted(fit, eight) == pytest.approx(4 * iops, rel=0.05)
    else:
        assert predicted(fit, eight) > 7 * iops


SMALL_READS = [row(4 * K, 1, 14_000.0, read=1.0), row(4 * K, 4, 700_000.0, read=1.0, depth=64)]


def test_what_a_large_read_takes_is_open_until_rows_tell_it():
    """By lone reads of 4 KiB, within a factor of 4.8, or by a lone read of 16 KiB; else bytes."""
    few = fit_drive(SMALL_READS).profile.read
    lone = few.base.value + few.die.value
    assert few.large is not None
    assert few.large.basis == "assumed"
    assert few.large.value == pytest.approx(0.7 * lone, rel=1e-6)
    assert few.large.high / few.large.value == pytest.approx(4.8, rel=0.01)

    page = row(16 * K, 1, 9_000.0, read=1.0)
    fit = fit_drive([*SMALL_READS, page])
    assert fit.profile.read.large.basis == "fitted"
    assert predicted(fit, page) == pytest.approx(page.iops, rel=0.02)

    sizes = [row(64 * K, 1, 7_800.0, read=1.0), row(256 * K, 1, 4_000.0, read=1.0)]
    assert fit_drive([*SMALL_READS, *sizes]).profile.read.large is None


def test_requests_that_a_drive_cannot_hold_tell_no_longer_latency():
    """1,024 of 4,096 are at the drive: they take 21 ms, not 85."""
    deep = row(4 * K, 1, 47969.4, depth=4096)
    assert line_of([deep]).latency == pytest.approx(1024 / deep.iops, rel=0.01)


def test_a_slow_volume_moves_more_bytes_than_a_small_buffer_holds_meanwhile():
    """Writes that take 21 ms each: 64 of 256 KiB are 16 MiB under way."""
    rows = [row(4 * K, 1, 47.0), row(256 * K, 1, 2900.0, depth=64)]
    fit = fit_drive(rows)
    assert [predicted(fit, p) for p in rows] == pytest.approx([p.iops for p in rows], rel=0.05)


def test_rows_of_one_depth_tell_a_cap_where_no_usual_latency_explains_them():
    """github microsoft/lisa#761 and cloud-hypervisor#4387: sizes at depth 64."""
    for small, large, size in ((27709.5, 1536.6, 256), (224e3, 14160.0, 128)):
        rows = [row(4 * K, 1, small, depth=64), row(size * K, 1, large, depth=64)]
        fit = fit_drive(rows)
        assert [predicted(fit, p) for p in rows] == pytest.approx([small, large], rel=0.03)


def test_two_reads_in_flight_that_hardly_wait_tell_no_ceiling():
    """github vineethac/vsphere_diskspd_windows@391917b: two threads took 126 us, and one 100."""
    rows = [row(4 * K, 1, 10014.6, read=1.0), row(4 * K, 2, 15783.0, read=1.0),
            row(64 * K, 1, 7699.3, read=1.0)]  # fmt: skip
    fit = fit_drive(rows)
    assert predicted(fit, row(4 * K, 2, 102178.6, read=1.0, depth=8)) > 80e3
    assert predicted(fit, row(64 * K, 2, 54441.8, read=1.0, depth=4)) > 40e3


def test_many_writes_that_take_longer_than_a_remote_disk_wait_for_a_ceiling():
    """github miztiik/ebs-gp3-perf@450cd11: 256 in flight take 58 ms at either size; two double."""
    fit = fit_drive([row(size * K, 16, iops, depth=16) for size, iops in ((4, 4395), (256, 4170))])
    two = row(4 * K, 16, 8780.0, drives=2, depth=16)
    assert predicted(fit, two) == pytest.approx(8780, rel=0.05)


def test_a_lone_large_read_is_of_no_die_and_tells_a_bandwidth_roughly():
    """1712 KiB one at a time: no die reads that at once, and a small read takes no 0.45 ms.

    The NVMe of a GB10 (github file 57125584063); four in flight move 7.36 GB/s.
    """
    lone = row(1712 * K, 1, 2215.48, read=1.0)
    fit = fit_drive([lone])
    assert not fit.misses
    assert predicted(fit, lone) == pytest.approx(lone.iops, rel=0.1)
    assert 12e3 < predicted(fit, row(4 * K, 1, 1.0, read=1.0)) < 22e3
    width = fit.profile.read_bandwidth
    assert lone.iops * lone.block_size < width.value < 7.36e9 < width.high
    stream = Point("", 1.0, False, 1 * M, 1, 32, 3e3, None)
    assert fit_drive([lone, stream]).profile.read_bandwidth.value < 4.5e9


def test_two_sizes_of_lone_large_reads_tell_about_the_bandwidth():
    """Of a drive on a Gen4 link (S15-1 of held-out): 18 MiB at depth 8 move 4.64 GB/s."""
    rows = [row(1 * M, 1, 1580.2, read=1.0), row(2 * M, 1, 1132.5, read=1.0)]
    fit = fit_drive(rows)
    assert [predicted(fit, p) for p in rows] == pytest.approx([p.iops for p in rows], rel=0.03)
    deep = row(18360 * K, 1, 1.0, read=1.0, depth=8)
    assert predicted(fit, deep) == pytest.approx(246.7, rel=0.3)
    assert fit.profile.read_bandwidth.high > 6e9


@pytest.mark.parametrize(("size", "iops"), [(128 * K, 5000.0), (1 * M, 1500.0)])
def test_a_lone_large_write_tells_how_long_one_takes(size, iops):
    """Alone it waits for no drain: what the host and the link leave is the drive's own time."""
    lone = row(size, 1, iops)
    fit = fit_drive([lone])
    assert not fit.misses
    assert predicted(fit, lone) == pytest.approx(iops, rel=0.05)
