"""The bench that a capture was made on, simulated: one drive, the host and the link around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Floats
from nvmesim.calibrate.points import BODY, PERCENTS, Bins, Point
from nvmesim.catalog.links import Link, parse_link
from nvmesim.catalog.load import get, with_level
from nvmesim.catalog.profile import CpuProfile, DriveProfile, Quantity, StackProfile
from nvmesim.engine.contract import bin_middle
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import HORIZON_PS, Network
from nvmesim.predict.prepare import Prepared, prepare
from nvmesim.scenario.resolved import (
    Drive,
    ResolvedScenario,
    Socket,
    Target,
    Volume,
    WorkloadGroup,
)
from nvmesim.scenario.volumes import DEFAULT_CHUNK, geometry
from nvmesim.units import PS_PER_S

FILLS = 6
"""Writes before a measurement, in units of the buffer: it fills with what is not drained."""
WARM = 5
"""Requests before a measurement, in units of those in flight."""
MOST_OUTSTANDING = 64
"""Requests in flight of a job of an open load that does not say its limit. Assumed."""
LIMIT_REQUESTS = 4_000
"""Simulated to see whether a drive can do what is offered."""
FULL = 0.8
"""Share of the time that a station is busy, from which on it is in the way of more."""


@dataclass(frozen=True)
class BenchHost:
    """The measuring host: its stack, its clock, the drive's link, its cores (None: one per job)."""

    stack: StackProfile
    ghz: float
    link: Link
    cores: int | None = None
    cpu: CpuProfile | None = None
    """The CPUs of all sockets as one, where they are known: siblings share a core (DESIGN 3)."""


@dataclass(frozen=True)
class BenchAnswer:
    """Figures of the simulated bench; seconds."""

    iops: float
    mean_s: float
    percentiles_s: Mapping[float, float] = field(default_factory=dict)
    body_s: Mapping[float, float] = field(default_factory=dict)
    """Those of `BODY`"""
    cpu_s: float | None = None
    """CPU time per request; None: a bench without a host."""
    bins: Bins | None = None
    full: str | None = None
    """Resource of the busiest station of the drive, if it was nearly full"""


def free_host(link: str = "pcie4 x4") -> BenchHost:
    """Return a host that costs nothing: for captures whose host stays in the drive's constants."""
    none = Quantity(value=1.0, basis="assumed")
    stack = StackProfile(name="none", submit=none, complete=none)
    return BenchHost(stack, 1000.0, parse_link(link))


def measure(
    profile: DriveProfile, host: BenchHost, point: Point, *, requests: int = 40_000, seed: int = 1
) -> BenchAnswer:
    """Simulate *point* on a bench with *profile*; *requests* after a warm-up.

    The warm-up covers the write buffer, so that writes are measured in their steady state.
    """
    return Bench(profile, host).measure(point, requests=requests, seed=seed)


class Bench:
    """A bench with one drive, or several alike: its network is built once for all depths."""

    def __init__(self, profile: DriveProfile, host: BenchHost) -> None:
        self.profile, self.host = profile, host
        self._known: dict[tuple[object, ...], Prepared] = {}

    def measure(self, point: Point, *, requests: int, seed: int) -> BenchAnswer:
        """As the function `measure`."""
        point = self._within_its_limit(point, seed)
        ready = replace(self._prepared(point), seed=seed)
        return _measured(ready, self.profile, point, requests)

    def _within_its_limit(self, point: Point, seed: int) -> Point:
        """*point*, its larger open load closed where the drive cannot do all that is offered.

        What is outstanding then stands at its limit; without one the backlog would grow for ever.
        """
        parts = [p for p in (point, point.beside) if p is not None and p.rate is not None]
        if not parts:
            return point
        larger = max(parts, key=lambda p: p.rate or 0.0)
        most = larger.most_outstanding or MOST_OUTSTANDING * larger.jobs
        closed = replace(
            larger, rate=None, beside=None, iodepth=max(1, round(most / larger.jobs))
        )  # fmt: skip
        ready = replace(self._prepared(closed), seed=seed)
        does = _measured(ready, self.profile, closed, LIMIT_REQUESTS).iops
        if does > sum(p.rate or 0.0 for p in parts):
            return point
        if larger is point.beside:
            return replace(point, beside=closed)
        return replace(closed, beside=point.beside)

    def _prepared(self, point: Point) -> Prepared:
        p = point
        is_plain = p.rate is None and p.beside is None
        # beyond the drive's tags commands take one each
        if not is_plain or p.outstanding > self.profile.tags.value:
            return _built(self.profile, self.host, point)
        key = (
            p.read_fraction, p.random, p.block_size, p.jobs, p.targets, p.own_targets,
            p.rate_limit, p.sync, p.raid, p.polled, p.device_times,
        )  # fmt: skip
        if key not in self._known:
            self._known[key] = _built(self.profile, self.host, replace(p, iodepth=1))
        ready = self._known[key]
        deeper = replace(ready.lowered, network=_deeper(ready.lowered.network, point.iodepth))
        return replace(ready, lowered=deeper)


def _built(profile: DriveProfile, host: BenchHost, point: Point) -> Prepared:
    ready = prepare(_scenario(profile, host, point), "compiled", level=0.0)
    if point.beside is None:
        return ready
    network = ready.lowered.network
    measured = network.group_measured.copy()
    measured[1] = 0  # the load beside
    network = replace(network, group_measured=measured)
    return replace(ready, lowered=replace(ready.lowered, network=network))


def _deeper(network: Network, depth: int) -> Network:
    """*network* with each of its users *depth* times."""
    return replace(
        network,
        user_group=np.repeat(network.user_group, depth),
        user_thread=np.repeat(network.user_thread, depth),
        user_target=np.repeat(network.user_target, depth),
        user_stream=np.repeat(network.user_stream, depth),
    )


def _measured(
    ready: Prepared, profile: DriveProfile, point: Point, requests: int
) -> BenchAnswer:  # fmt: skip
    lowered, engine = ready.lowered, ready.engine()
    filled = 0.0
    if point.read_fraction < 1:
        filled = FILLS * profile.write.buffer.value / point.block_size / (1 - point.read_fraction)
    engine.advance(round(max(1_000, WARM * point.outstanding, min(filled, 5e5))), HORIZON_PS)
    batch = engine.advance(requests, HORIZON_PS)
    window = batch.end_ps - batch.start_ps
    n = batch.completions
    kind = 1 if point.percentiles_of == "clat" else 0
    counts = batch.histogram[:, kind].sum(axis=0)
    middle = bin_middle()
    found = _quantiles(counts, np.array(PERCENTS + BODY) / 100)
    cpus = [s for s in lowered.stations if s.kind == "cpu"]
    busy = sum(int(batch.stations[s.first : s.first + s.count, 2].sum()) for s in cpus)
    return BenchAnswer(
        iops=n / window * PS_PER_S,
        mean_s=float(batch.latency_sum_ps[:, 0].sum()) / n / PS_PER_S,
        percentiles_s=dict(zip(PERCENTS, found.tolist(), strict=False)),
        body_s=dict(zip(BODY, found[len(PERCENTS) :].tolist(), strict=True)),
        cpu_s=busy / n / PS_PER_S,
        bins=Bins(middle / PS_PER_S, counts),
        full=_full(lowered, batch.stations, window),
    )


def _full(lowered: Lowered, stations: npt.NDArray[np.int64], window: int) -> str | None:
    """Resource of the drive that was busiest, if its servers were nearly all busy."""
    busiest, found = FULL, None
    for s in lowered.stations:
        if s.kind in ("drive", "link", "limit") and s.resource:
            busy = stations[s.first : s.first + s.count, 2].sum() / window / s.count
            if busy > busiest:
                busiest, found = float(busy), s.resource
    return found


def _quantiles(counts: npt.NDArray[np.int64], shares: npt.NDArray[np.float64]) -> Floats:
    """Quantiles of a histogram of the engine, s, straight within a bin.

    At rank p n + 1/2, where the logarithm of the share beyond is right on average: a few thousand
    requests then give the same tail on average as a million. Source: Hyndman and Fan 1996,
    definition 5.
    """
    cumulative = np.cumsum(counts)
    ranks = np.minimum(shares * cumulative[-1] + 0.5, cumulative[-1])
    at = np.searchsorted(cumulative, ranks)
    within = (ranks - (cumulative[at] - counts[at])) / counts[at]
    middle = np.asarray(bin_middle(), float)
    width = np.gradient(middle)
    out: Floats = (middle[at] + (within - 0.5) * width[at]) / PS_PER_S
    return out


def _scenario(profile: DriveProfile, host: BenchHost, point: Point) -> ResolvedScenario:
    if point.device_times:
        host = replace(host, stack=free_host().stack, ghz=free_host().ghz)
    jobs = point.jobs + (point.beside.jobs if point.beside else 0)
    clock = Quantity(value=host.ghz)
    cores = host.cores or max(1, jobs)
    cpu = host.cpu or CpuProfile(name="capture", cores=cores, threads_per_core=1, ghz=clock)
    stack = host.stack
    if point.polled and not stack.polled:
        stack = stack.model_copy(update={"polled": True})
    drives = tuple(Drive(i, f"drive{i}", profile, 0, None, host.link) for i in range(point.targets))
    volumes = (_volume(point, drives),) if point.raid else ()
    targets = tuple(Target("drive", d.index, d.name) for d in drives)
    if volumes:
        targets = (Target("volume", 0, volumes[0].name),)
    groups = [_group("capture", point, targets)]
    if point.beside is not None:
        groups.append(_group("beside", point.beside, targets))
    socket = Socket(0, cpu, host.ghz, 1e12)
    return ResolvedScenario(
        "capture", stack, (socket,), None, (), drives, volumes, tuple(groups)
    )  # fmt: skip


def _volume(point: Point, drives: tuple[Drive, ...]) -> Volume:
    """The Linux md array that *point* was measured on."""
    level, _, chunk = point.raid.partition(":")
    layout, copies = geometry(level, len(drives), None)
    size = int(chunk or DEFAULT_CHUNK)
    engine = with_level(get("raid-engine", "linux-md"), level)
    member = round(drives[0].profile.capacity.value) // size * size
    return Volume(
        0, "array", level, tuple(d.index for d in drives), layout, copies, size, engine,
        member_bytes=member,
    )  # fmt: skip


def _group(name: str, point: Point, targets: tuple[Target, ...]) -> WorkloadGroup:
    own = point.own_targets and not point.raid
    return WorkloadGroup(
        name,
        targets,
        block_sizes=((point.block_size, 1.0),),
        access="random" if point.random else "sequential",
        align=point.block_size,
        read=point.read_fraction,
        threads=max(1, point.jobs // point.targets) if own else point.jobs,
        threads_are_per_target=own,
        outstanding=point.iodepth,
        outstanding_per="thread",
        rate=point.rate,
        arrivals=point.arrivals,
        rate_limit=point.rate_limit,
        commits=point.sync == "fsync",
        sync_every=1 if point.sync in ("fsync", "fdatasync") else 0,
        write_through=point.sync == "sync",
    )
