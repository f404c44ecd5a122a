"""Known queueing systems as networks, and runs of them."""

import math
from collections.abc import Sequence

import numpy as np

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.measure.control import Controller, Measured, RunGoal
from nvmesim.measure.steady import Reducer, RunLoad
from nvmesim.network.network import Network
from tests.engines.builder import NetworkBuilder, visit

US = 10**6
MEAN_PS = US


def network(means_ps: Sequence[float], *, users: int = 1, gap_ps: float | None = None) -> Network:
    """Single servers in a row, exponential service; open with exponential gaps, else closed."""
    net = NetworkBuilder()
    program = net.program(*(visit(net.fifo(), dist=net.exponential(mean)) for mean in means_ps))
    if gap_ps:
        net.opened(program, net.exponential(gap_ps))
    else:
        net.closed(program, users)
    return net.build()


def mm1(load: float) -> Network:
    """M/M/1 with a mean service time of 1 us."""
    return network([MEAN_PS], gap_ps=MEAN_PS / load)


def mm1_exact(load: float) -> dict[str, float]:
    """IOPS, mean and percentiles of the time in M/M/1, s: exponential with mean S / (1 - load)."""
    mean = 1e-6 / (1 - load)
    tail = {f"p{q:g}": -math.log(1 - q / 100) * mean for q in (50.0, 90.0, 99.0, 99.9)}
    return {"iops": load * 1e6, "mean": mean, **tail}


def mva(means_s: Sequence[float], users: int) -> tuple[float, float]:
    """Throughput and mean cycle time of a closed network. Source: Reiser and Lavenberg, 1980."""
    queue = [0.0] * len(means_s)
    throughput = cycle = 0.0
    for n in range(1, users + 1):
        times = [s * (1 + q) for s, q in zip(means_s, queue, strict=True)]
        cycle = sum(times)
        throughput = n / cycle
        queue = [throughput * t for t in times]
    return throughput, cycle


def plain_reducer() -> Reducer:
    return Reducer(np.array([[4096.0], [0.0]]), lambda alternatives: np.zeros((0, 6)))


def measure(
    net: Network, goal: RunGoal, *, is_open: bool, seed: int = 1, users: int = 0
) -> Measured:
    engine = CompiledEngine(net, seed=seed)
    load = RunLoad(is_open=is_open, in_flight=users)
    return Controller(engine, plain_reducer(), goal, load).run()
