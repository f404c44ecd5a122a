"""What usually makes a server slower than it should be, each as a change of the scenario.

A mistake is one or several changes (``--set`` keys and values), simulated like any scenario. Its
weight is how common it is beside the others: judged from threads of linux-raid, linux-nvme,
linux-block and fio lists such as the sources name, and no more than an order of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.study.diagnosis.evidence import MeasuredRow
from nvmesim.study.diagnosis.runs import Change

COMMON, OCCASIONAL, RARE = 3.0, 1.0, 0.3
ANY_RATE: Final = 0.04
"""Weight of a limit: it may be anywhere over two decades, and its rate is taken from the rows. A
rate that fits so well by itself is worth that share (the width of a prediction's error, 0.1, over
5 units of the logarithm, and the normal density's constant)."""


PAGES_OF_KERNEL_NS: Final = (5.63 - 1.82) * 1000 / 256
"""ns a KiB that one kernel took longer than another to submit a large request (see "kernel")."""


@dataclass(frozen=True)
class Server:
    """The server as its scenario describes it, and the rows that were measured on it."""

    tables: Mapping[str, Any]
    resolved: ResolvedScenario
    rows: Sequence[MeasuredRow]

    def has_row(self, key: str, above: float) -> bool:
        """True if a row's load has more than *above* of *key*."""
        return any(row.workload.get(key, 0) > above for row in self.rows)

    @property
    def has_writes(self) -> bool:
        """True if a row writes."""
        return any(row.workload["read"] < 1 for row in self.rows)

    @property
    def is_md(self) -> bool:
        """True if there is a volume and all are of Linux md."""
        volumes = self.resolved.volumes
        return bool(volumes) and all(v.engine.name == "linux-md" for v in volumes)

    @property
    def has_parity(self) -> bool:
        """True if a volume has parity."""
        return any(v.raid.parity for v in self.resolved.volumes)

    @property
    def has_cache(self) -> bool:
        """True if writes end in the cache of a volume's engine."""
        return any(v.engine.cache.value > 0 for v in self.resolved.volumes)

    @property
    def is_redundant(self) -> bool:
        """True if every volume survives a failed member."""
        volumes = self.resolved.volumes
        return bool(volumes) and all(v.raid.survives(len(v.members), v.copies) > 0 for v in volumes)

    @property
    def direct_generation(self) -> int | None:
        """PCIe generation of drives that are all plugged in root ports; None: they are not."""
        drives = self.resolved.drives
        if any(d.adapter is not None or d.link.kind != "pcie" for d in drives):
            return None
        return max(d.link.generation for d in drives)

    def last_drive(self, **values: Any) -> Change:
        """Return the change that gives the last drive *values* of its own."""
        *others, last = [dict(spec) for spec in self.tables["drives"]]
        count = int(last.get("count", 1))
        if count > 1:
            others.append({**last, "count": count - 1})
            if "name" in last:
                last["name"] = f"{last['name']}-last"
        return {"drives": [*others, {**last, "count": 1, **values}]}

    def last_profile(self, **values: Any) -> Change:
        """Return the change of numbers of the last drive's profile."""
        profile = self.tables["drives"][-1]["profile"]
        table = {"extends": profile} if isinstance(profile, str) else dict(profile)
        return self.last_drive(profile={**table, **values})

    def behind(self, name: str, kind: str, lanes: int) -> Change:
        """Return the change that puts all drives behind one new adapter."""
        adapter = {"name": name, "kind": kind, "link": f"pcie{self.direct_generation} x{lanes}",
                   "socket": self.resolved.drives[0].socket}  # fmt: skip
        known = [dict(a) for a in self.tables.get("adapters", ())]
        placed = [
            {**{k: v for k, v in spec.items() if k != "socket"}, "behind": name}
            for spec in self.tables["drives"]
        ]
        return {"adapters": [*known, adapter], "drives": placed}


class Variant(NamedTuple):
    """One form of a mistake."""

    name: str
    """In words, as an explanation is named."""
    change: Change
    family: str = ""
    """Forms of one family differ in how strong they are; neighbours in it have others between."""


Variants = Callable[[Server], Iterable[Variant]]


@dataclass(frozen=True)
class Mistake:
    """One explanation, in one or several forms."""

    code: str
    weight: float
    check: str
    """Where to look."""
    mend: str
    source: str
    variants: Variants
    """Gives its forms; none where the scenario cannot have it."""


def _if(
    applies: Callable[[Server], bool], forms: Mapping[str, Change], family: str = ""
) -> Variants:
    """Forms that are the same on every server that can have them."""
    listed = [Variant(name, change, family) for name, change in forms.items()]
    return lambda server: listed if applies(server) else []


def _links(server: Server) -> Iterator[Variant]:
    """Every drive, or the last alone, on half or a quarter of its link's lanes or speed."""
    drives = server.resolved.drives
    if any(d.link.kind != "pcie" for d in drives):
        return
    link, last = drives[-1].link, drives[-1].name
    for generation, lanes in ((0, 2), (0, 4), (1, 1), (2, 1), (1, 4)):
        if link.generation <= generation or link.lanes < lanes:
            continue
        less = f"pcie{link.generation - generation} x{link.lanes // lanes}"
        words = f"link is {less} instead of {link}"
        if len({str(d.link) for d in drives}) == 1:
            yield Variant(f"every drive's {words}", {"drives.*.link": less})
        if len(drives) > 1:
            words = f"one drive's link ({last}) is {less} instead of {link}"
            yield Variant(words, server.last_drive(link=less))


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
        yield Variant("the drives are behind VMD", server.behind("vmd-domain", "vmd", 16))


def _memory(server: Server) -> Iterator[Variant]:
    for share in (2, 4):
        channels = {s.index: s.cpu.memory_channels // share for s in server.resolved.sockets}
        if all(channels.values()):
            change = {f"server.sockets.{i}.memory": {"channels": n} for i, n in channels.items()}
            yield Variant(f"1 of {share} memory channels has a DIMM", change)


def _iommu(server: Server) -> Iterator[Variant]:
    stack = server.resolved.stack
    for cycles, contention in ((1500, 0.02), (3000, 0.1), (3000, 0.25), (3000, 0.6)):
        yield Variant("the IOMMU unmaps strictly", {
            "server.stack.complete": stack.complete.value + cycles,
            "server.stack.contention": stack.contention.value + contention,
        }, "iommu")  # fmt: skip


def _kernel(server: Server) -> Iterator[Variant]:
    """An old md, or a kernel that takes longer for each page of a large request."""
    if server.is_md:
        for kernel in ("4.18", "5.14", "6.1"):
            yield Variant(f"the kernel is as old as {kernel}", {"volume.*.kernel": kernel})
    if any(size >= 64 * 1024 for g in server.resolved.workload for size, _ in g.block_sizes):
        cycles = PAGES_OF_KERNEL_NS * min(socket.ghz for socket in server.resolved.sockets)
        yield Variant("the kernel takes 60 ns more a page, as 6.14 did beside 5.14", {
            "server.stack.per_kib": server.resolved.stack.per_kib.value + round(cycles, 1),
        })  # fmt: skip


def _power(server: Server) -> Iterator[Variant]:
    slowest = min(socket.ghz for socket in server.resolved.sockets)
    for share in (0.7, 0.45, 0.3):
        ghz = round(slowest * share, 2)
        yield Variant(f"the CPUs run at {ghz:g} GHz", {"server.sockets.*.ghz": ghz}, "clock")
    latency_us = server.resolved.stack.latency.value / 1e6
    for further in (20, 50, 130):
        yield Variant(f"idle CPUs take {further} us to wake up",
                      {"server.stack.latency": f"{latency_us + further:g} us"}, "idle")  # fmt: skip


def _interrupts(server: Server) -> Iterator[Variant]:
    stack = server.resolved.stack
    cycles = stack.complete.value + stack.interrupt.value
    if stack.polled or cycles <= 0:
        return
    for cores, pace in ((1, 0.8), (1, 1.2), (2, 1.0), (4, 1.0)):
        rate = cores * pace * server.resolved.sockets[0].ghz * 1e9 / cycles
        name = "one core takes" if cores == 1 else f"{cores} cores take"
        yield Variant(f"{name} all interrupts", {"workload.*.limits": {"iops": f"{rate:.0f}/s"}},
                      "cores")  # fmt: skip


def _scheduler(server: Server) -> Iterator[Variant]:
    if server.resolved.stack.name.startswith("linux"):
        fastest = max(d.profile.commands.value for d in server.resolved.drives)
        for name, rate in (("mq-deadline", 600_000), ("bfq", 200_000)):
            if fastest > rate:
                yield Variant(f"the I/O scheduler is {name}",
                              {"drives.*.profile.commands": f"{rate}/s"}, "lock")  # fmt: skip


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
    for share in (0.5, 0.25):
        less = {"commands": f"{profile.commands.value * share:.0f}/s",
                "read_bandwidth": f"{profile.read_bandwidth.value * share:.0f} B/s",
                "write_bandwidth": f"{profile.write_bandwidth.value * share:.0f} B/s"}  # fmt: skip
        if len(drives) > 1:
            change = server.last_profile(**less)
            yield Variant(f"one drive ({last}) throttles to {share:.0%}", change, "one")
        if len({d.profile.name for d in drives}) == 1:
            change = {f"drives.*.profile.{key}": value for key, value in less.items()}
            yield Variant(f"all drives throttle to {share:.0%}", change, "all")


def _fresh(server: Server) -> Iterator[Variant]:
    for state, name in (("empty", "reads meet blocks that were never written"),
                        ("fresh", "the drives are as new, not in steady state")):  # fmt: skip
        if any(spec.get("state", "steady") != state for spec in server.tables["drives"]):
            yield Variant(name, {"drives.*.state": state})


def _worn(server: Server) -> Iterator[Variant]:
    if server.has_writes and len({d.profile.name for d in server.resolved.drives}) == 1:
        profile = server.resolved.drives[0].profile
        for factor in (2.0, 4.0):
            program = profile.write.program.value * factor
            yield Variant(f"writes are programmed {factor:g} times as slowly",
                          {"drives.*.profile.write.program": f"{program / 1e6:g} us"},
                          "worn")  # fmt: skip


def _cut(server: Server) -> Iterator[Variant]:
    sizes = [size for group in server.resolved.workload for size, _ in group.block_sizes]
    for kib in (128, 64, 32):
        if max(sizes) > kib * 1024:
            change = {"drives.*.profile.max_transfer": f"{kib} KiB"}
            yield Variant(f"requests are cut at {kib} KiB", change)


def _buffered(server: Server) -> Iterator[Variant]:
    if any(row.is_buffered is not False for row in server.rows):
        yield Variant("the page cache is in the way", {
            "server.stack.copies": 1,
            "server.stack.per_kib": server.resolved.stack.per_kib.value + 400,
            "workload.*.outstanding": 1,
        })  # fmt: skip


def _limit(server: Server) -> Iterator[Variant]:
    highest = max(row.iops for row in server.rows)
    yield Variant("a limit is set", {"workload.*.limits": {"iops": f"{highest:.0f}/s"}})


def _chunk(server: Server) -> Iterator[Variant]:
    if server.is_md and all(v.level != "raid1" for v in server.resolved.volumes):
        for chunk in ("4 KiB", "64 KiB", "1 MiB"):
            yield Variant(f"the chunk is {chunk}", {"volume.*.chunk": chunk})
    if server.has_writes:
        yield Variant("the partition is not aligned", {"workload.*.offset": "512 B"})


MISTAKES: Final = (
    # Links and places
    Mistake("link", COMMON,
            "lspci -vv: LnkSta beside LnkCap, Width and Speed",
            "reseat the drive; check cable, backplane and the slot's speed in the BIOS",
            "PCIe base specification, link training; linux-nvme threads on x2 links", _links),
    Mistake("other-socket", OCCASIONAL,
            "cat /sys/block/*/device/numa_node; numactl --show",
            "bind threads and memory to the drives' socket (numactl --cpunodebind)",
            "the published set ruvds-upi: 18 to 53 % of IOPS lost across UPI", _other_socket),
    Mistake("one-uplink", OCCASIONAL,
            "lspci -tv: drives below one switch or root port", "spread the drives over root ports",
            "a PCIe tree of 30 drives: 39.7 GiB/s of one root complex", _one_uplink),
    Mistake("vmd", OCCASIONAL,
            "lspci | grep -i 'Volume Management'", "BIOS: VMD off where VROC is not used",
            "linux-pci, Xinghui Li, 22 Dec 2022: 12 drives, 1,144k and 562k", _vmd),
    Mistake("memory", RARE,
            "dmidecode -t memory: DIMMs a channel", "fill every channel",
            "bandwidth is that of the channels that are filled", _memory),
    # CPU
    Mistake("iommu", COMMON,
            "cat /sys/kernel/iommu_groups/*/type (DMA); dmesg | grep -i iommu",
            "iommu.strict=0, or iommu=pt for devices that are trusted",
            "iommu list, J. Garry, 16 Aug 2019: 750k without, 456k strict, 540k lazy", _iommu),
    Mistake("power", COMMON,
            "cpupower frequency-info and idle-info; turbostat",
            "governor performance; BIOS: maximum performance; cpupower idle-set -D 10",
            "cycles a request stay; github axboe/fio issue 1394: 63.6 us on a drive of 10 us",
            _power),
    Mistake("interrupts", COMMON,
            "/proc/interrupts: one column grows", "irqbalance, or a queue for each core",
            "cycles of completion and interrupt of the stack's profile, on so many cores",
            _interrupts),
    Mistake("other-load", OCCASIONAL,
            "top; mpstat -P ALL", "measure alone, or add cores",
            "cores that are busy elsewhere serve no request",
            _if(lambda s: True, {
                f"something else uses {share:.0%} of the CPUs": {"server.background": share}
                for share in (0.3, 0.6, 0.8)
            }, "load")),
    # Drives
    Mistake("scheduler", OCCASIONAL,
            "cat /sys/block/*/queue/scheduler", "echo none > /sys/block/NAME/queue/scheduler",
            "one lock a drive; 0.6 M and 0.2 M requests/s assumed", _scheduler),
    Mistake("slow-drive", COMMON,
            "iostat -x: r_await of each drive; nvme smart-log: temperature, thm_temp1_trans_count",
            "replace the drive; air flow",
            "a striped request waits for its slowest member; NVMe base specification, thermal "
            "management", _slow_drives),
    Mistake("fresh", COMMON,
            "nvme list: usage beside size", "fill the drives twice before measuring",
            "single drives: 583k of written blocks, 1,165k of deallocated ones", _fresh),
    Mistake("worn", OCCASIONAL,
            "writes fall after minutes; nvme smart-log: percentage_used",
            "over-provision; measure the steady state",
            "a drive sold with 13.4 GB/s writes 1.97 once its fast part is full", _worn),
    Mistake("cut", OCCASIONAL,
            "cat /sys/block/*/queue/max_sectors_kb", "raise max_sectors_kb",
            "a request beyond the limit becomes several commands", _cut),
    # Load
    Mistake("page-cache", OCCASIONAL,
            "fio: direct=0; grep Dirty /proc/meminfo", "direct=1",
            "fio documentation, iodepth: no effect on buffered requests", _buffered),
    Mistake("depth", COMMON,
            "fio: ioengine=psync or sync; IO depths: 1=100 %", "ioengine=io_uring or libaio",
            "fio documentation, iodepth: no effect on synchronous engines",
            _if(lambda s: s.has_row("outstanding", above=1), {
                "each thread has one request in flight": {"workload.*.outstanding": 1},
            })),
    Mistake("one-thread", OCCASIONAL,
            "top -H: one thread at 100 %", "numjobs of at least one for each two drives",
            "one process stops at 383k however deep its queue (980 PRO sweep)",
            _if(lambda s: s.has_row("threads_total", above=1), {
                "one thread does all the work": {"workload.*.threads_total": 1},
            })),
    Mistake("flushes", OCCASIONAL,
            "fio: fsync, sync; iostat -x: f/s", "fewer flushes, or drives with capacitors",
            "a volatile drive executes one flush at a time",
            _if(lambda s: s.has_writes and "ext4" in s.resolved.stack.filesystems, {
                "every write is followed by fsync":
                    {"workload.*.filesystem": "ext4", "workload.*.fsync": 1},
                "every write must reach the media": {"workload.*.sync": "dsync"},
            })),
    Mistake("guest", RARE,
            "systemd-detect-virt", "more queues and I/O threads, or pass the drive through",
            "A. Zhadchenko, vhost-blk, qemu-devel 2022: 253k with one thread",
            _if(lambda s: "kvm-virtio" in s.resolved.stack.guests, {
                "it runs in a guest with one I/O thread": {"workload.*.guest": "kvm-virtio"},
            })),
    Mistake("limit", ANY_RATE,
            "cat /sys/fs/cgroup/*/io.max; the provider's page of the volume", "raise the limit",
            "the same rate at every load is a limiter's mark", _limit),
    # Arrays
    Mistake("bitmap", OCCASIONAL,
            "mdadm -X MEMBER: chunk", "mdadm --grow --bitmap=internal --bitmap-chunk=512M",
            "980 PRO RAID5 with bitmaps: a write waits for its bit",
            _if(lambda s: s.has_writes and s.is_redundant, {
                f"there is a bitmap with regions of {chunk}":
                    {"volume.*.bitmap": {"kind": "internal", "chunk": chunk}}
                for chunk in ("64 MiB", "1 MiB", "64 KiB")
            }, "regions")),
    Mistake("workers", OCCASIONAL,
            "cat /sys/block/md*/md/group_thread_cnt", "echo 8 > /sys/block/mdX/md/group_thread_cnt",
            "github scopedog/mdraid: 54k without, 375k with 11 workers",
            _if(lambda s: s.has_parity and any(v.workers for v in s.resolved.volumes), {
                "md has no workers": {"volume.*.group_thread_cnt": 0},
            })),
    Mistake("kernel", COMMON,
            "uname -r; fio: slat of large requests", "another kernel",
            "linux-raid, J. Finlayson 2021: 1.26 M on 4.18, 5.33 M on 5.14; linux-xfs, "
            "A. Gavriliuk, May 2025: 256 KiB submitted in 1.82 us on 5.14, 5.63 on 6.14",
            _kernel),
    Mistake("stripe-cache", OCCASIONAL,
            "cat /sys/block/md*/md/stripe_cache_size",
            "echo 8192 > /sys/block/mdX/md/stripe_cache_size",
            "md documentation, stripe_cache_size",
            _if(lambda s: s.is_md and s.has_parity and s.has_writes, {
                "the stripe cache has 256 rows": {"volume.*.stripe_cache": 256},
            })),
    Mistake("chunk", RARE,
            "mdadm --detail: Chunk Size; parted -l, unit s",
            "create the array or partition anew",
            "a request that crosses chunks waits for several members", _chunk),
    Mistake("rebuild", OCCASIONAL,
            "cat /proc/mdstat; cat /sys/block/md*/md/sync_action",
            "wait, lower sync_speed_max, or replace the member", "md documentation, sync_action",
            _if(lambda s: s.is_md and s.is_redundant, {
                "a check runs": {"volume.*.check": True},
                "a rebuild runs": {"volume.*.degraded": [0], "volume.*.rebuild": True},
                "a member is missing": {"volume.*.degraded": [0]},
            })),
    Mistake("controller-cache", OCCASIONAL,
            "storcli /c0/vall show: WT; battery state", "replace the battery; write-back",
            "HP Smart Array controllers and basic RAID performance factors, p. 3 and 6",
            _if(lambda s: s.has_writes and s.has_cache, {
                "the controller's write cache is off": {"volume.*.engine.cache": "0 B"},
            })),
)  # fmt: skip
