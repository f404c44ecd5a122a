"""Token buckets and bursts against what theory says."""

import numpy as np
import pytest

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.errors import NetworkError
from nvmesim.network.check import check
from nvmesim.network.network import HORIZON_PS, SCALE_ONE, Network
from tests.engines import builder as b
from tests.engines.test_by_hand import Engines, arriving, both_engines, ends


def test_no_window_holds_more_than_the_bucket_and_its_rate() -> None:
    """The arrival curve of a token bucket, b + r t (Cruz, IEEE Trans. Inf. Theory 37(1), 1991)."""
    rng = np.random.default_rng(3)
    at = np.cumsum(rng.exponential(9, 20_000).astype(int)).tolist()
    found = np.sort(ends(CompiledEngine, arriving(at, lambda net: net.limit(120)), 20_000)[0])
    for n in (12, 13, 20, 100, 1000):
        # n requests leave in no less time than it takes to earn those beyond the bucket's twelve
        assert int((found[n - 1 :] - found[: len(found) - n + 1]).min()) >= 10 * (n - 12)
    # and the bucket is used to its bottom: one request more would have been too many
    assert int((found[99:] - found[:-99]).min()) < 10 * (101 - 12)


def bursts(lengths: int, pause: int, slow: tuple[int, int]) -> Network:
    net = b.NetworkBuilder()
    gap = net.exponential(1000.0)
    on, off = (net.exponential(v) if v > 0 else net.uniform(-v, -v) for v in (lengths, pause))
    flow = b.Flow(net.program(b.visit(net.delay(), 1)), [net.plan()])
    net.group([[flow]], [b.User(net.thread())], gap=gap, bursts=(on, off, *slow))
    return net.build()


def test_a_modulated_poisson_process_has_its_rate_and_dispersion() -> None:
    """Counts of an MMPP of two states: mean, and variance over mean for long windows.

    Limit of the index of dispersion: 1 + 2 (l1 - l2)^2 r1 r2 / ((r1 + r2)^2 (l1 r2 + l2 r1)),
    Heffes and Lucantoni, IEEE JSAC 4(6), 1986.
    """
    peak, quiet = 4.0, 0.25
    on, off = 20_000, 60_000
    slow = (round(SCALE_ONE / peak), round(SCALE_ONE / quiet))
    run = CompiledEngine(bursts(on, off, slow), record=True)
    run.advance(200_000, HORIZON_PS)
    at = run.records()[:, 4]
    r1, r2, l1, l2 = 1 / on, 1 / off, peak / 1000, quiet / 1000
    rate = (l1 * r2 + l2 * r1) / (r1 + r2)
    window = 2_000_000
    counts = np.bincount(at // window)[1:-1]
    dispersion = 1 + 2 * (l1 - l2) ** 2 * r1 * r2 / ((r1 + r2) ** 2 * (l1 * r2 + l2 * r1))
    n = len(counts)
    assert counts.mean() == pytest.approx(rate * window, abs=4 * np.sqrt(counts.var() / n))
    # of n counts the variance is known to about sqrt(2 / n)
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=4 * np.sqrt(2 / n) + 0.05)


@both_engines
def test_nothing_arrives_between_silent_bursts_of_fixed_length(engine: Engines) -> None:
    run = engine(bursts(-5000, -15_000, (SCALE_ONE // 4, 0)), record=True)
    run.advance(3000, HORIZON_PS)
    at = run.records()[:, 4]
    assert (at % 20_000 <= 5000).all()
    # 20 a burst of 5,000 ps at 250 ps each
    assert len(at) / (at.max() / 20_000) == pytest.approx(20, rel=4 / np.sqrt(3000))


def test_bursts_need_gaps() -> None:
    net = b.NetworkBuilder()
    on = net.uniform(5, 5)
    flow = b.Flow(net.program(b.visit(net.delay(), 1)), [net.plan()])
    net.group([[flow]], [b.User(net.thread())], bursts=(on, on, SCALE_ONE, SCALE_ONE))
    with pytest.raises(NetworkError, match="bursts without gaps"):
        check(net.build())
