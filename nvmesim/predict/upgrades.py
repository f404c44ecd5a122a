"""Changes that could relieve a bottleneck: functions from one resolved scenario to another.

None of them promises anything: each is simulated again. A change that does not apply to a scenario
returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nvmesim.catalog.links import PCIE_LANES, SOCKET_RATES, Link, parse_link, pcie
from nvmesim.catalog.profile import CpuProfile, DriveProfile, RaidEngineProfile
from nvmesim.model.sharers import served_in_turn
from nvmesim.network.network import Network
from nvmesim.predict.array_upgrades import (
    eight_workers,
    larger_stripe_cache,
    newer_kernel,
    no_bitmap,
    one_file_a_thread,
    shorter_serial_section,
    two_arrays,
)
from nvmesim.predict.bottleneck import MORE_OUTSTANDING, SaturatedStation
from nvmesim.predict.change import Change, ChangeFactory, times
from nvmesim.predict.pool_upgrades import more_at_a_drive, smaller_records
from nvmesim.scenario.resolved import Drive, ResolvedScenario, Target, Volume, WorkloadGroup

MOST: Final = 5
"""Reliefs simulated for one answer."""
TOP_PCIE: Final = 6


def _cpus(s: ResolvedScenario, change: Callable[[CpuProfile], CpuProfile]) -> ResolvedScenario:
    return replace(s, sockets=tuple(replace(k, cpu=change(k.cpu)) for k in s.sockets))


def _with_cores(s: ResolvedScenario, text: str, cores: Callable[[int], int]) -> Change | None:
    """Other numbers of cores; None where every thread has a CPU, so that more are not used."""
    if _has_a_cpu_each(s):
        return None
    changed = _cpus(s, lambda c: c.model_copy(update={"cores": cores(c.cores)}))
    return Change(text, changed, _cores_key(changed))


def _has_a_cpu_each(s: ResolvedScenario) -> bool:
    """True if all threads are of closed loops, and no more than the logical CPUs."""
    threads = sum(g.n_threads for g in s.workload)
    is_closed = all(not g.is_open for g in s.workload)
    return bool(s.workload) and is_closed and threads <= sum(k.logical_cpus for k in s.sockets)


def _cores_key(s: ResolvedScenario) -> dict[str, Any]:
    counts = {k.cpu.cores for k in s.sockets}
    return {"server.sockets.*.cpu.cores": counts.pop()} if len(counts) == 1 else {}


def one_more_core(s: ResolvedScenario) -> Change | None:
    """One core more in every socket."""
    text = "one more core" if len(s.sockets) == 1 else "one more core per socket"
    return _with_cores(s, text, lambda n: n + 1)


def twice_the_cores(s: ResolvedScenario) -> Change | None:
    """Every socket with twice as many cores."""
    return _with_cores(s, "twice the cores", lambda n: 2 * n)


def twice_the_cores_and_threads(s: ResolvedScenario) -> Change | None:
    """Twice the cores and twice the threads: of no use alone where each thread has its own CPU."""
    more = _closed(s, lambda g: replace(g, threads=2 * g.threads))
    if more is None or not _has_a_cpu_each(s):
        return None
    changed = _cpus(more.scenario, lambda c: c.model_copy(update={"cores": 2 * c.cores}))
    keys = {**_cores_key(changed), **_thread_keys(s, changed)}
    return Change("twice the cores and twice the threads", changed, keys)


def _thread_keys(s: ResolvedScenario, changed: ResolvedScenario) -> dict[str, Any]:
    """Threads and depth that differ in *changed*, as a scenario states them."""
    out: dict[str, Any] = {}
    for i, (old, new) in enumerate(zip(s.workload, changed.workload, strict=True)):
        name = "threads" if new.threads_are_per_target else "threads_total"
        if new.threads != old.threads:
            out[f"workload.{i}.{name}"] = new.threads
        if new.outstanding != old.outstanding:
            out[f"workload.{i}.outstanding"] = new.outstanding
    return out


def more_ghz(s: ResolvedScenario) -> Change:
    """Every core 10 % faster."""
    faster = tuple(replace(k, ghz=k.ghz * 1.1) for k in s.sockets)
    clocks = {round(k.ghz, 3) for k in faster}
    keys = {"server.sockets.*.ghz": clocks.pop()} if len(clocks) == 1 else {}
    return Change("10 % more GHz", replace(s, sockets=faster), keys)


def _closed(s: ResolvedScenario, change: Callable[[WorkloadGroup], WorkloadGroup]) -> Change | None:
    if all(g.is_open for g in s.workload):
        return None
    groups = tuple(g if g.is_open else change(g) for g in s.workload)
    return None if groups == s.workload else Change("", replace(s, workload=groups))


def twice_the_threads(s: ResolvedScenario) -> Change | None:
    """Twice the threads, each with half as much outstanding where that is possible."""

    def change(group: WorkloadGroup) -> WorkloadGroup:
        fewer = max(1, group.outstanding // 2)
        return replace(group, threads=2 * group.threads, outstanding=fewer)

    changed = _closed(s, change)
    if changed is None:
        return None
    same = all(g.outstanding % 2 == 0 for g in s.workload if not g.is_open)
    note = " (as many outstanding in all)" if same else ""
    keys = _thread_keys(s, changed.scenario)
    return replace(changed, text=f"twice the threads{note}", set=keys)


def twice_the_outstanding(s: ResolvedScenario) -> Change | None:
    """Twice as many requests outstanding per thread."""
    changed = _closed(s, lambda g: replace(g, outstanding=2 * g.outstanding))
    if changed is None:
        return None
    return replace(changed, text=MORE_OUTSTANDING, set=_thread_keys(s, changed.scenario))


def scaled_outstanding(s: ResolvedScenario, factor: float) -> ResolvedScenario | None:
    """Return *s* with *factor* times as much outstanding per thread, or with fewer threads.

    None if there is nothing left to halve, or the factor does not come out even.
    """

    def change(group: WorkloadGroup) -> WorkloadGroup:
        per_thread = group.outstanding * factor
        if per_thread >= 1:
            return replace(group, outstanding=int(per_thread) if per_thread % 1 == 0 else 0)
        threads = group.threads * per_thread
        return replace(group, outstanding=1, threads=int(threads) if threads % 1 == 0 else 0)

    groups = tuple(g if g.is_open else change(g) for g in s.workload)
    if any(g.threads < 1 or g.outstanding < 1 for g in groups):
        return None
    return replace(s, workload=groups)


def _profiles(
    s: ResolvedScenario, change: Callable[[DriveProfile], DriveProfile]
) -> ResolvedScenario:
    drives = tuple(
        d if d.profile.latencies is not None else replace(d, profile=change(d.profile))
        for d in s.drives
    )
    return replace(s, drives=drives)


def twice_the_commands(s: ResolvedScenario) -> Change:
    """Drives whose controllers take twice the commands."""

    def change(p: DriveProfile) -> DriveProfile:
        write = p.write
        if write.commands is not None:
            write = write.model_copy(update={"commands": times(write.commands, 2)})
        return p.model_copy(update={"commands": times(p.commands, 2), "write": write})

    return Change("drives with twice the command rate", _profiles(s, change))


def twice_the_dies(s: ResolvedScenario) -> Change:
    """Drives with twice the dies: twice the reads and programs at once."""

    def change(p: DriveProfile) -> DriveProfile:
        more = {"dies": times(p.dies, 2), "channels": times(p.channels, 2)}
        return p.model_copy(update=more)

    return Change("drives with twice the dies and channels", _profiles(s, change))


def twice_the_bandwidth(s: ResolvedScenario) -> Change:
    """Drives with twice the sequential bandwidth."""

    def change(p: DriveProfile) -> DriveProfile:
        return p.model_copy(
            update={
                "read_bandwidth": times(p.read_bandwidth, 2),
                "write_bandwidth": times(p.write_bandwidth, 2),
            }
        )

    return Change("drives with twice the bandwidth", _profiles(s, change))


def twice_the_buffer(s: ResolvedScenario) -> Change:
    """Drives with twice the write buffer and drain rate."""

    def change(p: DriveProfile) -> DriveProfile:
        update: dict[str, object] = {
            "buffer": times(p.write.buffer, 2),
            "program": times(p.write.program, 0.5),
        }
        c = p.write.collection
        if c is not None:
            faster = {name: times(getattr(c, name), 2) for name in ("drain", "rate", "slots")}
            halves = {"length": times(c.length, 0.5), "busy": times(c.busy, 0.5)}
            update["collection"] = c.model_copy(update={**faster, **halves})
        write = p.write.model_copy(update=update)
        return p.model_copy(update={"write": write})

    return Change("drives that sustain twice the writes", _profiles(s, change))


def filled(net: Network, share: float) -> Network:
    """Return *net* with *share* of its write buffers taken, by programs that wait for the dies.

    A run then need not last until they have filled: that takes seconds of load.
    """
    backlog = net.die_backlog.copy()
    programmed = (net.die_gate >= 0) & (net.die_dist >= 0)
    for gate in np.unique(net.die_gate[programmed]):
        dies = np.flatnonzero(programmed & (net.die_gate == gate))
        each, rest = divmod(int(share * net.station_servers[gate]), len(dies))
        backlog[dies] = each
        backlog[dies[:rest]] += 1
    return replace(net, die_backlog=backlog)


def small_buffers(s: ResolvedScenario) -> ResolvedScenario:
    """Return *s* with write buffers a sixteenth as large, yet of eight units per die at least."""

    def change(p: DriveProfile) -> DriveProfile:
        w = p.write
        least = 8 * p.dies.value * w.unit.value
        smaller = min(w.buffer.value, max(least, w.buffer.value / 16))
        buffer = w.buffer.model_copy(update={"value": smaller})
        return p.model_copy(update={"write": w.model_copy(update={"buffer": buffer})})

    return _profiles(s, change)


def one_more_drive(s: ResolvedScenario) -> Change | None:
    """One more drive, like the last: in every volume under load, or as a target of its own."""
    used = {(t.kind, t.index) for g in s.workload for t in g.targets}
    volumes = [v for v in s.volumes if ("volume", v.index) in used]
    files = any(t.parts > 1 for g in s.workload for t in g.targets)
    if files or any(v.degraded or v.rebuild or v.columns for v in volumes):
        return None
    if volumes:
        return _more_members(s, volumes)
    drive = _copy_of(s, s.drives[-1], len(s.drives))
    new = Target("drive", drive.index, drive.name)
    groups = tuple(replace(g, targets=(*g.targets, new)) for g in s.workload)
    own = any(g.threads_are_per_target and not g.is_open for g in groups)
    text = "one more drive" + (" with threads of its own" if own else "")
    return Change(text, replace(s, drives=(*s.drives, drive), workload=groups))


def _copy_of(s: ResolvedScenario, drive: Drive, index: int) -> Drive:
    taken = {d.name for d in s.drives}
    name = next(
        f"drive{i}" for i in range(index, index + len(taken) + 1) if f"drive{i}" not in taken
    )
    return replace(drive, index=index, name=name)


def _more_members(s: ResolvedScenario, volumes: Sequence[Volume]) -> Change | None:
    drives, changed = list(s.drives), {v.index: v for v in s.volumes}
    for volume in volumes:
        # A mirror grows by whole sets of copies; RAID1 by one more copy.
        level = volume.raid
        step = volume.copies if level.copies == "layout" else 1
        added = tuple(range(len(drives), len(drives) + step))
        for index in added:
            at = replace(s, drives=tuple(drives))
            drives.append(_copy_of(at, s.drives[volume.members[-1]], index))
        copies = volume.copies + 1 if level.copies == "all" else volume.copies
        members = (*volume.members, *added)
        changed[volume.index] = replace(volume, members=members, copies=copies)
    grown = replace(s, drives=tuple(drives), volumes=tuple(changed[v.index] for v in s.volumes))
    n = (len(drives) - len(s.drives)) // len(volumes)
    text = "one more drive" if n == 1 else f"{n} more drives"
    return Change(text + (" in each volume" if len(volumes) > 1 else ""), grown)


def wider(link: Link) -> Link | None:
    """The next better PCIe link: a generation up; from the newest, twice the lanes.

    >>> from nvmesim.catalog.links import parse_link
    >>> str(wider(parse_link("pcie3 x4")))
    'pcie4 x4'
    """
    if link.kind != "pcie":
        return None
    if link.generation < TOP_PCIE:
        better = pcie(link.generation + 1, link.lanes)
    elif 2 * link.lanes in PCIE_LANES:
        better = pcie(link.generation, 2 * link.lanes)
    else:
        return None
    return replace(better, mps=link.mps, mrrs=link.mrrs)


def faster_ports(s: ResolvedScenario) -> Change | None:
    """Drive ports a PCIe generation up."""
    links = [wider(d.link) for d in s.drives]
    if all(link is None for link in links):
        return None
    drives = tuple(replace(d, link=link or d.link) for d, link in zip(s.drives, links, strict=True))
    return Change(
        f"drive ports of {next(link for link in links if link)}", replace(s, drives=drives)
    )


def wider_uplinks(s: ResolvedScenario) -> Change | None:
    """Uplinks of adapters, and of RAID controllers, a generation up."""
    adapters = tuple(replace(a, link=wider(a.link) or a.link) for a in s.adapters)
    volumes = tuple(replace(v, engine=_wider_engine(v)) for v in s.volumes)
    if (adapters, volumes) == (s.adapters, s.volumes):
        return None
    changed = replace(s, adapters=adapters, volumes=volumes)
    return Change("uplinks a PCIe generation up", changed)


def _wider_engine(volume: Volume) -> RaidEngineProfile:
    if not volume.engine.uplink:
        return volume.engine
    better = wider(parse_link(volume.engine.uplink))
    return volume.engine.model_copy(update={"uplink": str(better)}) if better else volume.engine


def one_more_interconnect(s: ResolvedScenario) -> Change | None:
    """One link more between the sockets."""
    joined = s.interconnect
    if joined is None or joined.link.kind not in SOCKET_RATES:
        return None
    old = joined.link
    n = old.lanes + 1
    link = replace(old, lanes=n, raw_bytes_per_s=old.raw_bytes_per_s / old.lanes * n)
    more_credits = None if joined.credits is None else joined.credits * n // old.lanes
    changed = replace(s, interconnect=replace(joined, link=link, credits=more_credits))
    text = f"{n} {old.kind.upper()} links instead of {old.lanes}"
    return Change(text, changed, {"server.interconnect.links": n})


def more_threads_of_a_virtual_disk(s: ResolvedScenario) -> Change | None:
    """Twice the host's threads (IOThreads, channels) that serve each virtual disk."""
    used = {g.guest for g in s.workload} & set(s.stack.sections)
    if not used:
        return None
    more = {k: v.model_copy(update={"threads": 2 * v.threads}) if k in used else v
            for k, v in s.stack.sections.items()}  # fmt: skip
    stack = s.stack.model_copy(update={"sections": more})
    return Change("twice the threads that serve a virtual disk", replace(s, stack=stack))


def twice_the_memory(s: ResolvedScenario) -> Change:
    """DIMMs of twice the bandwidth in every socket that has any."""
    faster = tuple(replace(k, memory_bytes_per_s=2 * k.memory_bytes_per_s) for k in s.sockets)
    return Change("twice the memory channels", replace(s, sockets=faster))


def near_the_drives(s: ResolvedScenario) -> Change | None:
    """Threads and buffers on the socket of the drives that they use.

    Threads that have a target each go to its socket, by groups; where a target's drives lie on
    several sockets, or threads serve all targets, everything goes to the socket of most drives.
    """
    if len(s.sockets) < 2:
        return None
    parts = [_by_socket(s, group) for group in s.workload]
    if any(part is None for part in parts):
        return _on_one_socket(s)
    groups = tuple(group for part in parts if part for group in part)
    used = {group.socket for group in groups}
    if groups == s.workload or not all(s.sockets[k].has_memory for k in used if k is not None):
        return _on_one_socket(s)
    if len(used) == 1:
        return _on_one_socket(s)
    return Change("threads and buffers on the socket of their drive", replace(s, workload=groups))


def _by_socket(s: ResolvedScenario, group: WorkloadGroup) -> list[WorkloadGroup] | None:
    """*group* as one group for each socket that its targets lie on; None where it cannot be."""
    homes: dict[int, list[Target]] = {}
    for target in group.targets:
        drives = [target.index] if target.kind == "drive" else s.volumes[target.index].members
        sockets = {s.drives[d].socket for d in drives}
        if len(sockets) > 1:
            return None
        homes.setdefault(sockets.pop(), []).append(target)
    if len(homes) > 1 and (group.is_open or not group.threads_are_per_target):
        return None
    return [_pinned(replace(group, targets=tuple(t)), home) for home, t in sorted(homes.items())]


def _pinned(group: WorkloadGroup, socket: int) -> WorkloadGroup:
    return replace(group, socket=socket, floating="spread", buffers=None, interrupts=None)


def _on_one_socket(s: ResolvedScenario) -> Change | None:
    """All threads on the socket that most drives are attached to, with DIMMs there."""
    homes = [d.socket for d in s.drives]
    best = max(range(len(s.sockets)), key=homes.count)
    groups = tuple(_pinned(group, best) for group in s.workload)
    if groups == s.workload:
        return None
    sockets = s.sockets
    if not sockets[best].has_memory:
        most = max(k.memory_bytes_per_s for k in sockets)
        sockets = tuple(
            replace(k, memory_bytes_per_s=most) if k.index == best else k for k in sockets
        )
    dimms = "" if sockets == s.sockets else " and DIMMs there"
    share = homes.count(best) / len(homes)
    there = "the" if share == 1 else "half the" if share == 0.5 else "most"
    text = f"threads and buffers on socket {best}, where {there} drives are{dimms}"
    return Change(text, replace(s, sockets=sockets, workload=groups))


def more_commands_through_adapters(s: ResolvedScenario) -> Change | None:
    """Adapters that take twice the commands."""
    adapters = tuple(
        replace(
            a,
            commands_per_s=a.commands_per_s and 2 * a.commands_per_s,
            drive_commands_per_s=a.drive_commands_per_s and 2 * a.drive_commands_per_s,
        )
        for a in s.adapters
    )
    if adapters == s.adapters:
        return None
    return Change("adapters with twice the command rate", replace(s, adapters=adapters))


def twice_the_volume_limits(s: ResolvedScenario) -> Change | None:
    """Volumes that are let through twice as much."""

    def change(p: DriveProfile) -> DriveProfile:
        if p.limits is None:
            return p
        both = {"iops": p.limits.iops, "bandwidth": p.limits.bandwidth}
        doubled = {name: times(q, 2) for name, q in both.items() if q is not None}
        return p.model_copy(update={"limits": p.limits.model_copy(update=doubled)})

    drives = _profiles(s, change)
    return None if drives == s else Change("volumes with twice the limit", drives)


BY_RESOURCE: Final[dict[str, tuple[ChangeFactory, ...]]] = {
    "cores": (one_more_core, more_ghz, twice_the_cores, twice_the_cores_and_threads),
    "threads": (twice_the_threads, more_ghz, one_file_a_thread),
    "dies": (one_more_drive, twice_the_dies),
    "channels": (one_more_drive, twice_the_dies),
    "commands": (one_more_drive, twice_the_commands),
    "rounds": (one_more_drive,),
    "read_bandwidth": (one_more_drive, twice_the_bandwidth),
    "write_bandwidth": (one_more_drive, twice_the_bandwidth),
    "program": (one_more_drive, twice_the_buffer),
    "buffer": (one_more_drive, twice_the_buffer),
    "port": (faster_ports, one_more_drive),
    "uplink": (wider_uplinks,),
    "adapter-commands": (more_commands_through_adapters, wider_uplinks),
    "interconnect": (one_more_interconnect, near_the_drives),
    "memory": (twice_the_memory, near_the_drives),
    "section": (near_the_drives, one_more_interconnect),
    "guest-section": (more_threads_of_a_virtual_disk,),
    "sq-threads": (twice_the_threads, more_ghz),
    "engine": (shorter_serial_section,),
    "engine-lock": (newer_kernel, two_arrays, no_bitmap),
    "bitmap-file": (no_bitmap,),
    "engine-threads": (eight_workers, two_arrays, newer_kernel, larger_stripe_cache),
    "volume-limit": (twice_the_volume_limits, one_more_drive),
}
"""Changes to try for each `StationInfo.resource`, most to the point first."""


def choose(
    scenario: ResolvedScenario, stations: Sequence[SaturatedStation], stop: SaturatedStation | None
) -> list[Change]:
    """Return the changes worth simulating: for what stops it, then for those next in line.

    *stations* come as `bottleneck.ranked` sorts them. Without a bottleneck, outstanding is first.
    Where something crosses sockets, one more link is always tried, so that the answer says what it
    would change.
    """
    pools = served_in_turn(scenario)
    makers: list[ChangeFactory] = [smaller_records]
    if stop is not None:
        makers += BY_RESOURCE.get(stop.info.resource, ())
    else:
        makers += [more_at_a_drive] if pools else [twice_the_outstanding]
        makers += [twice_the_threads] if pools else [larger_stripe_cache]
    crosses = any(f.info.resource == "interconnect" and f.utilization > 0 for f in stations)
    if crosses:
        makers = [*makers[:2], one_more_interconnect, near_the_drives]
    resources = dict.fromkeys(f.info.resource for f in stations if f is not stop)
    next_in_line = [r for r in resources if r in BY_RESOURCE][:3]
    for resource in next_in_line:
        makers += [m for m in BY_RESOURCE[resource] if m(scenario) is not None][:1]
    makers.append(twice_the_threads if pools else twice_the_outstanding)
    made = (maker(scenario) for maker in dict.fromkeys(makers))
    return [change for change in made if change is not None][:MOST]
