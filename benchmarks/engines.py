"""The package's own two engines, run as `nvmesim run` runs them."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.models import Pool, network
from benchmarks.sample import Piece, Sample
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import HIST_BINS, Acc, Engine, bin_middle
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.measure.control import RunGoal
from nvmesim.network.network import Kind, Network

BATCH = RunGoal().batch
"""Completions of a batch of a common run."""


class Timed:
    """An engine between two timed pieces; keeps the visits per request of the last one.

    A program of a die is a visit of its own: a page that the die is busy with, behind the tokens.
    """

    def __init__(self, engine: Engine, net: Network) -> None:
        self.engine = engine
        self.visits = 0.0
        self._stations = net.station_kind != Kind.GATE

    def __call__(self, requests: int) -> Sample:
        """Advance in the batches of a common `nvmesim run`, with all that they record."""
        done = visits = sum_ps = start_ps = end_ps = 0
        seconds = 0.0
        histogram = np.zeros(HIST_BINS, np.int64)
        programs = self._programs()
        while done < requests:
            start = time.process_time()
            batch = self.engine.advance(min(BATCH, requests - done))
            seconds += time.process_time() - start
            start_ps = start_ps if done else batch.start_ps
            end_ps = batch.end_ps
            done += batch.completions
            visits += int(batch.stations[self._stations, Acc.VISITS].sum())
            sum_ps += int(batch.latency_sum_ps[:, 0].sum())
            histogram += batch.histogram[:, 0].sum(axis=0)
        self.visits = (visits + self._programs() - programs) / done
        p99 = bin_middle()[int(np.searchsorted(np.cumsum(histogram), 0.99 * done))]
        iops = done / (end_ps - start_ps) * 1e12
        return Sample(done, seconds, sum_ps / done / 1e6, float(p99) / 1e6, iops)

    def _programs(self) -> int:
        """Programs that dies have started; the SimPy engine does not tell."""
        engine = self.engine
        return int(engine._run.programs.sum()) if isinstance(engine, CompiledEngine) else 0


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
