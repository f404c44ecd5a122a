"""How full a load keeps the drives' write buffers: a short run from empty ones.

To fill a buffer takes seconds of load, and what comes before is no answer. A buffer that fills does
so from the first moment on: of what goes in, a share stays. So the share tells, however large the
buffer is and however few of its slots a short run can take.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from nvmesim.array_types import Ints
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.measure.load import RunLoad, drifting, fill_share
from nvmesim.measure.stations import reducer
from nvmesim.measure.steady import Collector
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import GATES, HORIZON_PS, Kind, Network

PILOT_REQUESTS: Final = (20_000, 200_000)
"""Least and most requests of the pilot."""
ROUNDS: Final = 20
"""The pilot completes what is in flight so many times, within those limits."""
PROGRAMS: Final = 24
"""Programs of each die that the pilot is to see, within those limits."""
LITTLE: Final = 0.1
"""Share of a buffer that a run takes in no time: it starts empty."""
REBUILT: Final = 3_200
"""Requests of the pilot of a rebuild alone."""
PILOT_BATCHES: Final = 32
SEED: Final = 1
"""The pilot's own: where a run starts must not depend on the run's seed."""


def level_of(lowered: Lowered) -> float:
    """Return the share of its write buffers that the load of *lowered* will take.

    All of them where one fills; else what the end of the pilot takes, none if that is little.
    """
    load = of_drives(load_of(lowered), lowered.network)
    if not load.buffers.size or load.replayed:
        return 0.0
    kept = Collector(reducer(lowered), batch := _requests(lowered, load) // PILOT_BATCHES)
    engine = CompiledEngine(lowered.network, seed=SEED)
    for _ in range(PILOT_BATCHES):
        part = engine.advance(batch, HORIZON_PS)
        if part.completions < batch:
            return 0.0
        kept.add(part)
    window = kept.window(0)
    if drifting(window, load) > 0:
        return 1.0
    share = fill_share(window, load)
    return share if share >= LITTLE else 0.0


def of_drives(load: RunLoad, net: Network) -> RunLoad:
    """*load* without the caches of RAID controllers: those are small, and fill by themselves."""
    own = np.isin(load.buffers, net.die_gate)
    return replace(load, buffers=load.buffers[own], buffer_slots=load.buffer_slots[own])


def _requests(lowered: Lowered, load: RunLoad) -> int:
    net = lowered.network
    dies = int(((net.die_gate >= 0) & (net.die_dist >= 0)).sum())
    groups = lowered.scenario.workload
    if not groups:  # a rebuild alone: each of its requests is many programs
        return REBUILT
    share = max(0.05, 1 - min(g.read for g in groups))
    wanted = max(ROUNDS * load.in_flight, PROGRAMS * dies / share)
    return int(np.clip(wanted, *PILOT_REQUESTS))


def load_of(lowered: Lowered) -> RunLoad:
    """Facts about the load of *lowered* that the controller needs."""
    groups, net = lowered.scenario.workload, lowered.network
    steady = [d.index for d in lowered.scenario.drives if d.profile.state == "steady"]
    writes = any(g.read < 1 for g in groups) or bool(lowered.rebuilds)
    buffers = _buffers(net, lowered, steady) if writes else np.zeros(0, np.int64)
    queues = ~np.isin(net.station_kind, (*GATES, Kind.DELAY, Kind.LIMIT))
    return RunLoad(
        is_open=any(g.is_open for g in groups),
        replayed=bool(groups) and all(g.trace is not None for g in groups),
        bursts=any(g.bursts is not None for g in groups),
        in_flight=in_flight_of(lowered),
        servers=np.where(queues, net.station_servers, 0),
        buffers=buffers,
        buffer_slots=net.station_servers[buffers],
    )


def in_flight_of(lowered: Lowered) -> int:
    """Requests that closed loops keep outstanding; of a rebuild alone its own."""
    groups = lowered.scenario.workload
    if not groups:
        return len(lowered.network.user_group)
    return sum(g.in_flight for g in groups if not g.is_open)


def _buffers(net: Network, lowered: Lowered, drives: list[int]) -> Ints:
    """Gates of the write buffers of *drives*, and of RAID controllers' caches."""
    gates = {int(g) for g in net.die_gate if g >= 0}
    of = {s.first for s in lowered.stations if s.drive in drives}
    caches = {
        s.first
        for s in lowered.stations
        if s.kind == "gate" and s.resource == "buffer" and s.drive is None
    }
    return np.array(sorted((gates & of) | caches), np.int64)
