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


FULL = ("iops", "mean", "p50", "p90", "p99", "p99.9")
OPEN = (
    # utilization, runs, where each ends, figures
    *((load, 200, RunGoal(None, SHORT), FULL[:-1], pytest.mark.long) for load in (0.5, 0.7)),
    *((load, 500, RunGoal(None, LONG), FULL, pytest.mark.slow) for load in (0.5, 0.7)),
    # time in a queue at 85 % load is correlated over hundreds of requests
    (0.85, 500, RunGoal(0.01), FULL, pytest.mark.slow),
    # at 95 % the queue remembers thousands of requests, and a run starts empty
    (0.95, 500, RunGoal(None, 2 * LONG), FULL[:-1], pytest.mark.slow),
)


@pytest.mark.parametrize(
    ("load", "runs", "goal", "names"), [pytest.param(*case, marks=mark) for *case, mark in OPEN]
)
def test_open_queue(load: float, runs: int, goal: RunGoal, names: tuple[str, ...]) -> None:
    exact = {k: v for k, v in mm1_exact(load).items() if k in names}
    found = coverage(mm1(load), exact, runs, goal, is_open=True)
    show(f"M/M/1 at {load}, {runs} runs to {goal.requests or goal.precision} each", found)
    require(found, set(names))


CLOSED = (
    # services in units of a mean, users, runs, requests of each
    ((1.0, 0.8, 0.5), 16, 200, 20_000, pytest.mark.long),
    *(((1.0, 0.8, 0.5), users, 500, 100_000, pytest.mark.slow) for users in (1, 16, 256)),
    # a crowd starts at the first queue; it is not, or is, where they end
    *((services, 200, 500, 20_000, pytest.mark.slow) for services in ((0.5, 1.0), (1.0, 0.5))),
)


@pytest.mark.parametrize(
    ("services", "users", "runs", "requests"),
    [pytest.param(*case, marks=mark) for *case, mark in CLOSED],
)
def test_closed_network(services: tuple[float, ...], users: int, runs: int, requests: int) -> None:
    net = network([s * MEAN_PS for s in services], users=users)
    iops, mean = mva([s * 1e-6 for s in services], users)
    goal = RunGoal(None, requests)
    found = coverage(net, {"iops": iops, "mean": mean}, runs, goal, is_open=False)
    show(f"closed network of {users} at {services}", found)
    require(found, {"iops", "mean"})
