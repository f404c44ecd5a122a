"""The scenario file as models: exactly the keys that a file may have, each checked by itself.

What needs two keys or the catalog (members enough for the level, lanes over the budget, an unknown
adapter) is checked by `nvmesim.scenario.resolve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from nvmesim import units
from nvmesim.raid.levels import LEVELS, Level
from nvmesim.scenario.fields import (
    PAGE_BYTES,
    BytesPerSecond,
    Duration,
    Fraction,
    Kernel,
    LinkText,
    PacketSize,
    PerSecond,
    RaidLevel,
    Reference,
    Size,
    Strict,
)
from nvmesim.scenario.workload_keys import WorkloadSpec


class MemorySpec(Strict):
    """DIMMs of one socket, where they differ from the CPU's catalog entry."""

    channels: int | None = Field(default=None, ge=1, le=16)
    """Memory channels that are filled; left out: as the CPU's profile says."""
    rate: str | None = None
    """Transfers of the DIMMs, ``"2933 MT/s"``; left out: as the CPU's profile says."""
    bandwidth: BytesPerSecond | None = Field(default=None, gt=0)
    """What devices get of it, reads and writes together, where that was measured; left out: four
    fifths of channels x rate."""


class SocketSpec(Strict):
    """One CPU socket."""

    cpu: Reference
    """Catalog name, path, or a table such as ``{ cores = 8, threads_per_core = 2, ghz = 3.9,
    lanes = 48 }``."""
    ghz: Annotated[float, Field(gt=0, le=10)] | Literal["base", "turbo"] = "base"
    """Clock during the run: a number, or what the profile says for base or turbo."""
    memory: bool | MemorySpec = True
    """True if the socket has DIMMs, or which ones: without, its requests use the other socket's
    memory."""


class InterconnectSpec(Strict):
    """Links between sockets; what is left out comes from the CPU's catalog entry."""

    kind: Literal["upi", "qpi", "xgmi"] | None = None
    """Left out: the CPU's own, and so for the other keys; what is taken is listed under
    assumptions."""
    links: int | None = Field(default=None, ge=1, le=8)
    """Links in parallel."""
    rate: str | None = None
    """Transfers per second of one link, ``"10.4 GT/s"``."""
    latency: Duration | None = None
    """What crossing adds to a transfer."""
    credits: int | None = Field(default=None, ge=1)
    """Cache lines that may be under way at once: bounds the bandwidth to credits x 64 B per
    round trip."""


class RootSpec(Strict):
    """A root complex: where links of a socket come together before its memory."""

    name: str = Field(min_length=1)
    """What drives and adapters name in ``root``."""
    socket: int = Field(default=0, ge=0)
    """The socket that it belongs to."""
    bandwidth: BytesPerSecond = Field(gt=0)
    """Data that it carries in each direction, ``"39.7 GiB/s"``."""


class ServerSpec(Strict):
    """The server around the drives."""

    platform: str | None = None
    """Catalog name of a whole server; its sockets and adapters are taken over."""
    stack: Reference = "linux-io_uring"
    """What the operating system costs per request: catalog name, path of a profile, or a table
    such as ``{ cycles_per_io = 12000 }``."""
    sockets: tuple[SocketSpec, ...] = Field(min_length=1, max_length=8)
    """The CPU sockets, one to eight."""
    roots: tuple[RootSpec, ...] = Field(default=(), max_length=256)
    """Root complexes with a bandwidth of their own; left out: links alone are limits."""
    interconnect: InterconnectSpec = InterconnectSpec()
    """The links between the sockets."""
    background: Fraction = Field(default=0.0, ge=0, lt=1)
    """Share of the CPUs that other work takes."""
    max_payload: PacketSize | None = None
    """Largest packet of the PCIe links, 128 B to 4096 B; left out: 256 B."""
    max_read_request: PacketSize | None = None
    """Largest read request that a device sends; left out: 512 B."""


class AdapterSpec(Strict):
    """A switch, retimer card, controller or VMD domain."""

    name: str = Field(min_length=1)
    """What drives name in ``behind``."""
    kind: Literal["adapter", "switch", "controller", "vmd"] = "adapter"
    """A switch, a retimer card, a Tri-Mode controller or a VMD domain."""
    link: LinkText
    """Its uplink."""
    root: str | None = None
    """Root complex that it is plugged in; instead of ``socket``."""
    bandwidth: BytesPerSecond | None = Field(default=None, gt=0)
    """Data that it carries in each direction, where that is less than its uplink's."""
    socket: int = Field(default=0, ge=0)
    """The socket whose root port it is plugged in; left out: 0."""
    latency: Duration | None = None
    """What passing it adds to a transfer."""
    commands: PerSecond | None = None
    """Commands per second that it can take; a controller has 1.65M/s if nothing is said."""
    drive_commands: PerSecond | None = Field(default=None, gt=0)
    """Commands per second of each drive behind it; a VMD domain has 384k/s if nothing is said."""
    cycles_per_command: float | None = Field(default=None, ge=0)
    """Host cycles that each command through it costs more; a VMD domain has 5,000 if nothing is
    said."""
    max_payload: PacketSize | None = None
    """Largest payload of packets through it, ``"128 B"``."""

    @model_validator(mode="after")
    def _one_place(self) -> AdapterSpec:
        if self.root is not None and "socket" in self.model_fields_set:
            raise ValueError("socket and root exclude each other; keep the latter")
        return self


class DriveSpec(Strict):
    """One or several equal drives."""

    profile: Reference
    """Catalog name, path of a profile, or a table; ``{ extends = "NAME", … }`` changes one."""
    count: int = Field(default=1, ge=1, le=1024)
    """So many equal drives."""
    name: str | None = None
    """Of the drive, with a number behind it if there are several; left out: drive0, drive1, …"""
    socket: int | None = Field(default=None, ge=0)
    """Socket whose root port it is plugged in; left out: socket 0."""
    root: str | None = None
    """Root complex that it is plugged in; instead of ``socket``."""
    behind: str | None = None
    """Adapter that it is plugged in; instead of ``socket`` and ``root``."""
    link: LinkText | None = None
    """Its own link; left out: as its profile says, no faster than the port."""
    state: Literal["fresh", "steady", "empty"] = "steady"
    """Which of its two profiles: as new, or written full at random; or empty: as new with
    nothing written, so that reads meet unmapped blocks."""
    delay: Duration = 0
    """Constant time per command beyond the drive: a network, a retimer, a virtual disk."""

    @model_validator(mode="after")
    def _one_place(self) -> DriveSpec:
        places = [key for key in ("socket", "root", "behind") if getattr(self, key) is not None]
        if len(places) > 1:
            raise ValueError(f"{places[0]} and {places[1]} exclude each other; keep the latter")
        return self


class BitmapSpec(Strict):
    """md's bitmap of regions that may differ: where it is, and what one of its bits stands for."""

    kind: Literal["none", "internal", "external"] = "none"
    """Where it is: on the members, on another device, or nowhere."""
    chunk: Size = 64 << 20
    """What one bit stands for, a power of two: of each member for RAID5/6. Larger chunks are
    dirty more often already, so fewer writes wait for the bitmap."""
    since_clean: Duration | None = Field(default=None, gt=0)
    """Ask about the first so many seconds from a bitmap without a dirty region, as a short
    benchmark has; left out: about what lasts."""

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _chunk_is_a_power(self) -> BitmapSpec:
        if self.chunk < PAGE_BYTES or self.chunk & (self.chunk - 1):
            text = units.format_size(self.chunk)
            raise ValueError(f"chunk is {text}; a power of two of at least 4 KiB, as 64 MiB")
        return self

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> Any:
        """As the word alone where that says it."""
        return handler(self) if self.model_fields_set - {"kind"} else self.kind


class VolumeSpec(Strict):
    """A RAID volume."""

    name: str | None = None
    """What targets name; left out: volume0, volume1, …"""
    raid: RaidLevel
    """The level: of md raid0, raid1, raid10, raid5, raid6; of ZFS raidz1, raidz2, raidz3,
    zfs-mirror."""
    layout: str | None = None
    """RAID5/6: left or right, symmetric or asymmetric, parity-first, parity-last; RAID10: near,
    far or offset and the number of copies, ``"near2"``; zfs-mirror: ``"near3"`` makes mirrors of
    three."""
    chunk: Size | None = None
    """Bytes of one member before the next follows; left out: the engine's interleave or mdadm's
    512 KiB."""
    recordsize: Size | None = None
    """ZFS: bytes of a record, which is read and written as a whole, a power of two from 4 KiB to
    16 MiB; left out: 128 KiB."""
    engine: Reference = "linux-md"
    """RAID engine profile: what does the work above the members."""
    kernel: Kernel | None = None
    """Linux kernel whose md it is, ``"5.14"``: its locks and merging; a text, because 6.10 is
    not 6.1. Left out: as the engine's profile says, 6.12."""
    group_thread_cnt: int | None = Field(default=None, ge=0, le=8192)
    """md's group_thread_cnt: workers on every NUMA node that handle rows of RAID5/6; left out or
    0: one thread, raid5d."""
    degraded: tuple[int, ...] = ()
    """Numbers of missing members."""
    rebuild: bool = False
    """True if a missing member is being restored (or, with none missing, the array is checked)
    beside the load; without any workload: how long that takes alone."""
    check: bool = False
    """True if all members of a whole array are read and compared, beside the load or alone."""
    rebuilt: Fraction = Field(default=0.5, ge=0, le=1)
    """How far the rebuild is: a share of the member."""
    sync_speed_min: BytesPerSecond = Field(default=1_024_000, gt=0)
    """md's sync_speed_min: what a rebuild takes even under load."""
    sync_speed_max: BytesPerSecond = Field(default=204_800_000, gt=0)
    """md's sync_speed_max: what a rebuild never exceeds."""
    members: tuple[int, ...] | None = None
    """Drives by number; left out: all, less the spares. Several volumes name theirs."""
    arrays: int = Field(default=1, ge=1, le=64)
    """So many arrays like this one, each of an equal part of the members in their order and
    degraded alike; its name with a number names one, its name all."""
    read_policy: Literal["md", "round-robin", "shortest-queue", "first"] = "md"
    """Which copy is read: as md balances, in turn, the one with fewest outstanding, or the
    first."""
    write_mostly: tuple[int, ...] = ()
    """md's --write-mostly: numbers of members that are read only if no other has the data."""
    rmw_level: Literal[0, 1, 2] = 1
    """md's rmw_level: 0 always reconstruct, 1 choose what reads less, 2 prefer
    read-modify-write."""
    stripe_cache: int = Field(default=256, ge=17, le=32768)
    """As ``stripe_cache_size``, by its older name here."""
    stripe_cache_size: int | None = Field(default=None, ge=17, le=32768)
    """md's stripe_cache_size: rows of 4 KiB in flight, 256 as md sets it. Since kernel 4.1 it may
    have grown over hours: as the file of that name says."""
    bitmap: BitmapSpec = BitmapSpec()
    """Write-intent bitmap of md: a word, or ``{ kind = "internal", chunk = "64 MiB" }``. An
    external one lies on another device and costs the members nothing."""
    spares: int = Field(default=0, ge=0)
    """Hot spares, from the end of the list of drives; of several arrays the first one's."""
    columns: int | None = Field(default=None, ge=2)
    """Columns of Storage Spaces, where fewer than the members; of a raidz the members of each
    vdev."""
    logical_sector: Size = 512
    """Smallest write of the volume."""
    controller: str | None = Field(default=None, min_length=1)
    """Card that it is on, if its engine is one: volumes of the same name share its link, its
    commands and its parity; left out: each table has a card of its own."""
    filesystem: Literal["ext4", "xfs"] | None = None
    """File system on the volume whose journal ``fsync`` and ``fdatasync`` of a load commit; left
    out: the load uses the volume itself."""

    @model_validator(mode="after")
    def _one_stripe_cache(self) -> VolumeSpec:
        if {"stripe_cache", "stripe_cache_size"} <= self.model_fields_set:
            raise ValueError("stripe_cache and stripe_cache_size say the same; keep one")
        return self

    @property
    def level(self) -> Level:
        """The record of its level."""
        return LEVELS[self.raid]

    @property
    def cache_rows(self) -> int:
        """Rows of the stripe cache, by whichever of its two names."""
        return self.stripe_cache if self.stripe_cache_size is None else self.stripe_cache_size

    @model_validator(mode="after")
    def _chunk_fits_pages(self) -> VolumeSpec:
        if self.chunk is not None and (self.chunk < PAGE_BYTES or self.chunk % PAGE_BYTES):
            text = units.format_size(self.chunk)
            raise ValueError(f"chunk is {text}; a multiple of 4 KiB, at least 4 KiB, is needed")
        if self.logical_sector not in (512, PAGE_BYTES):
            text = units.format_size(self.logical_sector)
            raise ValueError(f"logical_sector is {text}; 512 B or 4 KiB")
        return self


class RunSpec(Strict):
    """When to stop: at a precision, unless requests or a duration are stated."""

    precision: Fraction | None = Field(default=None, gt=0, lt=1)
    """Stop when the 95 % interval of total IOPS is so narrow, and that of p99 five times as
    wide; left out: 1 %."""
    requests: int | None = Field(default=None, ge=1)
    """Simulate exactly so many, after the warm-up."""
    duration: Duration | None = Field(default=None, gt=0)
    """Simulate so much time, after the warm-up."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Of the random numbers: the same seed gives the same result, to the last digit."""


def _listed(value: Any) -> Any:
    """A single table where several are allowed is a list of one."""
    return (value,) if isinstance(value, dict) else value


class Scenario(Strict):
    """A scenario file, checked key by key; `resolve` looks its names up."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "cpu": "a CPU is that of a socket: [[server.sockets]] cpu = 'epyc-7543'",
        **dict.fromkeys(
            ("memory", "ram", "dimms"),
            "memory is that of a socket, and its bandwidth counts: [[server.sockets]] "
            "memory = { channels = 8 }",
        ),
        "os": "an operating system is a stack: [server] stack = 'linux-io_uring'",
        "kernel": "the kernel is that of an array: [volume] kernel = '6.1'",
        "raid": "drives become an array in [volume]: raid = 'raid5'",
        **dict.fromkeys(("bs", "blocksize"), "[[workload]] block_size = '4 KiB' is meant"),
        **dict.fromkeys(("iodepth", "depth", "qd", "queue_depth"),
                        "requests in flight of a thread: [[workload]] outstanding = 32"),
        **dict.fromkeys(("numjobs", "jobs"), "[[workload]] threads = 4 (each target has as many), "
                        "or threads_total = 4"),
        "rw": "[[workload]] access = 'random' and read = 0.7 (the share of reads) are meant",
        "runtime": "the time that is simulated: [run] duration = '2 s'",
    }  # fmt: skip
    """Keys by which other tools, or other places of the file, call something -> what to write."""
    name: str = ""
    server: ServerSpec
    adapters: tuple[AdapterSpec, ...] = ()
    drives: tuple[DriveSpec, ...] = Field(min_length=1)
    volume: Annotated[tuple[VolumeSpec, ...], BeforeValidator(_listed)] = ()
    workload: Annotated[tuple[WorkloadSpec, ...], BeforeValidator(_listed)] = ()
    run: RunSpec = RunSpec()
    _base: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _does_something(self) -> Scenario:
        if not self.workload and not any(v.rebuild or v.check for v in self.volume):
            raise ValueError(
                "workload is missing; only an array with rebuild = true (or check = true) runs "
                "without one"
            )
        return self

    @property
    def base(self) -> Path:
        """Folder against which relative paths are resolved: the scenario file's own."""
        return self._base

    def to_dict(self) -> dict[str, Any]:
        """Return the tables of a scenario file that says the same, texts with units.

        >>> scenario_tables = {"server": {"sockets": [{"cpu": "xeon-gold-6130"}]},
        ...     "drives": [{"profile": "hdd-7200"}], "workload": {"outstanding": 4}}
        >>> Scenario.model_validate(scenario_tables).to_dict()["workload"]
        [{'outstanding': 4}]
        """
        return self.model_dump(mode="json", exclude_unset=True)
