"""The way between a drive's port and a socket's memory: adapters, uplinks, the interconnect."""

from __future__ import annotations

from nvmesim.catalog.links import Link, command_time_ps, transfer_time_ps
from nvmesim.model.builder import Builder, Row, const
from nvmesim.network import Kind
from nvmesim.scenario.resolved import Adapter, Drive, ResolvedScenario
from nvmesim.units import PS_PER_S

LINE_BYTES = 64


class Paths:
    """Stations of adapters and of the interconnect, shared by all that cross them."""

    def __init__(self, b: Builder, scenario: ResolvedScenario) -> None:
        self._b = b
        self._scenario = scenario
        self._uplinks: dict[tuple[int, bool], int] = {}
        self._commands: dict[int, int] = {}
        self._crossings: dict[tuple[int, int], int] = {}

    def rows(self, drive: Drive, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """Operations between the port of *drive* and the memory of socket *memory*."""
        rows: list[Row] = []
        if drive.adapter is not None:
            rows += self.adapter_rows(self._scenario.adapters[drive.adapter], write, n_bytes)
        rows += self.crossing_rows(drive.socket, memory, write, n_bytes)
        return rows[::-1] if write else rows

    def adapter_rows(self, adapter: Adapter, write: bool, n_bytes: int) -> list[Row]:
        """Command limit and uplink of *adapter*, seen from the drive."""
        rows = []
        if adapter.commands_per_s is not None:
            if adapter.index not in self._commands:
                name = f"{adapter.name} commands"
                station = self._b.station(name, Kind.FIFO)
                self._b.report(
                    name, "link", station, adapter=adapter.index, resource="adapter-commands"
                )
                self._commands[adapter.index] = station
            service = round(PS_PER_S / adapter.commands_per_s)
            rows.append(const(self._commands[adapter.index], service))
        direction = "down" if write else "up"
        time = command_time_ps(
            adapter.link, "write" if write else "read", n_bytes, "down" if write else "up"
        )
        key = (adapter.index, write and adapter.link.full_duplex)
        if key not in self._uplinks:
            name = f"{adapter.name} uplink {direction}"
            station = self._b.station(name, Kind.FIFO)
            self._b.report(name, "link", station, adapter=adapter.index, resource="uplink")
            self._uplinks[key] = station
        rows.append(const(self._uplinks[key], time, adapter.latency_ps))
        return rows

    def crossing_rows(self, home: int, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """The interconnect, if the data's socket is not the drive's: one server a direction.

        A credit-limited link moves lines x 64 bytes per round trip at most (DESIGN 3).
        """
        joined = self._scenario.interconnect
        if home == memory or joined is None:
            return []
        ends = (memory, home) if write else (home, memory)
        if ends not in self._crossings:
            name = f"{joined.link.kind} {ends[0]}>{ends[1]}"
            station = self._b.station(name, Kind.FIFO)
            self._b.report(name, "link", station, resource="interconnect")
            self._crossings[ends] = station
        time = transfer_time_ps(joined.link, n_bytes, "up")
        if joined.credits is not None:
            round_trip_ps = 2 * joined.latency_ps
            limited = n_bytes / LINE_BYTES * round_trip_ps / joined.credits
            time = max(time, round(limited))
        return [const(self._crossings[ends], time, joined.latency_ps)]

    def link_pair(self, name: str, link: Link) -> tuple[int, int]:
        """Stations (up, down) of a RAID controller's own uplink."""
        up = self._b.station(f"{name} uplink up", Kind.FIFO)
        down = up
        if link.full_duplex:
            down = self._b.station(f"{name} uplink down", Kind.FIFO)
            self._b.report(f"{name} uplink down", "link", down, resource="uplink")
        self._b.report(f"{name} uplink up", "link", up, resource="uplink")
        return up, down
