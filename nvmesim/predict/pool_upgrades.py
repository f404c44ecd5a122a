"""Changes of a pool of ZFS that could relieve it: its records, and what its drives are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nvmesim.predict.change import Change, times
from nvmesim.raid.planner.records import SECTOR
from nvmesim.scenario.resolved import ResolvedScenario, Volume
from nvmesim.units import format_size

MORE_ACTIVE: Final = 4
"""Times as many commands at each drive that `more_at_a_drive` asks for."""


def smaller_records(s: ResolvedScenario) -> Change | None:
    """Records no larger than the largest request of those that use the pool."""
    volumes, named = [], 0
    for volume in s.volumes:
        size = _largest_request(s, volume)
        if volume.raid.records and 0 < size < volume.chunk:
            named = max(SECTOR, 1 << (size - 1).bit_length())
            if named < volume.chunk:
                volume = replace(volume, chunk=named)
        volumes.append(volume)
    if tuple(volumes) == s.volumes:
        return None
    return Change(f"recordsize {format_size(named)}", replace(s, volumes=tuple(volumes)))


def _largest_request(s: ResolvedScenario, volume: Volume) -> int:
    sizes = [
        size
        for group in s.workload
        if ("volume", volume.index) in {(t.kind, t.index) for t in group.targets}
        for size, _ in (*group.block_sizes, *(group.write_block_sizes or ()))
    ]
    return max(sizes, default=0)


def more_at_a_drive(s: ResolvedScenario) -> Change | None:
    """Pools that have four times as much outstanding at each drive."""

    def change(volume: Volume) -> Volume:
        records = volume.engine.records
        if records is None:
            return volume
        more = records.model_copy(update={"active": times(records.active, MORE_ACTIVE)})
        return replace(volume, engine=volume.engine.model_copy(update={"records": more}))

    volumes = tuple(change(v) for v in s.volumes)
    if volumes == s.volumes:
        return None
    return Change(
        f"zfs_vdev_sync_read_max_active and async_write's {MORE_ACTIVE} times as large",
        replace(s, volumes=volumes),
    )
