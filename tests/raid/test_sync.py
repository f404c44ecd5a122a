"""What md writes besides data: flushes of the load, FUA, and the bitmap."""

import math

import numpy as np
import pytest

from nvmesim.errors import ScenarioError
from nvmesim.predict.pilots import clean_share, since_share
from tests.raid.test_volume_load import ALONE
from tests.raid.volumes import DRIVE, ready_for, scenario, simulated
from tests.servers import bare

# the command itself as short as a write's acknowledgement: what is waited for is the dies
VOLATILE = {"extends": "samsung-980pro-1tb", "write": {"flush": "12.28 us"}}

VOLUMES = {
    "raid0": ({"raid": "raid0", "chunk": "64 KiB"}, 4, 1),
    "raid1": ({"raid": "raid1"}, 2, 2),
    "raid10": ({"raid": "raid10", "chunk": "64 KiB"}, 4, 2),
    "raid5": ({"raid": "raid5", "chunk": "64 KiB"}, 4, 2),
    "raid6": ({"raid": "raid6", "chunk": "64 KiB"}, 6, 3),
}


def run(volume, load, *, drive=DRIVE, count=4, requests=4_000):
    drives = [{"profile": drive, "count": count}]
    asked = scenario(volume, {**ALONE, **load}, drives=drives)
    return bare(asked, requests=requests)


@pytest.mark.parametrize("name", VOLUMES)
@pytest.mark.parametrize("every", [1, 4])
def test_a_flush_goes_to_every_member_of_any_level(name, every):
    """Linux md: one flush on every member, raid0 too, each counted as a write of 0 sectors."""
    volume, count, writes = VOLUMES[name]
    drives = [{"profile": VOLATILE, "count": count}]
    plain = simulated(ready_for(volume, ALONE, drives=drives), 3_000)
    flushed = simulated(ready_for(volume, {**ALONE, "fsync": every}, drives=drives), 3_000)
    assert plain[:, 1].sum() == pytest.approx(writes)
    error = 4 * count * np.sqrt((1 - 1 / every) / every / 3_000)
    assert (flushed - plain)[:, 1].sum() == pytest.approx(count / every, abs=error + 1e-9)
    assert flushed[:, 5].sum() == pytest.approx(plain[:, 5].sum(), rel=1e-3)  # no byte more


def test_flushes_of_missing_members_of_a_jbod_and_of_captured_drives():
    volume = {"raid": "raid6", "chunk": "64 KiB", "degraded": [0, 3]}
    drives = [{"profile": VOLATILE, "count": 6}]
    whole = simulated(ready_for(volume, ALONE, drives=drives), 2_000)
    flushed = simulated(ready_for(volume, {**ALONE, "fdatasync": 1}, drives=drives), 2_000)
    more = (flushed - whole)[:, 1]
    assert more[[0, 3]] == pytest.approx([0, 0])
    assert more[[1, 2, 4, 5]] == pytest.approx([1, 1, 1, 1], abs=0.1)
    drives = [{"profile": VOLATILE, "count": 4}]
    asked = scenario({"raid": "raid0"}, {**ALONE, "fsync": 1, "targets": ["drive0"]}, drives=drives)
    result = bare(asked, requests=2_000)
    assert [m.writes_per_request for m in result.members] == pytest.approx([2, 0, 0, 0])
    latencies = {"queue_depth": 1, "block_size": "4 KiB", "write_us": [100.0]}
    drives = [{"profile": {"extends": "sata-ssd", "latencies": latencies}, "count": 2}]
    with pytest.raises(ScenarioError, match="holds no flushes"):
        ready_for({"raid": "raid1"}, {**ALONE, "fsync": 1}, drives=drives)


def test_flushes_wait_for_volatile_buffers_and_for_all_that_is_in_them():
    """At depth 1 a volatile buffer holds one write: its program is what the flush waits for."""
    mirror = {"raid": "raid1"}
    safe = run(mirror, {"fsync": 1}, count=2).sync
    lost = run(mirror, {"fsync": 1}, drive=VOLATILE, count=2).sync
    assert safe.mean < 40e-6
    program = 131.1e-6
    assert program < lost.mean < program + 50e-6
    assert run(mirror, {}, count=2).sync is None
    # 64 writes wait on 48 dies: the flush behind them ends with the fullest die.
    fields = {"fsync": 64, "outstanding": 1}
    one = run({"raid": "raid1"}, {**fields, "fsync": 1}, drive=VOLATILE, count=2)
    many = run({"raid": "raid1"}, {**fields, "block_size": "256 KiB", "fsync": 1}, drive=VOLATILE,
               count=2, requests=1_000)  # fmt: skip
    assert many.sync.mean > 2 * one.sync.mean


def test_a_flush_is_no_part_of_its_write_and_free_behind_a_battery():
    """As fio counts: the write is answered, then the flush is submitted."""
    plain, flushed = (run({"raid": "raid1"}, more, drive=VOLATILE) for more in ({}, {"fsync": 1}))
    assert flushed.write.latency.mean == pytest.approx(plain.write.latency.mean, rel=0.15)
    period = 1 / flushed.total.iops.value
    parts = flushed.write.latency.mean + flushed.sync.mean
    assert period == pytest.approx(parts, rel=0.01)
    assert flushed.sync.per_s == pytest.approx(flushed.total.iops.value, rel=0.01)
    # A controller with a protected cache answers a flush itself.
    volume = {"raid": "raid5", "chunk": "64 KiB", "engine": "hardware-raid"}
    plain, flushed = (run(volume, more, requests=2_000) for more in ({}, {"fsync": 1}))
    writes = [sum(m.writes_per_request for m in r.members) for r in (plain, flushed)]
    assert writes[1] == pytest.approx(writes[0], rel=0.1)
    assert flushed.sync.mean < 100e-6


@pytest.mark.parametrize("sync", ["dsync", "sync"])
def test_write_through_waits_for_the_die_of_a_volatile_drive_only(sync):
    volume = {"raid": "raid0", "chunk": "64 KiB"}
    for drive, least, most in ((DRIVE, 0, 1e-6), (VOLATILE, 120e-6, 160e-6)):
        plain, through = (run(volume, more, drive=drive) for more in ({}, {"sync": sync}))
        difference = through.write.latency.mean - plain.write.latency.mean
        assert least <= difference <= most
        sent = [sum(m.writes_per_request for m in r.members) for r in (plain, through)]
        assert sent[0] == pytest.approx(sent[1])  # no command more: it is a bit of the write


TEN = {"raid": "raid10", "chunk": "64 KiB", "bitmap": "internal"}


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_the_share_is_that_of_a_daemon_that_looks_every_five_seconds(rate):
    """One region, written at random: clean once two looks in a row found it untouched."""
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.exponential(1 / rate, 200_000))
    # the second look at or after the last write cleans: 5 to 10 s behind it
    cleaned = (np.floor(times[:-1] / 5) + 2) * 5
    found = float(np.mean(times[1:] > cleaned))
    assert clean_share(rate) == pytest.approx(found, rel=0.03)
    assert clean_share(0) == 1
    assert math.isclose(clean_share(1e-6), 1, rel_tol=1e-4)


@pytest.mark.parametrize(("rate", "seconds"), [(0.02, 10.0), (0.15, 10.0), (0.15, 30.0), (2.0, 4)])
def test_the_share_of_the_first_seconds_counts_what_falls_clean_again(rate, seconds):
    """Many regions from a clean bitmap, the daemon's looks where they happen to be."""
    rng = np.random.default_rng(4)
    found = total = 0
    for _ in range(20_000):
        times = rng.uniform(0, seconds, rng.poisson(rate * seconds))
        times.sort()
        phase = rng.uniform(0, 5)
        cleaned = (np.floor((times + phase) / 5) + 2) * 5 - phase
        found += min(1, len(times)) + int((times[1:] > cleaned[:-1]).sum())
        total += len(times)
    assert since_share(rate, seconds) == pytest.approx(found / total, rel=0.02)


def writes(volume, load, **more):
    return simulated(ready_for(volume, load, **more), 3_000).sum(axis=0)


def test_disks_pay_at_almost_every_write():
    """Some hundred writes a second over 119,000 regions: each has fallen clean by the next."""
    disks = [{"profile": "hdd-7200", "count": 4}]
    found = writes(TEN, {**ALONE, "outstanding": 8}, drives=disks)
    assert found[1] == pytest.approx(2 + 4, rel=0.05)
    plain = {**TEN, "bitmap": "none"}
    slow, fast = (
        run(v, {"outstanding": 8}, drive="hdd-7200", requests=2_000) for v in (TEN, plain)
    )
    assert slow.total.iops.value < 0.75 * fast.total.iops.value


def test_a_bitmap_costs_busy_and_light_loads_less_than_disks():
    assert writes(TEN, {"read": 0.0, "threads": 8, "outstanding": 16})[1] == pytest.approx(
        2, rel=0.005
    )
    narrow = {**ALONE, "span": "10 GiB"}
    assert writes(TEN, narrow)[1] == pytest.approx(2, rel=0.005)
    regions = 2 * 1.6e12 / (64 << 20)
    # several outstanding: a bitmap write of 512 B is slow, and one alone would not reach the limit
    found = writes(TEN, {**ALONE, "outstanding": 8, "rate_limit": "5k/s"})[1]
    assert found == pytest.approx(2 + 4 * clean_share(5_000 / regions), rel=0.05)
    assert 3 < found < 5


@pytest.mark.parametrize("bitmap", ["none", "external"])
def test_no_bitmap_on_the_members_costs_nothing(bitmap):
    assert writes({**TEN, "bitmap": bitmap}, ALONE)[1] == pytest.approx(2, rel=0.005)


def test_a_short_benchmark_is_mostly_first_writes():
    """One outstanding write, 6 ms for a bitmap's: it marks as many regions as the time allows.

    A few of them twice, as they fall clean again.
    """
    profile = {"extends": "samsung-980pro-1tb", "write": {"flush": "6 ms"}}
    bitmap = {"kind": "internal", "chunk": "512 MiB", "since_clean": "9 s"}
    load = scenario(
        {"raid": "raid5", "bitmap": bitmap}, ALONE,
        drives=[{"profile": profile, "count": 3, "state": "empty"}],
    )  # fmt: skip
    iops = bare(load, requests=20_000).total.iops.value
    regions, seconds, write = 1e12 / (512 << 20), 9.0, 6e-3
    marked = regions * -math.expm1(-iops * seconds / regions)
    again = iops * seconds * since_share(iops / regions, seconds) - marked
    assert (marked + again) * write == pytest.approx(seconds, rel=0.06)
    assert 0.01 * marked < again < 0.1 * marked
