"""The profiles a scenario refers to: drives, CPUs, stacks, RAID engines, platforms.

Every number is a *quantity*: a text with its unit, and how far to trust it. A profile file is TOML;
`calibrate` writes one, `nvmesim catalog show` prints one, and a scenario may hold one as a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from nvmesim import units
from nvmesim.errors import UnitError

Basis = Literal["measured", "fitted", "datasheet", "assumed"]


class Frozen(BaseModel):
    """Immutable; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Quantity(Frozen):
    """A number >= 0 and its basis: ``value`` in its field's unit, ``low``..``high`` 95 %."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    value: float = Field(ge=0)
    low: float | None = None
    high: float | None = None
    basis: Basis = "assumed"
    source: str = ""


def _quantity(parse: Callable[[str], float], example: str = "") -> Callable[[Any], Any]:
    """Let a field be a text, or a table with value, low, high, basis, source.

    With an *example* of its unit a bare number is refused: 54 could be ps or us.
    """

    def number(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except UnitError as error:
            raise ValueError(str(error)) from None

    def coerce(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: number(v) if k in ("value", "low", "high") else v for k, v in value.items()}
        if isinstance(value, str):
            return {"value": number(value)}
        if isinstance(value, int | float) and not isinstance(value, bool):
            if example:
                raise ValueError(f"it needs its unit; write for example {example!r}")
            return {"value": value}
        return value

    return coerce


@dataclass(frozen=True)
class UnitOf:
    """Marks a field of quantities with what its numbers are, so that they can be written out."""

    what: Literal["time", "size", "bandwidth", "rate", "number"]


Time = Annotated[Quantity, BeforeValidator(_quantity(units.parse_time_ps, "54 us")), UnitOf("time")]
"""Picoseconds; written "54 us"."""
Size = Annotated[Quantity, BeforeValidator(_quantity(units.parse_size, "512 KiB")), UnitOf("size")]
"""Bytes; written "512 KiB"."""
Bandwidth = Annotated[
    Quantity, BeforeValidator(_quantity(units.parse_bandwidth, "3.2 GB/s")), UnitOf("bandwidth")
]
"""Bytes per second; written "3.2 GB/s"."""
Rate = Annotated[Quantity, BeforeValidator(_quantity(units.parse_rate, "640k/s")), UnitOf("rate")]
"""Per second; written "640k/s"."""
Number = Annotated[Quantity, BeforeValidator(_quantity(float)), UnitOf("number")]
"""A plain number: cycles, a count, a factor."""


RAID_LEVELS: Final = ("raid0", "raid1", "raid10", "raid5", "raid6")


class JointDraws(Frozen):
    """How numbers that were fitted together vary together: draws from what the captures allow."""

    names: tuple[str, ...]
    """Dotted keys of the profile: "read.die"."""
    factors: tuple[tuple[float, ...], ...] = Field(min_length=2)
    """A row a draw: what each of ``names`` is multiplied by."""

    @model_validator(mode="after")
    def _is_a_table(self) -> JointDraws:
        for row in self.factors:
            if len(row) != len(self.names) or not all(0 < f < 1e6 for f in row):
                raise ValueError(f"joint.factors needs rows of {len(self.names)} factors above 0")
        return self


class GarbageCollection(Frozen):
    """Episodes in which the drive programs slower: an alternating on/off process per drive."""

    on: Time
    """Mean length of an episode (exponential)."""
    off: Time
    """Mean time between episodes (exponential)."""
    factor: Number
    """How many times longer a program takes during an episode, >= 1."""


class ReadSide(Frozen):
    """How the drive reads: bank of dies, channel, controller (DESIGN 3)."""

    base: Time
    """Constant part of a 4 KiB read: controller firmware, and the host when host_included."""
    die: Time
    """Mean time a die is busy for one unit."""
    die_cv: Number = Quantity(value=0.1)
    """Coefficient of variation of the die time (gamma distributed)."""
    channel: Time
    """Time a channel is busy for one unit of 4 KiB."""
    unit: Size = Quantity(value=4096)
    """Bytes that one die reads at once: a larger command forks into units."""
    engines: Number | None = None
    """Data engines that serve commands larger than ``unit``, one engine a command: after one die
    read the command's units go through its engine one by one, ``split`` each. None: the command
    forks instead, each unit on its own die (DESIGN 3)."""
    split: Time = Quantity(value=0)
    """Time of one unit in a data engine."""


class WriteSide(Frozen):
    """How the drive writes: acknowledged from a buffer, programmed behind it (DESIGN 3)."""

    base: Time
    """Time to acknowledge a 4 KiB write while the buffer has room."""
    base_cv: Number = Quantity(value=0.1)
    program: Time
    """Time one die is busy to program one unit; dies x unit / program is the sustained rate."""
    program_cv: Number = Quantity(value=0.1)
    unit: Size = Quantity(value=4096)
    """Bytes that one program puts on a die."""
    buffer: Size
    """Power-protected buffer: writes wait when the backlog is larger."""
    through: bool = False
    """No buffer: a write is acknowledged when its die has programmed it (disks without a write
    cache, virtual disks)."""
    volatile: bool = False
    """What the buffer holds is lost with the power: a flush waits until it is empty, and a write
    that must reach the media (FUA) until its die has programmed it. With capacitors: false."""
    flush: Time | None = None
    """Time of a flush command beside what it waits for; None: as ``base``."""
    commands: Rate | None = None
    """Write commands per second the controller can take, where fewer than ``commands``."""
    suspend: Time | None = None
    """A read waits this long for a program in service to be suspended; None: for its end."""
    gc: GarbageCollection | None = None


class Pauses(Frozen):
    """What stops a server now and then: a host that gives its thread's CPU to another."""

    every: Time
    """Mean busy time between two pauses (a Poisson process)."""
    length: Time
    """Mean of a pause."""
    cv: Number = Quantity(value=1.0)
    """Its coefficient of variation: above 1, many are short and some long."""
    law: Literal["gamma", "lognormal"] = "gamma"
    """Distribution of its length."""


class Stalls(Frozen):
    """Requests that hold up the whole round: what the host must fetch or wait for itself."""

    share: Number
    """Of the requests of one operation."""
    length: Time
    """Mean of a stall (gamma distributed)."""
    cv: Number = Quantity(value=1.0)
    """Its coefficient of variation."""


class Rounds(Frozen):
    """A disk whose one server takes all that is queued as one round: a virtual disk's host thread.

    The thread wakes ``base`` after a request came to an idle disk, and serves all that came until
    then: n requests in flight take ``base`` and n times what each adds, and are answered together.
    What a request adds beyond 4 KiB is its bytes over ``read_bandwidth`` or ``write_bandwidth``.
    """

    base: Time
    """What a round takes besides its requests."""
    base_cv: Number = Quantity(value=0.1)
    read: Time
    """What each read in it adds, up to 4 KiB of data."""
    write: Time | None = None
    """What each write adds; None: as a read."""
    cv: Number = Quantity(value=0.1)
    """Coefficient of variation of what a request adds."""
    most: Number = Quantity(value=256)
    """Requests that one round takes at most."""
    pauses: Pauses | None = None
    read_stalls: Stalls | None = None
    write_stalls: Stalls | None = None
    in_order: bool = False
    """Whether a request is answered as soon as its own part is done, not at the round's end."""


class VolumeLimits(Frozen):
    """What a provider lets through to a volume: token buckets that reads and writes share.

    A prediction is of the steady state: what an idle volume has saved up is spent, so ``burst`` is
    said and not simulated.
    """

    iops: Rate | None = None
    """Commands per second."""
    bandwidth: Bandwidth | None = None
    """Bytes per second."""
    burst: Time | None = None
    """How much unused limit is saved up at most, as time at the limit; None: not known."""

    @model_validator(mode="after")
    def _limits_something(self) -> VolumeLimits:
        rates = (self.iops, self.bandwidth)
        if all(q is None for q in rates) or any(q is not None and q.value <= 0 for q in rates):
            raise ValueError("limits needs iops or bandwidth, above 0")
        return self


class DriveProfile(Frozen):
    """One drive: mechanistic (dies, channels, controller) unless ``latencies`` are given.

    Source of the structure: DESIGN 3, tried against a measured Samsung 980 PRO.
    """

    kind: Literal["drive"] = "drive"
    name: str
    model: str = ""
    interface: Literal["nvme", "sata", "sas"] = "nvme"
    link: str = "pcie3 x4"
    capacity: Size
    state: Literal["fresh", "steady"] = "steady"
    logical_sector: Size = Quantity(value=512, basis="datasheet")
    physical_sector: Size = Quantity(value=4096, basis="assumed")
    host_included: bool = False
    """Whether ``read.base`` and ``write.base`` still hold the host that measured them."""
    captured_on: str | None = None
    """The stack whose time was taken out of the captures."""
    host_submit: Time | None = None
    """With host_included: the host CPU time per request that is inside the bases."""
    dies: Number
    channels: Number
    commands: Rate
    """Commands per second the controller can take."""
    read_bandwidth: Bandwidth
    write_bandwidth: Bandwidth
    tags: Number = Quantity(value=1024, basis="assumed")
    """Commands the drive holds at once, over all its queues."""
    max_transfer: Size | None = None
    """Largest command; None: no less than the host's own limit."""
    read: ReadSide
    write: WriteSide
    fresh: dict[str, Any] | None = None
    """Values that differ in state "fresh", by dotted key: {"read.unit" = "32 KiB"}."""
    power_active_w: Number | None = None
    power_idle_w: Number | None = None
    price: Number | None = None
    rounds: Rounds | None = None
    """The disk serves in rounds: dies, channels and the write buffer do not count then."""
    limits: VolumeLimits | None = None
    """A volume that is let through so much and no more, whatever the disk behind it could do."""
    latencies: EmpiricalLatencies | None = None
    joint: JointDraws | None = None
    """The fitted numbers' joint distribution: their own intervals leave out how they compensate."""
    missed: dict[str, float] = Field(default_factory=dict)
    """Largest relative error on IOPS of the calibration, of operations that it missed by 10 %."""
    notes: str = ""

    def counts(self, number: str) -> bool:
        """Whether *number*, a dotted key, is one that a prediction with this drive uses.

        Dies, channels, the controller and the write buffer are no part of a disk of rounds, nor of
        one that gives the latencies of a capture.
        """
        if self.rounds is None and self.latencies is None:
            return True
        part, _, side = number.partition(".")
        if part in ("read", "write"):
            return side == "base" and self.rounds is not None
        return part not in ("dies", "channels", "commands")

    @property
    def writes_unmeasured(self) -> bool:
        """Whether reads were measured and writes were not: those are no more than a guess."""
        reads, writes = [self.read.base, self.read.die], [self.write.base, self.write.program]
        if self.rounds is not None:
            reads, writes = [self.rounds.read], [self.rounds.write or self.rounds.read]
        measured = any(q.basis in ("fitted", "measured") for q in reads)
        return measured and all(q.basis == "assumed" for q in writes) and self.latencies is None


class EmpiricalLatencies(Frozen):
    """Latencies drawn from a capture itself; honest only at the queue depth of that capture."""

    queue_depth: int = Field(ge=1)
    block_size: Size
    read_us: tuple[float, ...] = ()
    """Samples in the order they were measured, us."""
    write_us: tuple[float, ...] = ()
    block: int = Field(default=1, ge=1)
    """Draw runs of this many consecutive samples (1: independent draws); keeps episodes."""
    source: str = ""


DriveProfile.model_rebuild()


class CpuProfile(Frozen):
    """One CPU package."""

    kind: Literal["cpu"] = "cpu"
    name: str
    model: str = ""
    cores: int = Field(ge=1)
    threads_per_core: int = Field(default=2, ge=1, le=8)
    ghz: Number
    """Base frequency."""
    turbo_ghz: Number | None = None
    """All-core turbo."""
    smt_yield: Number = Quantity(value=1.25, low=1.15, high=1.35, basis="assumed")
    """Work of two busy siblings, in units of one busy thread on an idle core."""
    lanes: int = Field(default=48, ge=0)
    pcie_generation: int = Field(default=5, ge=1, le=6)
    """Left out (a CPU of the user's own): the newest in servers, so that it is the drive's own link
    that counts, as when a profile is fitted without a stated link."""
    interconnect: Literal["upi", "xgmi", "qpi", "none"] = "upi"
    interconnect_links: int = Field(default=2, ge=0)
    interconnect_rate: str = "10.4 GT/s"
    memory_channels: int = Field(default=6, ge=1)
    memory_rate: str = "2666 MT/s"
    tdp_w: Number | None = None
    price: Number | None = None
    sources: tuple[str, ...] = ()
    notes: str = ""


class FileSection(Frozen):
    """A part of every request that each file (target) lets through one request at a time.

    Two sockets hand such a section to each other at the pace of a cache line that travels, however
    wide the link between them is.
    """

    read: Time
    """Per read of one file."""
    write: Time | None = None
    """Per write; None: as a read."""
    across: bool = True
    """Only while the threads of the load run on more than one socket."""


class StackProfile(Frozen):
    """What one request costs the host's CPUs, in cycles, and how threads wait."""

    kind: Literal["stack"] = "stack"
    name: str
    model: str = ""
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
    per_write: Number = Quantity(value=0)
    """Cycles that a write costs more than a read."""
    per_target: Number = Quantity(value=0)
    """Cycles per request more for each further target that its thread serves: queues, doorbells and
    lines that grow cold between two requests to one of them."""
    per_child: Number = Quantity(value=0)
    """Cycles for every command beyond the first that a request becomes (splitting, no RAID)."""
    per_kib: Number = Quantity(value=0)
    """Cycles per KiB moved: copies and checksums of the stack."""
    latency: Time = Quantity(value=0)
    """Constant latency of the stack that costs no cycles of this model."""
    copies: Number = Quantity(value=0)
    """Times that the stack copies the data: each reads and writes memory once."""
    remote: Number = Quantity(value=1.0)
    """Factor on the cycles of a request whose drive, or whose memory, is on the other socket, where
    the three below do not say it apart."""
    remote_submit: Number | None = None
    """Factor on the cycles to submit to a drive on the other socket (doorbell, queue)."""
    remote_complete: Number | None = None
    """Factor on the cycles to complete, interrupt and wake-up with them, what a drive on the other
    socket finished: its entry comes from memory and not from the cache."""
    remote_memory: Number | None = None
    """Factor on all cycles of a thread whose queues and buffers lie in another socket's memory."""
    remote_buffer: Number = Quantity(value=0)
    """Cycles per KiB more where the buffers lie in the other socket's memory."""
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
    """By file system: what the requests of one file pass one by one."""
    guests: dict[str, Number] = Field(default_factory=dict)
    """Extra cycles per request by guest kind."""
    joint: JointDraws | None = None
    """The fitted numbers' joint distribution."""
    sources: tuple[str, ...] = ()
    notes: str = ""


class RaidEngineProfile(Frozen):
    """What sits above the members: where its work is done and what it costs."""

    kind: Literal["raid-engine"] = "raid-engine"
    name: str
    model: str = ""
    runs_on: Literal["host", "controller"] = "host"
    per_request: Number = Quantity(value=0)
    """Host cycles per volume request."""
    per_child: Number = Quantity(value=0)
    """Host cycles per member command."""
    serial_read: Time = Quantity(value=0)
    """Time in the engine's one serial section per read request (a lock, a controller's core)."""
    serial_write: Time = Quantity(value=0)
    """The same per write request."""
    serial_child: Time = Quantity(value=0)
    """The same per member command."""
    workers: Number = Quantity(value=1)
    """Servers of the serial section (md: 1 + group_thread_cnt)."""
    latency: Time = Quantity(value=0)
    """Constant latency per request."""
    parity_rate: Bandwidth = Quantity(value=10e9)
    """Bytes per second that one core XORs (host) or the controller does."""
    uplink: str | None = None
    """A controller's own PCIe link, "pcie3 x8"."""
    cache: Size = Quantity(value=0)
    """Write-back cache."""
    merge: Literal["6.1", "6.12", "none"] = "6.12"
    """How its bios become drive commands (Linux md by kernel version)."""
    levels: tuple[str, ...] = RAID_LEVELS
    by_level: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Values that differ by level: {"raid5" = {"serial_write" = "1.9 us"}}."""
    columns: int | None = None
    interleave: Size | None = None
    """Chunk of a volume that names none; None: mdadm's 512 KiB."""
    strips: dict[str, Size] = Field(default_factory=dict)
    """The same by number of members, where it depends on that: {"3" = "64 KiB"}."""
    members: tuple[int, int] | None = None
    """Least and most members of a volume, if fewer than the level itself allows."""
    boots_from: Literal["any", "one-domain"] = "any"
    """Whether the members of a bootable volume must be in one domain (VMD, 16 lanes)."""
    sources: tuple[str, ...] = ()
    notes: str = ""

    @model_validator(mode="after")
    def _by_levels_that_are(self) -> RaidEngineProfile:
        for level in self.by_level:
            if level not in RAID_LEVELS:
                raise ValueError(f"by_level.{level}: there are {', '.join(RAID_LEVELS)}")
        return self


class PlatformProfile(Frozen):
    """A server whose sockets, adapters and slots a scenario may take over."""

    kind: Literal["platform"] = "platform"
    name: str
    model: str = ""
    server: dict[str, Any]
    """The [server] table of a scenario."""
    adapters: tuple[dict[str, Any], ...] = ()
    slots: int | None = None
    sources: tuple[str, ...] = ()
    notes: str = ""


Profile = DriveProfile | CpuProfile | StackProfile | RaidEngineProfile | PlatformProfile
