"""Changes of a RAID array or a pool of ZFS that could relieve it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nvmesim.catalog.load import version, with_kernel, with_level
from nvmesim.predict.upgrades import Change, ChangeFactory, changed, if_one, multiplied
from nvmesim.raid.planner.records import SECTOR
from nvmesim.scenario.resolved import ResolvedScenario, Volume, WorkloadGroup
from nvmesim.units import format_size

MOST_STRIPES: Final = 32768
"""Largest stripe_cache_size that md takes."""
WORKERS: Final = 8
"""Value that `eight_workers` sets group_thread_cnt to."""
LEAST_HALF: Final = {"raid0": 1, "raid5": 3, "raid6": 4, "raid10": 2}
"""Fewest members of half an array; a mirror has no half."""


def _engines(text: str, **factors: float) -> ChangeFactory:
    """Make a change of RAID engines whose numbers are multiplied; __ in their names is a dot."""
    keys = {name.replace("__", "."): factor for name, factor in factors.items()}
    return lambda s: changed(
        s, text, volumes=tuple(replace(v, engine=multiplied(v.engine, keys)) for v in s.volumes)
    )


shorter_serial_section = _engines(
    "a RAID engine with half the serial time", serial_read=0.5, serial_write=0.5, serial_child=0.5
)
more_at_a_drive = _engines(
    "zfs_vdev_sync_read_max_active and async_write's 4 times as large", records__active=4
)


def larger_stripe_cache(s: ResolvedScenario) -> Change | None:
    """Four times md's stripe cache, where the load's writes want more rows than it has."""
    volumes = []
    for volume in s.volumes:
        rows = 0
        for group in _users(s, volume):
            if group.read < 1:
                size = max(size for size, _ in group.write_block_sizes or group.block_sizes)
                rows += group.in_flight * max(1, min(size, volume.chunk) // 4096)
        is_small = rows > volume.stripe_cache and volume.engine.merge != "none"
        if is_small and volume.raid.stripe_cache:
            more = max(volume.stripe_cache, min(4 * volume.stripe_cache, MOST_STRIPES))
            volume = replace(volume, stripe_cache=more)
        volumes.append(volume)
    sizes = sorted({v.stripe_cache for v, old in zip(volumes, s.volumes, strict=True) if v != old})
    text = f"a stripe cache of {' or '.join(map(str, sizes))} rows"
    keys = if_one("volume.*.stripe_cache", sizes)
    return changed(s, text, keys, volumes=tuple(volumes))


def smaller_records(s: ResolvedScenario) -> Change | None:
    """Records no larger than the largest request of those that use the pool."""
    volumes, named = [], 0
    for volume in s.volumes:
        groups = _users(s, volume)
        sizes = [n for g in groups for n, _ in (*g.block_sizes, *(g.write_block_sizes or ()))]
        size = max(sizes, default=0)
        if volume.raid.records and 0 < size < volume.chunk:
            named = max(SECTOR, 1 << (size - 1).bit_length())
            volume = replace(volume, chunk=min(volume.chunk, named))
        volumes.append(volume)
    return changed(s, f"recordsize {format_size(named)}", volumes=tuple(volumes))


def _users(s: ResolvedScenario, volume: Volume) -> list[WorkloadGroup]:
    used = ("volume", volume.index)
    return [g for g in s.workload if used in {(t.kind, t.index) for t in g.targets}]


def newer_kernel(s: ResolvedScenario) -> Change | None:
    """The first kernel in which a volume has none of the locks that spin."""
    volumes, named = [], ""
    for volume in s.volumes:
        profile = volume.profile
        if profile is not None and volume.engine.locks and volume.kernel:
            for kernel in (k for k in profile.kernels if version(k) > version(volume.kernel)):
                engine = with_level(with_kernel(profile, kernel), volume.level)
                if not engine.locks:
                    volume, named = replace(volume, engine=engine, kernel=kernel), kernel
                    break
        volumes.append(volume)
    return changed(s, f"kernel {named}", {"volume.*.kernel": named}, volumes=tuple(volumes))


def eight_workers(s: ResolvedScenario) -> Change | None:
    """RAID5/6 of md with eight workers on every NUMA node."""
    most = WORKERS * len(s.sockets)
    volumes = tuple(
        replace(v, workers=max(v.workers, most))
        if v.raid.stripe_cache and v.engine.rows is not None else v
        for v in s.volumes
    )  # fmt: skip
    nodes = "" if len(s.sockets) == 1 else " on each NUMA node"
    keys = {"volume.*.group_thread_cnt": WORKERS}
    return changed(s, f"{WORKERS} md workers{nodes}", keys, volumes=volumes)


def no_bitmap(s: ResolvedScenario) -> Change | None:
    """Volumes without a bitmap: a crash then costs a resync of all."""
    volumes = tuple(replace(v, bitmap="none", first_dirty=0.0) for v in s.volumes)
    return changed(s, "no bitmap", {"volume.*.bitmap": "none"}, volumes=volumes)


def two_arrays(s: ResolvedScenario) -> Change | None:
    """Each volume under load as two, of half the members, the load's threads on both."""
    used = {t.index for g in s.workload for t in g.targets if t.kind == "volume"}
    groups = [_on_halves(group, s) for group in s.workload]
    if not used or not all(_can_halve(s.volumes[i]) for i in used) or None in groups:
        return None
    first = [_part_of(v, slice(len(v.members) // 2)) if v.index in used else v for v in s.volumes]
    second = [
        replace(_part_of(v, slice(len(v.members) // 2, None)), index=len(s.volumes) + v.index,
                name=f"{v.name} b")
        for v in s.volumes if v.index in used
    ]  # fmt: skip
    order = {v.index: i for i, v in enumerate([*first, *second])}
    volumes = tuple(replace(v, index=order[v.index]) for v in [*first, *second])
    load = tuple(
        replace(g, targets=tuple(
            replace(t, index=order[t.index]) if t.kind == "volume" else t for t in g.targets
        ))
        for g in groups if g is not None
    )  # fmt: skip
    return Change("two arrays of half the members", replace(s, volumes=volumes, workload=load))


def _part_of(volume: Volume, part: slice) -> Volume:
    return replace(volume, members=volume.members[part], zone_bytes=volume.zone_bytes[part])


def _can_halve(volume: Volume) -> bool:
    n = len(volume.members)
    odd = n % 2 or (volume.level == "raid10" and n // 2 % volume.copies)
    plain = not (volume.degraded or volume.rebuild or volume.columns)
    return plain and not odd and n // 2 >= LEAST_HALF.get(volume.level, n)


def _on_halves(group: WorkloadGroup, s: ResolvedScenario) -> WorkloadGroup | None:
    """*group* on both halves of its volumes; None where its threads cannot be dealt evenly."""
    if not any(t.kind == "volume" for t in group.targets):
        return group
    if any(t.kind != "volume" or t.parts > 1 for t in group.targets) or group.is_open:
        return None
    more = [replace(t, index=len(s.volumes) + t.index, name=f"{t.name} b") for t in group.targets]
    both = replace(group, targets=(*group.targets, *more))
    if group.threads_are_per_target:
        return None if group.threads % 2 else replace(both, threads=group.threads // 2)
    if group.outstanding_per == "thread-target":
        half = group.outstanding // 2
        return None if group.outstanding % 2 else replace(both, outstanding=half)
    return both
