"""A pool of ZFS that is a target: whole records, read at once and written later.

A write is answered once its data are in memory, after a read of each record that it covers in
part. Transaction groups write what has gathered; when that comes to the limit of dirty data
writers are slowed down to what is flushed. So in steady state it works as a write-back cache of
the host. Source: OpenZFS dmu_tx.c (dmu_tx_delay), dsl_pool.c (zfs_dirty_data_max), txg.c.
"""

import math
from dataclasses import replace
from typing import Final

from nvmesim.catalog.engine_profile import RecordCosts
from nvmesim.model.commands import Planned
from nvmesim.model.request_kinds import Access, RequestKind
from nvmesim.model.volume import CACHE_BYTES, VolumeTarget
from nvmesim.model.volume_plans import volume_table, without_last_phase
from nvmesim.network.builder import Row, op
from nvmesim.network.network import Kind, Op
from nvmesim.raid.arrays import PlanTable, mean_read_bytes
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.records import AGGREGATION
from nvmesim.units import PS_PER_S

AHEAD: Final = 2
"""Writes that are ready for each drive, for one that it may have outstanding: enough that a drive
does not wait for the slower ones. ZFS's queues have no such limit."""


class RecordTarget(VolumeTarget):
    """A pool: one raidz, several of them, or mirrors."""

    writes_anew = True

    def _write_cache(self) -> tuple[int, int]:
        """Gates of the dirty data: what may still gather, and what waits to be written."""
        if not self._is_write_back():
            return -1, -1
        flushed = self._flushed_bytes()
        most = max(CACHE_BYTES, 2 * flushed * self.destagers)
        slots = max(flushed, min(round(self._engine.cache.value), most)) // BLOCK
        name = f"{self.volume.name} dirty data"
        room = self._b.named(name, "gate", Kind.GATE, slots, resource="dirty-data")
        # As a controller's cache: its slots are what is dirty, and it starts with one flush.
        waiting = f"{self.volume.name} to be flushed"
        return room, self._b.station(waiting, Kind.GATE, flushed // BLOCK)

    @property
    def _costs(self) -> RecordCosts:
        assert self._engine.records is not None
        return self._engine.records

    @property
    def destagers(self) -> int:
        """Flushes of `_flushed_bytes` under way at once."""
        parts = len(self.members) // self.geometry.members
        return AHEAD * parts * round(self._costs.active.value)

    def _flushed_bytes(self) -> int:
        """Data of records that one flush writes: about a command of `AGGREGATION` a drive."""
        record, g = self.volume.chunk, self.geometry
        drives = g.data_disks if g.record.parity else g.members // g.copies
        if g.record.parity:
            return max(1, AGGREGATION * drives // record) * record
        return max(1, AGGREGATION // record) * record * drives

    def queue(self, drive: int, write: bool) -> int:
        """Gate of what the pool has outstanding at a drive, reads and writes apart."""
        name = f"{self._scenario.drives[drive].name} zfs {'writes' if write else 'reads'}"
        slots = round(self._costs.active.value)
        return self._b.named(name, "gate", Kind.GATE, slots, drive=drive, resource="vdev-queue")

    def plan(self, kind: RequestKind) -> Planned:
        """Reads of whole records: of a write, of those that it covers in part."""
        table = self._table(kind)
        if self.is_cached(kind):
            for drive in self.members:
                self._commands.drives[drive].check(write=False)
            table = without_last_phase(table)
        self._read_bytes[kind] = mean_read_bytes(table)
        return self._bound(table, kind.memory, kind.drive_access)

    def member_plan(self, kind: RequestKind, access: Access) -> Planned:
        """Work of the members for *kind*, which is one flush."""
        return self._bound(self._table(kind), kind.memory, access)

    def _table(self, kind: RequestKind) -> PlanTable:
        """Plans of *kind*; a pool's sectors are aligned, whatever the request."""
        aligned = replace(
            kind, offset=kind.offset // BLOCK * BLOCK, align=math.lcm(kind.align, BLOCK)
        )
        return volume_table(self.volume, self._scenario.drives, aligned)

    def _bound(self, table: PlanTable, memory: int, access: Access) -> Planned:
        first, phases = self._commands.bind(
            table, self.members, memory, False, access, queue=self.queue
        )
        order = table.order.astype("int64") + first
        return Planned(*self._commands.plans.add_order(order), phases)

    def destaged(self, kind: RequestKind) -> RequestKind:
        """The flush that writes the records of *kind*: whole ones, one behind the other."""
        flushed = self._flushed_bytes()
        return replace(
            kind, n_bytes=flushed, align=flushed, offset=0, span=None, depth=1, access="random"
        )

    def _dirtied(self, kind: RequestKind) -> int:
        """Bytes of records that a write makes dirty, in the mean.

        A stream dirties what it covers: its records are there until all of them is written.
        """
        record = self.volume.chunk
        if kind.access == "sequential":
            return kind.n_bytes
        step = math.gcd(kind.align, record)
        starts = range(kind.offset % step, record, step)
        touched = sum(-(-(start + kind.n_bytes) // record) for start in starts) / len(starts)
        return round(touched * record)

    def request_rows(self, kind: RequestKind, n_phases: int) -> list[Row]:
        """The pool's locks, reads and their check; a write waits for room among the dirty data."""
        rows = self._entry(kind)
        read = self._read_bytes[kind]
        if read:
            rows += [op(Op.FORK, 0), *self._work(read, self._costs.read_rate.value)]
        if not self.is_cached(kind):  # a replayed write waits for the drives
            return [*rows, *(op(Op.FORK, phase) for phase in range(1, n_phases))]
        slots = self._dirty_slots(self._dirtied(kind))
        return [*rows, op(Op.ACQUIRE, self._room, slots), op(Op.RELEASE, self._dirty, slots)]

    def _dirty_slots(self, n_bytes: int) -> int:
        return max(1, min(-(-n_bytes // BLOCK), self._b.stations[self._room].servers))

    def destage_rows(self, kind: RequestKind, n_phases: int) -> list[Row]:
        """Loop of a flush: take what is dirty, checksum it, write it, give room."""
        slots = self._dirty_slots(kind.n_bytes)
        parity = self.xor_ps(kind.n_bytes) * self.volume.raid.parity
        return [
            op(Op.ACQUIRE, self._dirty, slots),
            *self._work(kind.n_bytes, self._costs.write_rate.value, parity),
            *self.parity_memory(kind.n_bytes, kind.memory),
            *(op(Op.FORK, phase) for phase in range(n_phases)),
            op(Op.RELEASE, self._room, slots),
        ]

    @staticmethod
    def _work(n_bytes: float, rate: float, more_ps: float = 0.0) -> list[Row]:
        return [op(Op.VISIT_CPU, 0, -1, max(1, round(n_bytes * PS_PER_S / rate + more_ps)))]
