"""The bench that a capture was made on, simulated: one drive, the host and the link around it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Floats
from nvmesim.calibrate.datasheet import Expected
from nvmesim.calibrate.points import BODY, PERCENTS, Bins, Point
from nvmesim.capture.capture import Captures
from nvmesim.catalog import load
from nvmesim.catalog.links import Link, parse_link
from nvmesim.catalog.load import get, with_level
from nvmesim.catalog.profile import CpuProfile, DriveProfile, Quantity, StackProfile
from nvmesim.engine.contract import bin_middle
from nvmesim.errors import InputError, UnitError
from nvmesim.model.lowered import Lowered
from nvmesim.network.network import HORIZON_PS
from nvmesim.predict.prepare import Prepared, prepare
from nvmesim.scenario.resolved import Drive, ResolvedScenario, Socket, Target, Volume, WorkloadGroup
from nvmesim.scenario.volumes import DEFAULT_CHUNK, geometry
from nvmesim.units import FREQUENCY_HZ, PS_PER_S

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


def usual_host(link: Link) -> BenchHost:
    """Return what measures most often, where nobody says what did: it may be any."""
    return BenchHost(cast(StackProfile, load.load("stack", USUAL)), GHZ, link, clock_sd=USUAL_SD)


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
            p.rate_limit, p.sync, p.raid, p.polled, p.device_times,
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
        commits=point.sync == "fsync",
        sync_every=1 if point.sync in ("fsync", "fdatasync") else 0,
        write_through=point.sync == "sync",
    )


LINK: Final = "pcie4 x4"
GHZ: Final = 3.0
"""Clock of a busy thread of a host that nobody stated. Source: one full thread of libaio did 235k
to 387k reads/s on four servers (`calibration/held-out`: D, N02, N04) and 255k to 698k on eight
other hosts (G02, R18, R21, R22, S01, S03, S05, S08, S09); linux-libaio does the 318k that is the
servers' median at 3.0 GHz."""
GHZ_SD: Final = 0.34
"""Standard deviation of the logarithm of such clocks: the same hosts."""
GHZ_ENDS: Final = (GHZ * math.exp(-1.96 * GHZ_SD), GHZ * math.exp(1.96 * GHZ_SD))
"""95 % of such clocks."""
GHZ_RANGE: Final = (0.5, 8.0)
MOST_SOCKETS: Final = 8
USUAL: Final = "linux-libaio"
USUAL_SD: Final = 0.4
"""`BenchHost.clock_sd` of a host of which nothing is stated. Assumed: the catalog's stacks that
sleep differ by a factor of two."""


ENGINES: Final = {
    "libaio": "linux-libaio", "io_uring": "linux-io_uring", "windowsaio": "windows-2019",
    "iocp": "windows-2019", "iometer": "windows-2019", "spdk": "spdk",
}  # fmt: skip
"""Engine that captures name -> stack of the host that measured them, where nobody names that."""


def engine_of(captures: Captures) -> str | None:
    """Return the engine that all *captures* name, if it tells the stack."""
    engines = {m.conditions.engine for m in captures.measurements}
    engine = engines.pop() if len(engines) == 1 else None
    return engine if engine in ENGINES else None


@dataclass(frozen=True)
class AskedHost:
    """A host and what of it was assumed."""

    host: BenchHost
    text: str
    notes: tuple[str, ...] = ()


def parse_host(text: str) -> AskedHost:
    """Return the host that ``STACK[,LINK[,CPU]]`` names; InputError says what is wrong with it.

    STACK is a catalog name or a stack's TOML file, CPU a catalog name or a clock.

    >>> asked = parse_host("linux-io_uring,pcie3 x4")
    >>> asked.host.stack.name, str(asked.host.link), asked.notes
    ('linux-io_uring', 'pcie3 x4', ('captured on linux-io_uring: a CPU of 3 GHz is assumed',))
    """
    parts = [part.strip() for part in text.split(",")]
    if not 1 <= len(parts) <= 3 or not parts[0]:
        raise InputError(f"--captured-on {text!r}: write STACK, STACK,LINK or STACK,LINK,CPU")
    stack = cast(StackProfile, load.load("stack", parts[0]))
    link_text, cpu_text = [*parts[1:], "", ""][:2]
    parts_assumed = ((link_text, f"a link of {LINK}"), (cpu_text, f"a CPU of {GHZ:g} GHz"))
    notes = tuple(
        f"captured on {stack.name}: {what} is assumed" for said, what in parts_assumed if not said
    )
    try:
        link = parse_link(link_text or LINK)
    except UnitError as error:
        raise UnitError(f"link of the captures: {error}") from None
    ghz = parse_clock(cpu_text) if cpu_text else GHZ
    said = f"{stack.name}, {link}, {ghz:g} GHz" + (" (assumed)" if notes else "")
    host = BenchHost(stack, ghz, link)
    return AskedHost(host if cpu_text else replace(host, clock_sd=GHZ_SD), said, notes)


def parse_cpu(text: str) -> tuple[float, CpuProfile | None]:
    """Return GHz, and all cores of ``"2 x xeon-gold-6130"`` as one CPU; a clock names no cores.

    >>> ghz, cpu = parse_cpu("2 x xeon-gold-6130")
    >>> ghz, cpu.cores, cpu.threads_per_core
    (2.1, 32, 2)
    >>> parse_cpu("2.4 GHz")
    (2.4, None)
    """
    count, times, name = text.partition(" x ")
    if not times:
        count, name = "1", text
    if not count.strip().isdecimal() or not 1 <= int(count) <= MOST_SOCKETS:
        raise InputError(f"--cpu {text!r}: write a clock, a catalog CPU, or '2 x xeon-gold-6130'")
    ghz = parse_clock(name)
    if name.strip().lower().endswith("hz"):
        return ghz, None
    cpu = cast(CpuProfile, load.load("cpu", name.strip()))
    return ghz, cpu.model_copy(update={"cores": int(count) * cpu.cores})


def parse_clock(text: str) -> float:
    """Return GHz of ``"2.4 GHz"`` or of the catalog CPU *text* (its base frequency)."""
    number, _, unit = text.strip().partition(" ")
    if not unit and number.lower().endswith("ghz"):
        number, unit = number[:-3], "GHz"
    if unit.strip() not in FREQUENCY_HZ:
        return cast(CpuProfile, load.load("cpu", text.strip())).ghz.value
    try:
        ghz = float(number) * FREQUENCY_HZ[unit.strip()] / FREQUENCY_HZ["GHz"]
    except ValueError:
        raise UnitError(f"{text!r} is not a clock; write for example '2.4 GHz'") from None
    low, high = GHZ_RANGE
    if not low <= ghz <= high:
        raise UnitError(f"{text!r} is out of range; a CPU has {low:g} to {high:g} GHz")
    return ghz
