"""Which part of the server each station of a result belongs to: the loads that a picture shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from nvmesim.measure.figures import StationStats
from nvmesim.predict.result import Result

Key = TypeVar("Key")


@dataclass
class Loads:
    """Utilization by place; a place that no station stands for has none."""

    port: dict[tuple[int, str], float] = field(default_factory=dict)
    """(drive, "up" or "down")"""
    uplink: dict[tuple[int, str], float] = field(default_factory=dict)
    """(adapter, "up" or "down")"""
    adapter: dict[int, float] = field(default_factory=dict)
    """A limit of the adapter itself, such as commands per second."""
    crossing: dict[tuple[int, int], float] = field(default_factory=dict)
    """(from socket, to socket)"""
    drive: dict[int, float] = field(default_factory=dict)
    """The busiest station inside each drive."""
    cores: dict[int, float] = field(default_factory=dict)
    """By socket."""
    memory: dict[int, float] = field(default_factory=dict)
    """By socket."""
    shared: list[tuple[str, str, float]] = field(default_factory=list)
    """(name, kind, utilization) of threads, RAID engines and their uplinks."""


def loads(result: Result) -> Loads:
    """Sort the stations of *result* by the part of the server they are."""
    found = Loads()
    for station in result.stations:
        _place(found, station)
    for number, member in enumerate(result.members):
        found.drive.setdefault(number, member.utilization)
    return found


def _place(found: Loads, station: StationStats) -> None:
    busy, drive, adapter = station.utilization, station.drive, station.adapter
    if drive is not None:
        if station.kind == "link":
            _raise(found.port, (drive, station.direction or "up"), busy)
        elif station.kind == "drive":
            _raise(found.drive, drive, busy)
    elif adapter is not None and station.kind == "link":
        if station.resource == "uplink":
            _raise(found.uplink, (adapter, station.direction or "up"), busy)
        else:
            _raise(found.adapter, adapter, busy)
    elif station.kind == "cpu" and station.socket is not None:
        _raise(found.cores, station.socket, busy)
    elif station.resource == "memory" and station.socket is not None:
        _raise(found.memory, station.socket, busy)
    elif station.kind == "link" and station.ends is not None:
        _raise(found.crossing, station.ends, busy)
    elif station.kind in ("thread", "raid-engine", "link", "lock"):
        found.shared.append((station.name, station.kind, busy))


def _raise(into: dict[Key, float], key: Key, busy: float) -> None:
    into[key] = max(busy, into.get(key, 0.0))
