"""Captures as points: what was asked of the drive, and what it answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from nvmesim.calibrate.notes import doubts, named, short_tails
from nvmesim.capture.capture import PURE, Capture, Captures, Latency, Measurement, OpResult
from nvmesim.capture.caveats import LITTLE, UNKNOWN_COLUMN, in_flight, waits_between
from nvmesim.errors import FitError
from nvmesim.units import format_size, parse_size
from nvmesim.warning import has

PERCENTS = (50.0, 99.0, 99.9)
"""Percentiles that a fit looks at."""
BODY = (10.0, 30.0, 70.0, 90.0)
"""Percentiles that a fit of dies looks at besides: at a ceiling they tell a controller's queue,
where all wait alike, from dies', where some wait long and others not at all."""
MIN_BEYOND = 20
"""Samples beyond a percentile for it to count in a fit."""
CPU_BOUND_PCT = 90.0
"""A job that keeps its logical CPU so busy measured itself, not the drive."""


@dataclass(frozen=True, eq=False)
class Bins:
    """A latency distribution: seconds, ascending, and requests at each."""

    at_s: npt.NDArray[np.float64]
    count: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Point:
    """One measured point; times are seconds, None is unknown."""

    label: str
    read_fraction: float
    random: bool
    block_size: int
    jobs: int
    iodepth: int
    iops: float
    mean_s: float | None
    """Mean total latency (slat + clat) if the file has it, else of clat."""
    percentiles_s: Mapping[float, float] = field(default_factory=dict)
    percentiles_of: str = "clat"
    totals_s: Mapping[float, float] = field(default_factory=dict)
    """Percentiles of total latency, if the file has them beside those of clat."""
    body_s: Mapping[float, float] = field(default_factory=dict)
    """The same of `BODY`"""
    total_body_s: Mapping[float, float] = field(default_factory=dict)
    total_bins: Bins | None = None
    slat_s: float | None = None
    """Mean submission time, if the file has it: total latency less clat."""
    cpu_s: float | None = None
    """CPU time per request, all jobs together."""
    per_job_pct: float | None = None
    targets: int = 1
    own_targets: bool = False
    """True if each job has one target of its own; else every job submits to all."""
    bins: Bins | None = None
    """The whole distribution that ``percentiles_s`` is of, where the file has it."""
    count: int = 0
    """Requests it rests on; 0 if the source does not say."""
    is_bounded: bool = False
    """The source does not say jobs or depth: as many in flight are taken as its rate needs"""
    is_stated: bool = False
    """A data sheet's figure: writes are what lasts"""
    noise: float = 0.0
    """Relative standard error of IOPS by its repeats; 0: not known"""
    rate: float | None = None
    """Offered requests/s, by the clock; None: a closed loop of ``jobs`` x ``iodepth``"""
    arrivals: Literal["poisson", "paced"] = "poisson"
    most_outstanding: int | None = None
    """Open loop: requests in flight of all jobs at most; None: not said"""
    rate_limit: float | None = None
    """Closed loop: requests/s of each job at most"""
    sync: str = ""
    """Flush after each write: fsync, fdatasync or sync"""
    raid: str = ""
    """Array of ``targets`` members, as "raid0:524288"; blank: single drives"""
    filesystem: str = "raw"
    guest: str = "none"
    """Virtual machine that the row was measured in"""
    polled: bool = False
    """True if its threads poll for completions"""
    device_times: bool = False
    """True if its latencies are the device's own, without a host"""
    beside: Point | None = None
    """Load that ran at the same time, and is not in these figures"""
    held_out: bool = False
    source: str = ""
    place: str = ""
    """Where in the source it is, as "line 3"."""

    @property
    def where(self) -> str:
        """The source and what was done."""
        at = ", ".join(part for part in (self.source, self.place) if part)
        return f"{at}: {self.name}" if at else self.name

    @property
    def path(self) -> tuple[str, str]:
        """File system and guest."""
        return self.filesystem, self.guest

    @property
    def outstanding(self) -> int:
        """Requests in flight in all."""
        return self.jobs * self.iodepth

    @property
    def depth(self) -> int:
        """Requests in flight at each drive, on average."""
        return max(1, round(self.outstanding / self.targets))

    def with_totals(self) -> Point:
        """Return the point with percentiles of total latency, where the file has them.

        A host that stays in the profile has no submission of its own for clat to leave out. Where
        the file has only clat's, the mean submission time is added: it varies little beside them.
        """
        percentiles, body, bins = self.totals_s, self.total_body_s, self.total_bins
        if not percentiles:
            if not self.slat_s or self.percentiles_of != "clat":
                return self
            percentiles, body = (
                {p: v + self.slat_s for p, v in table.items()}
                for table in (self.percentiles_s, self.body_s)
            )
            bins = None
        return replace(
            self, percentiles_s=percentiles, body_s=body, percentiles_of="lat", bins=bins
        )

    @property
    def is_cpu_bound(self) -> bool:
        """True if a job was as busy as one logical CPU can be."""
        return self.per_job_pct is not None and self.per_job_pct >= CPU_BOUND_PCT

    @property
    def op(self) -> str:
        """Name of the operation, as fio has it.

        >>> Point("", 0.7, True, 4096, 1, 1, 1.0, None).op
        'randrw:70'
        """
        plain = {1.0: "read", 0.0: "write"}
        prefix = "rand" if self.random else ""
        name = plain.get(self.read_fraction) or f"rw:{round(100 * self.read_fraction)}"
        return prefix + name

    @property
    def name(self) -> str:
        """Short description.

        >>> Point("", 1.0, True, 4096, 2, 32, 1.0, None).name
        'randread 4 KiB 2 x 32'
        """
        load = f"{self.jobs} x {self.iodepth}" if self.rate is None else f"{self.rate:,.0f}/s"
        more = [self.sync] if self.sync else []
        if self.raid:
            more.append(f"{self.raid.partition(':')[0]} of {self.targets}")
        if self.filesystem != "raw":
            more.append(f"on {self.filesystem}")
        if self.guest != "none":
            more.append(f"in {self.guest}")
        return " ".join([self.op, format_size(self.block_size), load, *more])


def sources(points: Sequence[Point]) -> str:
    """Where *points* are from, and what they are."""
    files = dict.fromkeys(p.source for p in points if p.source)
    where = [p.name for p in points]
    named = ", ".join(files) if len(files) <= 4 else f"{len(files)} captures"
    return f"{named or 'points'}: {', '.join(where)}"


def points_of(captures: Captures) -> tuple[list[Point], list[str]]:
    """All usable points of *captures*, and what to say of them and of the files.

    Raises FitError if nothing is left.
    """
    points: list[Point] = []
    unused: dict[str, list[str]] = {}
    shallow: list[str] = []
    between: list[str] = []
    for capture in captures.files:
        found = [_point(measurement) for measurement in capture.measurements]
        for measurement, made in zip(capture.measurements, found, strict=True):
            if isinstance(made, str):
                unused.setdefault(made, []).append(capture.file.name)
                continue
            beside = measurement.conditions.beside
            if beside is not None:
                made = replace(made, beside=_named(beside, capture, found))
            points.append(replace(made, source=capture.file.name))
            if made.iodepth != (measurement.conditions.iodepth or made.iodepth) and not made.rate:
                shallow.append(made.name)
            between += [made.name] if waits_between(measurement) else []
    if not points:
        reasons = [f"{names[0]}: {why}" for why, names in unused.items()]
        unread = [w for c in captures.files for w in c.warnings if has([w], UNKNOWN_COLUMN)]
        why = "; ".join([*reasons[:1], *unread[:2]]) or "no capture holds results"
        do = "; a table of points can say it: op,block_size,jobs,iodepth,iops" * ("known" in why)
        raise FitError(f"nothing to fit: {why}{do}")
    # reads, mixes, writes; small before large, shallow before deep
    points.sort(key=lambda p: (-_mix(p), not p.random, p.block_size, p.outstanding, p.jobs))
    points, dropped, unlike = _without_repeats(points)
    said = [f"not used, {why}: {named(names)}" for why, names in unused.items()]
    bounded = [p.name for p in points if p.is_bounded]
    if bounded:
        said.append(
            "jobs or depth not stated: as many in flight are taken as the rate needs, up to "
            f"{DEEPEST}: {named(bounded)}"
        )
    if shallow:
        said.append(
            f"{len(shallow)} of {len(points)} rows had fewer in flight than asked, by IOPS times "
            f"latency, and are fitted so: {named(shallow)}"
        )
    if between:
        said.append(
            "threads spent most of their time between requests (flushes, thinking), so latencies "
            f"tell what these rows do: {named(between)}"
        )
    if unlike:
        said.append(
            "runs with the same load are taken as repeats, and the longest is used; were these of "
            f"one drive in one state? {named(unlike, 6)}"
        )
    if dropped:
        said.append(f"measured more than once, the longest run is used and not: {named(dropped)}")
    counted = [(p.name, p.count) for p in points if p.percentiles_s and p.count]
    said += short_tails(counted, PERCENTS, MIN_BEYOND)
    return points, [*said, *doubts(captures, {p.source for p in points})]


UNLIKE: Final = 1.25
"""Rate in units of the least of its repeats from which on they are doubted. Assumed."""
LISTED: Final = 12
"""Values named when a rule holds none out."""


RULES: Final[Mapping[str, Callable[[Point], tuple[Any, ...]]]] = {
    "QD": lambda p: (p.outstanding,),
    "BS": lambda p: (p.block_size,),
    "OP": lambda p: (p.op, p.op.removeprefix("rand"), p.op.partition(":")[0]),
    "JOBS": lambda p: (p.jobs,),
}
"""Key of a rule -> what it may name a point by, as it is listed first."""


def hold_out(points: Iterable[Point], rules: Iterable[str]) -> list[Point]:
    """Mark the points that a rule such as ``QD=16`` or ``BS=64 KiB`` names as held out.

    Raises FitError for a rule that cannot be read or names no point.

    >>> p = Point("", 1.0, True, 4096, 1, 16, 1.0, None)
    >>> hold_out([p], ["QD=16"])[0].held_out
    True
    """
    marked = list(points)
    for rule in rules:
        key, _, text = (part.strip() for part in rule.partition("="))
        key = key.upper()
        if key not in RULES or (key in ("QD", "JOBS") and not text.isdecimal()):
            raise FitError(
                f"--hold-out {key}={text}: write QD=16, BS='64 KiB', OP=randread or JOBS=4"
            )
        value = text if key == "OP" else parse_size(text) if key == "BS" else int(text)
        hits = [i for i, p in enumerate(marked) if value in RULES[key](p)]
        if not hits:
            known = sorted({RULES[key](p)[0] for p in marked})
            named_by = [f"{key}={format_size(n)!r}" if key == "BS" else f"{key}={n}" for n in known]
            more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
            raise FitError(
                f"--hold-out {rule}: no point matches; there are "
                f"{', '.join(named_by[:LISTED])}{more}"
            )
        for i in hits:
            marked[i] = replace(marked[i], held_out=True)
    return marked


def _point(m: Measurement) -> Point | str:
    c = m.conditions
    if not m.ops:
        return "it does not say what was read and what written"
    if c.block_size is None or not isinstance(c.block_size, int):
        return "no single block size is known"
    iops = sum(r.iops for r in m.ops.values())
    if c.rate_iops is not None and iops > 1.02 * c.rate_iops:
        return "it did more than its rate limit"
    if iops <= 0:
        return "it did no requests"
    asked, mean = _load(m, iops), _mean(m.ops.values())
    if asked is None:
        return "the queue depth is not known"
    jobs, depth = asked
    use = m.cpu
    if mean and waits_between(m):
        iops, use = jobs / mean, None
    rate = c.offered_iops
    if rate is not None and iops < KEPT_UP * rate:
        rate = None  # what is outstanding stands at its limit: a closed loop
    elif rate is not None:
        depth = max(1, round(iops * (mean or LONE_S[True]) / jobs))
    reads = m.ops.get("read")
    fraction = (reads.iops / sum(r.iops for r in m.ops.values())) if reads else 0.0
    mixed = PURE < fraction < 1 - PURE
    result = max(m.ops.values(), key=lambda r: r.count or r.iops)
    percentiles, kind = ({}, "clat") if mixed else _percentiles(result)
    totals = {} if mixed or result.lat is None else _table_percentiles(result.lat)
    shape = None if mixed else result.clat if kind == "clat" else result.lat
    whole = None if mixed else result.lat
    # One request at a time that is waited for by polling takes a whole CPU whatever it costs.
    polled = bool(m.cpu and m.cpu.polled)
    use = None if polled and c.iodepth == 1 else use
    cpu = use.total_pct / 100 / iops if use else None
    per_job = use.per_job_pct if use and not polled else None
    if use and not polled and per_job is None and use.scope == "jobs":
        per_job = use.total_pct / jobs
    lat, clat = (None if table is None else table.mean_s for table in (result.lat, result.clat))
    return Point(
        label=m.label, read_fraction=fraction if mixed else round(fraction),
        random=c.access != "sequential", block_size=c.block_size, jobs=jobs,
        iodepth=depth, is_bounded=None in (c.jobs, c.iodepth) and not mean, place=m.place,
        rate=rate, arrivals="paced" if c.arrivals == "fixed" else "poisson",
        most_outstanding=c.most_outstanding,
        rate_limit=c.rate_iops / jobs if c.rate_iops is not None else None, sync=c.sync or "",
        raid=c.raid or "", filesystem=c.filesystem or "raw", guest=c.guest or "none",
        polled=polled, device_times=c.device_times,
        iops=iops, mean_s=mean,
        percentiles_s=percentiles, percentiles_of=kind, totals_s=totals, cpu_s=cpu,
        slat_s=None if lat is None or clat is None else max(0.0, lat - clat),
        bins=_bins(shape), total_bins=_bins(whole),
        body_s=_table_percentiles(shape, BODY), total_body_s=_table_percentiles(whole, BODY),
        per_job_pct=per_job,
        targets=c.targets or 1, own_targets=c.targets_per_job == 1 and (c.targets or 1) > 1,
        count=sum(r.count for r in m.ops.values()),
    )  # fmt: skip


def _load(m: Measurement, iops: float) -> tuple[int, int] | None:
    """Jobs and depth; of a table's row that does not say them, enough for its rate, and bounded.

    None: a capture of another kind, whose arrivals are not those of a closed loop.
    """
    c = m.conditions
    if c.most_outstanding is not None:
        jobs = c.jobs or 1
        return jobs, max(1, round(c.most_outstanding / jobs))
    if c.jobs is not None and c.iodepth is not None:
        return c.jobs, _kept(m, c.jobs, c.iodepth)
    if not m.place:
        return None
    mean = _mean(m.ops.values())
    reads = "read" in m.ops and m.ops["read"].iops >= iops / 2
    count = math.ceil(iops * mean) if mean else bounded_depth(iops, read=reads)
    if c.jobs is not None:
        return c.jobs, max(1, math.ceil(count / c.jobs))
    if c.iodepth is not None:
        return max(1, math.ceil(count / c.iodepth)), c.iodepth
    return 1, max(1, count)


def _kept(m: Measurement, jobs: int, asked: int) -> int:
    """Depth that threads kept by Little's law, where it is less than what was *asked* of them.

    Rates and latencies are counted, a depth is a wish: macOS has 16 requests of POSIX AIO in flight
    at most. A full thread is another matter, and one request at a time is told by `one_by_one`.
    """
    c, found = m.conditions, in_flight(m)
    is_open = (c.rate_iops, c.offered_iops, c.sync) != (None,) * 3
    is_full = m.cpu is not None and (m.cpu.per_job_pct or 0.0) >= CPU_BOUND_PCT
    if found is None or is_open or is_full or not ONE < found / jobs < (1 - LITTLE) * asked:
        return asked
    return round(found / jobs)


def _named(
    beside: str, capture: Capture, found: Sequence[Point | str]
) -> Point | None:  # fmt: skip
    """Load of the measurement of *capture* that is called *beside*, by its label or line."""
    for measurement, made in zip(capture.measurements, found, strict=True):
        if beside in (measurement.label, measurement.place) and isinstance(made, Point):
            return made
    raise FitError(
        f"{capture.file.name}: no usable row is called {beside!r}; give that row this name in a "
        "column 'name', or write its line, as 'line 3'"
    )


ONE: Final = 1.5
"""Requests in flight of a thread up to which it waits for each."""
KEPT_UP: Final = 0.97
"""Share of an offered rate that is done, below which the load is taken to be at its limit."""
LONE_S: Final = {True: 80e-6, False: 15e-6}
"""Latency of a lone 4 KiB read, and write, of a drive whose rows do not tell it. Assumed: data
sheets of NAND drives say 60 to 115 us for reads and 8 to 35 us for writes."""
FLASH_S: Final = 45e-6
"""Time that flash takes alone, at least: a lone read that is faster is of phase change (10 us), a
row of many in flight that is has waited. Source: data sheets of TLC and of phase change drives."""
DEEPEST: Final = 1024
"""Requests in flight that an unknown depth is taken to be at most."""


def bounded_depth(iops: float, *, read: bool) -> int:
    """Requests in flight of a row that does not say: enough for its rate, and bounded.

    Three times what Little's law asks of a lone request's latency, as a power of two.

    >>> bounded_depth(894e3, read=True), bounded_depth(200e3, read=False)
    (256, 64)
    """
    least = max(iops * LONE_S[read], 1.0)
    return int(min(DEEPEST, max(64, 2 ** math.ceil(math.log2(3 * least)))))


def _mean(results: Iterable[OpResult]) -> float | None:
    """Mean latency over both operations, weighted by their rates."""
    total = weight = 0.0
    for r in results:
        means = [t.mean_s for t in (r.lat, r.clat) if t is not None and t.mean_s is not None]
        if means:
            total += means[0] * r.iops
            weight += r.iops
    return total / weight if weight else None


def _percentiles(result: OpResult) -> tuple[dict[float, float], str]:
    for kind, table in (("clat", result.clat), ("lat", result.lat)):
        if found := _table_percentiles(table):
            return found, kind
    return {}, "clat"


def _bins(table: Latency | None) -> Bins | None:
    if table is None or table.bin_s is None or table.bin_count is None or not len(table.bin_s):
        return None
    return Bins(table.bin_s, table.bin_count)


def _table_percentiles(
    table: Latency | None, percents: Sequence[float] = PERCENTS
) -> dict[float, float]:
    """Percentiles with enough samples beyond them; from bins where the file has them."""
    if table is None:
        return {}
    enough = [
        p for p in percents if not table.count or table.count * min(p, 100 - p) / 100 >= MIN_BEYOND
    ]
    if bins := _bins(table):
        cumulative = np.cumsum(bins.count)
        ranks = {p: np.ceil(p / 100 * cumulative[-1]) for p in enough}
        return {p: float(bins.at_s[np.searchsorted(cumulative, r)]) for p, r in ranks.items()}
    return {p: float(table.percentiles_s[p]) for p in enough if p in table.percentiles_s}


def _without_repeats(points: list[Point]) -> tuple[list[Point], list[str], list[str]]:
    """Keep the longest run of each point: single-request runs repeat the conditions of others.

    Returns the kept points, the sources of the others, and what repeats each other too badly.
    """
    same: dict[tuple[object, ...], list[Point]] = {}
    for p in points:
        key = (
            _mix(p), p.random, p.block_size, p.jobs, p.iodepth, p.targets, p.rate, p.sync, p.raid,
            p.path, p.polled, p.beside and (p.beside.rate, p.beside.name),
        )  # fmt: skip
        same.setdefault(key, []).append(p)
    kept = [_of_repeats(group) for group in same.values()]
    used = {p.source for p in kept}
    rates = ((p, sorted(q.iops for q in group))
             for p, group in zip(kept, same.values(), strict=True))  # fmt: skip
    unlike = [f"{p.name} ({len(of)} runs, {of[0]:,.0f} to {of[-1]:,.0f} IOPS)"
              for p, of in rates if of[-1] > UNLIKE * of[0]]  # fmt: skip
    return kept, [p.source for p in points if p.source not in used], unlike


def _of_repeats(group: list[Point]) -> Point:
    """The longest run, or of runs of one length the middle one; repeats give the noise."""
    longest = max(p.count for p in group)
    alike = sorted((p for p in group if p.count == longest), key=lambda p: p.iops)
    noise = float(np.std(np.log([p.iops for p in group]), ddof=1)) if len(group) > 1 else 0.0
    return replace(alike[len(alike) // 2], noise=noise)


def _mix(point: Point) -> int:
    """Share of reads in steps of 5 %: a 70/30 run measures 69.9 or 70.2 % each time."""
    return round(20 * point.read_fraction)
