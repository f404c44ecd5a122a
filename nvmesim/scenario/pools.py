"""Pools of ZFS in a scenario: their records, and what of Linux md they do not have."""

from typing import Final

from nvmesim import units
from nvmesim.errors import GeometryError, ScenarioError
from nvmesim.raid.levels import POOL_LEVELS, Level
from nvmesim.raid.planner.records import SECTOR, allocated_sectors
from nvmesim.scenario.hardware import ResolveNotes
from nvmesim.scenario.resolved import Volume, WorkloadGroup
from nvmesim.scenario.schema import VolumeSpec

DEFAULT_RECORD: Final = 128 << 10  # Source: zfsprops(7), recordsize
LARGEST_RECORD: Final = 16 << 20  # Source: OpenZFS, zfs_max_recordsize as of 2.2
_NOT_OF_ZFS: Final = (
    "chunk", "kernel", "group_thread_cnt", "rebuild", "check", "rebuilt",
    "sync_speed_min", "sync_speed_max", "read_policy", "write_mostly", "rmw_level", "stripe_cache",
    "stripe_cache_size", "bitmap", "spares", "logical_sector",
    "controller",
)  # fmt: skip


def check_pool(spec: VolumeSpec, level: Level, key: str, n_members: int) -> None:
    """Refuse keys that the level has no use for, and pools that `zpool create` does not make."""
    if not level.records:
        if spec.recordsize is not None:
            raise GeometryError(
                f"{key}.recordsize is {units.format_size(spec.recordsize)}; only ZFS "
                f"({', '.join(POOL_LEVELS)}) has records, {level.name} has chunk"
            )
        return
    for name in _NOT_OF_ZFS:
        if name in spec.model_fields_set and getattr(spec, name) is not False:
            hint = ", which has recordsize" if name == "chunk" else ""
            if name in ("rebuild", "check", "spares"):
                hint = ": resilver and scrub are not modelled"
            raise GeometryError(f"{key}.{name} is not for {level.name}{hint}; leave it out")
    # each vdev has as many members: of a raidz its columns, of a mirror its copies
    width = spec.columns
    if level.mirrored:
        if width is not None:
            raise GeometryError(
                f'{key}.columns is {width}; mirrors have none, layout = "near3" makes them of '
                "three drives"
            )
        width = level.copies_of(n_members, level.layout(spec.layout))[1]
    if level.parity and width is not None and width < level.least:
        raise GeometryError(f"{key}.columns is {width}; {level.name} needs at least {level.least}")
    if width is not None and n_members % width:
        raise GeometryError(
            f"{key}: {n_members} members do not make vdevs of {width}; take a multiple of {width}"
        )


def record_bytes(spec: VolumeSpec, key: str, notes: ResolveNotes) -> int:
    """Return the recordsize: as stated, or that of zfs; GeometryError for one that it refuses."""
    notes.assume(
        f"{key}: nothing is found in memory (no ARC) but what is read ahead of a stream, "
        "and no two writes meet in a record before it is flushed: data far larger than the memory"
    )
    if spec.recordsize is None:
        notes.assume(f"{key}.recordsize: {units.format_size(DEFAULT_RECORD)}, the default of zfs")
        return DEFAULT_RECORD
    size = spec.recordsize
    if size & (size - 1) or not SECTOR <= size <= LARGEST_RECORD:
        raise GeometryError(
            f"{key}.recordsize is {units.format_size(size)}; a power of two from 4 KiB to 16 MiB, "
            "as 16 KiB"
        )
    return size


def pool_bytes(volume: Volume, level: Level) -> int:
    """Return the data that a pool holds in whole records, their parity and padding off.

    >>> from nvmesim.catalog.load import get
    >>> from nvmesim.raid.levels import level_of
    >>> zfs, four = get("raid-engine", "openzfs"), (0, 1, 2, 3)
    >>> v = Volume(0, "v", "raidz1", four, "", 1, 8192, zfs, member_bytes=1 << 40)
    >>> pool_bytes(v, level_of("raidz1")) / 2**40
    2.0
    """
    n = len(volume.members)
    if level.mirrored:
        return n * volume.member_bytes // volume.copies
    sectors = volume.chunk // SECTOR
    taken = allocated_sectors(sectors, volume.columns or n, level.parity)
    return n * volume.member_bytes * sectors // taken // volume.chunk * volume.chunk


def check_loads(volumes: tuple[Volume, ...], workload: tuple[WorkloadGroup, ...]) -> None:
    """Refuse writes to a pool that must be on the drives when they are answered."""
    pools = {v.index: v.name for v in volumes if v.raid.records}
    for index, group in enumerate(workload):
        names = [pools[t.index] for t in group.targets if t.kind == "volume" and t.index in pools]
        if not names:
            continue
        for name, found in (("fsync", group.sync_every), ("sync", group.write_through)):
            if found:
                raise ScenarioError(
                    f"workload.{index}: {name} on {names[0]}, a pool of ZFS, whose intent log is "
                    "not modelled; leave it out to ask for writes that are answered from memory"
                )
        if group.sqpoll:
            raise ScenarioError(
                f"workload.{index}: sqthread_poll on {names[0]}: ZFS serves a thread's requests "
                "one after the other; leave it out"
            )
