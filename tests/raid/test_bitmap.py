"""What md's internal bitmap costs random writes: nothing, or a write a member each."""

import math

import numpy as np
import pytest

import nvmesim as ns
from nvmesim.predict.pilots import clean_share, since_share
from tests.raid.volumes import ready_for, scenario, simulated

TEN = {"raid": "raid10", "chunk": "64 KiB", "bitmap": "internal"}
ALONE = {"read": 0.0, "threads": 1, "outstanding": 1}


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
        ns.simulate(scenario(v, {**ALONE, "outstanding": 8}, drives=disks), requests=2_000,
                    reliefs=False, certainty=False).total.iops.value
        for v in (TEN, plain)
    )  # fmt: skip
    assert slow < 0.75 * fast


def test_a_busy_array_keeps_its_regions_dirty():
    assert writes(TEN, {"read": 0.0, "threads": 8, "outstanding": 16})[1] == pytest.approx(
        2, rel=0.005
    )
    narrow = {**ALONE, "span": "10 GiB"}
    assert writes(TEN, narrow)[1] == pytest.approx(2, rel=0.005)


def test_a_light_load_on_a_large_array_pays_sometimes():
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
    iops = ns.simulate(load, requests=20_000, reliefs=False, certainty=False).total.iops.value
    regions, seconds, write = 1e12 / (512 << 20), 9.0, 6e-3
    marked = regions * -math.expm1(-iops * seconds / regions)
    again = iops * seconds * since_share(iops / regions, seconds) - marked
    assert (marked + again) * write == pytest.approx(seconds, rel=0.06)
    assert 0.01 * marked < again < 0.1 * marked
