"""Locks of a RAID engine that spin: one at a time, and who waits keeps its CPU busy.

A queued spin lock hands over in the order of arrival, so it is a station with one server; the
thread that waits is held all the time, and what it waits counts as CPU time (`StationInfo.burns`).
Source: Linux kernel/locking/qspinlock.c.
"""

from __future__ import annotations

from typing import Final

from nvmesim.catalog.engine_profile import EngineLock
from nvmesim.network.builder import Builder, Row, const
from nvmesim.network.network import Kind
from nvmesim.scenario.resolved import ResolvedScenario, Volume, WorkloadGroup

REMOTE_LINE_PS: Final = 92_000
"""Extra time of a modified line from another socket's cache. Source: Intel MLC 3.9 on
two Platinum 8269CY: 51.7 ns from the own socket, 111 and 176 ns from the other."""


class EngineLocks:
    """The locks that requests of one volume pass, each made once it is needed."""

    def __init__(self, b: Builder, scenario: ResolvedScenario, volume: Volume) -> None:
        self._b = b
        self._away = away_share(scenario, volume)
        self._name = volume.name
        self._locks = volume.engine.locks
        self._stations: dict[str, int] = {}

    def rows(self, write: bool) -> list[Row]:
        """Stations that a request passes while its thread is held."""
        held = [(name, self._held_ps(lock, write)) for name, lock in self._locks.items()]
        return [const(self._station(name), round(ps)) for name, ps in held if ps >= 1]

    def _held_ps(self, lock: EngineLock, write: bool) -> float:
        """Time from one owner to the next, each hand-over to another socket with its lines."""
        here = (lock.write if write else lock.read).value
        one = min((t.value for t in (lock.read, lock.write) if t.value > 0), default=1.0)
        hand_overs = here / one  # of a write that takes the lock several times
        return here + hand_overs * self._away * lock.lines.value * REMOTE_LINE_PS

    def _station(self, name: str) -> int:
        if name not in self._stations:
            self._stations[name] = spinning(self._b, f"{self._name} {name}")
        return self._stations[name]


def away_share(scenario: ResolvedScenario, volume: Volume) -> float:
    """Share of a lock's hand-overs that go to another socket, threads being spread evenly."""
    used: set[int] = set()
    for group in scenario.workload:
        if _uses(group, volume):
            every = [socket.index for socket in scenario.sockets]
            used.update(every if group.socket is None else [group.socket])
    return 1 - 1 / max(1, len(used))


def _uses(group: WorkloadGroup, volume: Volume) -> bool:
    return any((t.kind, t.index) == ("volume", volume.index) for t in group.targets)


def spinning(b: Builder, name: str) -> int:
    """Make a lock that spins."""
    station = b.station(name, Kind.FIFO)
    b.report(name, "raid-engine", station, resource="engine-lock", burns="all")
    return station
