"""What usually makes a server slower than it should be, each as a change of the scenario.

A mistake is one or several changes (``--set`` keys and values), simulated like any scenario. Its
weight is how common it is beside the others: judged from threads of linux-raid, linux-nvme,
linux-block and fio lists such as the sources name, and no more than an order of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nvmesim.scenario.resolved import ResolvedScenario
from nvmesim.study.diagnosis.rows import MeasuredRow

Change = Mapping[str, Any]
"""Key -> value, as ``--set`` takes them."""
COMMON, OCCASIONAL, RARE = 3.0, 1.0, 0.3
ANY_RATE: Final = 0.04
"""Weight of a limit: it may be anywhere over two decades, and its rate is taken from the rows. A
rate that fits so well by itself is worth that share (the width of a prediction's error, 0.1, over
5 units of the logarithm, and the normal density's constant)."""


@dataclass(frozen=True)
class Server:
    """The server as its scenario describes it, and the rows that were measured on it."""

    tables: Mapping[str, Any]
    resolved: ResolvedScenario
    rows: Sequence[MeasuredRow]

    @property
    def has_writes(self) -> bool:
        """True if a row writes."""
        return any(row.workload["read"] < 1 for row in self.rows)

    @property
    def has_reads(self) -> bool:
        """True if a row reads."""
        return any(row.workload["read"] > 0 for row in self.rows)

    @property
    def is_md(self) -> bool:
        """True if there is a volume and all are of Linux md."""
        volumes = self.resolved.volumes
        return bool(volumes) and all(v.engine.name == "linux-md" for v in volumes)

    @property
    def is_linux(self) -> bool:
        """True if the stack is one of Linux."""
        return self.resolved.stack.name.startswith("linux")

    @property
    def has_parity(self) -> bool:
        """True if a volume has parity."""
        return any(v.raid.parity for v in self.resolved.volumes)

    @property
    def is_redundant(self) -> bool:
        """True if every volume survives a failed member."""
        volumes = self.resolved.volumes
        return bool(volumes) and all(v.raid.survives(len(v.members), v.copies) > 0 for v in volumes)

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


@dataclass(frozen=True)
class Variant:
    """One form of a mistake."""

    name: str
    """In words, as an explanation is named."""
    change: Change


@dataclass(frozen=True)
class Mistake:
    """One explanation, in one or several forms."""

    code: str
    weight: float
    variants: Callable[[Server], Iterator[Variant]]
    """Yields its forms; none where the scenario cannot have it."""
    check: str
    """Where to look."""
    mend: str
    source: str


# Links and places -------------------------------------------------------------------------------


def _links(server: Server) -> Iterator[Variant]:
    """Every drive, or the last alone, on half or a quarter of its link's lanes or speed."""
    drives = server.resolved.drives
    if any(d.link.kind != "pcie" for d in drives):
        return
    alike = len({str(d.link) for d in drives}) == 1
    link, last = drives[-1].link, drives[-1].name
    for generation, lanes in ((0, 2), (0, 4), (1, 1), (2, 1), (1, 4)):
        if link.generation <= generation or link.lanes < lanes:
            continue
        less = f"pcie{link.generation - generation} x{link.lanes // lanes}"
        if alike:
            yield Variant(f"every drive's link is {less} instead of {link}",
                          {"drives.*.link": less})  # fmt: skip
        if len(drives) > 1:
            yield Variant(f"one drive's link ({last}) is {less} instead of {link}",
                          server.last_drive(link=less))  # fmt: skip


def _other_socket(server: Server) -> Iterator[Variant]:
    places = {d.socket for d in server.resolved.drives}
    if len(server.resolved.sockets) != 2 or len(places) != 1:
        return
    if any(d.adapter is not None for d in server.resolved.drives):
        return
    other = 1 - places.pop()
    yield Variant("the threads run on the other socket", {"workload.*.socket": other})
    yield Variant("the drives are on the other socket", {"drives.*.socket": other})


def _behind(server: Server, name: str, **adapter: Any) -> Change:
    """Return the change that puts all drives behind one new adapter."""
    known = [dict(a) for a in server.tables.get("adapters", ())]
    placed = [
        {**{k: v for k, v in spec.items() if k != "socket"}, "behind": name}
        for spec in server.tables["drives"]
    ]
    return {"adapters": [*known, {"name": name, **adapter}], "drives": placed}


def _direct_generation(server: Server) -> int | None:
    """PCIe generation of drives that are all plugged in root ports; None: they are not."""
    drives = server.resolved.drives
    if any(d.adapter is not None or d.link.kind != "pcie" for d in drives):
        return None
    return max(d.link.generation for d in drives)


def _one_uplink(server: Server) -> Iterator[Variant]:
    generation = _direct_generation(server)
    for lanes in (16, 8) if generation is not None and len(server.resolved.drives) > 1 else ():
        link, socket = f"pcie{generation} x{lanes}", server.resolved.drives[0].socket
        yield Variant(f"all drives share one uplink of {link}",
                      _behind(server, "shared-uplink", kind="switch", link=link, socket=socket)
                      )  # fmt: skip


def _vmd(server: Server) -> Iterator[Variant]:
    generation = _direct_generation(server)
    if generation is not None:
        link, socket = f"pcie{generation} x16", server.resolved.drives[0].socket
        yield Variant("the drives are behind VMD",
                      _behind(server, "vmd-domain", kind="vmd", link=link, socket=socket)
                      )  # fmt: skip


def _memory(server: Server) -> Iterator[Variant]:
    for share in (2, 4):
        channels = {s.index: s.cpu.memory_channels // share for s in server.resolved.sockets}
        if all(n >= 1 for n in channels.values()):
            yield Variant(
                f"1 of {share} memory channels has a DIMM",
                {f"server.sockets.{i}.memory": {"channels": n} for i, n in channels.items()},
            )


# CPU --------------------------------------------------------------------------------------------


def _iommu(server: Server) -> Iterator[Variant]:
    stack = server.resolved.stack
    for cycles, contention in ((1500, 0.02), (3000, 0.1), (3000, 0.5)):
        yield Variant("the IOMMU unmaps strictly", {
            "server.stack.complete": stack.complete.value + cycles,
            "server.stack.contention": stack.contention.value + contention,
        })  # fmt: skip


def _power(server: Server) -> Iterator[Variant]:
    slowest = min(socket.ghz for socket in server.resolved.sockets)
    for share in (0.66, 0.4):
        ghz = round(slowest * share, 2)
        yield Variant(f"the CPUs run at {ghz:g} GHz", {"server.sockets.*.ghz": ghz})
    latency_us = server.resolved.stack.latency.value / 1e6
    for further in (30, 80):
        yield Variant(f"idle CPUs take {further} us to wake up",
                      {"server.stack.latency": f"{latency_us + further:g} us"})  # fmt: skip


def _interrupts(server: Server) -> Iterator[Variant]:
    stack = server.resolved.stack
    cycles = stack.complete.value + stack.interrupt.value
    if stack.polled or cycles <= 0:
        return
    for cores in (1, 2, 4):
        rate = cores * server.resolved.sockets[0].ghz * 1e9 / cycles
        name = "one core takes" if cores == 1 else f"{cores} cores take"
        yield Variant(f"{name} all interrupts", {"workload.*.limits": {"iops": f"{rate:.0f}/s"}})


def _other_load(server: Server) -> Iterator[Variant]:
    for share in (0.3, 0.6):
        yield Variant(f"something else uses {share:.0%} of the CPUs", {"server.background": share})


# Drives -----------------------------------------------------------------------------------------


def _scheduler(server: Server) -> Iterator[Variant]:
    for name, rate in (("mq-deadline", 600_000), ("bfq", 200_000)) if server.is_linux else ():
        if any(d.profile.commands.value > rate for d in server.resolved.drives):
            yield Variant(f"the I/O scheduler is {name}",
                          {"drives.*.profile.commands": f"{rate}/s"})  # fmt: skip


def _slow_drives(server: Server) -> Iterator[Variant]:
    drives = server.resolved.drives
    profile, last = drives[-1].profile, drives[-1].name
    if len(drives) > 1:
        for factor in (2.0, 4.0):
            reads, writes = profile.read.die.value * factor, profile.write.program.value * factor
            yield Variant(f"one drive ({last}) is {factor:g} times as slow", server.last_profile(
                read={"die": f"{reads / 1e6:g} us"}, write={"program": f"{writes / 1e6:g} us"}
            ))  # fmt: skip
        yield Variant(f"one drive ({last}) answers 200 us late", server.last_drive(delay="200 us"))
    for share in (0.5, 0.25):
        less = {"commands": f"{profile.commands.value * share:.0f}/s",
                "read_bandwidth": f"{profile.read_bandwidth.value * share:.0f} B/s",
                "write_bandwidth": f"{profile.write_bandwidth.value * share:.0f} B/s"}  # fmt: skip
        if len(drives) > 1:
            yield Variant(f"one drive ({last}) throttles to {share:.0%}",
                          server.last_profile(**less))  # fmt: skip
        if len({d.profile.name for d in drives}) == 1:
            yield Variant(f"all drives throttle to {share:.0%}",
                          {f"drives.*.profile.{key}": value for key, value in less.items()}
                          )  # fmt: skip


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
                          {"drives.*.profile.write.program": f"{program / 1e6:g} us"})  # fmt: skip


def _cut(server: Server) -> Iterator[Variant]:
    sizes = [max(size for size, _ in group.block_sizes) for group in server.resolved.workload]
    for kib in (128, 64, 32):
        if max(sizes, default=0) > kib * 1024:
            yield Variant(f"requests are cut at {kib} KiB",
                          {"drives.*.profile.max_transfer": f"{kib} KiB"})  # fmt: skip


# Load -------------------------------------------------------------------------------------------


def _buffered(server: Server) -> Iterator[Variant]:
    if any(row.is_buffered is not False for row in server.rows):
        cycles = server.resolved.stack.per_kib.value + 400
        yield Variant("the page cache is in the way", {
            "server.stack.copies": 1, "server.stack.per_kib": cycles, "workload.*.outstanding": 1,
        })  # fmt: skip


def _depth_one(server: Server) -> Iterator[Variant]:
    if any(row.workload["outstanding"] > 1 for row in server.rows):
        yield Variant("each thread has one request in flight", {"workload.*.outstanding": 1})


def _one_thread(server: Server) -> Iterator[Variant]:
    if any(row.workload.get("threads_total", 1) > 1 for row in server.rows):
        yield Variant("one thread does all the work", {"workload.*.threads_total": 1})


def _flushed(server: Server) -> Iterator[Variant]:
    if server.has_writes and "ext4" in server.resolved.stack.filesystems:
        yield Variant("every write is followed by fsync",
                      {"workload.*.filesystem": "ext4", "workload.*.fsync": 1})  # fmt: skip
        yield Variant("every write must reach the media", {"workload.*.sync": "dsync"})


def _guest(server: Server) -> Iterator[Variant]:
    if "kvm-virtio" in server.resolved.stack.guests:
        yield Variant("it runs in a guest with one I/O thread", {"workload.*.guest": "kvm-virtio"})


def _limit(server: Server) -> Iterator[Variant]:
    highest = max(row.iops for row in server.rows)
    yield Variant("a limit is set", {"workload.*.limits": {"iops": f"{highest:.0f}/s"}})


# Arrays -----------------------------------------------------------------------------------------


def _bitmap(server: Server) -> Iterator[Variant]:
    for chunk in ("64 MiB", "1 MiB", "64 KiB") if server.has_writes and server.is_redundant else ():
        yield Variant(f"there is a bitmap with regions of {chunk}",
                      {"volume.*.bitmap": {"kind": "internal", "chunk": chunk}})  # fmt: skip


def _few_workers(server: Server) -> Iterator[Variant]:
    if server.has_parity and any(v.workers for v in server.resolved.volumes):
        yield Variant("md has no workers", {"volume.*.group_thread_cnt": 0})


def _old_kernel(server: Server) -> Iterator[Variant]:
    for kernel in ("4.18", "5.14", "6.1") if server.is_md else ():
        yield Variant(f"the kernel is as old as {kernel}", {"volume.*.kernel": kernel})


def _stripe_cache(server: Server) -> Iterator[Variant]:
    if server.is_md and server.has_parity and server.has_writes:
        yield Variant("the stripe cache has 256 rows", {"volume.*.stripe_cache": 256})


def _chunk(server: Server) -> Iterator[Variant]:
    if server.is_md and all(v.level != "raid1" for v in server.resolved.volumes):
        for chunk in ("4 KiB", "64 KiB", "1 MiB"):
            yield Variant(f"the chunk is {chunk}", {"volume.*.chunk": chunk})
    if server.has_writes:
        yield Variant("the partition is not aligned", {"workload.*.offset": "512 B"})


def _rebuild(server: Server) -> Iterator[Variant]:
    if server.is_md and server.is_redundant:
        yield Variant("a check runs", {"volume.*.check": True})
        yield Variant("a rebuild runs", {"volume.*.degraded": [0], "volume.*.rebuild": True})
        yield Variant("a member is missing", {"volume.*.degraded": [0]})


def _controller_cache(server: Server) -> Iterator[Variant]:
    if any(getattr(v.engine, "cache", None) is not None for v in server.resolved.volumes):
        yield Variant("the controller's write cache is off", {"volume.*.engine.cache": "0 B"})


MISTAKES: Final = (
    Mistake("link", COMMON, _links,
            "lspci -vv: LnkSta beside LnkCap, Width and Speed",
            "reseat the drive; check cable, backplane and the slot's speed in the BIOS",
            "PCIe base specification, link training; linux-nvme threads on x2 links"),
    Mistake("other-socket", OCCASIONAL, _other_socket,
            "cat /sys/block/*/device/numa_node; numactl --show",
            "bind threads and memory to the drives' socket (numactl --cpunodebind)",
            "the published set ruvds-upi: 18 to 53 % of IOPS lost across UPI"),
    Mistake("one-uplink", OCCASIONAL, _one_uplink,
            "lspci -tv: drives below one switch or root port", "spread the drives over root ports",
            "a PCIe tree of 30 drives: 39.7 GiB/s of one root complex"),
    Mistake("vmd", OCCASIONAL, _vmd,
            "lspci | grep -i 'Volume Management'", "BIOS: VMD off where VROC is not used",
            "linux-pci, Xinghui Li, 22 Dec 2022: 12 drives, 1,144k and 562k"),
    Mistake("memory", RARE, _memory,
            "dmidecode -t memory: DIMMs a channel", "fill every channel",
            "bandwidth is that of the channels that are filled"),
    Mistake("iommu", COMMON, _iommu,
            "cat /sys/kernel/iommu_groups/*/type (DMA); dmesg | grep -i iommu",
            "iommu.strict=0, or iommu=pt for devices that are trusted",
            "iommu list, J. Garry, 16 Aug 2019: 750k without, 456k strict, 540k lazy"),
    Mistake("power", COMMON, _power,
            "cpupower frequency-info and idle-info; turbostat",
            "governor performance; BIOS: maximum performance; cpupower idle-set -D 10",
            "cycles a request stay; github axboe/fio issue 1394: 63.6 us on a drive of 10 us"),
    Mistake("interrupts", COMMON, _interrupts,
            "/proc/interrupts: one column grows", "irqbalance, or a queue for each core",
            "cycles of completion and interrupt of the stack's profile, on so many cores"),
    Mistake("other-load", OCCASIONAL, _other_load,
            "top; mpstat -P ALL", "measure alone, or add cores",
            "cores that are busy elsewhere serve no request"),
    Mistake("scheduler", OCCASIONAL, _scheduler,
            "cat /sys/block/*/queue/scheduler", "echo none > /sys/block/NAME/queue/scheduler",
            "one lock a drive; 0.6 M and 0.2 M requests/s assumed"),
    Mistake("slow-drive", COMMON, _slow_drives,
            "iostat -x: r_await of each drive; nvme smart-log: temperature, thm_temp1_trans_count",
            "replace the drive; air flow",
            "a striped request waits for its slowest member; NVMe base specification, thermal "
            "management"),
    Mistake("fresh", COMMON, _fresh,
            "nvme list: usage beside size", "fill the drives twice before measuring",
            "single drives: 583k of written blocks, 1,165k of deallocated ones"),
    Mistake("worn", OCCASIONAL, _worn,
            "writes fall after minutes; nvme smart-log: percentage_used",
            "over-provision; measure the steady state",
            "a drive sold with 13.4 GB/s writes 1.97 once its fast part is full"),
    Mistake("cut", OCCASIONAL, _cut,
            "cat /sys/block/*/queue/max_sectors_kb", "raise max_sectors_kb",
            "a request beyond the limit becomes several commands"),
    Mistake("page-cache", OCCASIONAL, _buffered,
            "fio: direct=0; grep Dirty /proc/meminfo", "direct=1",
            "fio documentation, iodepth: no effect on buffered requests"),
    Mistake("depth", COMMON, _depth_one,
            "fio: ioengine=psync or sync; IO depths: 1=100 %", "ioengine=io_uring or libaio",
            "fio documentation, iodepth: no effect on synchronous engines"),
    Mistake("one-thread", OCCASIONAL, _one_thread,
            "top -H: one thread at 100 %", "numjobs of at least one for each two drives",
            "one process stops at 383k however deep its queue (980 PRO sweep)"),
    Mistake("flushes", OCCASIONAL, _flushed,
            "fio: fsync, sync; iostat -x: f/s", "fewer flushes, or drives with capacitors",
            "a volatile drive executes one flush at a time"),
    Mistake("guest", RARE, _guest,
            "systemd-detect-virt", "more queues and I/O threads, or pass the drive through",
            "A. Zhadchenko, vhost-blk, qemu-devel 2022: 253k with one thread"),
    Mistake("limit", ANY_RATE, _limit,
            "cat /sys/fs/cgroup/*/io.max; the provider's page of the volume", "raise the limit",
            "the same rate at every load is a limiter's mark"),
    Mistake("bitmap", OCCASIONAL, _bitmap,
            "mdadm -X MEMBER: chunk", "mdadm --grow --bitmap=internal --bitmap-chunk=512M",
            "980 PRO RAID5 with bitmaps: a write waits for its bit"),
    Mistake("workers", OCCASIONAL, _few_workers,
            "cat /sys/block/md*/md/group_thread_cnt", "echo 8 > /sys/block/mdX/md/group_thread_cnt",
            "github scopedog/mdraid: 54k without, 375k with 11 workers"),
    Mistake("kernel", OCCASIONAL, _old_kernel,
            "uname -r", "a newer kernel",
            "linux-raid, J. Finlayson 2021: 1.26 M on 4.18, 5.33 M on 5.14"),
    Mistake("stripe-cache", OCCASIONAL, _stripe_cache,
            "cat /sys/block/md*/md/stripe_cache_size",
            "echo 8192 > /sys/block/mdX/md/stripe_cache_size",
            "md documentation, stripe_cache_size"),
    Mistake("chunk", RARE, _chunk,
            "mdadm --detail: Chunk Size; parted -l, unit s",
            "create the array or partition anew",
            "a request that crosses chunks waits for several members"),
    Mistake("rebuild", OCCASIONAL, _rebuild,
            "cat /proc/mdstat; cat /sys/block/md*/md/sync_action",
            "wait, lower sync_speed_max, or replace the member", "md documentation, sync_action"),
    Mistake("controller-cache", OCCASIONAL, _controller_cache,
            "storcli /c0/vall show: WT; battery state", "replace the battery; write-back",
            "HP Smart Array controllers and basic RAID performance factors, p. 3 and 6"),
)  # fmt: skip
