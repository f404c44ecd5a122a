"""Rebuild, resync and check as background load: what md reads and writes.

md restores one unit after the other: raid5/6 by 4 KiB rows that merge into commands, raid1/10 in
64 KiB pieces. Source: Linux drivers/md/md.c, raid1.c (RESYNC_BLOCK_SIZE), raid5.c. Assumed: the
size into which the rows of raid5/6 merge; the md ground truth has no resync.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.errors import GeometryError
from nvmesim.raid.arrays import PlanSet, PlanTable, TablePlan, build_table
from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.map import BLOCK, KIB
from nvmesim.raid.planner.budget import check_offsets
from nvmesim.raid.tables import period_bytes

MIRROR_UNIT: Final = 64 * KIB
"""Source: Linux drivers/md/raid1-10.c, RESYNC_BLOCK_SIZE."""
PARITY_UNIT: Final = 128 * KIB
"""Assumed: rows in one command when md resyncs raid5/6, a plug's worth (BLK_PLUG_FLUSH_SIZE)."""


def rebuild_plan_table(geometry: RaidGeometry, spare_member: int) -> PlanTable:
    """Background requests that restore *spare_member*: phase 0 reads survivors, phase 1 writes it.

    The order is sequential along the member; ``request_bytes`` is how far one request, a piece of
    md's, brings the spare. Raises GeometryError when the member is not missing or rebuilding, or
    the level has no redundancy.

    >>> table = rebuild_plan_table(RaidGeometry(5, 4, 65536, degraded=(2,)), 2)
    >>> [len(phase) for phase in table.plan(0)]
    [3, 1]
    """
    if not geometry.record.redundant:
        raise GeometryError("raid0 has no redundancy; a lost member cannot be rebuilt")
    if spare_member not in geometry.lost:
        lost = ", ".join(str(m) for m in geometry.lost) or "none"
        raise GeometryError(
            f"member {spare_member} is not missing, so there is nothing to rebuild; missing: {lost}"
        )
    size = _unit(geometry)
    live = _live(geometry, (*geometry.lost, spare_member))
    writes = (((spare_member,), True, size, 1),)
    if geometry.record.stripe_cache:  # row by row
        bios = size // BLOCK
        reads = tuple(((member,), False, size, bios) for member in live)
        return _cycle(geometry, [(reads, (((spare_member,), True, size, bios),))], size)
    sources = [live]
    if geometry.record.has_chunks:  # holders of each chunk of the spare until the layout repeats
        offsets = range(0, period_bytes(geometry), geometry.chunk)
        held = [[m for m, _ in geometry.address_map.locate(offset)] for offset in offsets]
        sources = [tuple(m for m in on if m in live) for on in held if spare_member in on]
    return _cycle(geometry, [(((on, False, size, 1),), writes) for on in sources], size)


def check_plan_table(geometry: RaidGeometry) -> PlanTable:
    """Background requests of a check, or of a resync that finds no difference: all members read.

    >>> [len(phase) for phase in check_plan_table(RaidGeometry(6, 5, 65536)).plan(0)]
    [5, 0]
    """
    if not geometry.record.redundant:
        raise GeometryError("raid0 has no redundancy; there is nothing to check")
    size = _unit(geometry)
    bios = size // BLOCK if geometry.record.stripe_cache else 1
    reads = tuple(((member,), False, size, bios) for member in _live(geometry, geometry.lost))
    return _cycle(geometry, [(reads, ())], size)


def _unit(geometry: RaidGeometry) -> int:
    unit = PARITY_UNIT if geometry.record.stripe_cache else MIRROR_UNIT
    return unit if not geometry.record.has_chunks else min(unit, geometry.chunk)


def _live(geometry: RaidGeometry, gone: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(member for member in range(geometry.members) if member not in gone)


def _cycle(geometry: RaidGeometry, plans: list[TablePlan], size: int) -> PlanTable:
    distinct = PlanSet()
    numbers = distinct.add(plans)
    if geometry.record.copies == "layout":
        check_offsets(len(numbers) * (geometry.chunk // size))
        numbers = np.repeat(numbers, geometry.chunk // size)
    return build_table(distinct.plans, numbers, geometry.members, size, is_sequential=True)
