"""CPU time that no CPU's station counts: threads of a RAID engine, and locks that spin."""

from __future__ import annotations

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.engine.contract import Acc
from nvmesim.model.lowered import Lowered
from nvmesim.network.roles import StationInfo


def burned_ps(lowered: Lowered, stations: Floats, info: StationInfo) -> float:
    """Ps of CPU time, over all CPUs, that *info* burned; 0 for a station that burns none.

    *stations* is float64[n_stations, 4], see `Acc`. Who waits for a lock that spins is busy.
    """
    if not info.burns:
        return 0.0
    served = float(stations[info.first, Acc.SERVICE])
    return served + (float(stations[info.first, Acc.WAIT]) if info.burns == "all" else 0.0)


def burned_on(lowered: Lowered, stations: Floats, cpu: int, socket: int | None) -> float:
    """Ps that were burned on the CPUs of station *cpu*, of *socket* if it is one socket's alone.

    A thread of an engine runs where its members are; locks spin where the load's threads run.
    """
    threads = lowered.network.thread_cpu
    here = float(np.mean(threads == cpu)) if len(threads) else 1.0
    total = 0.0
    for info in lowered.stations:
        at_home = info.socket is None or socket is None or info.socket == socket
        share = here if info.socket is None else float(at_home)
        total += share * burned_ps(lowered, stations, info) if info.burns else 0.0
    return total
