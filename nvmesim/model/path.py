"""The way between a drive's port and its buffers: adapters, uplinks, sockets, memory, peers.

Data end in the memory of a socket, or in another device (peer-to-peer). A buffer's place is its
socket's number, or -1 - a for adapter a.
"""

from __future__ import annotations

from typing import Final

from nvmesim.catalog.links import LINE_BYTES, Link, command_time_ps, transfer_time_ps
from nvmesim.network.builder import Builder, Row, const
from nvmesim.network.network import Kind
from nvmesim.network.roles import Direction
from nvmesim.scenario.resolved import Adapter, Drive, ResolvedScenario
from nvmesim.units import PS_PER_S

MESSAGE_BYTES: Final = 8
"""A request, response or snoop between sockets: one of the three slots of a 24-byte flit.
Source: Intel Xeon Scalable uncore performance monitoring guide: a cache line takes nine slots."""
HOPS_READ: Final = 4
"""Crossings one after the other of a read whose buffers are on the other socket: the doorbell, the
fetch of the queue entry there and back, and the data with the completion entry behind them."""
HOPS_WRITE: Final = 6
"""Of a write: its data are fetched there and back as well, and the completion entry crosses."""


def peer(adapter: int) -> int:
    """Place of buffers inside *adapter*.

    >>> peer(0), peer(peer(3))
    (-1, 3)
    """
    return -1 - adapter


AS_ONE: Final = 16 * 1024
"""A transfer of so many bytes or fewer holds the DIMMs of a socket for 0.2 us at most: whether
others' packets come in between does not show."""


class Paths:
    """Stations of adapters, of the interconnect and of memory, shared by all that use them."""

    def __init__(self, b: Builder, scenario: ResolvedScenario) -> None:
        self._b = b
        self._scenario = scenario
        self._uplinks: dict[tuple[int, bool], int] = {}
        self._roots: dict[tuple[int, bool], int] = {}
        self._commands: dict[tuple[int, int], int] = {}
        self._controllers: dict[str, tuple[int, int]] = {}
        self._cards: dict[str, int] = {}
        self._crossings: dict[tuple[int, int], int] = {}
        self._memory: dict[int, int] = {}
        self._slowest_port = min(drive.link.raw_bytes_per_s for drive in scenario.drives)
        self._peers = -1

    def rows(self, drive: Drive, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """Operations between the port of *drive* and the buffers at *memory*."""
        rows: list[Row] = []
        if drive.adapter is not None:
            adapter = self._scenario.adapters[drive.adapter]
            rows += self._limit_rows(adapter, drive)
            if memory == peer(adapter.index):  # a switch turns it round
                return rows
            rows.append(self._uplink_row(adapter, write, n_bytes))
        rows += self._root_rows(drive.root, memory, write, n_bytes)
        rows += self.host_rows(drive.socket, memory, write, n_bytes)
        return rows[::-1] if write else rows

    def host_rows(self, home: int, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """Operations between a device on socket *home* and the buffers, as a read does them."""
        if memory < 0:
            return self._peer_rows(home, peer(memory), write, n_bytes)
        crossing = self.crossing_rows(home, memory, write, n_bytes)
        return [*crossing, *self.memory_rows(memory, n_bytes, home=home, write=write)]

    # -- adapters -------------------------------------------------------------------------------

    def _limit_rows(self, adapter: Adapter, drive: Drive) -> list[Row]:
        """Limits of *adapter* on commands: on all, and on those of each drive."""
        rows = []
        if adapter.commands_per_s is not None:
            name = f"{adapter.name} commands"
            rows.append(self._limit(adapter, -1, adapter.commands_per_s, name))
        if adapter.drive_commands_per_s is not None:
            name = f"{adapter.name} path of {drive.name}"
            rows.append(self._limit(adapter, drive.index, adapter.drive_commands_per_s, name))
        return rows

    def _uplink_row(self, adapter: Adapter, write: bool, n_bytes: int) -> Row:
        """The way of a command's data through the uplink of *adapter*."""
        time = command_time_ps(
            adapter.link, "write" if write else "read", n_bytes, "down" if write else "up"
        )
        if adapter.bytes_per_s is not None:
            time = max(time, round(n_bytes * PS_PER_S / adapter.bytes_per_s))
        return const(self._uplink(adapter, write), time, adapter.latency_ps)

    def _root_rows(self, root: int | None, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """Root complexes that data pass: the drive's own, and that of a peer at another one.

        Source: a host of four root complexes, where eight drives of one share 39.7 GiB/s and each
        alone reads 6.8 (`docs/howto/pcie-tree.md`).
        """
        other = None if memory >= 0 else self._scenario.adapters[peer(memory)].root
        ways = [(root, write), (None if other == root else other, not write)]
        return [self._root_row(at, down, n_bytes) for at, down in ways if at is not None]

    def _root_row(self, root: int, down: bool, n_bytes: int) -> Row:
        where = self._scenario.roots[root]
        if (root, down) not in self._roots:
            direction: Direction = "down" if down else "up"
            name = f"{where.name} {direction}"
            station = self._b.station(name, Kind.FIFO)
            self._b.report(
                name, "link", station, socket=where.socket, resource="root", direction=direction
            )
            self._roots[root, down] = station
        return const(self._roots[root, down], round(n_bytes * PS_PER_S / where.bytes_per_s))

    def _limit(self, adapter: Adapter, drive: int, per_s: float, name: str) -> Row:
        """Commands per second of an adapter, or of each drive behind it."""
        key = (adapter.index, drive)
        if key not in self._commands:
            station = self._b.station(name, Kind.FIFO)
            self._b.report(
                name, "link", station, adapter=adapter.index, resource="adapter-commands"
            )
            self._commands[key] = station
        return const(self._commands[key], round(PS_PER_S / per_s))

    def _uplink(self, adapter: Adapter, down: bool) -> int:
        key = (adapter.index, down and adapter.link.full_duplex)
        if key not in self._uplinks:
            direction: Direction = "down" if down else "up"
            name = f"{adapter.name} uplink {direction}"
            station = self._b.station(name, Kind.FIFO)
            self._b.report(
                name, "link", station,
                adapter=adapter.index, resource="uplink", direction=direction,
            )  # fmt: skip
            self._uplinks[key] = station
        return self._uplinks[key]

    def link_pair(self, name: str, link: Link) -> tuple[int, int]:
        """Stations (up, down) of the uplink of the RAID controller called *name*."""
        if name in self._controllers:
            return self._controllers[name]
        up = self._b.station(f"{name} uplink up", Kind.FIFO)
        down = up
        if link.full_duplex:
            down = self._b.station(f"{name} uplink down", Kind.FIFO)
            self._b.report(f"{name} uplink down", "link", down, resource="uplink", direction="down")
        self._b.report(f"{name} uplink up", "link", up, resource="uplink", direction="up")
        self._controllers[name] = up, down
        return up, down

    def controller(self, name: str) -> int:
        """Station of what the volumes on the RAID controller called *name* share."""
        if name not in self._cards:
            self._cards[name] = self._b.station(f"{name} controller", Kind.FIFO)
            self._b.report(
                f"{name} controller", "raid-engine", self._cards[name], resource="engine"
            )
        return self._cards[name]

    # -- sockets --------------------------------------------------------------------------------

    def crossing_rows(self, home: int, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """The interconnect between a device's socket and that of its buffers: a server a direction.

        A device's write (a read of the drive) carries its data and asks for each line's ownership,
        which is granted and later acknowledged the other way; a device's read asks line by line.
        A credit-limited link moves lines x 64 bytes per round trip at most.
        """
        joined = self._scenario.interconnect
        if joined is None:
            return []
        if home == memory:
            return self._snoops(home, n_bytes) if joined.snoop == "home" else []
        lines = -(-n_bytes // LINE_BYTES)
        data, messages = ((memory, home), (home, memory)) if write else (
            (home, memory), (memory, home)
        )  # fmt: skip
        time = transfer_time_ps(joined.link, n_bytes, "up")
        if not write:  # ownership requests travel with the data
            time += self._message_ps(lines)
        if joined.credits is not None:
            round_trip_ps = 2 * joined.latency_ps
            time = max(time, round(lines * round_trip_ps / joined.credits))
        delay = joined.latency_ps * (HOPS_WRITE if write else HOPS_READ)
        answers = self._message_ps(lines if write else 2 * lines)
        return [
            const(self._crossing(*data), time, delay),
            const(self._crossing(*messages), answers),
        ]

    def _snoops(self, home: int, n_bytes: int) -> list[Row]:
        """Without a directory each line of a local transfer is looked for on the other sockets."""
        time = self._message_ps(-(-n_bytes // LINE_BYTES))
        others = [s.index for s in self._scenario.sockets if s.index != home]
        rows = []
        for other in others:
            rows.append(const(self._crossing(home, other), time))
            rows.append(const(self._crossing(other, home), time))
        return rows

    def _message_ps(self, n: int) -> int:
        joined = self._scenario.interconnect
        assert joined is not None
        return round(n * MESSAGE_BYTES * PS_PER_S / joined.link.raw_bytes_per_s)

    def _crossing(self, start: int, end: int) -> int:
        joined = self._scenario.interconnect
        assert joined is not None
        ends = (start, end)
        if ends not in self._crossings:
            name = f"{joined.link.kind} {start}>{end}"
            station = self._b.station(name, Kind.FIFO)
            self._b.report(name, "link", station, resource="interconnect", ends=ends)
            self._crossings[ends] = station
        return self._crossings[ends]

    def _peer_rows(self, home: int, target: int, write: bool, n_bytes: int) -> list[Row]:
        """Peer-to-peer: into adapter *target* and never through memory.

        Between sockets it crosses, at most as fast as the root ports forward.
        """
        other = self._scenario.adapters[target]
        rows: list[Row] = []
        joined = self._scenario.interconnect
        if joined is not None and home != other.socket:
            data = (other.socket, home) if write else (home, other.socket)
            time = transfer_time_ps(joined.link, n_bytes, "up")
            rows.append(const(self._crossing(*data), time, joined.latency_ps))
            if joined.peer_bytes_per_s is not None:
                rows.append(self._forwarded(n_bytes, joined.peer_bytes_per_s))
        return [*rows, self._uplink_row(other, not write, n_bytes)]

    def _forwarded(self, n_bytes: int, per_s: float) -> Row:
        if self._peers < 0:
            self._peers = self._b.station("peer-to-peer between sockets", Kind.FIFO)
            self._b.report(
                "peer-to-peer between sockets", "link", self._peers, resource="interconnect"
            )
        return const(self._peers, round(n_bytes * PS_PER_S / per_s))

    # -- memory ---------------------------------------------------------------------------------

    def memory_rows(
        self, socket: int, n_bytes: float, *, home: int | None = None, write: bool = False
    ) -> list[Row]:
        """The DIMMs of *socket* for *n_bytes* read or written: by DMA, by copies, by parity.

        A transfer streams through memory in packets of some hundred bytes while it passes its link,
        and others' packets come in between. So it waits only where memory cannot serve all that is
        asked of it within the time of one transfer: a bucket that holds as much (`Kind.LIMIT`).
        Where all transfers are small, memory takes each as one: a queue, which is faster to run.
        Source: PCI Express Base Specification, maximum payload size; a packet is written to memory
        as it arrives.

        *home* is the socket of the device, for DMA. Written from the other socket a line's
        directory entry changes hands, which writes the line once more.
        Source: J. McCalpin, sites.utexas.edu/jdm4372/2023/08, and 0x10.sh, "Cross socket remote
        read may cause memory write".
        """
        where = self._scenario.sockets[socket]
        if socket not in self._memory:
            name = f"socket{socket} memory"
            self._memory[socket] = self._b.station(name, Kind.FIFO)
            self._b.report(name, "link", self._memory[socket], socket=socket, resource="memory")
        joined = self._scenario.interconnect
        far = joined is not None and home is not None and home != socket
        if far and joined is not None and joined.snoop == "directory" and not write:
            n_bytes *= 2
        if n_bytes > AS_ONE:
            self._b.let_save(self._memory[socket], round(n_bytes * PS_PER_S / self._slowest_port))
        taken = round(n_bytes * PS_PER_S / where.memory_bytes_per_s)
        return [const(self._memory[socket], max(1, taken))]
