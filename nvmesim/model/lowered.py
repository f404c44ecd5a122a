"""Result of lowering: the network, and what its stations, flows and children stand for."""

from __future__ import annotations

from dataclasses import dataclass

from nvmesim.network.network import Network, StationInfo
from nvmesim.scenario.resolved import ResolvedScenario


@dataclass(frozen=True)
class FlowInfo:
    """One kind of request of one group at one target."""

    group: int
    """-1: background work."""
    target: int
    """Position in the group's targets."""
    write: bool
    n_bytes: int
    deferred: bool = False
    """Background work whose commands count as those of the measured requests."""


@dataclass(frozen=True)
class RebuildInfo:
    """A rebuild or check that runs beside the load."""

    volume: str
    drive: str | None
    """Being restored; None: a check of all."""
    station: int
    """Its visits are units of the rebuild."""
    unit_bytes: int
    member_bytes: int


@dataclass(frozen=True)
class ChildInfo:
    """One alternative of a child: a command to one drive."""

    drive: int
    """Index of the drive, -1 if the alternative is not a drive command."""
    write: bool
    n_bytes: int
    n_bios: int


@dataclass(frozen=True)
class Lowered:
    """A scenario as a network, with the way back to its names."""

    scenario: ResolvedScenario
    network: Network
    stations: tuple[StationInfo, ...]
    flows: tuple[FlowInfo, ...]
    """[n_flows]"""
    children: tuple[ChildInfo, ...]
    """[n_alts], as `Network.alt_program`"""
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    rebuilds: tuple[RebuildInfo, ...] = ()
