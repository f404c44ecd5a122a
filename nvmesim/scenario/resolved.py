"""A scenario with every name looked up and every default taken: what `model.lower` reads.

Indices are positions in the tuples of `ResolvedScenario`; times are int picoseconds, sizes int
bytes, rates per second. Nothing here is text with a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from nvmesim.catalog.links import MPS_BYTES, MRRS_BYTES, Link
from nvmesim.catalog.profile import CpuProfile, DriveProfile, RaidEngineProfile, StackProfile
from nvmesim.raid.geometry import ArrayOptions
from nvmesim.raid.levels import LEVELS, Level
from nvmesim.scenario.workload_keys import BurstsSpec, LimitsSpec

TargetKind = Literal["volume", "drive"]
OutstandingPer = Literal["thread-target", "thread"]


@dataclass(frozen=True)
class Socket:
    """One CPU package in its socket."""

    index: int
    cpu: CpuProfile
    ghz: float  # frequency in force: base, all-core turbo or stated
    memory_bytes_per_s: float  # usable bandwidth of its DIMMs; 0 if it has none

    @property
    def has_memory(self) -> bool:
        """True if DIMMs are fitted here."""
        return self.memory_bytes_per_s > 0

    @property
    def logical_cpus(self) -> int:
        """Threads that the operating system sees."""
        return self.cpu.cores * self.cpu.threads_per_core


@dataclass(frozen=True)
class Interconnect:
    """Links between two sockets, per pair of sockets."""

    link: Link  # all links together; ``link.lanes`` is their number
    efficiency: float
    """Data bytes per raw byte (already applied by `links.transfer_time_ps` at its default)."""
    latency_ps: int  # added to whatever crosses
    credits: int | None = None
    """Cache lines outstanding per direction; None: the wire alone is the limit."""


@dataclass(frozen=True)
class Root:
    """A root complex of a socket."""

    index: int
    name: str
    socket: int
    bytes_per_s: int  # of data, in each direction


@dataclass(frozen=True)
class Adapter:
    """A switch, retimer card, controller or VMD domain between drives and a socket."""

    index: int
    name: str
    kind: Literal["adapter", "switch", "controller", "vmd"]
    link: Link  # its uplink
    socket: int
    latency_ps: int = 0  # added per command
    commands_per_s: float | None = None  # commands it takes in all; None: no limit but its link
    cycles_per_command: float = 0.0  # host cycles that each command through it costs more (VMD)
    drive_commands_per_s: float | None = None
    """Commands per second that it takes of each drive behind it; None: no such limit."""
    root: int | None = None
    bytes_per_s: int | None = None
    """Of data in each direction, beside what its uplink carries; None: no such limit."""


@dataclass(frozen=True)
class Drive:
    """One physical drive."""

    index: int
    name: str  # as "drive0", unless the scenario names it
    profile: DriveProfile  # with the state of the scenario applied
    socket: int  # where it is attached: its own or its adapter's
    adapter: int | None
    link: Link  # its own port, at the generation that both ends have
    delay_ps: int = 0  # added to each command, for a member across a network
    root: int | None = None
    """Its own or its adapter's; None: the socket's lanes have no limit but themselves."""
    table: str = field(default="", compare=False)
    """Key of the table that counts it."""
    is_numbered: bool = field(default=False, compare=False)
    """True if members or targets name drives, so that one more needs those keys as well."""


@dataclass(frozen=True)
class Volume(ArrayOptions):
    """A RAID volume over drives.

    What has no words here is the key of the same name (`nvmesim.scenario.schema.VolumeSpec`).
    """

    index: int
    name: str
    level: str  # a name of `nvmesim.raid.levels.LEVELS`
    members: tuple[int, ...]  # indices of drives, in the order of their member numbers
    layout: str  # as "left-symmetric" for RAID5/6; "near", "far" or "offset" for RAID10; else ""
    copies: int  # copies of each chunk: RAID1 all members, RAID10 as its layout says, else 1
    chunk: int
    engine: RaidEngineProfile  # as it is at this level and kernel
    profile: RaidEngineProfile | None = None
    """As its file says, all levels and kernels; None: ``engine`` is all there is."""
    rebuild: bool = False
    """A rebuild runs beside the load, or alone: of ``rebuilding``, or a check of all if none is."""
    rebuilding: int | None = None
    """Member number that is being restored, on its own drive or on a spare."""
    sync_speed_min: int = 1_024_000
    """Bytes per second of each member that a rebuild keeps whatever the load."""
    sync_speed_max: int = 204_800_000
    rebuild_pace: Literal["both", "waiting", "forced"] = "both"
    """Whether a rebuild waits for each of its windows, or holds its least speed; both: it waits,
    and a least speed that is too low to matter is added."""
    kernel: str = ""
    """The kernel whose costs ``engine`` holds; empty: the one that the profile describes."""
    workers: int = 0
    """Threads that handle rows beside the engine's own (group_thread_cnt on every NUMA node)."""
    bitmap_since_ps: int | None = None
    """Time since its regions were all clean, over which the load is asked about; None: for ever."""
    first_dirty: float = 0.0
    """Share of random writes that are the first to a clean region of the bitmap."""
    spares: tuple[int, ...] = ()  # indices of idle drives that stand by
    columns: int | None = None  # members that one stripe covers, if fewer than all (Storage Spaces)
    logical_sector: int = 512
    """Sector size presented; smaller than the drives' physical sector costs them a read."""
    controller: str = ""
    filesystem: Literal["ext4", "xfs"] | None = None
    member_bytes: int = 0  # usable size of each member: that of the smallest
    zone_bytes: tuple[int, ...] = ()
    """Usable size of each member where they differ and all of it is used (RAID0 of md)."""
    table: int = 0
    """Number of the table of the scenario that it is of, maybe with other arrays."""

    @property
    def raid(self) -> Level:
        """The record of its level."""
        return LEVELS[self.level]


@dataclass(frozen=True)
class Target:
    """Target of a workload: a volume or drive, or one of several files that share it evenly."""

    kind: TargetKind
    index: int
    name: str
    part: int = 0  # this file's number among the ``parts`` on the same volume or drive
    parts: int = 1


@dataclass(frozen=True)
class WorkloadGroup:
    """Threads that do the same thing.

    What is not told here is the key of the same name (`nvmesim.scenario.schema.WorkloadSpec`).
    """

    name: str
    targets: tuple[Target, ...]
    block_sizes: tuple[tuple[int, float], ...] = ((4096, 1.0),)
    """Read sizes: (bytes, fraction), fractions sum to 1."""
    write_block_sizes: tuple[tuple[int, float], ...] | None = None
    """Write sizes where they differ; None: as ``block_sizes``."""
    access: Literal["random", "sequential"] = "random"
    align: int = 4096
    offset: int = 0
    interlocked: bool = False
    read: float = 1.0
    threads: int = 1  # per target or in all, as the next field says
    threads_are_per_target: bool = True
    outstanding: int = 1
    outstanding_per: OutstandingPer = "thread-target"
    """Whether a thread keeps ``outstanding`` at every target it opens, or over all of them."""
    span: int | None = None
    socket: int | None = None  # where the threads run; None: everywhere
    buffers: int | None = None  # socket whose memory holds the data; None: the thread's own
    interrupts: int | None = None
    """Socket that takes the interrupts; None: the one of the thread that submitted."""
    batch: int = 0
    """Requests that a thread reaps and submits at once, at most; 0: as the stack says."""
    sqpoll: bool = False
    """A thread of the kernel, one for each of the load's, submits its requests (SQPOLL)."""
    filesystem: str = "raw"
    guest: str = "none"
    rate: float | None = None
    """Open loop: requests per second of the whole group, however many are outstanding."""
    arrivals: Literal["poisson", "paced"] = "poisson"
    rate_limit: float | None = None
    """Closed loop: requests per second and thread (and target, if outstanding is so) at most."""
    trace: Path | None = None  # a capture whose arrivals are replayed, open loop
    speed: float = 1.0
    think_ps: int = 0  # pause of a thread after every ``think_every`` requests
    think_every: int = 1
    sync_every: int = 0
    """Writes after which a flush follows, on average (fsync, fdatasync); 0: never."""
    commits: bool = False
    """A flush commits the journal of the file system (fsync); fdatasync finds nothing to commit."""
    write_through: bool = False
    """Writes end on the media, whatever the drive's cache (FUA; O_SYNC and O_DSYNC)."""
    bursts: BurstsSpec | None = None
    limits: LimitsSpec | None = None
    slo_ps: int | None = None  # latency that a request should not exceed

    def journal(self, volume: Volume | None) -> Literal["", "ext4", "xfs"]:
        """The file system whose journal its flushes commit on *volume*, None for a drive."""
        found = volume.filesystem if volume is not None and self.filesystem == "raw" else None
        name = found or self.filesystem
        if not self.commits:
            return ""
        return "ext4" if name == "ext4" else "xfs" if name == "xfs" else ""

    @property
    def is_open(self) -> bool:
        """True if requests arrive by the clock."""
        return self.rate is not None or self.trace is not None

    @property
    def mean_size(self) -> float:
        """Bytes of a read, on average."""
        return sum(size * share for size, share in self.block_sizes)

    @property
    def n_threads(self) -> int:
        """Threads in all.

        >>> two = (Target("drive", 0, "drive0"), Target("drive", 1, "drive1"))
        >>> WorkloadGroup("w", two, threads=32).n_threads
        64
        """
        return self.threads * (len(self.targets) if self.threads_are_per_target else 1)

    @property
    def in_flight(self) -> int:
        """Requests that a closed loop keeps outstanding in all.

        >>> two = (Target("drive", 0, "drive0"), Target("drive", 1, "drive1"))
        >>> WorkloadGroup("w", two, threads=32, outstanding=4).in_flight
        256
        >>> WorkloadGroup("w", two, threads=3, threads_are_per_target=False,
        ...               outstanding=8, outstanding_per="thread").in_flight
        24
        """
        opened = 1 if self.threads_are_per_target else len(self.targets)
        per_thread = self.outstanding * (opened if self.outstanding_per == "thread-target" else 1)
        return self.n_threads * per_thread


@dataclass(frozen=True)
class RunSettings:
    """When to stop: at a precision; or at requests or a duration, whichever is reached first."""

    precision: float | None = None
    """Relative half-width of the simulation's 95 % interval of total IOPS; None: none is asked."""
    requests: int | None = None
    duration_ps: int | None = None
    seed: int = 1


@dataclass(frozen=True)
class ResolvedScenario:
    """Everything a prediction depends on."""

    name: str
    stack: StackProfile
    sockets: tuple[Socket, ...]
    interconnect: Interconnect | None
    adapters: tuple[Adapter, ...]
    drives: tuple[Drive, ...]
    volumes: tuple[Volume, ...]
    workload: tuple[WorkloadGroup, ...]
    run: RunSettings = field(default_factory=RunSettings)
    background: float = 0.0  # share of logical CPUs that other work keeps busy
    max_payload: int = MPS_BYTES  # largest payload of a PCIe packet, bytes
    roots: tuple[Root, ...] = ()
    max_read_request: int = MRRS_BYTES
    bays: int | None = None
    """Places for drives: an instance of a provider has no more than it comes with."""
    assumptions: tuple[str, ...] = ()
    """Catalog numbers in use that are assumed, and defaults that the scenario left open."""
    ignored: tuple[str, ...] = ()
    """Options of DiskSpd lines and fio files that do not shape the load."""

    def command_cycles(self, drives: Sequence[int]) -> float:
        """Mean cycles that a command to one of *drives* costs more than one of plain NVMe."""
        total = 0.0
        for drive in (self.drives[d] for d in drives):
            total += self.stack.scsi.value * drive.link.is_scsi
            if drive.adapter is not None:
                total += self.adapters[drive.adapter].cycles_per_command
        return total / len(drives)

    def with_cycles(self, factor: float) -> ResolvedScenario:
        """Return it with threads that pay *factor* times the cycles, in the stack and in RAID."""
        volumes = tuple(replace(v, engine=v.engine.with_cycles(factor)) for v in self.volumes)
        return replace(self, stack=self.stack.with_cycles(factor), volumes=volumes)
