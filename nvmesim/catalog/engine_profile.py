"""Profiles of what runs on the host: RAID engines above the members, and I/O stacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, model_validator

from nvmesim.catalog.quantity import (
    Alternative,
    Bandwidth,
    Captured,
    Frozen,
    JointDraws,
    Number,
    Quantity,
    Residual,
    Size,
    Time,
)
from nvmesim.raid.levels import LEVELS, MD_LEVELS

RAID_LEVELS: Final = tuple(LEVELS)
FileSystem = Literal["raw", "ntfs", "ext4", "xfs"]
Guest = Literal["none", "hyper-v", "kvm-virtio", "kvm-vhost", "kvm-passthrough"]


class RowCosts(Frozen):
    """Costs of one row in a thread of a parity engine: 4 KiB of each member.

    md handles a write row by row, whatever the size of the request: look, read, compute, write.
    """

    base: Number
    """Cycles per row of a write that reads first, besides what each member adds."""
    per_member: Number = Quantity(value=0)
    """Cycles per row more for each member: the state machine looks at all of them."""
    whole: Number = Quantity(value=1.0)
    """Share of that for a row that is written whole, without reading."""
    shared: Number = Quantity(value=0)
    """Cycles that a row's locks take, one row at a time, for each CPU that takes part (workers and
    submitters): lines that go round. Paid only with workers; one thread has them to itself."""
    wakeup: Number = Quantity(value=0)
    """Cycles until the one thread runs that slept long when it was handed a write: to start, when
    what that reads has come, and when its members have written."""
    wakeup_half: Time = Quantity(value=0)
    """Sleep after which a wake-up costs half of that; 0: always all of it."""
    restore: Number | None = None
    """Cycles per row of a rebuild, check or resync, without what each member adds; None: ``base``.
    """
    restore_scales: Number = Quantity(value=1.0)
    """Share of each further worker's rate that a rebuild gains from it."""
    merged_members: int | None = None
    """A rebuild of more members than this sends 4 KiB commands: their plug holds no more."""
    unmerged: Time = Quantity(value=0)
    """Time of the rebuild's thread for each command that is not merged."""


class RecordCosts(Frozen):
    """Costs of an engine that reads and writes whole records (ZFS)."""

    read_rate: Bandwidth
    """Bytes of records per second that one core brings into memory and checks."""
    write_rate: Bandwidth
    """Bytes of records per second that one core gathers, checksums and sends, parity apart."""
    copy_rate: Bandwidth
    """Bytes per second that a thread copies from records that are in memory."""
    write_copy_rate: Bandwidth
    """Bytes per second that a thread writes into memory, with the records made for them."""
    active: Number
    """Reads, and apart from them writes, that it has outstanding at each drive at most."""


class EngineLock(Frozen):
    """A lock of a RAID engine that requests pass one by one, and that spins while they wait."""

    read: Time = Quantity(value=0)
    """Held so long per read request."""
    write: Time = Quantity(value=0)
    """Held so long per write request."""
    lines: Number = Quantity(value=3, low=2, high=4, basis="assumed")
    """Cache lines that go from CPU to CPU at a hand-over: the lock, its queue, what it guards."""


class RaidEngineProfile(Frozen):
    """RAID engine above the members: where its work is done and what it costs."""

    kind: Literal["raid-engine"] = "raid-engine"
    name: str
    model: str = ""
    runs_on: Literal["host", "controller"] = "host"
    per_request: Number = Quantity(value=0)
    """Host cycles per volume request."""
    per_child: Number = Quantity(value=0)
    """Host cycles per member command, beside what the stack takes for it."""
    serial_read: Time = Quantity(value=0)
    """Time in the engine's one serial section per read request (a lock, a controller's core)."""
    serial_write: Time = Quantity(value=0)
    """The same per write request."""
    serial_child: Time = Quantity(value=0)
    """The same per member command."""
    workers: Number = Quantity(value=1)
    """Servers of the serial section; with ``rows``, of their threads (md: 1 + group_thread_cnt)."""
    per_sharer: Number = Quantity(value=0)
    """Host cycles per request more for each further thread that uses the volume: its counters and
    lines are everybody's."""
    rows: RowCosts | None = None
    """Parity levels: what a row of a write costs the engine's own thread or workers."""
    records: RecordCosts | None = None
    """Levels of ZFS: what a record costs; with it the engine serves a thread's requests one after
    the other."""
    bitmap_file: Time = Quantity(value=0)
    """Time that writing a page of an external bitmap's file takes, wherever that is."""
    locks: dict[str, EngineLock] = Field(default_factory=dict)
    """Locks that spin, by name."""
    flush: Time = Quantity(value=0)
    """Time that a flush holds the engine's one lock of flushes, per member that it goes to."""
    latency: Time = Quantity(value=0)
    """Constant latency per request."""
    parity_rate: Bandwidth = Quantity(value=10e9)
    """Bytes per second that one core XORs (host) or the controller does."""
    update_rate: Bandwidth | None = None
    """A controller's rate for writes that cover a stripe in part: old data and parity pass its
    memory, too; None: ``parity_rate``."""
    shared: Time = Quantity(value=0)
    """Time per request of what all volumes on one controller share."""
    rebuild: Bandwidth | None = None
    """A controller's own pace: most that it restores of a member a second; ``low`` is what it keeps
    beside a full load. None: md's sync_speed_max and sync_speed_min."""
    uplink: str | None = None
    """A controller's own PCIe link, "pcie3 x8"."""
    cache: Size = Quantity(value=0)
    """Write-back cache; of ZFS its dirty data at most."""
    merge: Literal["6.1", "6.12", "none"] = "6.12"
    """How its bios become drive commands (Linux md by kernel version)."""
    levels: tuple[str, ...] = MD_LEVELS
    by_level: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Values that differ by level: {"raid5" = {"serial_write" = "1.9 us"}}."""
    kernels: tuple[str, ...] = ()
    """Kernels that the profile tells apart, oldest first; the last is the one it describes."""
    until: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Values that differ before a kernel, ``by_level`` among them: {"5.14" = {...}}."""
    columns: int | None = None
    interleave: Size | None = None
    """Chunk of a volume that names none; None: mdadm's 512 KiB."""
    strips: dict[str, Size] = Field(default_factory=dict)
    """The same by number of members, where it depends on that: {"3" = "64 KiB"}."""
    members: tuple[int, int] | None = None
    """Least and most members of a volume, if fewer than the level itself allows."""
    sources: tuple[str, ...] = ()
    notes: str = ""

    @model_validator(mode="after")
    def _by_levels_that_are(self) -> RaidEngineProfile:
        of_records = [level for level in self.levels if level in LEVELS and LEVELS[level].records]
        if of_records and self.records is None:
            raise ValueError(f"levels: {of_records[0]} works in records; say what they cost in it")
        for level in self.by_level:
            if level not in RAID_LEVELS:
                raise ValueError(f"by_level.{level}: there are {', '.join(RAID_LEVELS)}")
        return self

    def with_cycles(self, factor: float) -> RaidEngineProfile:
        """Return the engine with *factor* times the cycles that the host pays for each request."""
        rows = None if self.rows is None else _times(self.rows, ROW_CYCLES, factor)
        return _times(self.model_copy(update={"rows": rows}), ENGINE_CYCLES, factor)


class FileSection(Frozen):
    """A part of every request that each file (target) lets through one request at a time.

    Two sockets hand such a section to each other at the pace of a cache line that travels, however
    wide the link between them is. A guest's disk has one too: the host's thread that serves it.
    """

    read: Time
    """Per read of one file."""
    write: Time | None = None
    """Per write; None: as a read."""
    across: bool = True
    """Only while the threads of the load run on more than one socket."""
    threads: int = Field(default=1, ge=1, le=1024)
    """As many requests pass at a time: IOThreads of a virtual disk, its channels."""

    def time(self, *, write: bool) -> Quantity:
        """Return the time of a write, or of a read."""
        return self.write if write and self.write is not None else self.read

    def times(self, factor: float) -> FileSection:
        """Return the section with *factor* times its times."""
        write = None if self.write is None else _scaled(self.write, factor)
        return self.model_copy(update={"read": _scaled(self.read, factor), "write": write})


ROW_CYCLES: Final = ("base", "per_member", "wakeup")
ENGINE_CYCLES: Final = ("per_request", "per_child")
CYCLES: Final = ("submit", "complete", "interrupt", "wakeup", "per_batch", "scsi")
"""Costs of a stack that one factor multiplies: what a thread pays for each request."""


class StackProfile(Frozen):
    """Cost of one request in cycles of the host's CPUs, and how threads wait."""

    kind: Literal["stack"] = "stack"
    name: str
    model: str = ""
    scale: float = Field(default=1.0, gt=0)
    """Factor on its cycles that captures told, already in them (`predict.prepare`)."""
    submit: Number
    """Cycles per request on the submitting thread."""
    complete: Number
    """Cycles per completion, without the two shared costs."""
    wakeup: Number = Quantity(value=0)
    """Cycles of a wake-up after a long sleep: paid when a completion finds its thread asleep."""
    wakeup_half: Time = Quantity(value=0)
    """Sleep after which a wake-up costs half of ``wakeup``: caches cool and idle states deepen with
    time. 0: a wake-up always costs ``wakeup``."""
    interrupt: Number = Quantity(value=0)
    """Cycles per interrupt, per (thread, drive) completion queue: one serves all that complete
    while it runs."""
    handler: Number = Quantity(value=0)
    """Of ``complete``, the cycles inside the interrupt: so much longer it runs for each completion
    that it serves, and those that come meanwhile need no other."""
    batch: int = Field(default=1, ge=1, le=4096)
    """Completions that a thread takes at once, and submits anew with one call, at most; a load may
    say another number (``iodepth_batch``)."""
    per_batch: Number = Quantity(value=0)
    """Cycles that a batch pays once: system calls, the doorbell, the look at an empty queue. A
    request's share of them, in a full ``batch``, is in ``submit`` and ``complete``."""
    sqpoll: Number | None = None
    """Cycles that are left to a thread of ``submit`` where the kernel's own thread polls for what
    it submits (SQPOLL of io_uring); None: the stack cannot."""
    per_write: Number = Quantity(value=0)
    """Cycles that a write costs more than a read."""
    per_target: Number = Quantity(value=0)
    """Cycles per request more for each further target that its thread serves: queues, doorbells and
    lines that grow cold between two requests to one of them."""
    per_sharer: Number = Quantity(value=0)
    """Cycles per request more for each further thread that uses the same target (file, queue)."""
    per_child: Number = Quantity(value=0)
    """Cycles for every command beyond the first that a request becomes and its thread sends: to cut
    it off, send it, and take its completion, which comes from a drive and a queue of its own."""
    scsi: Number = Quantity(value=0)
    """Cycles that a command to a drive behind SATA or SAS costs more than one of NVMe."""
    per_kib: Number = Quantity(value=0)
    """Cycles per KiB moved: copies and checksums of the stack."""
    latency: Time = Quantity(value=0)
    """Constant latency of the stack that costs no cycles of this model."""
    flushes_all: bool = False
    """Flushes go to drives without a volatile cache too; Linux ends those at once."""
    copies: Number = Quantity(value=0)
    """Times that the stack copies the data: each reads and writes memory once."""
    remote: Number = Quantity(value=1.0)
    """Factor on the cycles of a request whose drive, or whose memory, is on the other
    socket."""
    shared: Number = Quantity(value=0)
    """Cycles per request more on a target that threads of several sockets use: lines that change
    hands."""
    contention: Number = Quantity(value=0)
    """Share by which cycles grow with each further logical CPU that is busy on the socket."""
    polled: bool = False
    """A polling thread takes a whole logical CPU at any load, and needs no interrupt."""
    filesystems: dict[str, Number] = Field(default_factory=dict)
    """Extra cycles per request by file system."""
    sections: dict[str, FileSection] = Field(default_factory=dict)
    """By file system or guest: what the requests of one file or virtual disk pass one by one."""
    guests: dict[str, Number] = Field(default_factory=dict)
    """Extra cycles per request by guest kind."""
    joint: JointDraws | None = None
    """The fitted numbers' joint distribution."""
    alternatives: tuple[Alternative, ...] = ()
    """Other explanations of the same rows, with their weights; predictions draw from all."""
    residuals: tuple[Residual, ...] = ()
    """Residuals of the rows that it was fitted to, and of those held out."""
    captured: Captured | None = None
    untold: dict[str, str] = Field(default_factory=dict)
    """Dotted key of a number that the rows do not tell -> what would tell it."""
    sources: tuple[str, ...] = ()
    notes: str = ""

    def with_per_kib(self, cycles: float) -> StackProfile:
        """Return the stack with so many cycles per KiB moved."""
        return self.model_copy(update={"per_kib": Quantity(value=cycles, basis="fitted")})

    def path_cycles(self, filesystem: str, guest: str) -> float:
        """Return what a request costs beside, through a file system or from a guest."""
        known = (self.filesystems.get(filesystem), self.guests.get(guest))
        return sum(q.value for q in known if q is not None)

    def with_cycles(self, factor: float) -> StackProfile:
        """Return the stack with *factor* times the cycles that a request costs.

        Those of file systems, guests, and the host's thread that serves a guest are among them.
        """
        paths = {
            name: {key: _scaled(q, factor) for key, q in getattr(self, name).items()}
            for name in ("filesystems", "guests")
        }
        sections = {
            path: section.times(factor) if path in self.guests else section
            for path, section in self.sections.items()
        }
        update = {"scale": self.scale * factor, "sections": sections, **paths}
        return _times(self.model_copy(update=update), CYCLES, factor)


Costs = TypeVar("Costs", bound=Frozen)


def _times(costs: Costs, parts: Iterable[str], factor: float) -> Costs:
    """*costs* with *factor* times the cycles of *parts*, their intervals too."""
    return costs.model_copy(update={part: _scaled(getattr(costs, part), factor) for part in parts})


def _scaled(q: Quantity, factor: float) -> Quantity:
    ends = {k: v * factor for k in ("low", "high") if (v := getattr(q, k)) is not None}
    return q.model_copy(update={"value": q.value * factor, **ends})
