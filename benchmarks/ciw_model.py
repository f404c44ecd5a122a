"""Model (a) in Ciw: a plain closed network; it has no fork and join, so nothing else."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from benchmarks.models import SIGMA, Pool
from benchmarks.sample import Piece, Sample

ROUNDS = 100
"""Requests of each user in one run: Ciw's closed loops are customers on fixed routes."""
LONGEST_US = 1e6
"""All customers have left long before."""


def ciw(model: Pool, outstanding: int, warm: int) -> Piece:
    """Return Ciw; ImportError where it is not installed, ValueError for a model that forks."""
    import ciw as library

    if model.name != "a":
        raise ValueError("Ciw has no fork and join")
    rng = np.random.default_rng(1)

    def route(*_: Any) -> list[int]:
        """CPU, drive, its link, CPU, again and again; a customer enters at the CPU."""
        path: list[int] = []
        for drive in rng.integers(model.drives, size=ROUNDS):
            path += [1, 2 + int(drive), 2 + model.drives + int(drive), 1]
        return path[1:]

    n_nodes = 1 + 2 * model.drives
    never = library.dists.Deterministic(math.inf)
    once = library.dists.Sequential([1e-9, math.inf])
    scale = math.log(model.read) - SIGMA**2 / 2
    services = [library.dists.Deterministic(model.cpu)]
    services += [library.dists.Lognormal(scale, SIGMA) for _ in range(model.drives)]
    services += [library.dists.Deterministic(model.link) for _ in range(model.drives)]
    net = library.create_network(
        arrival_distributions=[once] + [never] * (n_nodes - 1),
        batching_distributions=[library.dists.Deterministic(outstanding)]
        + [library.dists.Deterministic(1)] * (n_nodes - 1),
        service_distributions=services,
        number_of_servers=[model.cores] + [model.pool] * model.drives + [1] * model.drives,
        routing=library.routing.ProcessBased(route),
    )
    seeds = iter(range(1, 1000))

    def run(_: int) -> Sample:
        library.seed(next(seeds))
        simulation = library.Simulation(net)
        start = time.process_time()
        simulation.simulate_until_max_time(LONGEST_US)
        seconds = time.process_time() - start
        records: dict[int, list[Any]] = {}
        for record in simulation.get_all_records():
            records.setdefault(record.id_number, []).append(record)
        values, ends = [], []
        for visits in records.values():
            visits.sort(key=lambda r: r.arrival_date)
            # the ends of the run are a transient: everyone starts at once, the last ones drain
            for i in range(4 * (ROUNDS // 4), min(len(visits), 3 * ROUNDS) - 3, 4):
                values.append(visits[i + 3].exit_date - visits[i].arrival_date)
                ends.append(visits[i + 3].exit_date)
        x = np.array(values)
        done = ROUNDS * outstanding
        span = float(np.quantile(ends, 0.9) - np.quantile(ends, 0.1))
        return Sample(
            done, seconds, float(x.mean()), float(np.quantile(x, 0.99)), 0.8 * len(x) / span * 1e6
        )

    return run
