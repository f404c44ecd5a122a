"""Plan tables of a resolved volume: its geometry, columns, zones and read policy put together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from nvmesim.model.commands import is_flushed
from nvmesim.model.request_kinds import JOURNAL, RECORD, RequestKind
from nvmesim.raid.arrays import (
    MAX_ORDER,
    PlanSet,
    PlanTable,
    TablePlan,
    balanced,
    build_table,
    streamed,
    with_last_phase,
)
from nvmesim.raid.geometry import RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.pieces import RawChild, check_offsets
from nvmesim.raid.planner.plan import flush_phase
from nvmesim.raid.planner.records import AGGREGATION
from nvmesim.raid.tables import check_plan_table, plan_table, rebuild_plan_table
from nvmesim.scenario.resolved import Drive, Volume

SLAB: Final = 256 << 20
"""Bytes of each column that Storage Spaces allocates at once, on its own choice of drives.
Source: Microsoft, Storage Spaces: slabs of 256 MiB."""
ALIQUOT: Final = 1 << 20
"""Bytes of each drive that ZFS allocates before it goes on to the next vdev.
Source: OpenZFS metaslab.c, metaslab_aliquot."""
MAX_SECTORS: Final = 1280 * 1024
"""Largest command where the profile says none. Source: Linux, BLK_DEF_MAX_SECTORS."""


@dataclass(frozen=True)
class Part:
    """Stripes that lie on the same members, in this order; *share* of the volume is of them."""

    geometry: RaidGeometry
    members: tuple[int, ...]
    share: int


def volume_geometry(volume: Volume, drives: Sequence[Drive] = ()) -> RaidGeometry:
    """The planner's geometry of a resolved volume over all its members.

    *drives* (all of the scenario) say how large a command members take, and which of them turn.
    """
    layout, level = volume.layout or None, volume.raid
    if level.copies == "layout":
        layout = f"{volume.layout}{volume.copies}"
    profiles = [drives[m].profile for m in volume.members] if drives else []
    limits = [int(p.max_transfer.value) for p in profiles if p.max_transfer is not None]
    turning = tuple(p.latencies is None and round(p.dies.value) == 1 for p in profiles)
    return RaidGeometry(
        level=level.number,
        members=len(volume.members),
        chunk=volume.chunk if level.has_chunks else 0,
        layout=layout,
        rebuilding=() if volume.rebuilding is None else (volume.rebuilding,),
        max_sectors=min([AGGREGATION if level.records else MAX_SECTORS, *limits]),
        kernel=volume.engine.merge,
        rotational=turning if any(turning) else (),
        member_size=volume.zone_bytes or volume.member_bytes or None,
        **volume.options(),
    )


def volume_parts(volume: Volume, drives: Sequence[Drive] = ()) -> tuple[Part, ...]:
    """Sets of members that stripes lie on: one, unless the volume is wider than its columns.

    Storage Spaces puts each slab on a set of its own; here the sets follow one another around the
    drives, which loads them evenly as the real choice (by free space) does in the long run.

    >>> from nvmesim.catalog.load import get
    >>> engine = get("raid-engine", "storage-spaces-parity")
    >>> six = (0, 1, 2, 3, 4, 5)
    >>> v = Volume(0, "v", "raid5", six, "left-symmetric", 1, 65536, engine, columns=4)
    >>> [part.members for part in volume_parts(v)]
    [(0, 1, 2, 3), (4, 5, 0, 1), (2, 3, 4, 5)]
    """
    whole = volume_geometry(volume, drives)
    n = whole.members
    width = n
    if volume.columns:
        width = volume.columns * (volume.copies if volume.raid.has_chunks else 1)
    if width == n:
        return (Part(whole, tuple(range(n)), 1),)
    parts = []
    for k in range(n // math.gcd(n, width)):
        members = tuple((k * width + i) % n for i in range(width))
        place = {member: i for i, member in enumerate(members)}
        part = replace(
            whole,
            members=width,
            degraded=tuple(place[m] for m in whole.degraded if m in place),
            rebuilding=tuple(place[m] for m in whole.rebuilding if m in place),
            rotational=tuple(whole.rotational[m] for m in members) if whole.rotational else (),
        )
        parts.append(Part(part, members, 1))
    return tuple(parts)


def volume_table(volume: Volume, drives: Sequence[Drive], kind: RequestKind) -> PlanTable:
    """Every plan that requests of *kind* meet on *volume*, members by their number.

    One that flushes has a phase more: the flush of every member that is there, whatever the level.
    """
    if not kind.flushes:
        return _volume_table(volume, drives, kind)
    table = _volume_table(volume, drives, replace(kind, flushes=False, journal=""))
    geometry = volume_geometry(volume, drives)
    flushed = [is_flushed(drives[m].profile, kind) for m in volume.members]
    table = with_last_phase(table, [c for c in flush_phase(geometry) if flushed[c[0][0]]])
    if not kind.journal:
        return table
    for n_bytes in (RECORD, JOURNAL[kind.journal]):
        table = with_last_phase(table, _journal_write(volume, geometry, n_bytes))
    return table


def _journal_write(volume: Volume, geometry: RaidGeometry, n_bytes: int) -> list[RawChild]:
    """A small write to the journal: it lies on one chunk, or on every mirror."""
    if not n_bytes:
        return []
    live = [m for m in range(geometry.members) if m not in geometry.degraded]
    return [((member,), True, 0, n_bytes, 1) for member in live[: volume.copies]]


def _volume_table(volume: Volume, drives: Sequence[Drive], kind: RequestKind) -> PlanTable:
    parts = volume_parts(volume, drives)
    whole = parts[0].geometry
    if kind.access == "sequential" and volume.zone_bytes:
        # Zone after zone, each a raid0 of its own.
        parts = tuple(
            Part(
                replace(whole, members=len(z.members), member_size=None, rotational=()),
                tuple(z.members),
                (z.end - z.start) // whole.chunk,
            )
            for z in whole.address_map.zones
            if len(z.members) > 1
        )
    tables = [_table(part.geometry, kind, volume.first_dirty) for part in parts]
    is_whole = len(parts) == 1 and parts[0].members == tuple(range(whole.members))
    table = tables[0] if is_whole else _assembled(parts, tables, len(volume.members), kind)
    mirrored = volume.raid.mirrored
    if not mirrored or kind.write:
        return table
    uncut = not volume.raid.has_chunks
    if volume.read_policy == "md" and uncut and kind.access == "sequential":
        kinds = {drives[m].link.kind for m in volume.members}
        return streamed(table, kind.streams, bool(whole.rotational) or "sata" in kinds)
    return balanced(table, volume.read_policy)


@lru_cache(maxsize=64)
def _table(geometry: RaidGeometry, kind: RequestKind, first_dirty: float) -> PlanTable:
    op = "write" if kind.write else "read"
    return plan_table(
        geometry,
        op,  # type: ignore[arg-type]  # one of the two it takes
        kind.n_bytes,
        access=kind.access,
        align=kind.align,
        offset=kind.offset,
        span=kind.span,
        depth=kind.depth,
        first_dirty=first_dirty if kind.access == "random" else None,
    )


def _assembled(
    parts: Sequence[Part], tables: Sequence[PlanTable], n_members: int, kind: RequestKind
) -> PlanTable:
    """One table of the parts', members by their number on the volume, each by its share."""
    plans = PlanSet()
    orders = []
    total = sum(part.share for part in parts)
    lengths = [len(table.order) for table in tables]
    for part, table in zip(parts, tables, strict=True):
        numbers = plans.add(_renamed(plan, part.members) for plan in table.plans)
        share = part.share / total
        if kind.access == "sequential":
            slab = ALIQUOT if part.geometry.record.records else SLAB
            wanted = min(slab * part.geometry.members / kind.n_bytes, MAX_ORDER * share / 4)
            wanted = wanted if len({p.share for p in parts}) == 1 else MAX_ORDER * share / 4
        else:
            wanted = max(lengths) * len(parts) * share * (1 if len({*lengths}) == 1 else 64)
        repeats = max(1, round(wanted / len(table.order)))
        check_offsets(repeats * len(table.order) * len(parts))
        orders.append(np.tile(numbers[table.order], repeats))
    return build_table(
        plans.plans,
        np.concatenate(orders),
        n_members,
        kind.n_bytes,
        is_sequential=kind.access == "sequential",
        read_policy=tables[0].read_policy,
    )


def _renamed(plan: TablePlan, members: tuple[int, ...]) -> TablePlan:
    return tuple(
        tuple((tuple(members[m] for m in alts), w, size, bios) for alts, w, size, bios in phase)
        for phase in plan
    )


def read_first(table: PlanTable) -> float:
    """Share of the requests of *table* that read members before they write any.

    >>> from nvmesim.raid.geometry import RaidGeometry
    >>> read_first(plan_table(RaidGeometry(5, 4, 65536), "write", 4096))
    1.0
    """
    reads = np.concatenate([[0], np.cumsum(~table.child_is_write)])
    first = table.phase_child_ptr[table.plan_phase_ptr]
    return float((reads[first[1:]] > reads[first[:-1]])[table.order].mean())


def without_last_phase(table: PlanTable) -> PlanTable:
    """*table* without what its plans do last: the writes, which are made later.

    >>> from nvmesim.raid.geometry import RaidGeometry
    >>> write = plan_table(RaidGeometry(5, 4, 65536), "write", 4096)
    >>> without_last_phase(write).plan(0)
    ((((1,), False, 4096, 1), ((2,), False, 4096, 1)),)
    """
    plans = PlanSet()
    numbers = plans.add(plan[:-1] for plan in table.plans)
    return table.with_plans(plans.plans, numbers[table.order])


def before_last(table: PlanTable) -> float:
    """Share of the children beyond a plan's first that are in front of its last phase.

    >>> from nvmesim.raid.geometry import RaidGeometry
    >>> write = plan_table(RaidGeometry(1, 2), "write", 4096)
    >>> round(before_last(with_last_phase(write, flush_phase(RaidGeometry(1, 2)))), 3)
    0.333
    """
    first = table.phase_child_ptr[table.plan_phase_ptr]
    last = table.phase_child_ptr[table.plan_phase_ptr[1:] - 1]
    share = (last - first[:-1] - 1) / np.maximum(1, first[1:] - first[:-1] - 1)
    return float(np.maximum(0.0, share)[table.order].mean())


def background_table(volume: Volume, drives: Sequence[Drive]) -> PlanTable:
    """Plan that restores the rebuilding member of the volume, or checks all of them.

    A volume wider than its columns restores each of the parts that its member is in, in turn.
    """
    parts = volume_parts(volume, drives)
    orders, plans = [], PlanSet()
    size = BLOCK
    for part in parts:
        g = part.geometry
        if volume.rebuilding is not None and not g.rebuilding:
            continue
        table = rebuild_plan_table(g, g.rebuilding[0]) if g.rebuilding else check_plan_table(g)
        size = table.request_bytes
        numbers = plans.add(_renamed(plan, part.members) for plan in table.plans)
        orders.append(numbers[table.order])
    return build_table(
        plans.plans, np.concatenate(orders), len(volume.members), size, is_sequential=True
    )
