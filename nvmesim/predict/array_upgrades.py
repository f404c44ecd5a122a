"""Changes of a RAID array that could relieve it: its kernel, workers, locks, files, halves."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nvmesim.catalog.kernel import version, with_kernel
from nvmesim.catalog.load import with_level
from nvmesim.predict.change import Change, times
from nvmesim.scenario.resolved import ResolvedScenario, Target, Volume, WorkloadGroup

MOST_STRIPES: Final = 32768
"""Largest stripe_cache_size that md takes."""
WORKERS: Final = 8
"""Value that `eight_workers` sets group_thread_cnt to."""
LEAST_HALF: Final = {"raid0": 1, "raid5": 3, "raid6": 4, "raid10": 2}
"""Fewest members of half an array; a mirror has no half."""


def shorter_serial_section(s: ResolvedScenario) -> Change | None:
    """A RAID engine whose serial section is half as long."""

    def change(volume: Volume) -> Volume:
        e = volume.engine
        halved = {
            k: times(getattr(e, k), 0.5) for k in ("serial_read", "serial_write", "serial_child")
        }
        return replace(volume, engine=e.model_copy(update=halved))

    if not s.volumes:
        return None
    volumes = tuple(change(v) for v in s.volumes)
    return Change("a RAID engine with half the serial time", replace(s, volumes=volumes))


def larger_stripe_cache(s: ResolvedScenario) -> Change | None:
    """Four times md's stripe cache, where the load's writes want more rows than it has."""
    changed = []
    for volume in s.volumes:
        rows = 0
        for group in s.workload:
            here = ("volume", volume.index) in {(t.kind, t.index) for t in group.targets}
            if here and group.read < 1:
                size = max(size for size, _ in group.write_block_sizes or group.block_sizes)
                rows += group.in_flight * max(1, min(size, volume.chunk) // 4096)
        if volume.raid.stripe_cache and volume.engine.merge != "none":
            more = min(4 * volume.stripe_cache, MOST_STRIPES) if rows > volume.stripe_cache else 0
            volume = replace(volume, stripe_cache=max(more, volume.stripe_cache))
        changed.append(volume)
    if tuple(changed) == s.volumes:
        return None
    sizes = sorted({v.stripe_cache for v, old in zip(changed, s.volumes, strict=True) if v != old})
    text = f"a stripe cache of {' or '.join(map(str, sizes))} rows"
    keys = {"volume.*.stripe_cache": sizes[0]} if len(sizes) == 1 else {}
    return Change(text, replace(s, volumes=tuple(changed)), keys)


def newer_kernel(s: ResolvedScenario) -> Change | None:
    """The first kernel in which a volume has none of the locks that spin."""
    volumes, named = [], ""
    for volume in s.volumes:
        kernel = _without_locks(volume)
        if kernel is not None and volume.profile is not None:
            engine = with_level(with_kernel(volume.profile, kernel), volume.level)
            volume, named = replace(volume, engine=engine, kernel=kernel), kernel
        volumes.append(volume)
    if not named:
        return None
    changed = replace(s, volumes=tuple(volumes))
    return Change(f"kernel {named}", changed, {"volume.*.kernel": named})


def _without_locks(volume: Volume) -> str | None:
    if volume.profile is None or not volume.engine.locks or not volume.kernel:
        return None
    later = [k for k in volume.profile.kernels if version(k) > version(volume.kernel)]
    free = (k for k in later if not with_level(with_kernel(volume.profile, k), volume.level).locks)
    return next(free, None)


def eight_workers(s: ResolvedScenario) -> Change | None:
    """RAID5/6 of md with eight workers on every NUMA node."""
    most = WORKERS * len(s.sockets)

    def change(volume: Volume) -> Volume:
        parity = volume.raid.stripe_cache and volume.engine.rows is not None
        return replace(volume, workers=most) if parity and volume.workers < most else volume

    volumes = tuple(change(v) for v in s.volumes)
    if volumes == s.volumes:
        return None
    nodes = "" if len(s.sockets) == 1 else " on each NUMA node"
    changed = replace(s, volumes=volumes)
    keys = {"volume.*.group_thread_cnt": WORKERS}
    return Change(f"{WORKERS} md workers{nodes}", changed, keys)


def no_bitmap(s: ResolvedScenario) -> Change | None:
    """Volumes without a bitmap: a crash then costs a resync of all."""
    volumes = tuple(replace(v, bitmap="none", first_dirty=0.0) for v in s.volumes)
    changed = replace(s, volumes=volumes)
    return None if changed == s else Change("no bitmap", changed, {"volume.*.bitmap": "none"})


def two_arrays(s: ResolvedScenario) -> Change | None:
    """Each volume under load as two, of half the members, the load's threads on both."""
    used = {t.index for g in s.workload for t in g.targets if t.kind == "volume"}
    halved = [v for v in s.volumes if v.index in used]
    if not halved or any(not _halves(v) for v in halved):
        return None
    groups = [_on_halves(group, s) for group in s.workload]
    if any(group is None for group in groups):
        return None
    volumes: list[Volume] = []
    for v in s.volumes:
        n = len(v.members) // 2
        first = replace(v, members=v.members[:n], zone_bytes=v.zone_bytes[:n])
        second = replace(
            v, index=len(s.volumes) + v.index, name=f"{v.name} b", members=v.members[n:],
            zone_bytes=v.zone_bytes[n:],
        )  # fmt: skip
        volumes += [first, second] if v.index in used else [v]
    volumes.sort(key=lambda v: v.index)
    order = {v.index: i for i, v in enumerate(volumes)}
    placed = tuple(replace(v, index=order[v.index]) for v in volumes)
    load = tuple(_renumbered(group, order) for group in groups if group is not None)
    changed = replace(s, volumes=placed, workload=load)
    return Change("two arrays of half the members", changed)


def _halves(volume: Volume) -> bool:
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
    if group.threads_are_per_target and group.threads % 2:
        return None
    more = [replace(t, index=len(s.volumes) + t.index, name=f"{t.name} b") for t in group.targets]
    threads = group.threads // 2 if group.threads_are_per_target else group.threads
    outstanding = group.outstanding
    if group.outstanding_per == "thread-target" and not group.threads_are_per_target:
        if outstanding % 2:
            return None
        outstanding //= 2
    return replace(group, targets=(*group.targets, *more), threads=threads, outstanding=outstanding)


def _renumbered(group: WorkloadGroup, order: dict[int, int]) -> WorkloadGroup:
    targets = tuple(
        replace(t, index=order[t.index]) if t.kind == "volume" else t for t in group.targets
    )
    return replace(group, targets=targets)


def one_file_a_thread(s: ResolvedScenario) -> Change | None:
    """A file of its own for each thread that shares one, on the same drives and volumes."""
    if not s.stack.per_sharer.value:
        return None
    groups = tuple(_own_files(group) for group in s.workload)
    if groups == s.workload:
        return None
    return Change("one file a thread", replace(s, workload=groups))


def _own_files(group: WorkloadGroup) -> WorkloadGroup:
    shared = group.threads_are_per_target and group.threads > 1 and not group.is_open
    if not shared or any(t.parts > 1 for t in group.targets):
        return group
    targets: list[Target] = []
    for t in group.targets:
        n = group.threads
        targets += [replace(t, name=f"{t.name} file {i}", part=i, parts=n) for i in range(n)]
    return replace(group, targets=tuple(targets), threads=1)
