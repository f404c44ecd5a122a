"""Limit of a load that crosses sockets: drive, wire, credits, cycles, memory or a lock.

"The UPI is full" and "crossing the UPI costs cycles" are different claims with different cures, so
each suspect gets its own figure, and those that the run excludes are said to be excluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nvmesim.catalog.links import LINE_BYTES
from nvmesim.measure.figures import MemberStats, SocketCpu, StationStats
from nvmesim.scenario.resolved import Interconnect
from nvmesim.units import percent

BINDS: Final = 0.90
"""Utilization from which a suspect binds (DESIGN 6)."""


@dataclass(frozen=True)
class Suspect:
    """One thing that could bind, how full it is, and what is counted."""

    name: str
    """As "wire", "credits", "cycles", "memory", "drive" or "lock"."""
    utilization: float
    station: str = ""

    @property
    def binds(self) -> bool:
        """True if it is full."""
        return self.utilization > BINDS

    def to_json(self) -> dict[str, Any]:
        """Return an object of `run --json`."""
        found = {"name": self.name, "utilization": self.utilization, "binds": self.binds}
        return {**found, "station": self.station or None}


@dataclass(frozen=True)
class Crossing:
    """Traffic between sockets and what it does not explain."""

    bytes_per_s: float
    """Over the fullest direction of the links, messages included."""
    wire_bytes_per_s: float
    """Load of that direction."""
    lines_under_way: float
    """Cache lines between the sockets at a time, on average: fewer credits than that would bind."""
    suspects: tuple[Suspect, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `run --json` prints under ``crossing``."""
        return {
            "bytes_per_s": self.bytes_per_s,
            "wire_bytes_per_s": self.wire_bytes_per_s,
            "lines_under_way": self.lines_under_way,
            "suspects": [suspect.to_json() for suspect in self.suspects],
        }

    def sentence(self) -> str:
        """The limit and what is excluded, in one line."""
        full = [s for s in self.suspects if s.binds]
        rest = [f"{s.name} ({percent(s.utilization)})" for s in self.suspects if not s.binds]
        moved = f"{self.bytes_per_s / 1e9:.3g} of {self.wire_bytes_per_s / 1e9:.3g} GB/s cross"
        lines = f"{self.lines_under_way:.2g} cache lines in flight"
        bound = " and ".join(f"{s.name} ({percent(s.utilization)})" for s in full)
        verdict = f"bound by {bound}" if full else "none of them binds"
        return f"{moved} ({lines}); {verdict}; excluded: {', '.join(rest)}"


def crossing(
    joined: Interconnect | None,
    stations: Sequence[StationStats],
    members: Sequence[MemberStats],
    cpus: Sequence[SocketCpu],
) -> Crossing | None:
    """Return what a run says of the way between sockets, *joined*; None if nothing crosses."""
    links = [s for s in stations if s.resource == "interconnect" and s.utilization > 0]
    locks = [s for s in stations if s.kind == "lock"]
    memory = [s for s in stations if s.resource == "memory"]
    if joined is None or not (links or locks):
        return None
    wire = joined.link.raw_bytes_per_s * joined.efficiency
    full = max((_wire_share(s, joined) for s in links), default=0.0)
    lines = full * wire / LINE_BYTES * 2 * joined.latency_ps * 1e-12
    suspects = [
        Suspect("wire", full, _fullest(links)),
        *([Suspect("credits", lines / joined.credits)] if joined.credits else []),
        Suspect("cycles", max((c.logical_utilization for c in cpus), default=0.0)),
        *([Suspect("memory", _most(memory), _fullest(memory))] if memory else []),
        Suspect("drive", max((m.utilization for m in members), default=0.0)),
        *([Suspect("lock", _most(locks), _fullest(locks))] if locks else []),
    ]
    return Crossing(full * wire, wire, lines, tuple(suspects))


def _wire_share(station: StationStats, joined: Interconnect) -> float:
    """Share of the wire alone: a direction held by its credits moves fewer bytes than it could."""
    if joined.credits is None or not joined.latency_ps:
        return float(station.utilization)
    per_line = max(
        LINE_BYTES / (joined.link.raw_bytes_per_s * joined.efficiency),
        2 * joined.latency_ps * 1e-12 / joined.credits,
    )
    held = LINE_BYTES / per_line
    return float(station.utilization * held / (joined.link.raw_bytes_per_s * joined.efficiency))


def _most(stations: list[StationStats]) -> float:
    return max((s.utilization for s in stations), default=0.0)


def _fullest(stations: list[StationStats]) -> str:
    return max(stations, key=lambda s: s.utilization).name if stations else ""
