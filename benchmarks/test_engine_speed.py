"""Compiled engine against the same network in SimPy as its documentation shows: `pytest -s`."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import numpy as np
import simpy
from scipy.stats import lognorm

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.network.network import Network
from tests.engines import builder as b

US = 10**6
USERS, DRIVES, DIES, CORES = 256, 4, 48, 16
SIGMA = 0.2
VISITS_PER_REQUEST = 4
LEAST_RATIO = 60
LEAST_VISITS_PER_S = 10_000_000


def network() -> Network:
    """256 outstanding: 16 CPUs 3 us, a die of one of four drives 80 us, its link 1 us, CPUs."""
    net = b.NetworkBuilder()
    cpu = net.fifo(CORES, "cpu")
    scale = 80 * US * np.exp(-(SIGMA**2) / 2)
    die = net.dist(lambda p: lognorm.ppf(p, SIGMA, scale=scale))
    plan, thread = net.plan(), net.thread()
    targets = []
    for _ in range(DRIVES):
        dies, link = net.fifos([1] * DIES), net.fifo()
        program = net.program(
            b.visit(cpu, 3 * US), b.bank(dies, DIES, dist=die), b.visit(link, US),
            b.visit(cpu, 3 * US),
        )  # fmt: skip
        targets.append([b.Flow(program, [plan])])
    net.group(targets, [b.User(thread, target=user % DRIVES) for user in range(USERS)])
    return net.build()


def compiled_rate(requests: int) -> float:
    """Requests per CPU second, the best of five."""
    engine = CompiledEngine(network())
    engine.advance(requests)
    best = 0.0
    for _ in range(5):
        start = time.process_time()
        engine.advance(requests)
        best = max(best, requests / (time.process_time() - start))
    return best


def simpy_rate(requests: int) -> float:
    """The same network as a `simpy.Resource` a station; requests per CPU second."""
    env = simpy.Environment()
    rng = random.Random(1)
    cpu = simpy.Resource(env, CORES)
    dies = [[simpy.Resource(env) for _ in range(DIES)] for _ in range(DRIVES)]
    links = [simpy.Resource(env) for _ in range(DRIVES)]
    latencies: list[float] = []

    def user(drive: int) -> Iterator[simpy.Event]:
        while True:
            start = env.now
            die_us = rng.lognormvariate(np.log(80) - SIGMA**2 / 2, SIGMA)
            path = ((cpu, 3.0), (rng.choice(dies[drive]), die_us), (links[drive], 1.0), (cpu, 3.0))
            for station, service in path:
                with station.request() as turn:
                    yield turn
                    yield env.timeout(service)
            latencies.append(env.now - start)

    for number in range(USERS):
        env.process(user(number % DRIVES))
    begin = time.process_time()
    while len(latencies) < requests:
        env.step()
    return requests / (time.process_time() - begin)


def test_compiled_against_simpy() -> None:
    compiled, plain = compiled_rate(500_000), simpy_rate(30_000)
    visits = compiled * VISITS_PER_REQUEST
    print(
        f"\ncompiled {compiled / 1e6:.2f} M requests/s, {visits / 1e6:.1f} M visits/s; "
        f"SimPy {plain / 1e3:.1f} k requests/s: {compiled / plain:.0f} times"
    )
    assert compiled / plain > LEAST_RATIO
    assert visits > LEAST_VISITS_PER_S
