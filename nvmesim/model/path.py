"""The way between a drive's port and its buffers: adapters, uplinks, sockets, memory."""

from typing import Any, Final

from nvmesim.catalog.links import LINE_BYTES, Link, command_time_ps, transfer_time_ps
from nvmesim.network.builder import Builder, Row, const
from nvmesim.network.network import Direction, Kind
from nvmesim.scenario.resolved import Adapter, Drive, Interconnect, ResolvedScenario
from nvmesim.units import PS_PER_S

MESSAGE_BYTES: Final = 8
"""A request, response or answer between sockets: one of the three slots of a 24-byte flit.
Source: Intel Xeon Scalable uncore performance monitoring guide: a cache line takes nine slots."""
HOPS_READ: Final = 4
"""Crossings one after the other of a read whose buffers are on the other socket: the doorbell, the
fetch of the queue entry there and back, and the data with the completion entry behind them."""
HOPS_WRITE: Final = 6
"""Of a write: its data are fetched there and back as well, and the completion entry crosses."""
AS_ONE: Final = 16 * 1024
"""A transfer of so many bytes or fewer holds the DIMMs of a socket for 0.2 us at most: whether
others' packets come in between does not show."""


def _way(write: bool) -> Direction:
    return "down" if write else "up"


class Paths:
    """Stations of adapters, of the interconnect and of memory, shared by all that use them."""

    def __init__(self, b: Builder, scenario: ResolvedScenario) -> None:
        self._b = b
        self._scenario = scenario
        self._uplinks: dict[str, tuple[int, int]] = {}
        self._slowest_port = min(drive.link.raw_bytes_per_s for drive in scenario.drives)

    def rows(self, drive: Drive, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """Operations between the port of *drive* and the buffers at *memory*."""
        rows: list[Row] = []
        if drive.adapter is not None:
            adapter = self._scenario.adapters[drive.adapter]
            rows += self._limit_rows(adapter, drive)
            rows.append(self._uplink_row(adapter, write, n_bytes))
        if drive.root is not None:
            rows.append(self._root_row(drive.root, write, n_bytes))
        rows += self.host_rows(drive.socket, memory, write, n_bytes)
        return rows[::-1] if write else rows

    def host_rows(self, home: int, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """Operations between a device on socket *home* and the buffers, as a read does them."""
        crossing = self._crossing_rows(home, memory, write, n_bytes)
        return [*crossing, *self.memory_rows(memory, n_bytes, home=home, write=write)]

    def _limit_rows(self, adapter: Adapter, drive: Drive) -> list[Row]:
        """Limits of *adapter* on commands: on all, and on those of each drive."""
        limits = (
            (f"{adapter.name} commands", adapter.commands_per_s),
            (f"{adapter.name} path of {drive.name}", adapter.drive_commands_per_s),
        )
        about: dict[str, Any] = {"adapter": adapter.index, "resource": "adapter-commands"}
        return [
            const(self._b.named(name, "link", **about), round(PS_PER_S / per_s))
            for name, per_s in limits
            if per_s is not None
        ]

    def _uplink_row(self, adapter: Adapter, write: bool, n_bytes: int) -> Row:
        """The way of a command's data through the uplink of *adapter*."""
        time = command_time_ps(adapter.link, "write" if write else "read", n_bytes, _way(write))
        if adapter.bytes_per_s is not None:
            time = max(time, round(n_bytes * PS_PER_S / adapter.bytes_per_s))
        way = _way(write and adapter.link.full_duplex)
        uplink = self._b.named(
            f"{adapter.name} uplink {way}", "link",
            adapter=adapter.index, resource="uplink", direction=way,
        )  # fmt: skip
        return const(uplink, time, adapter.latency_ps)

    def _root_row(self, root: int, write: bool, n_bytes: int) -> Row:
        """The root complex that data pass.

        Source: a host of four root complexes, where eight drives of one share 39.7 GiB/s and each
        alone reads 6.8 (`docs/howto/pcie-tree.md`).
        """
        where = self._scenario.roots[root]
        station = self._b.named(
            f"{where.name} {_way(write)}", "link",
            socket=where.socket, resource="root", direction=_way(write),
        )  # fmt: skip
        return const(station, round(n_bytes * PS_PER_S / where.bytes_per_s))

    def controller_uplink(self, name: str, link: Link) -> tuple[int, int]:
        """Stations (up, down) of the uplink of the RAID controller called *name*."""
        if name not in self._uplinks:
            up = down = self._b.station(f"{name} uplink up", Kind.FIFO)
            if link.full_duplex:
                down = self._b.named(
                    f"{name} uplink down", "link", resource="uplink", direction="down"
                )
            self._b.report(f"{name} uplink up", "link", up, resource="uplink", direction="up")
            self._uplinks[name] = up, down
        return self._uplinks[name]

    def _crossing_rows(self, home: int, memory: int, write: bool, n_bytes: int) -> list[Row]:
        """The interconnect between a device's socket and that of its buffers: a server a direction.

        A device's write (a read of the drive) carries its data and asks for each line's ownership,
        which is granted and later acknowledged the other way; a device's read asks line by line.
        A credit-limited link moves lines x 64 bytes per round trip at most.
        """
        joined = self._scenario.interconnect
        if joined is None or home == memory:
            return []
        lines = -(-n_bytes // LINE_BYTES)
        data, messages = ((memory, home), (home, memory)) if write else (
            (home, memory), (memory, home)
        )  # fmt: skip
        time = transfer_time_ps(joined.link, n_bytes, "up")
        if not write:  # ownership requests travel with the data
            time += _message_ps(joined, lines)
        if joined.credits is not None:
            time = max(time, round(lines * (2 * joined.latency_ps) / joined.credits))
        delay = joined.latency_ps * (HOPS_WRITE if write else HOPS_READ)
        answers = _message_ps(joined, lines if write else 2 * lines)
        return [
            const(self._crossing(*data), time, delay),
            const(self._crossing(*messages), answers),
        ]

    def _crossing(self, start: int, end: int) -> int:
        joined = self._scenario.interconnect
        assert joined is not None
        name = f"{joined.link.kind} {start}>{end}"
        return self._b.named(name, "link", resource="interconnect", ends=(start, end))

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
        far = home is not None and home != socket
        if far and self._scenario.interconnect is not None and not write:
            n_bytes *= 2
        memory = self._b.named(f"socket{socket} memory", "link", socket=socket, resource="memory")
        if n_bytes > AS_ONE:
            self._b.let_save(memory, round(n_bytes * PS_PER_S / self._slowest_port))
        taken = round(n_bytes * PS_PER_S / self._scenario.sockets[socket].memory_bytes_per_s)
        return [const(memory, max(1, taken))]


def _message_ps(joined: Interconnect, n: int) -> int:
    return round(n * MESSAGE_BYTES * PS_PER_S / joined.link.raw_bytes_per_s)
