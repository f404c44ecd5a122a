"""Fit what larger reads take: bytes alone, or data engines that move units one after the other."""

import math
from collections.abc import Sequence
from typing import Final, Literal

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.datasheet import Expected
from nvmesim.calibrate.drive.explanations import MODEL_ERROR
from nvmesim.calibrate.drive.laws import ALONE, SHALLOW
from nvmesim.calibrate.drive.read_side import Progress
from nvmesim.calibrate.drive.starting_point import FEW_BYTES, FEW_REQUESTS, likely
from nvmesim.calibrate.evidence import with_span
from nvmesim.calibrate.infer.optimum import Solution, Values, intervals, misfit, solve, solved
from nvmesim.calibrate.infer.problem import Parameter
from nvmesim.calibrate.points import LONE_S, Point, sources
from nvmesim.catalog.links import command_ceiling
from nvmesim.catalog.profile import DriveProfile, Quantity
from nvmesim.catalog.quantity import with_numbers

REQUESTS = 6_250
"""Of one candidate: rates hardly scatter."""
ENGINES = (1, 2, 3, 4, 5, 6)
LONE_ENGINES: Final = 64
"""Where rows say nothing of how many engines there are: so many that they cap nothing. Assumed."""
NOT_WORSE = 1.92
"""Half of a chi-square of one degree, 95 %: a number of engines so little worse may be right."""
EARNED: Final = 2 * NOT_WORSE * MODEL_ERROR**2
"""What data engines, two numbers, must explain more than bytes alone."""
LONE_ERROR: Final = 0.15
"""Standard error of the logarithm of what pages and bytes make of one large read at a time. Source:
seven drives of `calibration/held-out` move 1.0 to 1.6 times the bytes that their lone reads tell so
(P02, R22, S02, S10, S11, S12, S15)."""
LONE_MOVES: Final = 1.26
"""Bytes/s of a drive in units of what two sizes of its lone reads tell: the middle of those."""
ROOMY: Final = 1.5
"""So much more than commands or bytes need, channels do together: they are no ceiling."""
CHANNEL_PS: Final = 5e6
"""Channel time of 4 KiB that a fit begins with. Found: a lone read of 16 KiB takes 12 to 44 us more
than one of 4 KiB (`calibration/held-out`: R22, S12, S17, U02, U07, U08)."""
BELOW: Final = 0.97
"""Of what the link carries, from which a search for a bandwidth begins: there rows feel it."""
FULL, FASTER = 0.9, 1.03
"""Of `BELOW`, and of its rate, up to which a row may be the link's. Assumed: rows err so."""
LEAST_SD: Final = 0.02
"""Standard deviation of the logarithm of a bandwidth that sequential rows told, at least: random
reads of large blocks seldom move just as many bytes. Assumed."""
SERIAL: Final = Quantity(
    value=0.8,
    low=0.3,
    high=1.0,
    basis="assumed",
    source="saturated random reads of 4 to 128 KiB of six drives",
)
"""`read.serial` where no row tells it. Source: of six drives that were read at depth by size, three
take as long as commands and bytes do together (U07, U08, S16 of `calibration/held-out`), two
between that and the longer of the two (V02-6, R15), and a cloud's volume the longer (R22)."""
SERIAL_SD: Final = 0.4
"""Standard deviation of its logarithm beforehand, where rows tell it. Assumed."""
LARGE_SHARE: Final = 0.7
"""`read.large` where no row tells it, in lone reads of 4 KiB. Source: reads of 64 KiB and more of
ten drives take 0.16 to 1.7 of such a read more than that and their bytes (R22, S11, S12, S17, U02,
U07, W01, W07, Y04, B07 of `calibration/held-out`)."""
LARGE_SD: Final = 0.8
"""Standard deviation of its logarithm, of the same drives."""
OF_LONE: Final = Expected(1.6, 0.35)
"""Bytes/s of a drive, in units of those of a lone read of 1 MiB and more after a usual latency.
Source: four drives move 1.25 to 2.3 times as many (S10, S15, E03, R125 of `calibration/held-out`).
"""
MIDDLE: Final = 1 << 16
"""Bytes of the largest reads that tell it: larger ones hardly feel a command."""


def with_larger_reads(profile: DriveProfile, host: BenchHost) -> DriveProfile:
    """*profile* with what larger reads usually take, if it is a drive behind a link of its own."""
    if host.link.kind not in ("pcie", "sata") or profile.limits or profile.rounds:
        return profile
    own = profile.host_submit.value if profile.host_submit else 0.0
    large = LARGE_SHARE * (profile.read.base.value + profile.read.die.value - own)
    factor = math.exp(1.96 * LARGE_SD)
    numbers = {"read.large": Quantity(
        value=large, low=large / factor, high=large * factor, basis="assumed",
        source="lone reads of 4 KiB to 256 KiB of ten drives",
    )}  # fmt: skip
    if host.link.kind == "pcie":
        numbers["read.serial"] = SERIAL
    return with_numbers(profile, numbers)


def with_bytes_of_lone(profile: DriveProfile, points: Sequence[Point]) -> DriveProfile:
    """*profile* that moves about as much as large reads *points*, one at a time, tell it can.

    Nothing that sequential rows or a data sheet tell is changed.
    """
    profile = with_numbers(profile, {"read.channel": CHANNEL_PS / 10})
    if profile.read_bandwidth.basis != "assumed":
        return profile
    p = max(points, key=lambda p: p.iops * p.block_size / p.targets)
    took = p.outstanding / p.iops
    told = OF_LONE.value * p.block_size / max(took - LONE_S[True], took / 2)
    told = min(profile.read_bandwidth.value, told)
    return with_numbers(profile, {"read_bandwidth": likely(told, OF_LONE.sd, "assumed")})


def fit_large_reads(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress
) -> tuple[DriveProfile, list[str]]:
    """Fit large random reads on *points* after the 4 KiB side; return names of what was fitted.

    Pages on dies of their own and a bandwidth are the smaller model. It is kept unless data engines
    earn their two numbers. One request at a time tells the bandwidth roughly; what it takes besides
    is given to the engines.
    """
    tell("large reads: bytes")
    pages = [p for p in points if _tells_page(profile, p)]
    if len(pages) == len(points) and profile.read.large is not None:
        return _with_page(profile, host, pages, "read.large"), ["read large"]
    profile = with_numbers(profile, {"read.large": None})  # larger rows tell it with their bytes
    if pages:
        profile = _with_page(profile, host, pages, "read.channel")
        points = [p for p in points if p not in pages]
        if not points:
            return profile, ["read channel"]
    # Rows that wait for no other take about what pages and bytes take alone.
    lone_s = (profile.read.base.value + profile.read.die.value) / 1e12
    rate = profile.read_bandwidth.value
    is_lone = all(
        p.outstanding <= SHALLOW * p.targets
        or p.outstanding / p.iops <= ALONE * (lone_s + p.block_size / rate)
        for p in points
    )
    plain = _with_bandwidth(profile, host, points, is_lone=is_lone)
    counts = (LONE_ENGINES,) if is_lone else ENGINES
    streamed, cost = _with_engines(plain if is_lone else profile, host, points, counts, tell)
    residuals = _residuals(plain, host, points)
    if sum(r * r for r in residuals) / 2 <= cost + EARNED:
        return plain, ["read bandwidth"]
    return streamed, ["read engines", "read split"]


def _tells_page(profile: DriveProfile, point: Point) -> bool:
    """True if *point* reads one page, and far fewer bytes/s than the drive moves."""
    moved = point.iops * point.block_size / point.targets
    is_page = point.block_size <= profile.read.unit.value
    few = point.outstanding <= FEW_REQUESTS * point.targets
    return is_page and few and moved < FEW_BYTES * profile.read_bandwidth.value


def _with_page(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point],
    key: Literal["read.channel", "read.large"],
) -> DriveProfile:  # fmt: skip
    """*profile* with the time at *key* that *points* of one page tell, and channels enough."""
    fewest = profile.channels.value
    most = max(profile.commands.value, profile.read_bandwidth.value / 4096)

    def made(at: Values) -> DriveProfile:
        time = at["time"]
        if key == "read.large":
            return with_numbers(profile, {key: time})
        count = min(max(fewest, math.ceil(ROOMY * most * time / 1e12)), profile.dies.value)
        return with_numbers(profile, {key: time, "channels": count})

    start = CHANNEL_PS if profile.read.large is None else profile.read.large.value
    parameter = Parameter("time", start, low=start / 10, high=20 * start)
    found = solved(points, host, made, [parameter], effort=0.5, shape=False)
    return with_span(made(found.best), key, found.ends["time"], sources(points))


def _residuals(profile: DriveProfile, host: BenchHost, points: Sequence[Point]) -> list[float]:
    return [r for p in points for r in misfit(p, measure(profile, host, p, requests=REQUESTS))]


def _with_bandwidth(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], *, is_lone: bool
) -> DriveProfile:
    """*profile* with the bandwidth that *points* and what was known of it before tell."""
    width = profile.read_bandwidth
    moved = max(p.iops * p.block_size / p.targets for p in points)
    sd = 0.0
    if width.low is not None and width.high is not None:
        sd = max(LEAST_SD, math.log(width.high / width.low) / 2 / 1.96)
    size = max(p.block_size for p in points)
    felt = BELOW * command_ceiling(host.link, "read", size) * size  # no row tells more than a link
    start = max(min(width.value, felt), 1.02 * moved)
    parameters = [Parameter("bandwidth", start, 0.9 * min(moved, start), 20 * start, prior_sd=sd)]
    serial = profile.read.serial
    if serial is not None and not is_lone and min(p.block_size for p in points) <= MIDDLE:
        parameters.append(Parameter("serial", serial.value, 0.01, 2.0, 0.1, SERIAL_SD))
    keys = {"bandwidth": "read_bandwidth", "serial": "read.serial"}
    if width.basis == "assumed" and moved > FULL * felt:
        free = with_numbers(profile, {"read_bandwidth": parameters[0].high})
        if all(measure(free, host, p, requests=REQUESTS).iops < FASTER * p.iops for p in points):
            return profile  # the link let no more through

    def made(at: Values) -> DriveProfile:
        return with_numbers(profile, {keys[name]: v for name, v in at.items()})

    error = LONE_ERROR if is_lone else None
    found = solved(points, host, made, parameters, effort=0.5, shape=False, error=error)
    fitted = made(found.best)
    for name, (low, high) in found.ends.items():
        span = min(low, 0.98 * found.best[name]), max(high, 1.02 * found.best[name])
        fitted = with_span(fitted, keys[name], span, sources(points))
    return fitted


def _with_engines(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], counts: Sequence[int],
    tell: Progress,
) -> tuple[DriveProfile, float]:  # fmt: skip
    """*profile* with one of *counts* data engines, and half a chi-square.

    For every number of engines the time of a unit follows; the number with the least misfit wins.
    """
    tried: list[tuple[float, int, Solution]] = []
    busiest = max(points, key=lambda p: p.iops * p.block_size)
    units = busiest.block_size / profile.read.unit.value
    for count in counts:
        tell(f"large reads: {count} data engines")
        at_once = 1 if count == LONE_ENGINES else count
        start = at_once / (1.05 * busiest.iops) / units * 1e12

        def residuals(x: Floats, count: int = count) -> list[float]:
            return _residuals(_engines(profile, count, float(x[0])), host, points)

        found = solve(residuals, [start], rounds=3)
        tried.append((found.cost, count, found))
    least, count, found = min(tried, key=lambda t: t[:2])
    split = float(found.values[0])
    spread = intervals(["split"], found.values, found)["split"]
    likely = [other for cost, other, _ in tried if cost <= least + NOT_WORSE]
    profile = _engines(profile, count, split)
    ends = float(min(likely)), float(max(likely))
    profile = with_span(profile, "read.engines", ends, sources(points))
    return with_span(profile, "read.split", spread, sources(points)), least


def _engines(profile: DriveProfile, count: int, split_ps: float) -> DriveProfile:
    return with_numbers(profile, {"read.engines": count, "read.split": split_ps})
