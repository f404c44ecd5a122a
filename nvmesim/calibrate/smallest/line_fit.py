"""Fit the smallest drive that meets rows of one operation: a latency, a bandwidth, perhaps a cap.

What no row shows stays open: a ceiling beyond the rows is drawn from all that they leave possible,
and a prediction beyond them is as wide as that.

A bank of dies behind a controller has more numbers than rows of a few sizes and depths determine.
Such a line is tried beside it, for reads and for writes, and wins unless the larger model explains
the rows better by more than its numbers cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.datasheet import Expected
from nvmesim.calibrate.drive import laws, open_ceilings
from nvmesim.calibrate.drive.batch_service import served_in_rounds
from nvmesim.calibrate.drive.explanations import LEAST, Explanation
from nvmesim.calibrate.drive.gate import MISS
from nvmesim.calibrate.drive.large_reads import LONE_MOVES
from nvmesim.calibrate.drive.read_side import BEYOND, Progress, host_ps
from nvmesim.calibrate.drive.starting_point import SHEET_KEYS, SLOWEST_FLASH_S, fit_stream
from nvmesim.calibrate.drive.write_side import with_writes
from nvmesim.calibrate.evidence import Ceiling, Side, with_draws
from nvmesim.calibrate.infer.optimum import scattered, solved
from nvmesim.calibrate.infer.problem import Parameter
from nvmesim.calibrate.points import LONE_S, Point, sources
from nvmesim.calibrate.smallest.line import (
    GAIN,
    LEAST_ERROR,
    Line,
    are_lone_reads,
    as_closed_loop,
    evidence,
    line_of,
    parts_of,
    unidentified_latency_s,
)
from nvmesim.catalog.links import parse_link
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile, Quantity, Rounds
from nvmesim.catalog.quantity import with_numbers
from nvmesim.predict.uncertainty.numbers import Z95

OPEN, OPEN_SD = 4.0, 0.85
"""A ceiling that no row shows, in units of the highest rate in the rows, and the standard deviation
of its logarithm: 95 % of it is below 20 times. Assumed."""
NEARER: Final = 2.0
"""The same where the rows are `PARALLEL` in flight or more, and grew all the way. Assumed."""
PARALLEL: Final = 4
READS_AT_ONCE: Final = 36.0
"""Most small reads/s of flash behind PCIe, in units of what one in flight does. Source: 48 sources
of `calibration/held-out`, of which depth or threads ended 21 (6 to 147, median 36, 0.92); data
sheets of six drives of 2021 to 2023 say 70 to 110."""
OF_LINK: Final = {True: 0.89, False: 0.51}
"""Share of its link that a drive reads (true) and writes (false) at. Source: medians of data sheets
of 38 drives of Gen3 to Gen5, 0.41 to 0.95, and of 35, 0.19 to 0.89."""
DIE_SHARE: Final = 0.5
"""Of the latency, what a die takes, which nothing tells. Assumed."""
MEDIA_S: Final = 30e-6
"""Latency of a lone small read below which the media is not flash, or does not answer: then a
sequential reader finds nothing read ahead. Source: flash reads take 45 us and more (data sheets of
TLC drives, 60 to 115 us with the way); phase change 7 to 10 us."""
CHANNEL_PS: Final = 1e3
APART: Final = 64
"""Channels of a drive of which lone requests tell how long their bytes take, and not how many
requests' bytes move at once. Assumed: enough that its bandwidth limits first."""
DIES: Final = 128
"""Dies of a drive that shows none: enough that two requests hardly meet."""
MOST_DIES: Final = 1024
"""Dies of a bank that is tried as few: of deep rows alone a latency would ask for ten thousands."""
DRAIN: Final = 1.3
"""Bytes/s that a write buffer drains at least, in units of the rows': what they wait for must
be the bandwidth that is fitted to them. Assumed: the drain is busy for three quarters of a row."""
MISSED: Final = (math.log1p(MISS) / LEAST_ERROR) ** 2
"""Cost of a line that misses a row."""
Kind = Literal["plain", "cap", "bank", "batch"]
KEYS: Final[dict[tuple[str, Kind], dict[str, tuple[str, ...]]]] = {
    **{("reads", kind): {
        "latency": ("read.base", "read.die"), "bandwidth": ("read_bandwidth",),
        "rate": ("commands",), "transfer": ("read.channel",),
    } for kind in ("plain", "cap")},
    ("reads", "bank"): {
        "latency": ("read.base", "read.die"), "bandwidth": ("read_bandwidth",), "rate": ("dies",),
    },
    ("writes", "plain"): {
        "latency": ("write.base",), "bandwidth": ("write_bandwidth",), "rate": ("write.program",),
    },
    ("writes", "cap"): {
        "latency": ("write.base",), "bandwidth": ("write_bandwidth",), "rate": ("write.commands",),
    },
    ("reads", "batch"): {
        "latency": ("rounds.base",), "bandwidth": ("read_bandwidth",), "each": ("rounds.read",),
    },
    ("writes", "batch"): {"latency": ("rounds.base",), "bandwidth": ("write_bandwidth",)},
}  # fmt: skip
"""Numbers of the profile that each number of a line sets, by operation and kind."""
SAID: Final[dict[Kind, str]] = {
    "plain": "a latency and a bandwidth", "cap": "a latency, a bandwidth and a cap on requests",
    "bank": "a latency, a bandwidth and few dies",
    "batch": "batches of all that is queued, and a bandwidth,",
}  # fmt: skip
EACH_PS: Final = 1e6
"""What each request adds to a batch besides its bytes, where rows tell no more than a batch's own
time. Assumed: 1 us."""
CEILING: Final[dict[Kind, Ceiling]] = {"bank": "dies", "cap": "controller"}
"""What a ceiling of reads is of."""
LIKELY: Final[dict[Kind, float]] = {"bank": 0.6, "cap": 0.4, "batch": 0.2}
"""Weights of ceilings of reads before the rows are looked at: as `explanations.PRIOR`, and batches
as writes without a buffer there."""


def fit_line(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress, *,
    batches: bool = False,
) -> list[tuple[Side, float]]:  # fmt: skip
    """The best line for *points*, all of one operation, and others as likely, with weights.

    *batches*: batch service may be tried. Costs are -2 log likelihood + k log n. A row that waited
    shows that something was full, and one of more depth that does no more shows a cap. Without that
    the next row may as well do more, as with dies that meet by chance: both are carried.
    """
    points = [as_closed_loop(p) for p in points]
    line = line_of(points)
    stated = host.sheet.get("random_read" if points[0].read_fraction > 0 else "random_write")
    # a data sheet's rate is of small requests: a cap on large ones below it is one on bytes
    is_capped = math.isfinite(line.cap) and not (stated and line.cap < stated.value / 2)
    usual_s = unidentified_latency_s(points, host)
    waits = usual_s > 0 and line.latency > laws.SLOWEST_REMOTE_S
    is_read = points[0].read_fraction > 0
    kinds: list[Kind] = ["cap" if is_capped or waits else "plain"]
    if is_capped and batches:  # a batch has fewer numbers than a cap
        kinds.insert(0, "batch")
    if is_capped and is_read:
        kinds.append("bank")
    tried = [_fitted(template, host, points, line, kind, tell) for kind in kinds]
    if "plain" in kinds and tried[0].cost > MISSED and usual_s:
        tried.append(_fitted(template, host, points, line, "cap", tell))  # what they wait for
    least = min(side.cost for side in tried)
    if not (is_capped and is_read):  # the first that is about as good as any
        return [(next(side for side in tried if side.cost <= least + GAIN), 1.0)]
    likely = [LIKELY[kind] * math.exp((least - side.cost) / 2)
              for kind, side in zip(kinds, tried, strict=True)]  # fmt: skip
    found = sorted(zip(tried, likely, strict=True), key=lambda pair: -pair[1])
    return [(side, w / sum(likely)) for side, w in found if w >= LEAST * sum(likely)]


NEAR_ALL: Final = 0.8
"""Share of the bytes/s of a stream, or of what drives read of their link, from which on large
random reads are taken to be limited by bytes. Assumed."""
LARGE: Final = 128 << 10
"""Bytes of a random read from which on it is limited by bytes in any case: its pages are on as many
dies as a stream's."""
LASTING: Final = 0.05
"""Small random writes/s, as a share of the bytes of the link, from which on they are taken to be
limited by nothing but bytes: half of what data sheets let last (0.10). Assumed: caches and fresh
flash are no slower for small writes."""
BESIDE_LINK: Final = 1.1
"""Bandwidth of a drive whose rows its link stopped, in units of theirs. Assumed: drives are built
for their links."""


def fit_bytes(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], stream: float | None
) -> Side | None:
    """Fit a bandwidth to large random reads that move all that there is; None if they do not.

    *stream*: bytes/s of sequential rows. What small reads do is not told by such rows: latency and
    ceiling are as flash behind PCIe has them.
    """
    moved = max(p.iops * p.block_size / p.targets for p in points)
    least = stream or OF_LINK[True] * host.link.raw_bytes_per_s
    size = max(p.block_size for p in points)
    is_waiting = max(p.outstanding for p in points) > laws.SHALLOW
    is_less = size < LARGE and moved < NEAR_ALL * least
    if host.link.kind != "pcie" or is_less or not is_waiting:
        return None
    lone, sd = host.sheet.get("read_latency", Expected(LONE_S[True], laws.LONE_DOUBT[True]))
    latency = Parameter("latency", 1e12 * lone, 2e11 * lone, 5e12 * lone, prior_sd=sd, told=False)
    top, rate_sd = READS_AT_ONCE / LONE_S[True], OPEN_SD
    if stated := host.sheet.get("random_read"):
        top, rate_sd = open_ceilings.open_ceiling(host.link, size, 1.0, read=True, stated=stated)
    rate = Parameter("rate", top, top / 16, 16 * top, prior_sd=rate_sd, told=False)
    profile = fit_stream(template, host, points, "read_bandwidth", sources(points))
    if profile.read_bandwidth.value > BESIDE_LINK * moved:  # the link stopped the rows
        width = template.read_bandwidth.model_copy(update={"value": BESIDE_LINK * moved})
        profile = template.model_copy(update={"read_bandwidth": width})
    drives = [
        dict(quantities(_with_reads(profile, at["latency"], at["rate"], size, None)))
        for at in scattered([latency, rate])
    ]
    keys = ("read.base", "read.die", "commands")
    columns = {key: np.array([d[key].value for d in drives]) for key in keys}
    profile = _with_reads(profile, 1e12 * lone, top, size, None)
    wanted = dict.fromkeys(keys, "reads of 4 KiB at depth 1, and at a depth where IOPS stay")
    note = "reads: as many bytes as there are; no row tells how long a small one takes"
    profile = with_draws(profile, columns, sources(points), keys)
    return Side(profile, columns, unidentified=wanted, notes=(note,))


def _fitted(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], line: Line, kind: Kind,
    tell: Progress,
) -> Side:  # fmt: skip
    op = "reads" if points[0].read_fraction else "writes"
    tell(f"{op}: a latency and a bandwidth, {kind}")
    parameters = _parameters(host, points, line, kind)
    make = _maker(template, points, kind)
    fit = solved(points, host, make, parameters, effort=0.5, shape=False)
    problem = fit.problem
    figures = problem.simulate(fit.optimum.values, 1, 1.0)
    off = (figures - problem.measured)[np.unique(problem.run, return_index=True)[1]]
    drives = [dict(quantities(make(at))) for at in fit.draws]
    ordered = sorted(parameters, key=lambda p: not p.told)
    keys = {key: p for p in ordered for key in KEYS[op, kind][p.name]}
    if "write.program" in keys and _lasts(template, points):
        keys["write.commands"] = keys.pop("write.program")
    columns = {key: np.array([d[key].value for d in drives]) for key in keys}
    open_keys = [key for key, p in keys.items() if not p.told]
    profile = with_draws(make(fit.best), columns, sources(points), open_keys)
    count = len(problem.coordinates)
    return Side(
        profile, columns, evidence(off.tolist(), count),
        unidentified=dict.fromkeys(open_keys, f"{op} at a depth where IOPS no longer grow"),
        notes=(f"{op}: {SAID[kind]} explain the rows with {count} numbers",),
        ceiling=CEILING.get(kind) if op == "reads" else None,
    )  # fmt: skip


def _parameters(
    host: BenchHost, points: Sequence[Point], line: Line, kind: Kind
) -> list[Parameter]:
    """Numbers of the line; *line* says which of them the rows determine."""
    top = max(p.iops / p.targets * parts_of(p) for p in points)
    moved = max(p.iops * p.block_size / p.targets for p in points)
    lone = max(line.latency * 1e12 - host_ps(host), 0.05 * line.latency * 1e12, 0.3e6)
    if kind == "batch":
        lone = 0.8e12 * min(p.outstanding / p.iops for p in points)
    found = [Parameter("latency", lone, low=lone / 20, high=4 * lone)]
    is_read, sd = points[0].read_fraction > 0, laws.LONE_DOUBT[False]
    if kind != "batch" and (usual_ps := 1e12 * unidentified_latency_s(points, host)):
        found = [Parameter("latency", usual_ps, usual_ps / 20, 4 * lone, prior_sd=sd)]
    if len({p.block_size for p in points}) > 1:
        beyond, beyond_sd = OPEN * moved, OPEN_SD
        if stated := host.sheet.get(SHEET_KEYS[is_read]):
            beyond, beyond_sd = open_ceilings.open_bandwidth(
                host.link, moved, read=is_read, stated=stated
            )
        elif host.link.kind == "pcie":
            of_link = max(1.05 * moved, OF_LINK[is_read] * host.link.raw_bytes_per_s)
            beyond = of_link if is_read else min(beyond, of_link)
        is_told = math.isfinite(line.bandwidth)
        width = max(line.bandwidth if is_told else beyond, 1.005 * moved)
        bandwidth = Parameter("bandwidth", width, low=0.9 * moved, high=30 * moved)
        if not is_told:
            bandwidth = replace(bandwidth, low=1.02 * moved, prior_sd=beyond_sd, told=False)
        elif _is_lone_flash(points):
            each = 4096 / line.bandwidth * 1e12
            found.append(Parameter("transfer", each, low=each / 10, high=4 * each))
            if min(p.block_size for p in points) >= LARGE:
                beyond = min(beyond, LONE_MOVES * line.bandwidth)
            start = max(beyond, 1.05 * moved)
            bandwidth = Parameter(
                "bandwidth", start, 1.02 * moved, 4 * start, prior_sd=beyond_sd, told=False
            )
        found.append(bandwidth)
    elif kind == "batch" and is_read:  # a time of a batch, and as much more as the rate grows less
        each = 1e12 / top
        found[0] = replace(found[0], start=max(lone - each, lone / 4))
        found.append(Parameter("each", each / 2, low=EACH_PS / 10, high=each))
    if kind in ("cap", "bank"):
        cap = line.cap if math.isfinite(line.cap) else top
        found.append(Parameter("rate", max(cap, 1.01 * top), low=top / 1.3, high=30 * top))
    elif kind == "plain":
        beyond, sd = _open_rate(points, host, top, line.bandwidth)
        found.append(Parameter("rate", beyond, 1.02 * top, 16 * beyond, prior_sd=sd, told=False))
    return found


def _is_lone_flash(points: Sequence[Point]) -> bool:
    """True if *points* are reads of flash, one at a time: their bytes move apart from others'."""
    lone = min(p.outstanding / p.iops for p in points)
    return are_lone_reads(points, laws.SHALLOW) and MEDIA_S < lone < SLOWEST_FLASH_S


def _open_rate(
    points: Sequence[Point], host: BenchHost, top: float, width: float
) -> tuple[float, float]:
    """Requests/s of a ceiling above *top*, the highest that the rows show of a drive, and its sd.

    *width*: bytes/s that the rows tell, or inf.
    """
    lone = min(p.outstanding / p.iops for p in points)
    is_write, size = points[0].read_fraction == 0, min(p.block_size for p in points)
    stated = host.sheet.get("random_write" if is_write else "random_read")
    if (host.link.kind == "sata" and lone < SLOWEST_FLASH_S) or (stated and not is_write):
        return open_ceilings.open_ceiling(host.link, size, top, read=not is_write, stated=stated)
    if host.link.kind == "pcie" and is_write:
        moved = width / size if math.isfinite(width) else None
        if moved is None and "sequential_write" in host.sheet:
            moved = host.sheet["sequential_write"].value / size
        found, sd = open_ceilings.open_writes(host.link, size, top, moved, stated=stated)
        if moved or stated:
            return found, sd
        return max(found, NEARER * top), OPEN_SD
    if host.link.kind == "pcie" and MEDIA_S < lone < SLOWEST_FLASH_S:
        return max(NEARER * top, min(READS_AT_ONCE, laws.reads_at_once(points)) / lone), OPEN_SD
    least = NEARER if max(p.outstanding / p.targets for p in points) >= PARALLEL else OPEN
    return least * top, OPEN_SD


def _lasts(template: DriveProfile, points: Sequence[Point]) -> bool:
    """True if small writes may have a limit of their own, far below what large ones move."""
    link, small = parse_link(template.link), min(p.block_size for p in points)
    if link.kind != "pcie" or small == max(p.block_size for p in points):
        return False
    top = max(p.iops / p.targets * parts_of(p) for p in points if p.block_size == small)
    return top < LASTING * link.raw_bytes_per_s / small


def _maker(
    template: DriveProfile, points: Sequence[Point], kind: Kind
) -> Callable[[Mapping[str, float]], DriveProfile]:
    is_read = points[0].read_fraction > 0
    small, large = (f(p.block_size for p in points) for f in (min, max))
    is_capped = kind == "cap" or _lasts(template, points)
    busiest = max(p.iops * p.block_size / p.targets for p in points)

    def made(at: Mapping[str, float]) -> DriveProfile:
        key = "read_bandwidth" if is_read else "write_bandwidth"
        profile = template
        if "bandwidth" in at:
            profile = with_numbers(profile, {key: at["bandwidth"]})
        if kind == "batch":
            return _in_batches(profile, at["latency"], at.get("each", EACH_PS), is_read)
        if kind == "bank":
            # few dies are no reason for a large read to take them all
            return _with_few_dies(profile, at["latency"], at["rate"], max(large, LARGE))
        if is_read:
            return _with_reads(profile, at["latency"], at["rate"], large, at.get("transfer"))
        profile = with_numbers(profile, {"write.unit": small})
        limit: Literal["drain", "controller"] = "controller" if is_capped else "drain"
        rate = at["rate"] if is_capped else max(at["rate"], DRAIN * busiest / small)
        drive = with_writes(profile, at["latency"], 0.15, rate, limit)
        if is_capped:  # the drain of its programs must not limit bytes either
            drain = max(20 * at["rate"], OPEN * busiest / small)
            drive = with_numbers(drive, {"write.program": drive.dies.value / drain * 1e12})
        return drive

    return made


def _with_reads(
    template: DriveProfile, latency_ps: float, rate: float, unit: int, transfer: float | None
) -> DriveProfile:
    """*template* with reads of up to *unit* bytes on one die each, none of which is ever full.

    *transfer*: ps that 4 KiB of a lone request take on a channel of its own.
    """
    dies = max(DIES, 2 ** math.ceil(math.log2(2 * rate * DIE_SHARE * latency_ps / 1e12)))
    return with_numbers(template, {
        "dies": dies, "channels": APART if transfer else 8, "commands": rate,
        "read.base": (1 - DIE_SHARE) * latency_ps, "read.die": DIE_SHARE * latency_ps,
        "read.die_cv": 0.1, "read.unit": max(4096, unit), "read.channel": transfer or CHANNEL_PS,
        "read.engines": None, "read.serial": None,
        "read.large": template.read.large if unit <= 4096 else None,
        "read.ahead": template.read.ahead and latency_ps / 1e12 > MEDIA_S,
    })  # fmt: skip


def _with_few_dies(template: DriveProfile, latency_ps: float, rate: float,
                   unit: int) -> DriveProfile:  # fmt: skip
    """*template* with reads that are slower the more of them meet at its dies, up to *rate* a s."""
    drive = _with_reads(template, latency_ps, BEYOND * rate, unit, None)
    dies = min(max(1, round(laws.LIKELY_SHARE * latency_ps * rate / 1e12)), MOST_DIES)
    die = min(dies / rate * 1e12, 0.99 * latency_ps)
    return with_numbers(drive, {"dies": dies, "read.die": die, "read.base": latency_ps - die})


def _in_batches(
    template: DriveProfile, base_ps: float, each_ps: float, is_read: bool
) -> DriveProfile:
    each = Quantity(value=each_ps)
    said = each.model_copy(update={"source": "as the operation that was measured"})
    read, write = (each, said) if is_read else (said, each)
    rounds = Rounds(base=Quantity(value=base_ps), read=read, write=write)
    return served_in_rounds(template, rounds)


# -- instead of a larger drive -------------------------------------------------------------------

REQUESTS: Final = 12_000
LARGE_NUMBERS: Final = 2
"""Numbers of large reads: data engines and the time of a unit."""


def smaller(
    best: Explanation, host: BenchHost, reads: Sequence[Point], writes: Sequence[Point],
    rest: Sequence[Sequence[Point]], tell: Progress,
) -> list[tuple[Explanation, float]]:  # fmt: skip
    """*best*, or what explains *reads* and *writes* with fewer numbers, and the *rest* no worse.

    With others that are as likely, and weights.
    """
    likely = [(best, 1.0)]
    for points, others in ((reads, writes), (writes, reads)):
        loads = {(p.block_size, p.jobs, p.iodepth, p.targets) for p in points}
        if len(loads) < 2 or best.profile.rounds is not None:
            continue
        off = [_off(best.profile, host, p) for p in points]
        missed = [x for p, x in zip(points, off, strict=True) if not _is_full(p, x, host)]
        if not _is_asked(points, missed):
            continue
        lines = fit_line(best.profile, host, points, tell, batches=not others)
        least = min(side.cost for side, _ in lines)
        if evidence(off, _numbers(best, points)) <= least - GAIN:  # it earns its numbers
            continue
        made = [(_adopted(e, side, is_read=points is reads), w * share)
                for e, w in likely for side, share in lines]  # fmt: skip
        worse = [_off_all(made[0][0].profile, host, p) - _off_all(best.profile, host, p)
                 for p in rest]  # fmt: skip
        if max(worse) <= MISS:
            likely, best = made, made[0][0]
    return likely


def _is_full(point: Point, off: float, host: BenchHost) -> bool:
    """True if a full thread explains *point*, *off* as its *host* may be: it shows no ceiling."""
    return point.is_cpu_bound and abs(off) < Z95 * host.clock_sd


def _off(profile: DriveProfile, host: BenchHost, point: Point) -> float:
    """Logarithm of model over measured: of IOPS, or of the mean where the rate is offered."""
    answer = measure(profile, host, point, requests=REQUESTS)
    if point.rate is not None and point.mean_s:
        return math.log(answer.mean_s / point.mean_s)
    return math.log(answer.iops / point.iops)


def _off_all(profile: DriveProfile, host: BenchHost, mixes: Sequence[Point]) -> float:
    """Mean of how far *mixes* are off, logarithms; 0 without any."""
    return sum(abs(_off(profile, host, p)) for p in mixes) / max(1, len(mixes))


def _is_asked(points: Sequence[Point], off: Sequence[float]) -> bool:
    """True if a smaller model may do better: rows are missed, or sizes tell a bandwidth.

    Of reads only where the media cannot be flash: flash is a bank of dies, whatever few rows say.
    """
    if max(map(abs, off), default=0.0) > math.log1p(MISS):
        return True
    if len({p.block_size for p in points}) < 2:
        return False
    lone = min(p.outstanding / p.iops for p in points)
    return points[0].read_fraction == 0 or lone < MEDIA_S


def _numbers(best: Explanation, points: Sequence[Point]) -> int:
    """How many numbers of *best* are fitted to rows such as *points*."""
    if points[0].read_fraction == 0:
        return len(best.writes.told) if best.writes is not None else 1
    large = LARGE_NUMBERS if best.profile.read.engines is not None else 0
    return large + (len(best.reads.told) if best.reads is not None else 1)


def _adopted(best: Explanation, found: Side, *, is_read: bool) -> Explanation:
    """*best* with one side as *found*."""
    side = ("read", "dies", "commands") if is_read else ("write",)
    kept = {k: v for k, v in best.joint.items() if k.partition(".")[0] not in side}
    unidentified = {k: v for k, v in best.unidentified.items() if k.partition(".")[0] not in side}
    if is_read:  # the same drain from another number of dies
        ratio = found.profile.dies.value / best.profile.dies.value
        program = found.profile.write.program
        scaled = {k: v * ratio for k in ("value", "low", "high")
                  if (v := getattr(program, k)) is not None}  # fmt: skip
        program = program.model_copy(update=scaled)
        found = replace(found, profile=with_numbers(found.profile, {"write.program": program}))
        kept = {k: v * ratio if k == "write.program" else v for k, v in kept.items()}
    length = len(next(iter(found.columns.values())))
    kept = {k: np.resize(v, length) for k, v in kept.items()}
    rest = replace(best, joint=kept, unidentified=unidentified)
    own: dict[str, Any] = {"ceiling": found.ceiling, "reads": None} if is_read else {
        "limit": None, "writes": None,
    }  # fmt: skip
    return replace(rest.having(found, **own), cost=best.cost)
