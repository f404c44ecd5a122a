"""The keys of ``[[workload]]``, each by itself, which go together, and named loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from nvmesim.catalog.engine_profile import FileSystem, Guest
from nvmesim.errors import InputError, nearest
from nvmesim.files import package_tables
from nvmesim.scenario.fields import BytesPerSecond, Duration, Fraction, Mix, PerSecond, Size, Strict

MOST_PEAK = 200
"""Largest rate in a burst over the mean: gaps are stretched in steps of 2**-16."""

Targets = Annotated[
    str | int | tuple[str | int, ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]


class LimitsSpec(Strict):
    """Limits of a group: token buckets that its requests wait at."""

    iops: PerSecond | None = Field(default=None, gt=0)
    """Requests per second."""
    bandwidth: BytesPerSecond | None = Field(default=None, gt=0)
    """Bytes per second."""
    burst: Duration = Field(default=0, ge=0)
    """How much unused limit may be saved up, as time at the limit; left out: none."""
    peak_iops: PerSecond | None = Field(default=None, gt=0)
    """Requests per second while saved ones are spent, at most."""
    peak_bandwidth: BytesPerSecond | None = Field(default=None, gt=0)
    """Bytes per second while saved ones are spent, at most."""

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
    """Mean length of a burst."""
    off: Duration = Field(gt=0)
    """Mean time between bursts."""
    quiet: Fraction = Field(default=0.0, ge=0, lt=1)
    """Rate between bursts over that in a burst; left out: 0, nothing arrives."""
    lengths: Literal["random", "fixed"] = "random"
    """``"random"`` (exponential; the arrivals are then a Markov-modulated Poisson process) or
    ``"fixed"``."""

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
    """Of the group, in reports."""
    block_size: Mix | None = None
    """Bytes of a request, or a table of sizes with their fractions ``{ "4 KiB" = 0.7, "64 KiB" =
    0.3 }``; left out: 4 KiB."""
    access: Literal["random", "sequential"] | None = None
    """Left out: random."""
    align: Size | None = None
    """Requests start at offset + k x align; left out: the block size."""
    offset: Size | None = None
    """Where the touched range of each target starts."""
    read: Fraction | None = Field(default=None, ge=0, le=1)
    """Fraction of requests that read; left out: 1."""
    threads: int | None = Field(default=None, ge=1, le=65536)
    """Threads per target, as DiskSpd's ``-t`` and fio's ``numjobs``."""
    threads_total: int | None = Field(default=None, ge=1, le=65536)
    """Threads that all targets share; instead of ``threads``."""
    outstanding: int | None = Field(default=None, ge=1, le=65536)
    """Requests each thread keeps in flight per target, as DiskSpd's ``-o`` and fio's ``iodepth``
    (with ``threads_total``: over its targets)."""
    targets: Targets | None = None
    """Volumes or drives by name or number, or a count of files on the volume; left out: all
    volumes, else all drives."""
    span: Size | None = None
    """Bytes of each target that are touched, from ``offset``; left out: all."""
    socket: Annotated[int, Field(ge=0)] | Literal["near"] | None = None
    """Where the threads run: a socket, or for each target that of its drives (near); left out: on
    all sockets in turn."""
    buffers: int | None = Field(default=None, ge=0)
    """Socket whose memory holds the data; left out: the thread's socket."""
    interrupts: int | None = Field(default=None, ge=0)
    """Socket that takes the interrupts; left out: the thread's."""
    iodepth_batch: int | None = Field(default=None, ge=1, le=4096)
    """Requests that a thread reaps at once and submits anew with one call, at most, as fio's
    iodepth_batch_submit; left out: as the stack says, mostly 1."""
    sqthread_poll: bool | None = None
    """True if a thread of the kernel, one for each of the load's, polls for what is submitted
    (SQPOLL of io_uring, fio's sqthread_poll)."""
    filesystem: FileSystem = "raw"
    """Between the application and the volume: its cost per request comes on top of the stack's."""
    guest: Guest = "none"
    """Virtual machine that the load runs in: its cost per request comes on top of the stack's.
    Forty guests with a virtual disk each: ``targets = 40`` and ``threads = 1``; all threads share
    one disk else. One of several IOThreads: ``server.stack.sections.kvm-virtio.threads = 4``."""
    interlocked: bool | None = None
    """DiskSpd's ``-si``: the threads of a target share one sequential position."""
    think_time: Duration | None = None
    """Pause of a user after a completion."""
    think_every: int | None = Field(default=None, ge=1)
    """The pause comes after so many requests; left out: after each."""
    rate_limit: PerSecond | None = None
    """Requests per second that one thread may submit, at most."""
    fsync: int | None = Field(default=None, ge=1)
    """fio's ``fsync``: a thread flushes after so many writes, and commits on a file system."""
    fdatasync: int | None = Field(default=None, ge=1)
    """fio's ``fdatasync``: as ``fsync``, for the data alone."""
    sync: Literal["none", "dsync", "sync"] | None = None
    """Every write of the group must reach the media: O_DSYNC or O_SYNC."""
    diskspd: str | None = None
    """A DiskSpd command line in place of the keys above."""
    fio: str | None = None
    """Path of a fio job file in place of the keys above."""
    trace: str | None = None
    """Path of a capture whose arrivals are replayed, open loop."""
    speed: float | None = Field(default=None, gt=0)
    """Divides the gaps between the arrivals of a trace."""
    rate: PerSecond | None = None
    """Requests per second that arrive whether or not the array keeps up (open loop)."""
    arrivals: Literal["poisson", "paced"] | None = None
    """How they arrive; left out: at random (Poisson)."""
    bursts: BurstsSpec | None = None
    """The open loop comes in bursts; ``rate`` stays the mean."""
    limits: LimitsSpec | None = None
    """What the group may take at most: its requests wait at token buckets that all its threads
    share."""
    slo: Duration | None = Field(default=None, gt=0)
    """Latency that requests should not take longer than: the result says how many did, and for
    how long."""

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
        source = sources[0] if sources else ""
        for key in sorted(given - _COMPANIONS[source]):
            if source:
                raise ValueError(f"{key} cannot be given beside {source}, which says it itself")
            raise ValueError(f"{key} needs {'trace' if key == 'speed' else 'rate'}")
        return self


_ANY = {
    "name", "targets", "span", "socket", "buffers", "interrupts", "filesystem", "guest",
    "limits", "slo", "iodepth_batch", "sqthread_poll",
}  # fmt: skip
_SHAPE = {"block_size", "access", "align", "offset", "read"}
_SYNC = {"fsync", "fdatasync", "sync"}
_CLOSED = {"threads", "threads_total", "outstanding", "think_time", "think_every", "rate_limit"}
_COMPANIONS = {
    "": _ANY | _SHAPE | _SYNC | _CLOSED | {"interlocked"},
    "diskspd": _ANY | {"diskspd"},
    "fio": _ANY | {"fio"},
    "trace": _ANY | {"trace", "speed"},
    "rate": _ANY | _SHAPE | _SYNC | {"rate", "arrivals", "bursts", "threads", "threads_total"},
}


# -- loads that people ask about: a place to start from -------------------------------------------

DRIVE: Final = "kioxia-cd6-r-15.36tb"
"""The drive to start from: of the data-centre drives the one with the fewest assumed numbers."""


@dataclass(frozen=True)
class Preset:
    """A named load."""

    title: str
    says: str
    keys: Mapping[str, Any]


@cache
def presets() -> Mapping[str, Preset]:
    """Return every named load by its name."""
    tables = package_tables(__package__, "loads", "presets.toml")
    return {name: Preset(**table) for name, table in tables.items()}


def preset(name: str) -> Preset:
    """Return the preset *name*; InputError with the nearest known.

    >>> preset("oltp").keys["read"]
    0.7
    """
    found = presets().get(name)
    if found is None:
        raise InputError(f"load {name!r} is unknown; {nearest(name, presets())}")
    return found


def workload(name: str) -> dict[str, Any]:
    """Return a fresh ``[[workload]]`` table of the preset *name*."""
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in preset(name).keys.items()}
