"""Interval honesty: how often 95 % intervals hold the known truth, at fixed seeds.

95 % intervals of 200 runs cover fewer than 91 % with probability 0.6 % a quantity (binomial); the
seeds are fixed, so the outcome is too, and only a changed estimator can change it.
"""

import numpy as np
import pytest

from nvmesim.measure.control import RunGoal
from nvmesim.measure.latency import distribution
from nvmesim.network.network import Network
from tests.predict.networks import MEAN_PS, measure, mm1, mm1_exact, mva, network

LEAST = 0.91
"""Coverage that an honest 95 % interval must reach."""
SHORT, LONG = 60_000, 300_000
CLOSED = (1.0, 0.8, 0.5)


def coverage(
    net: Network, exact: dict[str, float], runs: int, goal: RunGoal, *, is_open: bool
) -> dict[str, tuple[float, int]]:
    """Share of intervals that hold the exact value, and how many were given."""
    hits: dict[str, list[bool]] = {name: [] for name in exact}
    for seed in range(runs):
        window = measure(net, goal, is_open=is_open, seed=1000 + seed).window
        iops = window.iops()
        dist = distribution(window, None)
        given = {"iops": (iops.low, iops.high), **dist.intervals}
        for name, value in exact.items():
            if name in given:
                hits[name].append(given[name][0] <= value <= given[name][1])
    return {name: (float(np.mean(h)), len(h)) for name, h in hits.items() if h}


def show(what: str, found: dict[str, tuple[float, int]]) -> None:
    print(what, ", ".join(f"{k} {100 * c:.1f} % of {n}" for k, (c, n) in found.items()))


def require(found: dict[str, tuple[float, int]], names: set[str]) -> None:
    assert names <= found.keys()
    assert {k: c for k, (c, _) in found.items() if c < LEAST} == {}


@pytest.mark.parametrize("load", [0.5, 0.7])
@pytest.mark.long
def test_open_queue_short_runs(load: float) -> None:
    exact = {k: v for k, v in mm1_exact(load).items() if k != "p99.9"}
    found = coverage(mm1(load), exact, 200, RunGoal(None, SHORT), is_open=True)
    show(f"M/M/1 at {load}", found)
    require(found, {"iops", "mean", "p50", "p90", "p99"})


@pytest.mark.long
def test_closed_network_short_runs() -> None:
    net = network([s * MEAN_PS for s in CLOSED], users=16)
    iops, mean = mva([s * 1e-6 for s in CLOSED], 16)
    exact = {"iops": iops, "mean": mean}
    found = coverage(net, exact, 200, RunGoal(None, 20_000), is_open=False)
    show("closed network of 16", found)
    require(found, {"iops", "mean"})


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.5, 0.7])
def test_open_queue_500_runs(load: float) -> None:
    found = coverage(mm1(load), mm1_exact(load), 500, RunGoal(None, LONG), is_open=True)
    show(f"M/M/1 at {load}, {LONG} requests", found)
    require(found, {"iops", "mean", "p50", "p90", "p99", "p99.9"})


@pytest.mark.slow
def test_autocorrelated_load_stopped_at_a_precision_500_runs() -> None:
    """Time in a queue at 85 % load is correlated over hundreds of requests."""
    found = coverage(mm1(0.85), mm1_exact(0.85), 500, RunGoal(0.01), is_open=True)
    show("M/M/1 at 0.85, precision 1 %", found)
    require(found, {"iops", "mean", "p50", "p90", "p99", "p99.9"})


@pytest.mark.slow
@pytest.mark.parametrize("users", [1, 16, 256])
def test_closed_network_500_runs(users: int) -> None:
    net = network([s * MEAN_PS for s in CLOSED], users=users)
    iops, mean = mva([s * 1e-6 for s in CLOSED], users)
    found = coverage(net, {"iops": iops, "mean": mean}, 500, RunGoal(None, 100_000), is_open=False)
    show(f"closed network of {users}", found)
    require(found, {"iops", "mean"})


@pytest.mark.slow
@pytest.mark.parametrize("services", [(0.5, 1.0), (1.0, 0.5)], ids=["full", "saturated"])
def test_warm_up_from_a_crowd_500_runs(services: tuple[float, float]) -> None:
    """200 users all start at the first queue; it is not (full), or is (saturated), where they end.

    From empty start the runs of `test_open_queue_500_runs`.
    """
    net = network([s * MEAN_PS for s in services], users=200)
    iops, mean = mva([s * 1e-6 for s in services], 200)
    found = coverage(net, {"iops": iops, "mean": mean}, 500, RunGoal(None, 20_000), is_open=False)
    show(f"crowd of 200 before {services}", found)
    require(found, {"iops", "mean"})


@pytest.mark.slow
def test_long_memory_500_runs() -> None:
    """At 95 % load the queue remembers thousands of requests, and a run starts empty."""
    exact = {k: v for k, v in mm1_exact(0.95).items() if k != "p99.9"}
    found = coverage(mm1(0.95), exact, 500, RunGoal(None, 2 * LONG), is_open=True)
    show(f"M/M/1 at 0.95, {2 * LONG} requests", found)
    require(found, {"iops", "mean", "p50", "p90", "p99"})
