"""Records of ZFS: which sectors of which members a record of a mirror or of a raidz takes.

A record (``recordsize``) is read as a whole, checked, and never overwritten: what is changed is
written as a whole to a new place. A raidz has no stripes that requests share: each record brings
its own parity, a sector for each row of data, and its sectors run over the members one row after
the other, beginning wherever the record before it ended. Source: OpenZFS module/zfs/vdev_raidz.c,
vdev_raidz_asize and vdev_raidz_map_alloc; vdev_queue.c for what is sent as one command.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.planner.parity import StripeCache
from nvmesim.raid.planner.pieces import RawChild, joined, read_order

SECTOR: Final = 4096
"""Bytes of a sector of the pool. Assumed: ashift = 12, as drives of 4 KiB sectors get."""
AGGREGATION: Final = 128 << 10
"""Neighbouring commands become one of so many bytes at most. Source: OpenZFS vdev_queue.c,
zfs_vdev_aggregation_limit_non_rotating (disks that turn: 1 MiB)."""
WRITE_GAP: Final = 4 << 10
"""Writes so far apart still become one, with what lies between. Source: OpenZFS vdev_queue.c,
zfs_vdev_write_gap_limit; raidz fills its own gaps by optional writes for the same end."""


@dataclass(frozen=True)
class Column:
    """Sectors of one record on one member; the first columns of a record are its parity."""

    member: int
    start: int  # sector on the member
    sectors: int


def allocated_sectors(sectors: int, members: int, parity: int) -> int:
    """Sectors of a raidz that a record of so many data *sectors* takes, with parity and padding.

    Rounded up to multiples of parity + 1, so that no hole stays that nothing fits into.
    Source: OpenZFS vdev_raidz.c, vdev_raidz_asize.

    >>> allocated_sectors(32, 5, 1), allocated_sectors(2, 4, 1), allocated_sectors(1, 6, 2)
    (40, 4, 3)
    """
    total = sectors + parity * -(-sectors // (members - parity))
    return -(-total // (parity + 1)) * (parity + 1)


def raidz_columns(
    start: int, sectors: int, members: int, parity: int, *, swapped: bool = False
) -> list[Column]:
    """Columns of a record of *sectors* that begins at sector *start* of the raidz.

    *swapped*: parity and the first data have changed places, as a raidz1 does in every second MiB.
    Source: OpenZFS vdev_raidz.c, vdev_raidz_map_alloc.

    >>> [(c.member, c.start, c.sectors) for c in raidz_columns(7, 5, 5, 1)]
    [(2, 1, 2), (3, 1, 2), (4, 1, 1), (0, 2, 1), (1, 2, 1)]
    """
    whole, rest = divmod(sectors, members - parity)
    big = rest + parity if rest else 0
    count = members if whole else big
    columns = []
    for place in range(count):
        row, member = divmod(start + place, members)
        columns.append(Column(member, row, whole + (place < big)))
    if swapped:
        columns[0], columns[1] = columns[1], columns[0]
    return columns


@lru_cache(maxsize=64)
def _group(sectors: int, members: int, parity: int) -> tuple[int, int, int, int]:
    """(records, records between shifts, sectors of each, sectors in all) of a group of records.

    Its records begin at every member that a record can begin at, once.
    """
    each, step = allocated_sectors(sectors, members, parity), _step(parity)
    n = members // math.gcd(step, members)
    run = members // math.gcd(each, members)
    total = n * each + (n // run - 1) * step
    return n, run, each, -(-total // members) * members


def _step(parity: int) -> int:
    """Sectors whose multiples a record can begin at.

    What lies before it in its metaslab are multiples of parity + 1, and metaslabs begin at powers
    of two: so those that divide both. Source: OpenZFS vdev.c, vdev_metaslab_set_size.
    """
    return (parity + 1) & -(parity + 1)


def record_start(index: int, sectors: int, members: int, parity: int) -> tuple[int, bool]:
    """First sector of record *index* of a volume on a raidz, and whether its parity is swapped.

    Records lie one behind the other, as ZFS allocates what is written together. Assumed: what
    else a pool writes between them has them begin at all members that they can begin at, evenly,
    and half of a raidz1 in MiB that swap.

    >>> [record_start(k, 32, 5, 1)[0] % 5 for k in range(6)]
    [0, 2, 4, 1, 3, 0]
    """
    n, run, each, total = _group(sectors, members, parity)
    group, inside = divmod(index, n)
    start = group * total + inside * each + inside // run * _step(parity)
    return start, parity == 1 and group % 2 == 1


def record_columns(geometry: RaidGeometry, index: int, behind: int = 0) -> list[Column]:
    """Columns of record *index* of a volume on a raidz, or of the one so many *behind* it.

    Records that are written together lie one right behind the other.
    """
    sectors, members, parity = geometry.chunk // SECTOR, geometry.members, geometry.record.parity
    start, swapped = record_start(index, sectors, members, parity)
    start += behind * allocated_sectors(sectors, members, parity)
    return raidz_columns(start, sectors, members, parity, swapped=swapped)


def plan_records(
    geometry: RaidGeometry, op: Op, offset: int, length: int, cache: StripeCache | None, below: bool
) -> list[list[RawChild]]:
    """Reads of whole records; of a write, of those that it covers in part, then all written.

    What a stream has read before is still in memory (*cache*, by record): else nothing is, as the
    ARC is left out. Members that are missing are neither read nor written.
    """
    first, last = offset // geometry.chunk, (offset + length - 1) // geometry.chunk
    touched = range(first, last + 1)
    whole = range(-(-offset // geometry.chunk), (offset + length) // geometry.chunk)
    reads = [k for k in touched if op == "read" or k not in whole]
    phases = [[child for k in _not_held(reads, cache) for child in _read(geometry, k, below)]]
    if op == "write":
        writes = (child for k in touched for child in _written(geometry, first, k - first))
        phases.append(joined(writes, AGGREGATION, WRITE_GAP))
    return phases


def _not_held(records: Iterable[int], cache: StripeCache | None) -> list[int]:
    """Those of *records* that no request before has brought into *cache*; they are there now."""
    found = []
    for index in records:
        if cache is None or not cache.get(index):
            found.append(index)
        if cache is not None:
            cache.put(index, 1)
    return found


def _read(geometry: RaidGeometry, index: int, below: bool) -> list[RawChild]:
    """Data of a record; with some of it missing all of its parity, too.

    Source: OpenZFS vdev_raidz.c, vdev_raidz_io_start_read_row.
    """
    if not geometry.record.parity:
        places = geometry.address_map.locate(index * geometry.chunk)
        order = read_order(geometry, places, below)
        return [(tuple(m for m, _ in order), False, order[0][1], geometry.chunk, 1)]
    columns = record_columns(geometry, index)
    data = columns[geometry.record.parity :]
    needed = columns if any(c.member in geometry.lost for c in data) else data
    return [
        ((c.member,), False, c.start * SECTOR, c.sectors * SECTOR, 1)
        for c in needed
        if c.member not in geometry.lost
    ]


def _written(geometry: RaidGeometry, first: int, behind: int) -> list[RawChild]:
    """The record so many *behind* the *first* of those that are written together."""
    if geometry.record.parity:
        columns = record_columns(geometry, first, behind)
        found = [(c.member, c.start * SECTOR, c.sectors) for c in columns]
    else:
        places = geometry.address_map.locate((first + behind) * geometry.chunk)
        found = [(member, start, geometry.chunk // SECTOR) for member, start in places]
    return [
        ((member,), True, start, sectors * SECTOR, 1)
        for member, start, sectors in found
        if member not in geometry.degraded
    ]
