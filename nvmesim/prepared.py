"""A scenario on its way to a run: resolved, lowered, its write buffers as full as they will be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nvmesim.engine.contract import Engine
from nvmesim.errors import InputError, nearest
from nvmesim.model.lowered import Lowered
from nvmesim.network import HORIZON_PS, Kind, Network
from nvmesim.reliefs import filled
from nvmesim.result.control import Load, filling
from nvmesim.result.stations import reducer
from nvmesim.result.steady import MAX_RECORDS, Collector
from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.scenario.schema import Scenario

EngineFactory = Callable[..., Engine]
"""Called with (network, seed=, record=)."""

LONGEST: Final = 4
"""A short run is so many times longer at most, while its write buffers fill."""
PILOT_REQUESTS: Final = (40_000, 200_000)
PILOT_SHARE: Final = 4
"""A pilot run shows whether write buffers fill: a request for so many of their slots, within those
limits, so that what fills moves by some per cent."""
PILOT_BATCHES: Final = 32


@dataclass(frozen=True)
class Prepared:
    """A scenario ready to run."""

    scenario: ResolvedScenario
    lowered: Lowered
    make: EngineFactory
    seed: int
    load: Load
    starts_full: bool = False
    """Its write buffers are full at time 0, as they would be soon."""

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.scenario.name or "scenario"


def prepare(
    scenario: Scenario | ResolvedScenario, engine: str | EngineFactory, seed: int | None
) -> Prepared:
    """Resolve and lower *scenario*; find the engine."""
    from nvmesim.bitmaps import with_bitmaps
    from nvmesim.model.lower import lower
    from nvmesim.rebuilds import with_rebuilds
    from nvmesim.scenario.resolve import resolve

    resolved = resolve(scenario) if isinstance(scenario, Scenario) else scenario
    resolved, lowered = with_rebuilds(*with_bitmaps(resolved, lower(resolved)))
    number = resolved.run.seed if seed is None else seed
    return Prepared(resolved, lowered, engine_factory(engine), number, load_of(lowered))


def settled_buffers(ready: Prepared) -> Prepared:
    """Let *ready* begin with full write buffers, if a pilot run fills them.

    To fill them takes seconds of load, and what comes before is only warm-up.
    """
    load, net = ready.load, ready.lowered.network
    if not load.buffers.size or load.replayed:
        return ready
    from nvmesim.engine.compiled import CompiledEngine

    batch = int(np.clip(load.buffer_slots.sum() // PILOT_SHARE, *PILOT_REQUESTS)) // PILOT_BATCHES
    engine = CompiledEngine(net, seed=ready.seed)
    kept = Collector(reducer(ready.lowered), batch)
    for _ in range(PILOT_BATCHES):
        part = engine.advance(batch)
        if part.completions < batch:
            return ready
        kept.add(part)
    if not filling(kept.window(0), load):
        return ready
    lowered = replace(ready.lowered, network=filled(net, 1.0))
    return replace(ready, lowered=lowered, starts_full=True)


def engine_factory(engine: str | EngineFactory) -> EngineFactory:
    """Return the engine called *engine*; InputError with the known names."""
    if callable(engine):
        return engine
    if engine == "compiled":
        from nvmesim.engine.compiled import CompiledEngine

        return CompiledEngine
    if engine == "simpy":
        from nvmesim.engine.reference import ReferenceEngine

        return ReferenceEngine
    raise InputError(f"engine {engine!r} is unknown; {nearest(engine, ('compiled', 'simpy'))}")


def load_of(lowered: Lowered) -> Load:
    """What the controller must know of the load of *lowered*."""
    groups, net = lowered.scenario.workload, lowered.network
    steady = [d.index for d in lowered.scenario.drives if d.profile.state == "steady"]
    buffers = _buffers(net, lowered, steady)
    queues = ~np.isin(net.station_kind, (Kind.GATE, Kind.DELAY, Kind.LIMIT))
    return Load(
        is_open=any(g.is_open for g in groups),
        replayed=all(g.trace is not None for g in groups),
        bursts=any(g.bursts is not None for g in groups),
        in_flight=sum(g.in_flight for g in groups if not g.is_open),
        servers=np.where(queues, net.station_servers, 0),
        buffers=buffers,
        buffer_slots=net.station_servers[buffers],
    )


def _buffers(net: Network, lowered: Lowered, drives: list[int]) -> Any:
    """Gates of the write buffers of *drives*."""
    gates = {int(g) for g in net.die_gate if g >= 0}
    of = {s.first for s in lowered.stations if s.drive in drives}
    return np.array(sorted(gates & of), np.int64)


def short_run(
    ready: Prepared,
    batch: int,
    requests: int,
    is_known: Callable[[Collector], bool] | None = None,
) -> Collector:
    """Run *requests* in equal batches, warm-up included; longer while write buffers fill.

    Shorter, once *is_known* says of what there is that it is enough.
    """
    engine = ready.make(ready.lowered.network, seed=ready.seed)
    kept = Collector(reducer(ready.lowered), batch)
    least = max(8, math.ceil(requests / batch))
    for i in range(1, min(MAX_RECORDS, LONGEST * least)):
        part = engine.advance(batch, HORIZON_PS)
        if part.completions < batch:
            break
        kept.add(part)
        look = (i - least) % 8 == 0
        if look and (i >= least or (is_known and is_known(kept))) and _is_settled(kept, ready.load):
            break
    return kept


def _is_settled(kept: Collector, load: Load) -> bool:
    """Whether write buffers have filled, and the warm-up is over; at once without any buffer."""
    if not load.buffers.size:
        return True
    cut, warm = kept.warmup()
    return warm and not filling(kept.window(cut), load)
