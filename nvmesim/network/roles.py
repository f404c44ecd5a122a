"""Roles of the stations of a network in the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["up", "down"]
StationKind = Literal["cpu", "thread", "drive", "link", "lock", "raid-engine", "gate", "delay",
                      "limit"]  # fmt: skip

Burns = Literal["", "service", "all"]


@dataclass(frozen=True)
class StationInfo:
    """One station of a report: it may stand for several of the network (the dies of a drive)."""

    name: str
    """As "drive0 dies", "socket0 cpu", "drive0 port up", "upi 0>1", "quad uplink up"."""
    kind: StationKind
    first: int
    """First station of the network."""
    count: int = 1
    """How many consecutive stations it stands for."""
    servers: int = 1
    """Servers in all."""
    drive: int | None = None
    """The drive it is part of; likewise socket and adapter."""
    socket: int | None = None
    adapter: int | None = None
    resource: str = ""
    """Resource that an upgrade would add to: "cores", "dies", "commands", "read_bandwidth",
    "write_bandwidth", "program", "port", "root", "uplink", "interconnect", "memory", "section",
    "guest-section", "sq-threads", "engine", "threads", ""."""
    direction: Direction | None = None
    """Of a link: "up" towards the memory, "down" towards the drive."""
    group: int | None = None
    """The workload group whose limit it is."""
    ends: tuple[int, int] | None = None
    """Of a way between sockets: (from, to)."""
    burns: Burns = ""
    """CPU time at a station that is not a CPU's: the service of a thread of its own,
    or all of a lock that spins, the wait with it."""
