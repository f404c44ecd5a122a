"""The bench that a capture was made on, simulated: one drive, the host and the link around it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Floats
from nvmesim.calibrate.datasheet import Expected
from nvmesim.calibrate.points import BODY, PERCENTS, Bins, Point
from nvmesim.catalog.links import Link, parse_link
from nvmesim.catalog.load import get, with_level
from nvmesim.catalog.profile import CpuProfile, DriveProfile, Quantity, StackProfile
from nvmesim.engine.contract import bin_middle
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import HORIZON_PS
from nvmesim.predict.prepare import Prepared, prepare
from nvmesim.scenario.resolved import Drive, ResolvedScenario, Socket, Target, Volume, WorkloadGroup
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
LARGE = 128 << 10
"""Bytes from which on a request counts as several: it is many units, and rates scatter less."""
FEWEST = 600
"""Requests so large that are simulated at least, and as many again as are in flight."""
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
    """The CPUs of all sockets as one, where they are known: siblings share a core."""
    clock_sd: float = 0.15
    """Standard deviation of the logarithm of what a thread does on it. Assumed: the clock under a
    load is not the one stated, and stacks differ by kernel."""
    sheet: Mapping[str, Expected] = field(default_factory=dict)
    """What the drive's data sheet leads to expect, where one is known: `datasheet.FIGURES` in 1/s,
    bytes/s and s."""


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
    """Simulate *point* on a bench with *profile*; *requests* after its write buffer has filled."""
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
        if point.block_size > LARGE:
            least = FEWEST + point.outstanding
            requests = min(requests, max(least, requests * LARGE // point.block_size))
        return _measured(ready, self.profile, point, requests)

    def _within_its_limit(self, point: Point, seed: int) -> Point:
        """*point*, its larger open load closed where the drive cannot do all that is offered."""
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
            p.rate_limit, p.sync, p.raid, p.path, p.polled, p.device_times,
        )  # fmt: skip
        if key not in self._known:
            self._known[key] = _built(self.profile, self.host, replace(p, iodepth=1))
        ready = self._known[key]
        network = ready.lowered.network  # with each of its users so many times
        users: dict[str, Any] = {
            name: np.repeat(getattr(network, name), point.iodepth)
            for name in ("user_group", "user_thread", "user_target", "user_stream")
        }
        return replace(ready, lowered=replace(ready.lowered, network=replace(network, **users)))


def _built(profile: DriveProfile, host: BenchHost, point: Point) -> Prepared:
    ready = prepare(_scenario(profile, host, point), "compiled", level=0.0)
    if point.beside is None:
        return ready
    network = ready.lowered.network
    measured = network.group_measured.copy()
    measured[1] = 0  # the load beside
    network = replace(network, group_measured=measured)
    return replace(ready, lowered=replace(ready.lowered, network=network))


def _measured(
    ready: Prepared, profile: DriveProfile, point: Point, requests: int
) -> BenchAnswer:  # fmt: skip
    lowered, engine = ready.lowered, ready.engine()
    filled = 0.0
    if point.read_fraction < 1:
        filled = FILLS * profile.write.buffer.value / point.block_size / (1 - point.read_fraction)
    least = 1_000, WARM * point.outstanding
    if point.block_size > LARGE:
        least = FEWEST // 4, 2 * point.outstanding
    engine.advance(round(max(*least, min(filled, 5e5))), HORIZON_PS)
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

    At rank p n + 1/2 short runs give the same tail as long ones. Source: Hyndman and Fan 1996,
    definition 5.
    """
    cumulative = np.cumsum(counts)
    ranks = np.minimum(shares * cumulative[-1] + 0.5, cumulative[-1])
    at = np.searchsorted(cumulative, ranks)
    within = (ranks - (cumulative[at] - counts[at])) / counts[at]
    middle = np.asarray(bin_middle(), float)
    width = np.gradient(middle)
    return np.asarray((middle[at] + (within - 0.5) * width[at]) / PS_PER_S)


def _scenario(profile: DriveProfile, host: BenchHost, point: Point) -> ResolvedScenario:
    if point.device_times:
        host = replace(host, stack=free_host().stack, ghz=free_host().ghz)
    if point.polled and not host.stack.polled:
        host = replace(host, stack=host.stack.model_copy(update={"polled": True}))
    volumes = (_volume(point, profile, host.stack.scale),) if point.raid else ()
    targets = tuple(Target("drive", i, f"drive{i}") for i in range(point.targets))
    if volumes:
        targets = (Target("volume", 0, volumes[0].name),)
    groups = [_group("capture", point, targets)]
    if point.beside is not None:
        groups.append(_group("beside", point.beside, targets))
    jobs = point.jobs + (point.beside.jobs if point.beside else 0)
    return behind_host(profile, host, groups, drives=point.targets, volumes=volumes, jobs=jobs)


def behind_host(
    profile: DriveProfile, host: BenchHost, groups: Sequence[WorkloadGroup], *, drives: int = 1,
    volumes: tuple[Volume, ...] = (), jobs: int = 1,
) -> ResolvedScenario:  # fmt: skip
    """So many drives alike on the measuring *host*, under the load of *groups*."""
    cpu = host.cpu or CpuProfile(
        name="capture", cores=host.cores or max(1, jobs), threads_per_core=1,
        ghz=Quantity(value=host.ghz),
    )  # fmt: skip
    alike = tuple(Drive(i, f"drive{i}", profile, 0, None, host.link) for i in range(drives))
    socket = Socket(0, cpu, host.ghz, 1e12)
    return ResolvedScenario(
        "capture", host.stack, (socket,), None, (), alike, volumes, tuple(groups)
    )  # fmt: skip


def _volume(point: Point, profile: DriveProfile, scale: float) -> Volume:
    """The Linux md array that *point* was measured on, its cycles *scale* times as many."""
    level, _, chunk = point.raid.partition(":")
    layout, copies = geometry(level, point.targets, None)
    size = int(chunk or DEFAULT_CHUNK)
    engine = with_level(get("raid-engine", "linux-md"), level).with_cycles(scale)
    return Volume(
        0, "array", level, tuple(range(point.targets)), layout, copies, size, engine,
        member_bytes=round(profile.capacity.value) // size * size,
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
        filesystem=point.filesystem,
        guest=point.guest,
        commits=point.sync == "fsync",
        sync_every=1 if point.sync in ("fsync", "fdatasync") else 0,
        write_through=point.sync == "sync",
    )
