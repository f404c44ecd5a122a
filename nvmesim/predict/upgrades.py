"""Changes that could relieve a bottleneck: one resolved scenario to another, or None."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from nvmesim.catalog.links import PCIE_LANES, SOCKET_RATES, Link, parse_link, pcie
from nvmesim.catalog.load import version, with_kernel, with_level
from nvmesim.errors import InputError
from nvmesim.model.engine_stations import groups_of
from nvmesim.predict.bottleneck import MORE_OUTSTANDING
from nvmesim.predict.changes import (
    Change,
    ChangeFactory,
    changed,
    each,
    if_one,
    multiplied,
    of_volumes,
    stated,
)
from nvmesim.raid.planner.records import SECTOR
from nvmesim.scenario.hardware import check_lanes
from nvmesim.scenario.resolved import Drive, ResolvedScenario, Target, Volume, WorkloadGroup
from nvmesim.scenario.volumes import default_chunk, part_name
from nvmesim.scenario.workloads import by_socket
from nvmesim.units import format_size

TOP_PCIE: Final = 6
MOST_STRIPES: Final = 32768
"""Largest stripe_cache_size that md takes."""
WORKERS: Final = 8
"""Of an array, as measured ones had: beyond them their locks take longer."""
LEAST_HALF: Final = {"raid0": 1, "raid5": 3, "raid6": 4, "raid10": 2}
"""Fewest members of half an array; a mirror has no half."""


def _drives(text: str, **factors: float) -> ChangeFactory:
    """Make a change of drives whose numbers are multiplied; __ in their names is a dot."""
    keys = {name.replace("__", "."): factor for name, factor in factors.items()}

    def make(s: ResolvedScenario) -> Change | None:
        drives = tuple(  # empirical ones, which draw what was captured, stay
            d if d.profile.latencies is not None
            else replace(d, profile=multiplied(d.profile, keys)) for d in s.drives
        )  # fmt: skip
        keys_of: dict[str, Any] = {}
        for old, new in zip(s.drives, drives, strict=True):
            numbers = {key: stated(new.profile, key) for key in keys}
            if old.table and old != new:
                keys_of |= {f"{old.table}.profile.{k}": n for k, n in numbers.items() if n}
        return changed(s, text, keys_of, drives=drives)

    return make


def _engines(text: str, **factors: float) -> ChangeFactory:
    """The same of RAID engines."""
    keys = {name.replace("__", "."): factor for name, factor in factors.items()}
    return each(text, volumes=lambda v: replace(v, engine=multiplied(v.engine, keys)))


twice_the_commands = _drives("drives with twice the command rate", commands=2, write__commands=2)
twice_the_dies = _drives("drives with twice the dies and channels", dies=2, channels=2)
twice_the_bandwidth = _drives(
    "drives with twice the bandwidth", read_bandwidth=2, write_bandwidth=2
)
twice_the_buffer = _drives(
    "drives that sustain twice the writes", write__buffer=2, write__program=0.5,
    write__collection__drain=2, write__collection__rate=2, write__collection__slots=2,
    write__collection__length=0.5, write__collection__busy=0.5,
)  # fmt: skip
twice_the_volume_limits = _drives(
    "volumes with twice the limit", limits__iops=2, limits__bandwidth=2
)
shorter_serial_section = _engines(
    "a RAID engine with half the serial time", serial_read=0.5, serial_write=0.5, serial_child=0.5
)
more_at_a_drive = _engines(
    "zfs_vdev_sync_read_max_active and async_write's 4 times as large", records__active=4
)
twice_the_memory = each(
    "twice the memory channels",
    sockets=lambda k: replace(k, memory_bytes_per_s=2 * k.memory_bytes_per_s),
)
more_commands_through_adapters = each("adapters with twice the command rate", adapters=lambda a:
    replace(a, commands_per_s=a.commands_per_s and 2 * a.commands_per_s,
            drive_commands_per_s=a.drive_commands_per_s and 2 * a.drive_commands_per_s)
)  # fmt: skip


def no_bitmap(s: ResolvedScenario) -> Change | None:
    """Arrays without a bitmap."""
    volumes = [replace(v, bitmap="none", first_dirty=0.0) for v in s.volumes]
    return of_volumes(s, "no bitmap", volumes, "bitmap", lambda _: "none")


def _more_cores(text: str, factor: int = 1, more: int = 0, threads: int = 1) -> ChangeFactory:
    """Make a change to more cores; with more *threads* where each has its own CPU, else without."""

    def make(s: ResolvedScenario) -> Change | None:
        is_closed = bool(s.workload) and not any(g.is_open for g in s.workload)
        cpus = sum(k.logical_cpus for k in s.sockets)
        has_a_cpu_each = is_closed and sum(g.n_threads for g in s.workload) <= cpus
        if has_a_cpu_each != (threads > 1):
            return None
        sockets = tuple(
            replace(k, cpu=k.cpu.model_copy(update={"cores": factor * k.cpu.cores + more}))
            for k in s.sockets
        )
        groups = tuple(replace(g, threads=threads * g.threads) for g in s.workload)
        keys = if_one("server.sockets.*.cpu.cores", (k.cpu.cores for k in sockets))
        keys |= thread_keys(s, groups)
        said = text + " per socket" if more and len(s.sockets) > 1 else text
        return Change(said, replace(s, sockets=sockets, workload=groups), keys)

    return make


one_more_core = _more_cores("one more core", more=1)
twice_the_cores = _more_cores("twice the cores", 2)
twice_the_cores_and_threads = _more_cores("twice the cores and twice the threads", 2, threads=2)


def on_all_sockets(s: ResolvedScenario) -> Change | None:
    """Threads that are held on one socket, on all of them in turn."""
    groups = tuple(replace(g, socket=None) for g in s.workload)
    held = [f"workload.{i}.socket" for i, g in enumerate(s.workload) if g.socket is not None]
    if len(s.sockets) < 2 or not held:
        return None
    how = f"leave out {', '.join(held)}"
    return Change("threads on all sockets", replace(s, workload=groups), dict.fromkeys(held), how)


def more_ghz(s: ResolvedScenario) -> Change | None:
    """Every core 10 % faster."""
    faster = tuple(replace(k, ghz=k.ghz * 1.1) for k in s.sockets)
    keys = if_one("server.sockets.*.ghz", (round(k.ghz, 3) for k in faster))
    return changed(s, "10 % more GHz", keys, sockets=faster)


def thread_keys(s: ResolvedScenario, groups: Sequence[WorkloadGroup]) -> dict[str, Any]:
    """Threads and depth that differ in *groups*, as a scenario states them."""
    out: dict[str, Any] = {}
    for i, (old, new) in enumerate(zip(s.workload, groups, strict=True)):
        name = "threads" if new.threads_are_per_target else "threads_total"
        if new.threads != old.threads:
            out[f"workload.{i}.{name}"] = new.threads
        if new.outstanding != old.outstanding:
            out[f"workload.{i}.outstanding"] = new.outstanding
    return out


def a_thread_a_cpu(s: ResolvedScenario) -> Change | None:
    """As many threads as logical CPUs that send what arrives by the clock."""
    cpus = sum(k.logical_cpus for k in s.sockets)
    least = {id(g): -(-cpus // (g.n_threads // g.threads)) for g in s.workload if g.is_open}
    groups = tuple(
        replace(g, threads=least[id(g)])
        if g.trace is None and least.get(id(g), 0) > g.threads else g for g in s.workload
    )  # fmt: skip
    text = f"{sum(g.n_threads for g in groups if g.is_open)} threads that send them"
    return changed(s, text, thread_keys(s, groups), workload=groups)


def twice_the_threads(s: ResolvedScenario) -> Change | None:
    """Twice the threads, each with half as much outstanding where that is possible."""

    def change(g: WorkloadGroup) -> WorkloadGroup:
        return replace(g, threads=2 * g.threads, outstanding=max(1, g.outstanding // 2))

    groups = tuple(g if g.is_open else change(g) for g in s.workload)
    same = all(g.outstanding % 2 == 0 for g in s.workload if not g.is_open)
    text = "twice the threads" + (" (as many outstanding in all)" if same else "")
    return changed(s, text, thread_keys(s, groups), workload=groups)


def twice_the_outstanding(s: ResolvedScenario) -> Change | None:
    """Twice as many requests outstanding per thread; None if latencies are those of one depth."""
    if any(d.profile.latencies is not None for d in s.drives):
        return None
    groups = tuple(g if g.is_open else replace(g, outstanding=2 * g.outstanding)
                   for g in s.workload)  # fmt: skip
    return changed(s, MORE_OUTSTANDING, thread_keys(s, groups), workload=groups)


def more_threads_of_a_virtual_disk(s: ResolvedScenario) -> Change | None:
    """Twice the host's threads (IOThreads, channels) that serve each virtual disk."""
    used = {g.guest for g in s.workload}
    more = {k: v.model_copy(update={"threads": 2 * v.threads})
            for k, v in s.stack.sections.items() if k in used}  # fmt: skip
    stack = s.stack.model_copy(update={"sections": {**s.stack.sections, **more}})
    keys = {f"server.stack.sections.{k}.threads": v.threads for k, v in more.items()}
    return changed(s, "twice the threads that serve a virtual disk", keys, stack=stack)


def one_file_a_thread(s: ResolvedScenario) -> Change | None:
    """A file or virtual disk of its own for each thread that shares one, on the same drives."""
    has_guests, keys = any(g.guest in s.stack.sections for g in s.workload), dict[str, int]()

    def change(i: int, group: WorkloadGroup) -> WorkloadGroup:
        n = group.threads if group.threads_are_per_target and not group.is_open else 1
        if n == 1 or any(t.parts > 1 for t in group.targets):
            return group
        if [t.kind for t in group.targets] == ["volume"]:
            keys.update({f"workload.{i}.targets": n, f"workload.{i}.threads": 1})
        targets = tuple(replace(t, name=f"{t.name} file {k}", part=k, parts=n)
                        for t in group.targets for k in range(n))  # fmt: skip
        return replace(group, targets=targets, threads=1)

    if not (has_guests or s.stack.per_sharer.value):
        return None
    name = f"one {'virtual disk' if has_guests else 'file'} a thread"
    return changed(s, name, keys, workload=tuple(change(i, g) for i, g in enumerate(s.workload)))


def one_more_drive(s: ResolvedScenario) -> Change | None:
    """One more drive, like the last: in every volume under load, or as a target of its own.

    None where no bay or no lanes are left for it.
    """
    change = _one_more_drive(s) if s.bays is None or len(s.drives) < s.bays else None
    try:
        check_lanes(s.sockets, s.adapters, change.scenario.drives if change else (), s.interconnect)
    except InputError:
        return None
    return change


def _one_more_drive(s: ResolvedScenario) -> Change | None:
    used = {t.index for g in s.workload for t in g.targets if t.kind == "volume"}
    volumes = [v for v in s.volumes if v.index in used]
    files = any(t.parts > 1 for g in s.workload for t in g.targets)
    if files or any(v.degraded or v.rebuild or v.columns for v in volumes):
        return None
    drives = list(s.drives)
    if not volumes:
        index = _add_copy(drives, drives[-1])
        new = Target("drive", index, drives[index].name)
        groups = tuple(replace(g, targets=(*g.targets, new)) for g in s.workload)
        own = any(g.threads_are_per_target and not g.is_open for g in groups)
        text = "one more drive" + (" with threads of its own" if own else "")
        changed = replace(s, drives=tuple(drives), workload=groups)
        return Change(text, changed, _counted(changed, s))
    grown = list(s.volumes)
    for v in volumes:
        # A mirror grows by whole sets of copies; RAID1 by one more copy.
        n = v.copies if v.raid.copies == "layout" else 1
        added = [_add_copy(drives, s.drives[v.members[-1]]) for _ in range(n)]
        copies = v.copies + 1 if v.raid.copies == "all" else v.copies
        grown[v.index] = replace(v, members=(*v.members, *added), copies=copies)
    n = (len(drives) - len(s.drives)) // len(volumes)
    text = "one more drive" if n == 1 else f"{n} more drives"
    text += " in each volume" if len(volumes) > 1 else ""
    changed = replace(s, drives=tuple(drives), volumes=tuple(grown))
    return Change(text, changed, _counted(changed, s))


def _counted(new: ResolvedScenario, old: ResolvedScenario) -> dict[str, Any]:
    """The counts of drives, and the members by number, that make *new* of *old*."""
    tables = [d.table for d in new.drives]
    is_told = all(t.kind == "volume" for g in old.workload for t in g.targets)
    is_dealt = len({v.table for v in old.volumes}) < len(old.volumes)
    if is_dealt or not all(tables) or (old.drives[0].is_numbered and not is_told):
        return {}
    order = list(dict.fromkeys(tables))
    grown = dict.fromkeys(tables[len(old.drives) :])
    keys: dict[str, Any] = {f"{table}.count": tables.count(table) for table in grown}
    if old.drives[0].is_numbered:
        numbers = sorted(range(len(tables)), key=lambda i: order.index(tables[i]))
        keys |= {f"volume.{v.index}.members": sorted(map(numbers.index, v.members))
                 for v in new.volumes}  # fmt: skip
    return keys


def _add_copy(drives: list[Drive], like: Drive) -> int:
    """Append a copy of *like* under the first free name, and return its number."""
    index, taken = len(drives), {d.name for d in drives}
    name = next(name for i in itertools.count(index) if (name := f"drive{i}") not in taken)
    drives.append(replace(like, index=index, name=name))
    return index


def wider(link: Link) -> Link | None:
    """The next better PCIe link: a generation up; from the newest, twice the lanes."""
    if link.kind != "pcie":
        return None
    newer = link.generation < TOP_PCIE
    if not newer and 2 * link.lanes not in PCIE_LANES:
        return None
    better = pcie(link.generation + newer, link.lanes if newer else 2 * link.lanes)
    return replace(better, mps=link.mps, mrrs=link.mrrs)


def faster_ports(s: ResolvedScenario) -> Change | None:
    """Drive ports a PCIe generation up."""
    links = [wider(d.link) for d in s.drives]
    drives = tuple(replace(d, link=link or d.link) for d, link in zip(s.drives, links, strict=True))
    keys = {f"{d.table}.link": str(d.link) for d, link in zip(drives, links, strict=True) if link}
    return changed(s, f"drive ports of {next(filter(None, links), None)}", keys, drives=drives)


def wider_uplinks(s: ResolvedScenario) -> Change | None:
    """Uplinks of adapters, and of RAID controllers, a generation up."""
    adapters = tuple(replace(a, link=wider(a.link) or a.link) for a in s.adapters)
    volumes = list(s.volumes)
    for volume in s.volumes:
        better = wider(parse_link(volume.engine.uplink)) if volume.engine.uplink else None
        if better is not None:
            engine = volume.engine.model_copy(update={"uplink": str(better)})
            volumes[volume.index] = replace(volume, engine=engine)
    return changed(s, "uplinks a PCIe generation up", adapters=adapters, volumes=tuple(volumes))


def one_more_interconnect(s: ResolvedScenario) -> Change | None:
    """One link more between the sockets, if their CPUs have it."""
    joined = s.interconnect
    if joined is None or joined.link.kind not in SOCKET_RATES:
        return None
    old = joined.link
    n = old.lanes + 1
    known = (k.cpu for k in s.sockets if "interconnect_links" in k.cpu.model_fields_set)
    if any(cpu.interconnect_links < n for cpu in known):
        return None
    link = replace(old, lanes=n, raw_bytes_per_s=old.raw_bytes_per_s / old.lanes * n)
    more_credits = None if joined.credits is None else joined.credits * n // old.lanes
    text = f"{n} {old.kind.upper()} links instead of {old.lanes}"
    interconnect = replace(joined, link=link, credits=more_credits)
    return changed(s, text, {"server.interconnect.links": n}, interconnect=interconnect)


def near_the_drives(s: ResolvedScenario) -> Change | None:
    """Threads and buffers on the socket of the drives that they use, or of most of them."""
    if len(s.sockets) < 2:
        return None
    is_free = all(g.buffers is None and g.interrupts is None for g in s.workload)
    parts = [by_socket(_pinned(group), s.drives, s.volumes) for group in s.workload]
    groups = tuple(group for part in parts for group in part)
    has_memory = all(s.sockets[g.socket].has_memory for g in groups if g.socket is not None)
    if all(parts) and has_memory and groups != s.workload and len({g.socket for g in groups}) > 1:
        text = "threads and buffers on the socket of their drive"
        near = {"workload.*.socket": "near"} if is_free else {}
        return Change(text, replace(s, workload=groups), near)
    homes = [d.socket for d in s.drives]
    best = max(range(len(s.sockets)), key=homes.count)
    groups = tuple(_pinned(group, best) for group in s.workload)
    if groups == s.workload:
        return None
    sockets = list(s.sockets)
    if not sockets[best].has_memory:
        most = max(k.memory_bytes_per_s for k in sockets)
        sockets[best] = replace(sockets[best], memory_bytes_per_s=most)
    dimms = "" if s.sockets[best].has_memory else " and DIMMs there"
    share = homes.count(best) / len(homes)
    there = "the" if share == 1 else "half the" if share == 0.5 else "most"
    text = f"threads and buffers on socket {best}, where {there} drives are{dimms}"
    keys: dict[str, Any] = {} if dimms or not is_free else {"workload.*.socket": best}
    return Change(text, replace(s, sockets=tuple(sockets), workload=groups), keys)


def _pinned(group: WorkloadGroup, socket: int | None = None) -> WorkloadGroup:
    return replace(group, socket=socket, buffers=None, interrupts=None)


def larger_stripe_cache(s: ResolvedScenario) -> Change | None:
    """Four times md's stripe cache, where the load's writes want more rows than it has."""
    volumes = []
    for volume in s.volumes:
        rows = 0
        for group in groups_of(s, volume):
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
    return of_volumes(s, text, volumes, "stripe_cache", lambda v: v.stripe_cache)


def smaller_records(s: ResolvedScenario) -> Change | None:
    """Records no larger than the largest request of those that use the pool."""
    volumes, named = [], 0
    for volume in s.volumes:
        groups = groups_of(s, volume)
        sizes = [n for g in groups for n, _ in (*g.block_sizes, *(g.write_block_sizes or ()))]
        size = max(sizes, default=0)
        if volume.raid.records and 0 < size < volume.chunk:
            named = max(SECTOR, 1 << (size - 1).bit_length())
            volume = replace(volume, chunk=min(volume.chunk, named))
        volumes.append(volume)
    text = f"recordsize {format_size(named)}"
    return of_volumes(s, text, volumes, "recordsize", lambda v: format_size(v.chunk))


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
    return of_volumes(s, f"kernel {named}", volumes, "kernel", lambda v: v.kernel)


def half_the_workers(s: ResolvedScenario) -> Change | None:
    """RAID5/6 of md with half the workers: their locks take the longer the more pass them."""
    n = len(s.sockets)
    fewer = [replace(v, workers=v.workers // n // 2 * n or v.workers) for v in s.volumes]
    return of_volumes(s, "half the md workers", fewer, "group_thread_cnt", lambda v: v.workers // n)


def eight_workers(s: ResolvedScenario) -> Change | None:
    """RAID5/6 of md with eight workers, shared among the NUMA nodes."""
    n, each = len(s.sockets), max(1, WORKERS // len(s.sockets))
    volumes = [
        replace(v, workers=max(v.workers, each * n))
        if v.raid.stripe_cache and v.engine.rows is not None else v
        for v in s.volumes
    ]  # fmt: skip
    nodes = "" if n == 1 else " on each NUMA node"
    return of_volumes(s, f"{each} md workers{nodes}", volumes, "group_thread_cnt", lambda _: each)


def two_arrays(s: ResolvedScenario) -> Change | None:
    """Each volume under load as two, of half the members, the load's threads on both."""
    used = {t.index for g in s.workload for t in g.targets if t.kind == "volume"}
    volumes: list[Volume] = []
    places: dict[int, list[Target]] = {}
    for v in s.volumes:
        halves = _halves(v) if v.index in used else [v]
        if not halves or [w.table for w in s.volumes].count(v.table) > 1:
            return None
        at = len(volumes)
        volumes += [replace(half, index=at + i) for i, half in enumerate(halves)]
        places[v.index] = [Target("volume", at + i, half.name) for i, half in enumerate(halves)]
    groups = [_on_halves(group, places) for group in s.workload]
    if not used or None in groups:
        return None
    load = tuple(g for g in groups if g is not None)
    halved = [v for v in s.volumes if v.index in used]
    keys = {f"volume.{v.table}.arrays": 2 for v in halved} | thread_keys(s, load)
    changed = replace(s, volumes=tuple(volumes), workload=load)
    is_exact = all(_is_even(s, v) for v in halved)
    return Change("two arrays of half the members", changed, keys if is_exact else {})


def two_arrays_with_workers(s: ResolvedScenario) -> Change | None:
    """Both: a lock of an array holds back its workers."""
    if (first := eight_workers(s)) is None or (second := two_arrays(first.scenario)) is None:
        return None
    keys = first.set and second.set and {**first.set, **second.set}
    return Change(f"{second.text}, {first.text}", second.scenario, keys)


def _is_even(s: ResolvedScenario, volume: Volume) -> bool:
    """True if half of *volume* has the same geometry: equal members, and the same chunk."""
    n, first, *others = len(volume.members), *(s.drives[m].profile for m in volume.members)
    is_one = all(profile == first for profile in others)
    return is_one and default_chunk(volume.engine, n) == default_chunk(volume.engine, n // 2)


def _halves(volume: Volume) -> list[Volume]:
    """*volume* as two, of half the members each; none where it has no halves."""
    n = len(volume.members)
    is_odd = n % 2 or (volume.level == "raid10" and n // 2 % volume.copies)
    is_changed = volume.degraded or volume.rebuild or volume.columns
    if is_changed or is_odd or n // 2 < LEAST_HALF.get(volume.level, n):
        return []
    return [
        replace(volume, name=part_name(volume.name, i), members=volume.members[half],
                zone_bytes=volume.zone_bytes[half], spares=() if i else volume.spares)
        for i, half in enumerate((slice(n // 2), slice(n // 2, None)))
    ]  # fmt: skip


def _on_halves(
    group: WorkloadGroup, places: Mapping[int, Sequence[Target]]
) -> WorkloadGroup | None:
    """*group* on both halves of its volumes; None where its threads cannot be dealt evenly."""
    if not any(t.kind == "volume" for t in group.targets):
        return group
    if any(t.kind != "volume" or t.parts > 1 for t in group.targets) or group.is_open:
        return None
    both = replace(group, targets=tuple(half for t in group.targets for half in places[t.index]))
    if group.threads_are_per_target:
        return None if group.threads % 2 else replace(both, threads=group.threads // 2)
    if group.outstanding_per == "thread-target":
        half = group.outstanding // 2
        return None if group.outstanding % 2 else replace(both, outstanding=half)
    return both
