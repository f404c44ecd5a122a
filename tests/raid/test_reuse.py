"""Random writes whose rows are still in the stripe cache."""

import numpy as np
import pytest

from nvmesim.raid.arrays import expectation
from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.planner.parity import StripeCache
from nvmesim.raid.tables import plan_table
from tests.raid.requests import plan_request
from tests.raid.volumes import ready_for, simulated

MIB = 1 << 20


def five(**more):
    return RaidGeometry(5, 4, 65536, member_size=1 << 30, **more)


def reads(geometry, span, **more):
    return expectation(plan_table(geometry, "write", 4096, span=span, **more)).reads


def test_a_span_that_fits_the_stripe_cache_is_not_read():
    assert reads(five(stripe_cache=8192), 16 * MIB) == pytest.approx(0, abs=0.02)
    assert reads(five(), 16 * MIB) == pytest.approx(2 * (1 - 256 / (16 * MIB / 3 / 4096)), rel=0.05)


def test_a_large_volume_reads_as_if_nothing_were_cached():
    assert reads(five(), None) == 2
    assert reads(five(stripe_cache=8192), None) == 2  # 3 % of the rows: left to the exact mean
    plain = plan_table(five(), "read", 4096, span=MIB)
    assert expectation(plain).reads == 1


@pytest.mark.parametrize("degraded", [(), (1,)])
def test_what_is_reused_is_what_a_long_run_reuses(degraded):
    """The planner request by request, with its cache, from another seed."""
    geometry = five(degraded=degraded)
    span = 8 * MIB
    rng = np.random.default_rng(7)
    cache = StripeCache(256)
    plans = [
        plan_request(geometry, "write", int(k) * 4096, 4096, cache)
        for k in rng.integers(0, span // 4096, 30_000)
    ]
    counted = sum(plan.count("read")[0] for plan in plans[5_000:]) / 25_000
    assert reads(geometry, span) == pytest.approx(counted, rel=0.05)


def test_it_reaches_the_prediction():
    load = {"read": 0.0, "threads": 1, "outstanding": 1, "span": "16 MiB"}
    volume = {"raid": "raid5", "chunk": "64 KiB", "stripe_cache": 8192}
    assert simulated(ready_for(volume, load), 2_000).sum(axis=0)[0] < 0.1
    whole = simulated(ready_for(volume, {**load, "span": "100 GiB"}), 2_000)
    assert whole.sum(axis=0)[0] == pytest.approx(2)
