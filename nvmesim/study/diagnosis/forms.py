"""Forms of mistakes that depend on the server, as changes of its scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from nvmesim.catalog.load import get
from nvmesim.catalog.profile import DriveProfile
from nvmesim.scenario.hardware import VMD_LANES
from nvmesim.study.diagnosis.server import Server, Variant
from nvmesim.study.diagnosis.short_runs import Change
from nvmesim.units import parse_time_ps

LINKS: Final = ((1, 1, 2.0), (0, 2, 1.0), (0, 4, 1.0), (2, 1, 0.5), (1, 4, 0.5))
"""Generations that a link is below its own, times that it has its lanes, and how usual that is: of
seven public threads six came up one generation below, and one with a quarter of its lanes."""
LEAST_GHZ: Final = {"epyc": 1.5, "xeon": 0.8}
"""Least clock that a governor sets (assumed: "CPU min MHz" of lscpu with acpi-cpufreq, and of Xeons
from Ice Lake on; those before end at 1.0)."""
THROTTLED: Final = (0.7, 0.4, 0.2, 0.1)
"""Shares of its rates that a hot drive may be held at."""
CACHED_CYCLES: Final = 400
"""Cycles a KiB of a request that the page cache serves (assumed)."""
IN_MEMORY: Final = {
    "read.base": "10 ns", "read.die": "10 ns", "read.channel": "10 ns", "read.large": "10 ns",
    "write.base": "10 ns", "write.program": "10 ns",
    "read_bandwidth": "1 TB/s", "write_bandwidth": "1 TB/s", "commands": "100M/s",
}  # fmt: skip
"""A drive that is no matter, as data is in memory."""
UNWRITTEN: Final = 2.0
"""Times as many reads as a drive may do of blocks that were never written (see "fresh")."""
CONTENTIONS: Final = (0.1, 0.25, 0.6, 2.0, 4.5)
"""Shares by which a further CPU makes strict unmapping dearer: 456k became 35k at most."""
MOST_CONTENTION: Final = 140.0
"""Times as dear that it may be with all CPUs busy: what simulated times have room for."""
SCHEDULED: Final = (1_900_000, 900_000, 450_000, 200_000)
"""Requests/s of one drive that pass the lock of its scheduler (see "scheduler")."""
FAR_LOCK: Final = 2.4
"""Times as long that a lock of md may take between sockets: on four Kunpeng nodes 2.9 GiB/s of what
one lock let through, on a Platinum 8380 7.0 (linux-kernel, Yu Kuai, 29 Aug and 13 Sep 2022)."""
ENDS: Final = ("low", "value", "high")
LONGEST: Final = 4.0
"""Times as long as of other drives that a flush may take, with a journal's blocks (assumed)."""
ONE_DRIVE: Final = {"raid": "raid0", "engine": "none", "chunk": "1 MiB"}
VMD_CYCLES: Final = 13_600.0
"""Cycles of a command at worst: six CPUs (2.5 GHz assumed) did 562k/s behind VMD, and 1,144k/s with
its interrupts passed on otherwise (see "vmd")."""
Variants = Callable[[Server], Iterable[Variant]]


def _links(server: Server) -> Iterator[Variant]:
    """Every drive, or the last alone, on half or a quarter of its link's lanes or speed."""
    drives = server.resolved.drives
    if any(d.link.kind != "pcie" for d in drives):
        return
    link, last = drives[-1].link, drives[-1].name
    for generation, lanes, usual in LINKS:
        if link.generation <= generation or link.lanes < lanes:
            continue
        less = f"pcie{link.generation - generation} x{link.lanes // lanes}"
        words = f"link is {less} instead of {link}"
        if len({str(d.link) for d in drives}) == 1:
            yield Variant(f"every drive's {words}", {"drives.*.link": less}, usual=usual)
        if len(drives) > 1:
            words = f"one drive's link ({last}) is {less} instead of {link}"
            yield Variant(words, server.last_drive(link=less), usual=usual)


def _other_socket(server: Server) -> Iterator[Variant]:
    drives = server.resolved.drives
    places = {d.socket for d in drives}
    direct = all(d.adapter is None for d in drives)
    if len(server.resolved.sockets) == 2 and len(places) == 1 and direct:
        other = 1 - places.pop()
        yield Variant("the threads run on the other socket", {"workload.*.socket": other})
        yield Variant("the drives are on the other socket", {"drives.*.socket": other})


def _one_uplink(server: Server) -> Iterator[Variant]:
    generation = server.direct_generation
    if generation is not None and len(server.resolved.drives) > 1:
        for lanes in (16, 8, 4):
            yield Variant(f"all drives share one uplink of pcie{generation} x{lanes}",
                          server.behind("shared-uplink", "switch", lanes), "lanes")  # fmt: skip


def _vmd(server: Server) -> Iterator[Variant]:
    if server.direct_generation is not None:
        most = max(1, VMD_LANES // max(d.link.lanes for d in server.resolved.drives))
        for cycles in ({}, {"cycles_per_command": VMD_CYCLES}):
            change = server.behind("vmd-domain", "vmd", VMD_LANES, most, **cycles)
            yield Variant("the drives are behind VMD", change, "vmd")


def _memory(server: Server) -> Iterator[Variant]:
    for share in (2, 4):
        channels = {s.index: s.cpu.memory_channels // share for s in server.resolved.sockets}
        if all(channels.values()):
            change = {f"server.sockets.{i}.memory": {"channels": n} for i, n in channels.items()}
            yield Variant(f"1 of {share} memory channels has a DIMM", change)


def _iommu(server: Server) -> Iterator[Variant]:
    """Cycles of an unmapping, and how they grow with each further CPU that does so."""
    if not server.has_page_cache:  # SPDK's buffers stay mapped
        return
    stack, cpus = server.resolved.stack, max(s.logical_cpus for s in server.resolved.sockets)
    most = MOST_CONTENTION / max(1, cpus - 1)
    for cycles, contention in (
        (1500, 0.02),
        *((3000, c) for c in sorted({min(c, most) for c in CONTENTIONS})),
    ):
        yield Variant("the IOMMU unmaps strictly", {
            "server.stack.complete": stack.complete.value + cycles,
            "server.stack.contention": stack.contention.value + contention,
        }, "iommu")  # fmt: skip


def _kernel(server: Server) -> Iterator[Variant]:
    """An old md."""
    if server.is_md:
        far = {"volume.*.engine": _far_locks()} if len(server.resolved.sockets) > 1 else None
        for kernel in ("4.18", "5.14", "6.1"):
            for locks in ({}, far):
                if locks is not None:
                    change = {"volume.*.kernel": kernel, **locks}
                    yield Variant(f"the kernel is as old as {kernel}", change, kernel)
    if server.is_md and len({d.profile.name for d in server.resolved.drives}) > 1:
        yield Variant("raid10 reads its mirrors in turn, as before 5.4",
                      {"volume.*.read_policy": "round-robin"})  # fmt: skip


def _far_locks() -> dict[str, Any]:
    """Linux md whose old kernels hold their locks `FAR_LOCK` times as long."""
    until = {
        kernel: {"by_level": {level: {"locks": {
            lock: {op: f"{parse_time_ps(time['value']) * FAR_LOCK / 1e6:g} us"
                   for op, time in times.items()}
            for lock, times in differs["locks"].items()}}
            for level, differs in changes.get("by_level", {}).items() if "locks" in differs}}
        for kernel, changes in get("raid-engine", "linux-md").until.items()
    }  # fmt: skip
    return {"extends": "linux-md", "until": until}


def _power(server: Server) -> Iterator[Variant]:
    sockets = server.resolved.sockets
    slowest = min(socket.ghz for socket in sockets)
    least = max(LEAST_GHZ.get(s.cpu.name.partition("-")[0], 0.0) for s in sockets)
    steps = (max(round(slowest * share, 2), least) for share in (0.7, 0.45, 0.3))
    for ghz in dict.fromkeys(ghz for ghz in steps if ghz < slowest):
        yield Variant(f"the CPUs run at {ghz:g} GHz", {"server.sockets.*.ghz": ghz}, "clock")
    latency_us = server.resolved.stack.latency.value / 1e6
    for further in () if server.resolved.stack.polled else (20, 50, 130):
        yield Variant(f"idle CPUs take {further} us to wake up",
                      {"server.stack.latency": f"{latency_us + further:g} us"}, "idle")  # fmt: skip


def _scheduler(server: Server) -> Iterator[Variant]:
    if server.is_linux:
        fastest = max(d.profile.commands.value for d in server.resolved.drives)
        slower = [rate for rate in SCHEDULED if rate < fastest]
        for rate in (fastest, *slower) if slower else ():  # and all that lies between
            yield Variant(f"the I/O scheduler is {'mq-deadline' if rate > 200_000 else 'bfq'}",
                          {"drives.*.profile.commands": f"{rate:.0f}/s"}, "lock")  # fmt: skip


def _slow_drives(server: Server) -> Iterator[Variant]:
    drives = server.resolved.drives
    profile, last = drives[-1].profile, drives[-1].name
    if len(drives) > 1:
        for factor in (1.5, 3.0, 6.0):
            reads, writes = profile.read.die.value * factor, profile.write.program.value * factor
            yield Variant(f"one drive ({last}) is {factor:g} times as slow", server.last_profile(
                read={"die": f"{reads / 1e6:g} us"}, write={"program": f"{writes / 1e6:g} us"}
            ), "dies")  # fmt: skip
        for late in (100, 300):
            change = server.last_drive(delay=f"{late} us")
            yield Variant(f"one drive ({last}) answers {late} us late", change, "delay")
        for share in THROTTLED:
            change = server.last_profile(**_throttled(profile, share))
            yield Variant(f"one drive ({last}) throttles to {share:.0%}", change, "one")


def _throttled(profile: DriveProfile, share: float) -> Change:
    return {"commands": f"{profile.commands.value * share:.0f}/s",
            "read_bandwidth": f"{profile.read_bandwidth.value * share:.0f} B/s",
            "write_bandwidth": f"{profile.write_bandwidth.value * share:.0f} B/s"}  # fmt: skip


def _fresh(server: Server) -> Iterator[Variant]:
    for state, name in (("empty", "reads meet blocks that were never written"),
                        ("fresh", "the drives are as new, not in steady state")):  # fmt: skip
        if any(spec.get("state", "steady") != state for spec in server.tables["drives"]):
            yield Variant(name, {"drives.*.state": state}, state)
            if state == "empty":  # and the flash sets no rate
                rate = UNWRITTEN * max(d.profile.commands.value for d in server.resolved.drives)
                change = {"drives.*.state": state, "drives.*.profile.commands": f"{rate:.0f}/s"}
                yield Variant(name, change, state)


def _cut(server: Server) -> Iterator[Variant]:
    """A volume's requests, or those of one drive as if it were a volume, which cuts them."""
    sizes = [size for group in server.resolved.workload for size, _ in group.block_sizes]
    volume = {} if server.resolved.volumes else {"volume": [ONE_DRIVE]}
    if volume and len(server.resolved.drives) > 1:
        return
    for kib in (128, 64, 32, 4):  # a page: a layer that splits and none that merges
        if max(sizes) > kib * 1024:
            change = {**volume, "drives.*.profile.max_transfer": f"{kib} KiB"}
            yield Variant(f"requests are cut at {kib} KiB", change, "cut")


def _buffered(server: Server) -> Iterator[Variant]:
    """Each request waits for the drive, or finds its data in memory."""
    if server.has_page_cache and any(row.is_buffered is not False for row in server.rows):
        cache = {
            "server.stack.copies": 1,
            "server.stack.per_kib": server.resolved.stack.per_kib.value + CACHED_CYCLES,
            "workload.*.outstanding": 1,
        }
        yield Variant("the page cache is in the way", cache, "hits")
        found = {f"drives.*.profile.{key}": value for key, value in IN_MEMORY.items()}
        for link in ({}, {"drives.*.link": "pcie5 x16"}):
            change = {**cache, **found, **link}
            yield Variant("the page cache answers, not the drives", change, "" if link else "hits")


def _few_targets(server: Server) -> Iterator[Variant]:
    """Of drives without an array, those that rows load which do not say how many they load."""
    names = [drive.name for drive in server.resolved.drives]
    if server.resolved.volumes or all(row.drives is not None for row in server.rows):
        return
    for count in sorted({1, len(names) // 2}):
        if 0 < count < len(names):
            name = "one drive" if count == 1 else f"{count} of {len(names)} drives"
            yield Variant(f"only {name} was loaded", {"workload.*.targets": names[:count]})


def _guest(server: Server) -> Iterator[Variant]:
    """A virtual disk whose one I/O thread takes as long as any that was measured, or less."""
    stack = server.resolved.stack
    for kind in sorted(stack.guests.keys() & stack.sections.keys()):
        cycles, section = stack.guests[kind], stack.sections[kind].read
        times = [getattr(section, end) / 1e6 for end in ENDS]
        costs = [getattr(cycles, end) for end in ENDS]
        for cost, us in zip(costs, times, strict=True):
            yield Variant("it runs in a guest with one I/O thread", {
                "workload.*.guest": kind,
                f"server.stack.guests.{kind}": cost,
                f"server.stack.sections.{kind}.read": f"{us} us",
            }, kind)  # fmt: skip


def _flushes(server: Server) -> Iterator[Variant]:
    """A flush takes as long as any of such drives, or less: nobody states it."""
    drives = server.resolved.drives
    times = {getattr(f, end) or f.value for d in drives[:1] if (f := d.profile.write.flush)
             for end in ENDS}  # fmt: skip
    ways: dict[str, Change] = {"every write must reach the media": {"workload.*.sync": "dsync"}}
    if "ext4" in server.resolved.stack.filesystems:
        ways["every write is followed by fsync"] = {
            "workload.*.filesystem": "ext4", "workload.*.fsync": 1}  # fmt: skip
    for how, change in ways.items() if server.has_writes else ():
        for time in (*sorted(times), *(LONGEST * t for t in sorted(times)[-1:])) or (None,):
            flush = {} if time is None else {"drives.*.profile.write.flush": f"{time / 1e6:g} us"}
            yield Variant(how, {**change, **flush}, how if times else "")


def _chunk(server: Server) -> Iterator[Variant]:
    if server.is_md and all(v.level != "raid1" for v in server.resolved.volumes):
        for chunk in ("4 KiB", "64 KiB", "1 MiB"):
            yield Variant(f"the chunk is {chunk}", {"volume.*.chunk": chunk})


MADE: Final[Mapping[str, Variants]] = {
    "link": _links, "other-socket": _other_socket, "one-uplink": _one_uplink, "vmd": _vmd,
    "memory": _memory, "iommu": _iommu, "power": _power,
    "scheduler": _scheduler, "slow-drive": _slow_drives, "fresh": _fresh,
    "cut": _cut, "page-cache": _buffered, "few-targets": _few_targets,
    "guest": _guest, "kernel": _kernel, "chunk": _chunk,
    "flushes": _flushes,
}  # fmt: skip
"""Forms that depend on the server; those of the other mistakes are data."""
