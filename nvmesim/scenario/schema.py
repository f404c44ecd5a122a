"""The scenario file as models: exactly the keys that a file may have, each checked by itself.

What needs two keys or the catalog (members enough for the level, lanes over the budget, an unknown
adapter) is checked by `nvmesim.scenario.resolve`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from nvmesim import units
from nvmesim.catalog.links import PAYLOADS
from nvmesim.errors import UnitError, nearest
from nvmesim.raid.levels import LEVELS
from nvmesim.scenario.fields import (
    BytesPerSecond,
    Duration,
    Fraction,
    LinkText,
    PerSecond,
    Size,
    Strict,
)

PAGE_BYTES = 4096


def _raid_level(text: str) -> str:
    if text not in LEVELS:
        raise ValueError(nearest(text, LEVELS))
    return text


RaidLevel = Annotated[str, AfterValidator(_raid_level)]
"""A name of `nvmesim.raid.levels.LEVELS`."""


def _reference(value: Any) -> Any:
    if isinstance(value, str | dict):
        return value
    raise ValueError("a catalog name, the path of a TOML file, or a table is needed")


Reference = Annotated[Any, BeforeValidator(_reference)]
"""A profile: catalog name, path, or table."""


def _kernel(value: Any) -> Any:
    """A number is a kernel, too, where it can mean one only: 6.1 could be 6.10."""
    plain = isinstance(value, float) and not str(value).endswith((".1", ".2", ".3"))
    if isinstance(value, str) or plain:
        return str(value)
    raise ValueError(f"is {value!r}; a text is needed, as '6.1': 6.10 is another kernel")


Kernel = Annotated[str, BeforeValidator(_kernel)]
"""A Linux kernel by its number."""


def _mix(value: Any) -> Any:
    """Read one size, or a table of sizes with their fractions."""
    if isinstance(value, str):
        pairs: list[tuple[Any, Any]] = [(value, 1.0)]
    elif isinstance(value, dict) and value:
        pairs = list(value.items())
    else:
        raise ValueError("a size needs its unit; write '4 KiB' or { \"4 KiB\" = 0.7, ... }")
    return tuple(sorted(_mix_part(text, share) for text, share in pairs))


def _mix_part(text: Any, share: Any) -> tuple[int, float]:
    try:
        size = units.parse_size(str(text))
    except UnitError as error:
        raise ValueError(str(error)) from None
    if size < 512 or size % 512:
        raise ValueError(f"{text!r} is not a multiple of 512 B")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"the fraction of {text!r} is {share!r}; it must be above 0 and at most 1")
    return size, float(share)


def _mix_text(mix: tuple[tuple[int, float], ...]) -> Any:
    if len(mix) == 1:
        return units.format_size(mix[0][0])
    return {units.format_size(size): share for size, share in mix}


Mix = Annotated[tuple[tuple[int, float], ...], BeforeValidator(_mix), PlainSerializer(_mix_text)]
"""((bytes, fraction), ...), sorted by size."""


class MemorySpec(Strict):
    """DIMMs of one socket, where they differ from the CPU's catalog entry."""

    channels: int | None = Field(default=None, ge=1, le=16)
    rate: str | None = None


class SocketSpec(Strict):
    """One CPU socket."""

    cpu: Reference
    ghz: Annotated[float, Field(gt=0, le=10)] | Literal["base", "turbo"] = "base"
    memory: bool | MemorySpec = True


def _packet(value: Any) -> Any:
    if isinstance(value, int) and value not in PAYLOADS:
        sizes = ", ".join(str(n) for n in PAYLOADS)
        raise ValueError(f"{value} B is not a size of PCIe packets; {sizes} B")
    return value


PacketSize = Annotated[Size, AfterValidator(_packet)]


class InterconnectSpec(Strict):
    """Links between sockets; what is left out comes from the CPU's catalog entry."""

    kind: Literal["upi", "qpi", "xgmi"] | None = None
    links: int | None = Field(default=None, ge=1, le=8)
    rate: str | None = None
    latency: Duration | None = None
    credits: int | None = Field(default=None, ge=1)
    snoop: Literal["directory", "home"] | None = None
    peer: BytesPerSecond | None = Field(default=None, gt=0)


class ServerSpec(Strict):
    """The server around the drives."""

    platform: str | None = None
    stack: Reference = "linux-io_uring"
    sockets: tuple[SocketSpec, ...] = Field(min_length=1, max_length=8)
    interconnect: InterconnectSpec = InterconnectSpec()
    background: Fraction = Field(default=0.0, ge=0, lt=1)
    max_payload: PacketSize | None = None
    max_read_request: PacketSize | None = None


class AdapterSpec(Strict):
    """A switch, retimer card, controller or VMD domain."""

    name: str = Field(min_length=1)
    kind: Literal["adapter", "switch", "controller", "vmd"] = "adapter"
    link: LinkText
    socket: int = Field(default=0, ge=0)
    latency: Duration | None = None
    commands: PerSecond | None = None
    drive_commands: PerSecond | None = Field(default=None, gt=0)
    cycles_per_command: float | None = Field(default=None, ge=0)
    max_payload: PacketSize | None = None


class DriveSpec(Strict):
    """One or several equal drives."""

    profile: Reference
    count: int = Field(default=1, ge=1, le=1024)
    name: str | None = None
    socket: int | None = Field(default=None, ge=0)
    behind: str | None = None
    link: LinkText | None = None
    state: Literal["fresh", "steady", "empty"] = "steady"
    delay: Duration = 0

    @model_validator(mode="after")
    def _one_place(self) -> DriveSpec:
        if self.socket is not None and self.behind is not None:
            raise ValueError("socket and behind exclude each other; the adapter has its socket")
        return self


class BitmapSpec(Strict):
    """md's bitmap of regions that may differ: where it is, and what one of its bits stands for."""

    kind: Literal["none", "internal", "external"] = "none"
    chunk: Size = 64 << 20
    since_clean: Duration | None = Field(default=None, gt=0)
    """The load is asked about from a clean bitmap on and for so long, as a short benchmark is;
    None: about what lasts."""

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
    raid: RaidLevel
    layout: str | None = None
    chunk: Size | None = None
    recordsize: Size | None = None
    engine: Reference = "linux-md"
    kernel: Kernel | None = None
    group_thread_cnt: int | None = Field(default=None, ge=0, le=8192)
    degraded: tuple[int, ...] = ()
    rebuild: bool = False
    check: bool = False
    reshape_from: int | None = Field(default=None, ge=1)
    rebuilt: Fraction = Field(default=0.5, ge=0, le=1)
    sync_speed_min: BytesPerSecond = Field(default=1_024_000, gt=0)
    sync_speed_max: BytesPerSecond = Field(default=204_800_000, gt=0)
    members: tuple[int, ...] | None = None
    read_policy: Literal["md", "round-robin", "shortest-queue", "first"] = "md"
    write_mostly: tuple[int, ...] = ()
    boot: bool = False
    rmw_level: Literal[0, 1, 2] = 1
    stripe_cache: int = Field(default=256, ge=17, le=32768)
    stripe_cache_size: int | None = Field(default=None, ge=17, le=32768)
    stripe_cache_most: int | None = Field(default=None, ge=17, le=1 << 24)
    bitmap: BitmapSpec = BitmapSpec()
    journal: Literal["none", "ppl"] = "none"
    spares: int = Field(default=0, ge=0)
    columns: int | None = Field(default=None, ge=2)
    logical_sector: Size = 512
    filesystem: Literal["ext4", "xfs"] | None = None

    @model_validator(mode="after")
    def _one_stripe_cache(self) -> VolumeSpec:
        if {"stripe_cache", "stripe_cache_size"} <= self.model_fields_set:
            raise ValueError("stripe_cache and stripe_cache_size say the same; keep one")
        return self

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


MOST_PEAK = 200
"""Largest rate in a burst over the mean: gaps are stretched in steps of 2**-16."""

Targets = Annotated[
    str | int | tuple[str | int, ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]


class LimitsSpec(Strict):
    """Limits of a group: token buckets that its requests wait at."""

    iops: PerSecond | None = Field(default=None, gt=0)
    bandwidth: BytesPerSecond | None = Field(default=None, gt=0)
    burst: Duration = Field(default=0, ge=0)
    peak_iops: PerSecond | None = Field(default=None, gt=0)
    peak_bandwidth: BytesPerSecond | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _limits_something(self) -> LimitsSpec:
        if self.iops is None and self.bandwidth is None:
            raise ValueError("limits nothing; give iops or bandwidth")
        for name in ("iops", "bandwidth"):
            low, peak = getattr(self, name), getattr(self, f"peak_{name}")
            if peak is not None and (low is None or peak <= low or not self.burst):
                raise ValueError(
                    f"peak_{name} is for bursts above {name}: it is larger than that limit, and "
                    "burst says for how long that may be saved up"
                )
        return self


class BurstsSpec(Strict):
    """An open loop that comes in bursts, its rate being the mean."""

    on: Duration = Field(gt=0)
    off: Duration = Field(gt=0)
    quiet: Fraction = Field(default=0.0, ge=0, lt=1)
    lengths: Literal["random", "fixed"] = "random"

    @model_validator(mode="after")
    def _not_too_short(self) -> BurstsSpec:
        if self.peak > MOST_PEAK:
            raise ValueError(f"the rate in a burst is {self.peak:.0f} times the mean; {MOST_PEAK} "
                             "at most: make on longer or off shorter")  # fmt: skip
        return self

    @property
    def peak(self) -> float:
        """Rate in a burst over the mean rate."""
        return (self.on + self.off) / (self.on + self.quiet * self.off)


class WorkloadSpec(Strict):
    """One group of threads, or a DiskSpd line, a fio file, a trace or a rate in their place."""

    name: str | None = None
    block_size: Mix | None = None
    access: Literal["random", "sequential"] | None = None
    align: Size | None = None
    offset: Size | None = None
    read: Fraction | None = Field(default=None, ge=0, le=1)
    threads: int | None = Field(default=None, ge=1, le=65536)
    threads_total: int | None = Field(default=None, ge=1, le=65536)
    outstanding: int | None = Field(default=None, ge=1, le=65536)
    targets: Targets | None = None
    span: Size | None = None
    socket: int | None = Field(default=None, ge=0)
    floating: Literal["spread", "pool"] | None = None
    buffers: Annotated[int, Field(ge=0)] | str | None = None
    interrupts: int | None = Field(default=None, ge=0)
    iodepth_batch: int | None = Field(default=None, ge=1, le=4096)
    sqthread_poll: bool | None = None
    filesystem: Literal["raw", "ntfs", "ext4", "xfs"] = "raw"
    guest: Literal["none", "hyper-v", "kvm-virtio", "kvm-vhost", "kvm-passthrough"] = "none"
    interlocked: bool | None = None
    stride: Size | None = None
    random_fraction: Fraction | None = Field(default=None, ge=0, le=1)
    think_time: Duration | None = None
    think_every: int | None = Field(default=None, ge=1)
    rate_limit: PerSecond | None = None
    fsync: int | None = Field(default=None, ge=1)
    fdatasync: int | None = Field(default=None, ge=1)
    sync: Literal["none", "dsync", "sync"] | None = None
    diskspd: str | None = None
    fio: str | None = None
    trace: str | None = None
    speed: float | None = Field(default=None, gt=0)
    rate: PerSecond | None = None
    arrivals: Literal["poisson", "paced"] | None = None
    bursts: BurstsSpec | None = None
    limits: LimitsSpec | None = None
    slo: Duration | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_source(self) -> WorkloadSpec:
        given = self.model_fields_set
        sources = [key for key in ("diskspd", "fio", "trace", "rate") if getattr(self, key)]
        if len(sources) > 1:
            raise ValueError(f"{' and '.join(sources)} exclude each other; keep one")
        if not sources and not given & {"threads", "threads_total", "outstanding"}:
            raise ValueError(
                "states no load; give threads and outstanding, rate, trace, diskspd or fio"
            )
        if {"threads", "threads_total"} <= given:
            raise ValueError("threads (per target) and threads_total exclude each other; keep one")
        if {"fsync", "fdatasync"} <= given:
            raise ValueError("fsync and fdatasync exclude each other; keep one")
        self._check_companions(sources[0] if sources else "", given)
        return self

    def _check_companions(self, source: str, given: set[str]) -> None:
        """Refuse keys that *source* already says or that need another one."""
        for key in sorted(given - _COMPANIONS[source]):
            if source:
                raise ValueError(f"{key} cannot be given beside {source}")
            raise ValueError(f"{key} needs {'trace' if key == 'speed' else 'rate'}")


_ANY = {
    "name", "targets", "span", "socket", "floating", "buffers", "interrupts", "filesystem", "guest",
    "limits", "slo", "iodepth_batch", "sqthread_poll",
}  # fmt: skip
_SHAPE = {"block_size", "access", "align", "offset", "read", "stride", "random_fraction"}
_SYNC = {"fsync", "fdatasync", "sync"}
_CLOSED = {"threads", "threads_total", "outstanding", "think_time", "think_every", "rate_limit"}
_COMPANIONS = {
    "": _ANY | _SHAPE | _SYNC | _CLOSED | {"interlocked"},
    "diskspd": _ANY | {"diskspd"},
    "fio": _ANY | {"fio"},
    "trace": _ANY | {"trace", "speed"},
    "rate": _ANY | _SHAPE | _SYNC | {"rate", "arrivals", "bursts", "threads", "threads_total"},
}


class RunSpec(Strict):
    """When to stop: at a precision, unless requests or a duration are stated."""

    precision: Fraction | None = Field(default=None, gt=0, lt=1)
    requests: int | None = Field(default=None, ge=1)
    duration: Duration | None = Field(default=None, gt=0)
    seed: int = Field(default=1, ge=0, lt=2**63)


def _listed(value: Any) -> Any:
    """A single table where several are allowed is a list of one."""
    return (value,) if isinstance(value, dict) else value


class Scenario(Strict):
    """A scenario file, checked key by key; `resolve` looks its names up."""

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
        if not self.workload and not any(
            v.rebuild or v.check or v.reshape_from for v in self.volume
        ):
            raise ValueError(
                "workload is missing; only an array with rebuild = true (or check = true, or "
                "reshape_from) runs without one"
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
