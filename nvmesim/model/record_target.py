"""A pool of ZFS that is a target: whole records, read at once or ahead, and written later.

A stream of reads finds its records in memory: they are read ahead of it. A write is answered once
its data are in memory, after a read of each record that it covers in part. Transaction groups write
what has gathered; when that comes to the limit of dirty data writers are slowed down to what is
flushed. So in steady state it works as a write-back cache of the host. Source: OpenZFS dmu_tx.c
(dmu_tx_delay), dsl_pool.c (zfs_dirty_data_max), txg.c, dmu_zfetch.c.
"""

import math
from dataclasses import replace
from functools import cached_property
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
READ_AHEAD: Final = 64 << 20
"""Bytes that are read ahead of streams. Source: zfs(4), zfetch_max_distance."""


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

    @cached_property
    def _ahead(self) -> tuple[int, int]:
        """Gates of what may still be read ahead, and of what is there for streams."""
        sizes = (s for g in self._groups if g.access == "sequential" for s, _ in g.block_sizes)
        lot = self._fetched_bytes(max(sizes))
        most = max(READ_AHEAD, 2 * lot * self.destagers)
        may = self._b.station(f"{self.volume.name} may be read ahead", Kind.GATE, most // BLOCK)
        # Its slots are what is there: it starts with one fetch, as the dirty data with one flush.
        return may, self._b.station(f"{self.volume.name} read ahead", Kind.GATE, lot // BLOCK)

    def is_cached(self, kind: RequestKind) -> bool:
        """True if the request ends in memory: a write, and a read that follows another."""
        streams = kind.access == "sequential" and all(g.trace is None for g in self._groups)
        return super().is_cached(kind) if kind.write else streams

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
        """Data of records that one flush writes: about a command of `AGGREGATION` a drive.

        At least those of the largest write, which makes them dirty at once.
        """
        record, g = self.volume.chunk, self.geometry
        drives = g.data_disks if g.record.parity else g.members // g.copies
        largest = max(
            size + (0 if group.access == "sequential" else record)
            for group in self._groups for size, _ in group.write_block_sizes or group.block_sizes
        )  # fmt: skip
        at_once = self._fetched_bytes(largest)
        if g.record.parity:
            return max(record, AGGREGATION * drives // record * record, at_once)
        return max(max(1, AGGREGATION // record) * record * drives, at_once)

    def _fetched_bytes(self, n_bytes: int) -> int:
        """Data of whole records that are read ahead at once for requests of *n_bytes*."""
        return -(-n_bytes // self.volume.chunk) * self.volume.chunk

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
        """The flush, or the fetch, of the records of *kind*: whole ones, one behind the other."""
        flushed = self._flushed_bytes() if kind.write else self._fetched_bytes(kind.n_bytes)
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
        """The pool's locks, reads and their check; a write waits for room among the dirty data.

        A stream waits for what is read ahead. Its data, and those of a write, the thread copies.
        """
        rows = self._entry(kind)
        read = self._read_bytes[kind]
        if read:
            rows += [op(Op.FORK, 0), *self._work(read, self._costs.read_rate.value)]
        if not self.is_cached(kind):  # a replayed write waits for the drives
            return [*rows, *(op(Op.FORK, phase) for phase in range(1, n_phases))]
        costs = self._costs
        copied = costs.write_copy_rate if kind.write else costs.copy_rate
        rows += self._work(kind.n_bytes, copied.value)
        (may, there), slots = self._ahead_or_dirty(kind, self._dirtied(kind))
        first, then = (may, there) if kind.write else (there, may)
        return [*rows, op(Op.ACQUIRE, first, slots), op(Op.RELEASE, then, slots)]

    def _ahead_or_dirty(self, kind: RequestKind, n_bytes: int) -> tuple[tuple[int, int], int]:
        """Gates of what may still gather in memory, and of what has; slots of *n_bytes*."""
        gates = (self._room, self._dirty) if kind.write else self._ahead
        return gates, max(1, min(-(-n_bytes // BLOCK), self._b.stations[gates[0]].servers))

    def destage_rows(self, kind: RequestKind, n_phases: int) -> list[Row]:
        """Loop of a flush: take what is dirty, checksum it, write it, give room.

        That of a fetch: take room, read, check, give what is there.
        """
        (may, there), slots = self._ahead_or_dirty(kind, kind.n_bytes)
        forks = [op(Op.FORK, phase) for phase in range(n_phases)]
        if not kind.write:
            check = self._work(kind.n_bytes, self._costs.read_rate.value)
            return [op(Op.ACQUIRE, may, slots), *forks, *check, op(Op.RELEASE, there, slots)]
        parity = self.xor_ps(kind.n_bytes) * self.volume.raid.parity
        return [
            op(Op.ACQUIRE, there, slots),
            *self._work(kind.n_bytes, self._costs.write_rate.value, parity),
            *self.parity_memory(kind.n_bytes, kind.memory),
            *forks,
            op(Op.RELEASE, may, slots),
        ]

    @staticmethod
    def _work(n_bytes: float, rate: float, more_ps: float = 0.0) -> list[Row]:
        return [op(Op.VISIT_CPU, 0, -1, max(1, round(n_bytes * PS_PER_S / rate + more_ps)))]
