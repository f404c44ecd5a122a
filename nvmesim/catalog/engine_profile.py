"""The profile of a RAID engine: what sits above the members, and what it costs."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, model_validator

from nvmesim.catalog.quantity import Bandwidth, Frozen, Number, Quantity, Size, Time
from nvmesim.raid.levels import LEVELS, MD_LEVELS

RAID_LEVELS: Final = tuple(LEVELS)


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
