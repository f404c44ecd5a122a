"""One drive as stations and programs: dies, channels, controller, write buffer, port.

A read: command, constant part, one die and channel per unit, data, port. A write: port, command,
data, room in the buffer, acknowledgement; its units are programmed on their dies behind that.
A disk that serves in rounds is one server and the port, one of captured latencies is delays
(`without_dies.py`).
"""

from __future__ import annotations

import math
from typing import Any

from nvmesim.catalog.links import command_time_ps
from nvmesim.catalog.profile import Collection, DriveProfile
from nvmesim.errors import ScenarioError
from nvmesim.model.path import AS_ONE
from nvmesim.model.request_kinds import Access
from nvmesim.model.without_dies import EmpiricalLatency, RoundService, batches
from nvmesim.network.builder import Builder, DiePrograms, Row, Station, const, op
from nvmesim.network.distributions import arm_factors, gamma_table, paged_table, uniform_table
from nvmesim.network.network import MAX_CHILDREN, SCALE_ONE, Kind, Op, StationKind
from nvmesim.scenario.resolved import Drive
from nvmesim.units import PS_PER_S

SLOT_DIE, SLOT_RMW_DIE, SLOT_ACK, SLOT_PROGRAM, SLOT_COMMAND, SLOT_UP = range(6)
SECTOR, UNIT = 512, 4096
PAGE_PS = 700e6
"""Time of one program of flash, of all planes. Source: three bits a cell take 0.4 to 1.1 ms (data
sheets of Micron B27A and Samsung V6); mixes of S01 and Y04 of `calibration/held-out` tell about
1 ms, those of X02 and W01 0.6 to 0.7."""
PARTS, MOST_PARTS = 4, 64
"""A large write takes room by parts of the buffer, at most so many: dies program the first while
the others arrive. Assumed."""
PAGES = 3
"""Pages that a die holds beside the buffer. Assumed."""
KEPT_BUSY = 0.7
"""Least share of the time that dies program at the controller's ceiling of writes. Assumed."""


class DriveModel:
    """The stations of one drive, and its programs for any command.

    *host_ps*: host time that the drive's constant parts still hold, to be taken out.
    """

    def __init__(
        self, b: Builder, drive: Drive, *, writes: bool, mixed: bool, tags: bool, host_ps: int,
        syncs: bool = False,
    ):  # fmt: skip
        self._b = b
        self._syncs = syncs
        self._drive = drive
        self._host_ps = host_ps
        self.profile: DriveProfile = drive.profile
        self._units: dict[int, int] = {}
        self._spread = self._tags = self._flushes = self._write_data = -1
        self._engines: tuple[int, int] | None = None
        self._streams: dict[tuple[int, int], int] = {}
        self._sequential = False
        self._through = False
        p = self.profile
        self._limit_rows(UNIT)
        self._captured = None
        if p.latencies is not None:
            self._captured = EmpiricalLatency(b, drive, p.latencies, host_ps)
            return
        if tags:
            self._tags = self._named("tags", "gate", Kind.GATE, round(p.tags.value))
        if p.rounds is not None:
            self._rounds = RoundService(b, p, p.rounds, self._named(
                "batch service", "drive", Kind.ROUNDS, own=batches(b, p.rounds), resource="rounds",
            ))  # fmt: skip
            return
        self._takes_turns = mixed and p.takes_turns
        media = max(p.write.program.value, p.read.die.value) / p.dies.value
        is_media = self._takes_turns and media > self._command_ps(write=False)
        what = ("media", "dies") if is_media else ("commands", "commands")
        self._command = self._named(what[0], "drive", resource=what[1])
        self._drain = self._programs_at = self._queue = -1
        self._n_programs = 0
        self._add_bank(writes)
        self._add_data(writes, mixed)

    def _named(
        self, what: str, role: StationKind, kind: Kind = Kind.FIFO, servers: int = 1, **about: Any
    ) -> int:
        """Station of this drive called *what*, as `Builder.named`."""
        d = self._drive
        return self._b.named(f"{d.name} {what}", role, kind, servers, drive=d.index, **about)

    def _bank(self, what: str, each: str, count: int, resource: str, **station: Any) -> int:
        """First of *count* stations in a row, which the report calls *what*."""
        name, first = self._drive.name, len(self._b.stations)
        alike: tuple[Any, ...] = Station("", **{"kind": Kind.FIFO, **station})[1:]
        self._b.stations += [Station(f"{name} {each}{i}", *alike) for i in range(count)]
        self._b.report(
            f"{name} {what}", "drive", first, count, drive=self._drive.index, resource=resource
        )
        return first

    def _add_bank(self, writes: bool) -> None:
        b, p = self._b, self.profile
        self._n_dies, self._n_channels = round(p.dies.value), round(p.channels.value)
        self._buffer, dist = -1, -1
        if writes:
            c, w = p.write.collection, p.write
            mean, page = self._page()
            slots = round(c.slots.value if c else w.buffer.value / w.unit.value)
            slots += math.ceil(PAGES * (page / mean - 1)) * self._n_dies
            self._buffer = b.station(f"{self._drive.name} buffer", Kind.GATE, max(1, slots))
            b.report(
                f"{self._drive.name} write buffer", "gate", self._buffer,
                drive=self._drive.index, resource="buffer",
            )  # fmt: skip
            dist = b.dist(paged_table(mean, w.program_cv.value, page))
        suspend = -1 if p.write.suspend is None else round(p.write.suspend.value)
        arm = arm_factors(p.read.die_cv.value, round(p.tags.value)) if p.sorts else []
        collection = p.write.collection if writes else None
        programs = None
        if writes and not arm and collection is None:
            programs = DiePrograms(dist, self._buffer, suspend)
        about: dict[str, Any] = {"servers": max(1, len(arm)), "scale": arm, "own": programs}
        about |= {"kind": Kind.DIE} if programs else {}
        self._dies = self._bank("dies", "die", self._n_dies, "dies", **about)
        self._channels = self._bank("channels", "channel", self._n_channels, "channels")
        self._read_dist = b.dist(gamma_table(p.read.die.value, p.read.die_cv.value))
        if collection is not None:
            self._add_collection(collection, DiePrograms(dist, -1, suspend))

    def _page(self) -> tuple[float, float]:
        """Mean time of a program, and of its page, which reads beside it may find, ps."""
        p, w = self.profile, self.profile.write
        mean = w.program.value
        if not self._takes_turns:
            return mean, mean
        if w.commands is not None:
            mean = max(mean, KEPT_BUSY * p.dies.value * PS_PER_S / w.commands.value)
        return mean, max(mean, PAGE_PS)

    def _add_collection(self, c: Collection, program: DiePrograms) -> None:
        """The drain behind the buffer, the programs that reads find, the queue that they share."""
        b = self._b
        spread = uniform_table(c.length.value)
        if c.law == "gamma":
            spread = gamma_table(c.length.value, c.length_cv.value)
        each, slow = (gamma_table(PS_PER_S / rate.value, 0.0) for rate in (c.drain, c.rate))
        own = DiePrograms(
            b.dist(each), self._buffer, every=round(c.every.value), batch_dist=b.dist(spread),
            slow_dist=b.dist(slow),
        )  # fmt: skip
        self._drain = self._named("drain", "drive", Kind.DIE, own=own, resource="program")
        if c.busy.value > 0:
            self._n_programs = max(1, round(self.profile.write.program.value / c.busy.value))
            self._programs_at = len(b.stations)
            for i in range(self._n_programs):
                b.station(f"{self._drive.name} program{i}", Kind.DIE, own=program)
        if c.queue is not None:
            self._queue = self._named("queue", "gate", Kind.GATE, max(1, round(c.queue.value)))

    def _add_data(self, writes: bool, mixed: bool) -> None:
        b, name, p = self._b, self._drive.name, self.profile.write
        self._read_data = self._named("read data", "drive", resource="read_bandwidth")
        port: dict[str, Any] = {"resource": "port", "direction": "up"}
        self._up = self._down = self._named("port up", "link", **port)
        if self._drive.link.full_duplex:
            port["direction"] = "down"
            if writes:
                self._down = self._named("port down", "link", **port)
            else:
                self._down = b.station(f"{name} port down", Kind.FIFO)
        if not writes:
            return
        if mixed and self.profile.read.is_flash and self.profile.read.engines is None:
            self._write_data = self._read_data
        else:
            self._write_data = self._named("write data", "drive", resource="write_bandwidth")
        self._ack = b.station(f"{name} acknowledge", Kind.DELAY)
        if self._syncs and p.volatile and p.flush is not None:
            self._flushes = self._named("flushes", "drive")
        self._ack_dist = self._acknowledgement(0)

    def _acknowledgement(self, turn_ps: int) -> int:
        """Row of what a write takes beside the controller, which holds it *turn_ps* longer."""
        p = self.profile.write
        mean = max(1.0, p.base.value - self._host_ps - turn_ps)
        return self._b.dist(gamma_table(mean, p.base_cv.value))

    def _in_rounds(self, write: bool, n_bytes: int) -> list[Row]:
        return [self._rounds.row(write, n_bytes, self._host_ps, self._drive.delay_ps, SLOT_DIE)]

    def check(self, write: bool) -> None:
        """Raise ScenarioError for a captured drive that holds no such latencies."""
        if self._captured is not None:
            self._captured.check(write)

    def rows(self, write: bool, n_bytes: int, access: Access) -> list[Row]:
        """Operations of one command up to the drive's own port, data at the host's side."""
        p, waits = self.profile, self._limit_rows(n_bytes)
        self._sequential = access.sequential
        self._through = p.write.through or (access.through and p.write.volatile)
        if p.rounds is not None:
            return [*waits, *self._tagged(self._in_rounds(write, n_bytes))]
        if self._captured is not None:
            return [*waits, *self._captured.rows(write)]
        served = (self._write if write else self._read)(n_bytes, access.misaligned)
        return [*waits, *self._tagged(served)]

    def _limit_rows(self, n_bytes: int) -> list[Row]:
        """Token buckets of a virtual disk that a command of *n_bytes* passes."""
        limits, rows = self.profile.limits, []
        if limits is None:
            return []
        for what, rate, takes in (
            ("IOPS", limits.iops, 1), ("bandwidth", limits.bandwidth, n_bytes),
        ):  # fmt: skip
            if rate is not None:
                at = self._named(f"{what} limit", "limit", Kind.LIMIT, resource="volume-limit")
                rows.append(const(at, max(1, round(PS_PER_S / rate.value * takes))))
        return rows

    def _tagged(self, rows: list[Row]) -> list[Row]:
        """*rows* with one of the drive's tags held."""
        if self._tags < 0:
            return rows
        return [op(Op.ACQUIRE, self._tags, 1), *rows, op(Op.RELEASE, self._tags, 1)]

    def _command_row(self, write: bool, delay_ps: int, extra_ps: int = 0) -> Row:
        took = round(self._command_ps(write)) + extra_ps
        if write and self._syncs:  # their threads come all at once; what was measured is in order
            return const(self._command, took, delay_ps)
        return self._in_no_order(self._command, took, SLOT_COMMAND, delay_ps)

    def _in_no_order(self, station: int, took: int, slot: int, delay_ps: int = 0) -> Row:
        cv = self.profile.wait_cv.value
        if cv == 0:
            return const(station, took, delay_ps)
        waits = self._b.dist(gamma_table(SCALE_ONE, cv))
        return op(Op.VISIT_UNORDERED, station, waits, took, delay_ps, slot=slot)

    def _command_ps(self, write: bool) -> float:
        p = self.profile
        own = write and not (p.sorts and self._sequential)  # a disk's cache: what has a place each
        return PS_PER_S / ((p.write.commands if own else None) or p.commands).value

    def _turn_ps(self, write: bool, n: int) -> int:
        """Time beyond its own that a command of *n* units holds the controller in a mix.

        Each holds what both share as long as its like do where nothing else is there.
        """
        if not self._takes_turns:
            return 0
        p = self.profile
        media = p.write.program.value if write else p.read.die.value
        own = self._command_ps(write)
        return round(max(own, n * media / p.dies.value) - own)

    def _read(self, n_bytes: int, misaligned: bool) -> list[Row]:
        p = self.profile
        is_ahead = self._sequential and p.read.ahead
        base = p.read.base.value + p.read.large_ps(n_bytes)
        if is_ahead:
            base = p.read.stream_ps(0 if p.sorts else n_bytes)
        waits = max(0, round(base) - self._host_ps) + self._drive.delay_ps
        unit = round(p.read.unit.value)
        more = round(p.physical_sector.value) - SECTOR if misaligned else 0
        n = min(MAX_CHILDREN, math.ceil((n_bytes + more) / unit))
        is_buffered = p.read.unmapped or is_ahead
        turn = self._turn_ps(False, 0 if is_buffered else n)
        if is_ahead and (most := p.read.stream_commands) is not None:
            turn = max(turn, round(PS_PER_S / most.value - self._command_ps(False)))
        first = [self._command_row(False, max(0, waits - turn), turn)]
        if is_buffered:
            return [*first, *self._out(n_bytes)]
        if self._queue >= 0:  # which reads share with writes that wait for the buffer
            first += [op(Op.ACQUIRE, self._queue, 1), op(Op.RELEASE, self._queue, 1)]
        is_one = n == 1 and (n_bytes <= UNIT or p.read.serial is None)
        if p.read.engines is not None and not is_one:
            return [*first, *self._streamed(n, n_bytes)]
        way = self._out(n_bytes, p.serial_ps if n_bytes > UNIT else 0.0)
        least = UNIT if p.read.is_flash else SECTOR  # flash moves whole pages
        return [*first, *self._media(n, min(unit, max(least, n_bytes))), *way]

    def _out(self, n_bytes: int, command_ps: float = 0.0) -> list[Row]:
        """Read data through the controller, which a command holds besides, and the port."""
        up = command_time_ps(self._drive.link, "read", n_bytes, "up")
        if not self._drive.link.full_duplex:
            up += command_time_ps(self._drive.link, "read", n_bytes, "down")
        data = round(command_ps + n_bytes * PS_PER_S / self.profile.read_bandwidth.value)
        if n_bytes <= AS_ONE:
            return [const(self._read_data, data), self._in_no_order(self._up, up, SLOT_UP)]
        return self._streaming([const(self._read_data, data), const(self._up, up)], n_bytes)

    def _streaming(self, way: list[Row], n_bytes: int) -> list[Row]:
        """*way* through two stations that data pass packet by packet: the slower one holds them.

        A packet leaves as soon as it came, so a large command takes the longer of the two times and
        not their sum. Found: 4 MiB at depth 1 of a drive of 3.4 GB/s take 1.33 ms, a read of 4 KiB
        71 us (`calibration/held-out`, S11).
        """
        if n_bytes > AS_ONE:
            faster = min(way, key=lambda row: row.c).a
            if faster != self._read_data or self._write_data != self._read_data:
                self._b.let_save(faster, 0)
        return way

    def _media(self, n: int, each: int) -> list[Row]:
        """Die and channel of each unit; a command larger than a unit forks to neighbouring dies."""
        if n == 1:
            return self._unit(each, SLOT_DIE)
        lanes = 0 if self._n_programs else self._n_dies
        if each not in self._units:
            unit = self._unit(each, SLOT_DIE, Op.VISIT_LANE if lanes else Op.VISIT_BANK)
            self._units[each] = self._b.program([*unit, op(Op.END)])
        return [op(Op.SPLIT, n, self._units[each], d=lanes, slot=SLOT_DIE)]

    def _streamed(self, n: int, n_bytes: int) -> list[Row]:
        """One die, then the units one by one through the command's data engine and out.

        Found on the Samsung 980 PRO at 64 KiB: p99 of 167 us at depth 1, which 16 units on dies of
        their own would spread to 280; at depth 8 610 us, which one serial controller holds to 370.
        """
        first, count = self._data_engines()
        if (n, n_bytes) not in self._streams:
            each = max(1, round(self.profile.engine_ps(n, n_bytes)))
            lane = op(Op.VISIT_LANE, first, -1, each, count)
            out = self._out(min(round(self.profile.read.unit.value), n_bytes))
            self._streams[n, n_bytes] = self._b.program([lane, *out, op(Op.END)])
        die = op(Op.VISIT_BANK, self._dies, self._read_dist, 0, self._n_dies, slot=SLOT_DIE)
        return [*self._found(), die, op(Op.SPLIT, n, self._streams[n, n_bytes])]

    def _found(self) -> list[Row]:
        """The program that a read may find, where collection keeps those apart from the dies."""
        if not self._n_programs:
            return []
        return [op(Op.VISIT_BANK, self._programs_at, -1, 1, self._n_programs, slot=SLOT_PROGRAM)]

    def _data_engines(self) -> tuple[int, int]:
        """First station of the data engines, and how many there are."""
        if self._engines is None:
            engines = self.profile.read.engines
            count = 1 if engines is None else max(1, round(engines.value))
            self._engines = self._bank("data engines", "engine", count, "commands"), count
        return self._engines

    def _through_engines(self, n_bytes: int) -> list[Row]:
        """A large write's way through the data engines beside reads, each unit on any of them.

        Without it reads and writes of 64 KiB would each have the drive to themselves: 46k a second
        of a mix, where reads alone do 31k and writes 24k (980 PRO). Alone, writes may be faster.
        """
        r = self.profile.read
        n = min(MAX_CHILDREN, math.ceil(n_bytes / r.unit.value))
        if n < 2 or r.engines is None or not self._takes_turns:
            return []
        if self._spread < 0:
            first, count = self._data_engines()
            alone = count * r.unit.value * PS_PER_S / self.profile.write_bandwidth.value
            visit = op(Op.VISIT_BANK, first, -1, max(1, round(min(r.split.value, alone))), count)
            self._spread = self._b.program([visit, op(Op.END)])
        return [op(Op.SPLIT, n, self._spread)]

    def _unit(self, n_bytes: int, slot: int, code: Op = Op.VISIT_BANK) -> list[Row]:
        channel = round(self.profile.read.channel.value * n_bytes / 4096)
        return [
            *self._found(),
            op(code, self._dies, self._read_dist, 0, self._n_dies, slot=slot),
            op(Op.VISIT_LANE, self._channels, -1, max(1, channel), self._n_channels),
        ]

    def _write(self, n_bytes: int, misaligned: bool) -> list[Row]:
        p = self.profile
        down = command_time_ps(self._drive.link, "write", n_bytes, "down")
        if not self._drive.link.full_duplex:
            down += command_time_ps(self._drive.link, "write", n_bytes, "up")
        sector = round(p.physical_sector.value)
        data = const(self._write_data, round(n_bytes * PS_PER_S / p.write_bandwidth.value))
        way = self._streaming([const(self._down, down, self._drive.delay_ps), data], n_bytes)
        # what a write takes beyond its acknowledgement is hidden by the buffer
        whole = 0 if self._through else self._programs(n_bytes)
        turn = min(self._turn_ps(True, whole), round(p.write.base.value))
        arrived = [way[0], self._command_row(True, 0, turn), way[1]]
        if self._through:
            return [*arrived, *self._write_through(n_bytes)]
        arrived += self._through_engines(n_bytes)
        arrived += [const(self._flushes, 1)] if self._flushes >= 0 else []
        acknowledged = op(Op.VISIT, self._ack, self._acknowledgement(turn), slot=SLOT_ACK)
        if n_bytes < sector:
            return [*arrived, *self._modified(2 if misaligned else 1), acknowledged]
        more = sector - SECTOR if misaligned else 0
        slots = self._b.stations[self._buffer].servers
        n = self._programs(n_bytes + more)
        # 512e: where it ends inside a physical sector, the drive reads that before the write
        ends = self._media(2, 4096) if misaligned else []
        if n_bytes % sector and not misaligned:
            ends = self._unit(4096, SLOT_RMW_DIE)
        if self._drain >= 0:
            return [*arrived, *ends, *self._drained(n), acknowledged]
        part = min(slots, MAX_CHILDREN, max(1, slots // PARTS, n // MOST_PARTS))
        rows, programs = [*arrived, *ends], list[Row]()
        for first in range(0, n, part):
            each = min(part, n - first)
            rows += [*programs, op(Op.ACQUIRE, self._buffer, each)]
            programs = [op(Op.DESTAGE, self._dies, each, d=self._n_dies)]
        return [*rows, acknowledged, *programs]

    def _drained(self, n: int) -> list[Row]:
        """Room for *n* writes of 4 KiB, as much at a time as there is; their drain and programs."""
        rows, slots = [], self._b.stations[self._buffer].servers
        for first in range(0, n, slots):
            part = min(slots, n - first)
            rows += [op(Op.ACQUIRE, self._buffer, part), op(Op.DESTAGE, self._drain, part, d=1)]
        if n and self._n_programs:
            rows += [op(Op.DESTAGE, self._programs_at, min(n, MAX_CHILDREN), d=self._n_programs)]
        if self._queue >= 0 and rows:
            return [op(Op.ACQUIRE, self._queue, 1), *rows, op(Op.RELEASE, self._queue, 1)]
        return rows

    def _modified(self, n: int) -> list[Row]:
        """A write of less than a mapping unit: *n* units are read, changed and programmed.

        All of it before the acknowledgement: a write of 3,584 bytes takes a Solidigm P5520 0.43 to
        0.66 ms, one of 4 KiB its buffer's 15 us (md bitmaps of both sizes, linux-raid).
        """
        return self._on_dies(n, self._unit(4096, SLOT_RMW_DIE))

    def _on_dies(self, n: int, before: list[Row]) -> list[Row]:
        """*n* programs that are waited for, each on any die and behind the rows *before*."""
        p = self.profile.write
        dist = self._b.dist(gamma_table(p.program.value, p.program_cv.value))
        unit = [*before, op(Op.VISIT_BANK, self._dies, dist, 0, self._n_dies, slot=SLOT_DIE)]
        return unit if n == 1 else [op(Op.SPLIT, n, self._b.program([*unit, op(Op.END)]))]

    def flush_rows(self) -> list[Row]:
        """Operations of a flush: a command without data.

        A volatile buffer is written out, one flush at a time, and what is written meanwhile waits
        behind it; one with capacitors holds nothing that power could take.
        """
        if self._captured is not None:
            raise ScenarioError(
                f"{self._drive.name}: a profile of captured latencies holds no flushes; leave out "
                "fsync, or take a profile with dies and a buffer"
            )
        return self._tagged(self._in_rounds(True, 0) if self.profile.rounds else self._flush())

    def _flush(self) -> list[Row]:
        p = self.profile.write
        time = p.base.value if p.flush is None else p.flush.value
        rows = [self._command_row(True, self._drive.delay_ps)]
        if p.volatile and not p.through and p.flush_serial is None:
            slots = self._b.stations[self._buffer].servers
            rows += [op(Op.ACQUIRE, self._buffer, slots), op(Op.RELEASE, self._buffer, slots)]
        if self._flushes >= 0:
            return [*rows, *self._written_out()]
        return [*rows, const(self._ack, round(time) - self._host_ps)]

    def _written_out(self) -> list[Row]:
        """What one flush, or one write that must reach the media, takes of a volatile drive."""
        p = self.profile.write
        whole = p.flush.value if p.flush is not None else 0.0
        alone = whole if p.flush_serial is None else min(whole, p.flush_serial.value)
        rest = round(whole - alone) - self._host_ps
        return [const(self._flushes, round(alone)), const(self._ack, rest)]

    def _programs(self, n_bytes: int) -> int:
        """Programs that a write of *n_bytes* takes.

        Random writes take one a unit, write amplification and garbage collection included. A
        stream leaves nothing to collect: it drains at the sequential bandwidth, in whole ones.
        """
        p, c = self.profile, self.profile.write.collection
        unit = p.write.unit.value if c is None else UNIT
        if not self._sequential:
            return math.ceil(n_bytes / unit)
        drain = p.dies.value * unit / p.write.program.value * PS_PER_S
        if c is not None:
            drain = c.ceiling * UNIT
        return math.floor(n_bytes / unit * min(1.0, drain / p.write_bandwidth.value))

    def _write_through(self, n_bytes: int) -> list[Row]:
        """What follows the data: the dies themselves; the constant part comes last.

        What acknowledges a write that is on the media is a volatile drive's flush, if stated.
        """
        p, n = self.profile.write, min(MAX_CHILDREN, self._programs(n_bytes))
        waits = n > 0 and (self._flushes < 0 or p.flush_serial is None)
        served = self._on_dies(n, []) if waits else []
        ends = [op(Op.VISIT, self._ack, self._ack_dist, slot=SLOT_ACK)]
        if self._flushes >= 0:
            ends = self._written_out()
        elif p.volatile and p.flush is not None:
            ends = [const(self._ack, max(1, round(p.flush.value) - self._host_ps))]
        return [*served, *ends]
