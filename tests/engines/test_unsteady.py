"""Token buckets and bursts against what theory says, in both engines."""

from __future__ import annotations

import numpy as np
import pytest

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Acc
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.errors import NetworkError
from nvmesim.network.check import check
from nvmesim.network.network import HORIZON_PS, SCALE_ONE, Network
from tests.engines import builder as b

ENGINES = (CompiledEngine, ReferenceEngine)
Engines = type[CompiledEngine] | type[ReferenceEngine]


def limited(arrivals: list[int], takes: int, saved: int) -> Network:
    net = b.NetworkBuilder()
    bucket = net.limit(saved)
    flow = b.Flow(net.program(b.visit(bucket, takes)), [net.plan()])
    net.group([[flow]], [b.User(net.thread(), arrivals=[(t, 0) for t in arrivals])], replay=True)
    return net.build()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("arrivals", "saved", "ends"),
    [
        # nothing saved up: the first at once (1 ps later), then one each 10
        ([0, 0, 0, 35], 0, [1, 11, 21, 36]),
        # three may go at once; then the bucket refills
        ([0, 0, 0, 0, 0], 30, [1, 1, 1, 11, 21]),
        # what is saved up ends at the bucket's size, however long the pause
        ([0, 1000, 1000, 1000, 1000], 30, [1, 1001, 1001, 1001, 1011]),
        # refilled by half: two wait, the first for the other half
        ([0, 0, 5, 5], 20, [1, 1, 11, 21]),
        # one that takes more than the bucket holds leaves when it was full
        ([0, 0], 5, [1, 11]),
    ],
)
def test_a_token_bucket_by_hand(
    engine: Engines, arrivals: list[int], saved: int, ends: list[int]
) -> None:
    run = engine(limited(arrivals, 10, saved), record=True)
    batch = run.advance(99, HORIZON_PS)
    records = run.records()
    assert records[records[:, 0].argsort(), 6].tolist() == ends
    acc = batch.stations[0]
    assert acc[Acc.VISITS] == len(arrivals)
    assert acc[Acc.SERVICE] == acc[Acc.WORK] == 10 * len(arrivals)
    assert acc[Acc.WAIT] == sum(ends) - sum(arrivals) - len(arrivals)


def test_no_window_holds_more_than_the_bucket_and_its_rate() -> None:
    """The arrival curve of a token bucket, b + r t (Cruz, IEEE Trans. Inf. Theory 37(1), 1991)."""
    rng = np.random.default_rng(3)
    arrivals = np.cumsum(rng.exponential(9, 20_000).astype(int)).tolist()
    run = CompiledEngine(limited(arrivals, 10, 120), record=True)
    run.advance(20_000, HORIZON_PS)
    ends = np.sort(run.records()[:, 6])
    for n in (12, 13, 20, 100, 1000):
        # n requests leave in no less time than it takes to earn those beyond the bucket's twelve
        assert int((ends[n - 1 :] - ends[: len(ends) - n + 1]).min()) >= 10 * (n - 12)
    # and the bucket is used to its bottom: one request more would have been too many
    assert int((ends[99:] - ends[:-99]).min()) < 10 * (101 - 12)


def bursts(lengths: int, pause: int, slow: tuple[int, int], mean: float = 1000.0) -> Network:
    net = b.NetworkBuilder()
    gap = net.exponential(mean)
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
    spread = np.sqrt(counts.var() / n)
    assert counts.mean() == pytest.approx(rate * window, abs=4 * spread)
    # of n counts the variance is known to about sqrt(2 / n)
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=4 * np.sqrt(2 / n) + 0.05)


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_arrives_between_silent_bursts_of_fixed_length(engine: Engines) -> None:
    run = engine(bursts(-5000, -15_000, (SCALE_ONE // 4, 0)), record=True)
    run.advance(3000, HORIZON_PS)
    at = run.records()[:, 4]
    assert (at % 20_000 <= 5000).all()
    # 20 a burst of 5,000 ps at 250 ps each
    bursts_seen = at.max() / 20_000
    assert len(at) / bursts_seen == pytest.approx(20, rel=4 / np.sqrt(3000))


def test_bursts_need_gaps() -> None:
    net = b.NetworkBuilder()
    on = net.uniform(5, 5)
    flow = b.Flow(net.program(b.visit(net.delay(), 1)), [net.plan()])
    net.group([[flow]], [b.User(net.thread())], bursts=(on, on, SCALE_ONE, SCALE_ONE))
    with pytest.raises(NetworkError, match="bursts without gaps"):
        check(net.build())
