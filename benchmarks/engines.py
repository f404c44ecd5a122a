"""The package's own two engines, run as `nvmesim run` runs them."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.models import Pool, network
from benchmarks.sample import Piece, Sample
from nvmesim.engine.compiled import CompiledEngine
from nvmesim.engine.contract import Acc, Batch, Engine, bin_middle
from nvmesim.engine.reference import ReferenceEngine
from nvmesim.network import Kind, Network
from nvmesim.result.control import MAX_BATCH


class Timed:
    """An engine between two timed pieces; keeps the visits per request of the last one."""

    def __init__(self, engine: Engine, net: Network) -> None:
        self.engine = engine
        self.visits = 0.0
        self._stations = net.station_kind != Kind.GATE

    def __call__(self, requests: int) -> Sample:
        """Advance in the batches of a common `nvmesim run`, with all that they record."""
        batches: list[Batch] = []
        done = 0
        start = time.process_time()
        while done < requests:
            batches.append(self.engine.advance(min(MAX_BATCH, requests - done)))
            done += batches[-1].completions
        seconds = time.process_time() - start
        visits = sum(int(x.stations[self._stations, Acc.VISITS].sum()) for x in batches)
        self.visits = visits / done
        histogram = sum(x.histogram[:, 0].sum(axis=0) for x in batches)
        mean = sum(int(x.latency_sum_ps[:, 0].sum()) for x in batches) / done
        p99 = bin_middle()[int(np.searchsorted(np.cumsum(histogram), 0.99 * done))]
        span = (batches[-1].end_ps - batches[0].start_ps) * 1e-12
        return Sample(done, seconds, mean / 1e6, float(p99) / 1e6, done / span)


def same(net: Network, requests: int = 1000) -> bool:
    """Whether both engines give equal results for the first *requests*."""
    one, two = (
        (batch.end_ps, batch.latency_sum_ps, batch.histogram, batch.stations)
        for batch in (make(net).advance(requests) for make in (CompiledEngine, ReferenceEngine))
    )
    return all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))


def compiled(net: Network, warm: int) -> Timed:
    """Return the compiled engine behind its warm-up of *warm* requests."""
    return _warmed(Timed(CompiledEngine(net), net), warm)


def simpy_engine(net: Network, warm: int) -> Timed:
    """Return the SimPy engine behind its warm-up."""
    return _warmed(Timed(ReferenceEngine(net), net), warm)


def _warmed(run: Timed, warm: int) -> Timed:
    run(warm)
    return run


def compiled_pool(model: Pool, outstanding: int, warm: int) -> Piece:
    """Return the compiled engine on a pool model."""
    return compiled(network(model, outstanding), warm)


def simpy_engine_pool(model: Pool, outstanding: int, warm: int) -> Piece:
    """Return the SimPy engine on a pool model."""
    return simpy_engine(network(model, outstanding), warm)
