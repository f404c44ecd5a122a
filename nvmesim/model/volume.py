"""A RAID volume that is a target: its geometry, its engine and its members.

Like a drive that is one (`commands.DriveTarget`) it yields, for one kind of request (operation,
size) from one socket, the program of the request and the plans it draws from. What RAID does is in
the plan tables; here their children get the programs of real drives.
"""

import math
from dataclasses import replace
from typing import Final

import numpy as np

from nvmesim.catalog.links import command_time_ps, parse_link
from nvmesim.model.commands import Commands, Planned, aligned_order
from nvmesim.model.engine_stations import BitmapFile, EngineLocks, StripeRows, groups_of
from nvmesim.model.path import Paths
from nvmesim.model.request_kinds import Access, RequestKind, commit_rows
from nvmesim.model.volume_plans import before_last, read_first, volume_parts, volume_table
from nvmesim.network.builder import Builder, Row, const, ints, op
from nvmesim.network.network import Kind, Op
from nvmesim.raid.arrays import PlanTable
from nvmesim.raid.map import BLOCK
from nvmesim.raid.tables import region_bytes
from nvmesim.scenario.resolved import ResolvedScenario, Volume
from nvmesim.units import PS_PER_S

CACHE_BYTES: Final = 16 << 20
"""Of a controller's write-back cache, what the model holds: in steady state a cache of any size is
either full or not filling, and a small one shows that sooner."""
DESTAGERS: Final = 16  # writes per member that a controller's cache has outstanding. Assumed.


class VolumeTarget:
    """A RAID volume: its geometry, its engine's stations, its members."""

    writes_anew = False
    """True if what is written later goes to a new place, behind what was written before it."""

    def __init__(
        self, b: Builder, scenario: ResolvedScenario, volume: Volume, commands: Commands,
        paths: Paths,
    ) -> None:  # fmt: skip
        self._b = b
        self._scenario = scenario
        self._commands = commands
        self._engine = engine = volume.engine
        self.volume = volume
        self.members = volume.members
        self.on_controller = engine.runs_on == "controller"
        workers = max(1, round(engine.workers.value))
        self._card = volume.controller or volume.name
        self._is_serial = engine.serial_read.value + engine.serial_write.value > 0
        if self._is_serial or engine.serial_child.value > 0:  # a chip's, but for what is each one's
            name = f"{volume.name if engine.shared.value else self._card} engine"
            self._serial = b.named(name, "raid-engine", Kind.FIFO, workers, resource="engine")
        else:
            self._serial = b.station(f"{volume.name} engine", Kind.FIFO, workers)
        self._paths = paths
        self._home = scenario.drives[volume.members[0]].socket
        self._uplink = (-1, -1)
        if self.on_controller and engine.uplink:
            self._link = replace(
                parse_link(engine.uplink), mps=scenario.max_payload, mrrs=scenario.max_read_request
            )
            self._uplink = paths.controller_uplink(self._card, self._link)
        self.geometry = volume_parts(volume, scenario.drives)[0].geometry
        self._has_parity = volume.raid.parity > 0
        self._groups = groups_of(scenario, volume)
        self._rows_gate = self._stripe_cache()
        self._locks_with_row = self._rows_gate >= 0 and any(g.is_open for g in self._groups)
        self._locks = EngineLocks(b, scenario, volume)
        self._bitmap_file = BitmapFile(b, volume)
        self.stripe_rows: StripeRows | None = None
        if self._has_parity and engine.rows is not None and not self.on_controller:
            self.stripe_rows = StripeRows(b, scenario, self.volume)
        self._read_bytes: dict[RequestKind, float] = {}
        self._reads_first: dict[RequestKind, float] = {}
        self._n_commands: dict[RequestKind, float] = {}
        self._turn = -1
        self._before_flush: dict[RequestKind, float] = {}
        self._room, self._dirty = self._write_cache()

    def _stripe_cache(self) -> int:
        """Gate of md's stripe cache, if more rows may be wanted at once than it has; else -1.

        A write holds its rows from its first read to its last write.
        """
        wanted = 0
        for g in self._groups:
            if g.read < 1:
                sizes = [size for size, _ in g.write_block_sizes or g.block_sizes]
                wanted += 1 << 30 if g.is_open else g.in_flight * max(map(self._rows_of, sizes))
        rows = self.volume.stripe_cache
        if not self._has_parity or self._engine.merge == "none" or wanted <= rows:
            return -1
        name = f"{self.volume.name} stripe cache"
        return self._b.named(name, "gate", Kind.GATE, rows, resource="stripe_cache")

    def _rows_of(self, n_bytes: int) -> int:
        """Rows of 4 KiB across the members that a write of *n_bytes* covers."""
        stripes = -(-n_bytes // (self.volume.chunk * self.geometry.data_disks))
        per_stripe = min(-(-n_bytes // BLOCK), self.volume.chunk // BLOCK)
        return max(1, stripes * per_stripe)

    def _is_write_back(self) -> bool:
        """True if the engine has a cache that the load writes to."""
        replayed = any(g.trace is not None for g in self._groups)
        writes = any(g.read < 1 for g in self._groups)
        return self._engine.cache.value >= BLOCK and writes and not replayed

    def _write_cache(self) -> tuple[int, int]:
        """Gates of a controller's write-back cache: free room, and what waits to be written."""
        if not self.on_controller or not self._is_write_back():
            return -1, -1
        slots = int(min(self._engine.cache.value, CACHE_BYTES)) // BLOCK
        sizes = [s for g in self._groups for s, _ in g.write_block_sizes or g.block_sizes]
        if any(g.access == "sequential" for g in self._groups):
            sizes.append(self.volume.chunk * self.geometry.data_disks)
        name = f"{self.volume.name} write cache"
        room = self._b.named(name, "gate", Kind.GATE, slots, resource="buffer")
        # Its slots are what is dirty: it starts with one write's worth, which a destager takes.
        one = min(slots, -(-max(sizes) // BLOCK))
        return room, self._b.station(f"{self.volume.name} dirty", Kind.GATE, one)

    def is_cached(self, kind: RequestKind) -> bool:
        """True if the request ends in the controller's cache, and a destager does the rest."""
        return kind.write and self._room >= 0

    def plan(self, kind: RequestKind) -> Planned:
        """The plan table of *kind*, its children bound to the members' drives."""
        if self.is_cached(kind):
            nothing = self._commands.plans.plan([[]])
            return Planned(*self._commands.plans.add_order(ints([nothing])), 0)
        planned = self.member_plan(kind, kind.drive_access)
        if not kind.flushes:
            return planned
        own = planned.n_phases - (3 if kind.journal else 1)
        return replace(planned, n_phases=own, flush_phase=own)

    def member_plan(self, kind: RequestKind, access: Access) -> Planned:
        """Work of the members for *kind*, whether the request waits for it or not."""
        asked = kind
        # Share of the requests whose commands start inside a physical sector of the members. md's
        # raid5/6 sends whole 4 KiB blocks and pays by reading them; an engine that keeps rows of
        # 512-byte sectors on 4K media leaves that to the drives.
        sector = self._commands.sector(self.members)
        own_rows = self._engine.merge == "none" and self.volume.logical_sector < sector
        share = (0, 1) if self._has_parity and not own_rows else kind.misaligned(sector)
        if self._has_parity and share[0]:
            kind = replace(
                kind, offset=kind.offset // BLOCK * BLOCK, align=math.lcm(kind.align, BLOCK)
            )
        table = volume_table(self.volume, self._scenario.drives, kind)
        self._reads_first[asked] = read_first(table)
        self._n_commands[asked] = table.mean_children
        if kind.flushes:
            self._before_flush[asked] = before_last(table)
        noted = kind.write and self._bitmap_file.is_written
        if noted:
            table = self._bitmap_file.noted(
                table, sequential=kind.access == "sequential", region=region_bytes(self.geometry)
            )
        orders, phases = [], 0
        for misaligned, needed in ((False, share[0] < share[1]), (True, share[0] > 0)):
            order = ints([])
            if needed:
                first, phases = self._commands.bind(
                    table, self.members, kind.memory, self.on_controller,
                    replace(access, misaligned=misaligned), self._own_phases(kind, table),
                    {0: self._bitmap_file.program()} if noted else {},
                )  # fmt: skip
                order = table.order.astype(np.int64) + first
            orders.append(order)
        order = aligned_order(orders[0], orders[1], share)
        return Planned(*self._commands.plans.add_order(order), phases)

    def _own_phases(self, kind: RequestKind, table: PlanTable) -> frozenset[int]:
        """Phases in which md writes its bitmap with FUA.

        So ends a commit of the file system, in the last phase of *table* but one.

        Source: Linux drivers/md/md.c, md_super_write.
        """
        if not kind.write:
            return frozenset()
        found = {0} if self.volume.bitmap == "internal" else set()
        if kind.journal:
            found.add(int(np.diff(table.plan_phase_ptr).max()) - 2)
        return frozenset(found)

    def split_by_thread(self, kind: RequestKind) -> float:
        """Share of the commands beyond the first that the submitting thread sends for a request.

        A controller sends its own. What rows cost holds their commands, as raid5d and the workers
        send them: all writes of RAID5/6, and reads of what a member that is gone would have held.
        The commands of a flush behind a write are not that write's.
        """
        by_rows = self.stripe_rows is not None and (kind.write or self._lost_share() > 0)
        return 0.0 if self.on_controller or by_rows else self._before_flush.get(kind, 1.0)

    def thread_sends(self, kind: RequestKind) -> bool:
        """True if commands of *kind* are its thread's: no controller's, and no row's."""
        return not self.on_controller and not (kind.write and self.stripe_rows is not None)

    def host_cycles(self) -> tuple[float, float]:
        """Host cycles per request and per child, 0 for an engine on a controller."""
        if self.on_controller:
            return 0.0, 0.0
        return self._engine.per_request.value, self._engine.per_child.value

    def request_rows(self, kind: RequestKind, n_phases: int) -> list[Row]:
        """The request from the engine's entry to its answer."""
        rows = self._entry(kind)
        if self.is_cached(kind):
            slots = self._slots(kind.n_bytes)
            return [
                *rows, op(Op.ACQUIRE, self._room, slots), op(Op.RELEASE, self._dirty, slots),
            ]  # fmt: skip
        rows += self._member_rows(kind, n_phases)
        if kind.write:
            return rows
        lost = self._lost_share() if self._has_parity else 0.0
        if self.on_controller and lost:  # parity for what a lost member would have held: the mean
            rows += self.parity_rows(round(lost * kind.n_bytes * (self.geometry.members - 1)), -1)
        if self._uplink[0] >= 0:
            time = command_time_ps(self._link, "read", kind.n_bytes, "up")
            rows += [const(self._uplink[0], time), *self._host_rows(kind)]
        if self.stripe_rows is not None:
            rows += self.stripe_rows.read_rows(-(-kind.n_bytes // BLOCK), lost)
        return rows

    def _lost_share(self) -> float:
        """Share of what is read that a member that is gone would have held."""
        g, v = self.geometry, self.volume
        return (len(g.degraded) + len(g.rebuilding) * (1 - v.rebuilt)) / g.members

    def flush_rows(self, kind: RequestKind, phase: int) -> list[Row]:
        """The flush that follows a write; a controller's own cache has a battery and answers."""
        rows = self._entry(replace(kind, n_bytes=0)) if self.on_controller else self._locks.flush()
        if phase < 0:
            return rows
        flush, record, before = (op(Op.FORK, phase + i) for i in range(3))
        if not kind.journal:
            return [*rows, flush]
        if self._turn < 0:
            self._turn = self._b.station(f"{self.volume.name} journal", Kind.TURN)
        return [*rows, *commit_rows(self._turn, [flush], record, [before])]

    def destage_rows(self, kind: RequestKind, n_phases: int) -> list[Row]:
        """Loop of a destager: take what is dirty, write it, give room."""
        slots = self._slots(kind.n_bytes)
        return [
            op(Op.ACQUIRE, self._dirty, slots),
            *self._member_rows(kind, n_phases),
            op(Op.RELEASE, self._room, slots),
        ]

    @property
    def destagers(self) -> int:
        """Writes that a controller's cache has under way at once."""
        return DESTAGERS * len(self.members)

    def destaged(self, kind: RequestKind) -> RequestKind:
        """The write that *kind* becomes in the cache: a sequential one gathers to a full stripe."""
        later = replace(kind, depth=1, flushes=False)
        if not self._has_parity or kind.access != "sequential":
            return later
        dirty = self._b.stations[self._dirty].servers * BLOCK
        stripe = min(self.volume.chunk * self.geometry.data_disks, dirty)
        if stripe <= kind.n_bytes:
            return later
        return replace(later, n_bytes=stripe, align=stripe, offset=0)

    def _slots(self, n_bytes: int) -> int:
        return min(-(-n_bytes // BLOCK), self._b.stations[self._dirty].servers)

    def _member_rows(self, kind: RequestKind, n_phases: int) -> list[Row]:
        """All phases of a request, its rows of the stripe cache held meanwhile.

        Parity is computed before the last phase of a RAID5/6 write.
        """
        rows = [op(Op.FORK, phase) for phase in range(n_phases)]
        if self._has_parity and kind.write and n_phases > 1:
            rows[-1:] = [*self._parity_of_write(kind), rows[-1]]
        if self._rows_gate < 0 or not kind.write:
            return rows
        held = min(self._rows_of(kind.n_bytes), self.volume.stripe_cache)
        if self._locks_with_row and self.stripe_rows is not None:
            rows = [*self.stripe_rows.submit_rows(self._rows_of(kind.n_bytes)), *rows]
        release = op(Op.RELEASE, self._rows_gate, held)
        return [op(Op.ACQUIRE, self._rows_gate, held), *rows, release]

    def _entry(self, kind: RequestKind) -> list[Row]:
        """Serial section of the engine, and a controller's uplink for the data of a write."""
        serial = self._engine.serial_write if kind.write else self._engine.serial_read
        each = round(self._engine.serial_child.value)
        latency = round(self._engine.latency.value)
        rows = []
        if shared := round(self._engine.shared.value) if self.on_controller else 0:
            card = self._b.named(f"{self._card} controller", "raid-engine", resource="engine")
            rows.append(const(card, shared))
        if serial.value > 0 or each > 0 or latency > 0:
            service = max(1, round(serial.value))
            rows.append(op(Op.VISIT, self._serial, -1, service, latency, each))
        if self._uplink[1] >= 0 and kind.write:
            time = command_time_ps(self._link, "write", kind.n_bytes, "down")
            rows += self._host_rows(kind)[::-1]
            rows.append(const(self._uplink[1], time))
        return rows

    def _host_rows(self, kind: RequestKind) -> list[Row]:
        """From a controller's slot to the buffers, and back for a write."""
        return self._paths.host_rows(self._home, kind.memory, kind.write, kind.n_bytes)

    def lock_rows(self, kind: RequestKind) -> list[Row]:
        """The engine's locks that the submitting thread passes, and is held meanwhile.

        Arrivals from outside pass those of rows when they have a row: else what waits for the
        stripe cache, without end in an overload, would keep the workers from the locks.
        """
        rows = [] if self.on_controller else self._locks.rows(kind.write)
        if kind.write and self.stripe_rows is not None and not self._locks_with_row:
            rows += self.stripe_rows.submit_rows(self._rows_of(kind.n_bytes))
        return rows

    def serial_rows(self, times: int) -> list[Row]:
        """The serial section of a write, *times* over: what a rebuild takes of it."""
        service = round(self._engine.serial_write.value)
        return [const(self._serial, service)] * times if service else []

    def _parity_of_write(self, kind: RequestKind) -> list[Row]:
        if self.stripe_rows is None:
            return self.parity_rows(kind.n_bytes, kind.memory, self._reads_first[kind])
        n = self._rows_of(kind.n_bytes)
        work = self.stripe_rows.write_rows(
            n, self._reads_first[kind], self.xor_ps(kind.n_bytes), self._n_commands[kind]
        )
        return [*work, *self.parity_memory(kind.n_bytes, kind.memory)]

    def parity_rows(self, n_bytes: int, memory: int, reads: float = 0.0) -> list[Row]:
        """Parity of *n_bytes*, on a host CPU or in the controller.

        *reads* is the share of the writes that read first, as they cover a stripe in part.
        A host's parity reads what it covers from *memory* and writes as much: the copy into the
        stripe cache, or the result. Assumed: nothing of it is still in the CPU's caches.
        """
        time = round(self.xor_ps(n_bytes))
        if not self.on_controller:
            return [op(Op.VISIT_CPU, 0, -1, max(1, time)), *self.parity_memory(n_bytes, memory)]
        if self._engine.update_rate is not None:
            update = n_bytes * PS_PER_S / self._engine.update_rate.value
            time = round((1 - reads) * time + reads * update)
        return [const(self._serial, time)] if self._is_serial else []

    def xor_ps(self, n_bytes: int) -> float:
        """Time that one core (or the controller) takes for the parity of *n_bytes*."""
        return n_bytes * PS_PER_S / self._engine.parity_rate.value

    def parity_memory(self, n_bytes: int, memory: int) -> list[Row]:
        """Visits to *memory* by the parity of *n_bytes*."""
        return self._paths.memory_rows(memory, 2 * n_bytes) if memory >= 0 else []
