"""Fit how a drive reads: constant part, dies, controller; and its large commands.

What the data determine depends on how many depths there are. From three on the number of dies and
their time are fitted with all else, together. Fewer tell a latency, or a ceiling, and not what the
ceiling is of: that is fitted once for each explanation, and assumed numbers give way to measured
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.laws import (
    CV_DOUBT,
    LIKELY_CV,
    LIKELY_SHARE,
    LONE_DOUBT,
    OPEN,
    SHARE_DOUBT,
    SHEET_CEILING,
    Bank,
    RowKind,
    open_ceiling,
    roomy,
    row_kind,
    sheet_odds,
    unloaded_latency_s,
)
from nvmesim.calibrate.evidence import drawn, span_of, with_numbers
from nvmesim.calibrate.infer.optimum import Solution, optimum
from nvmesim.calibrate.infer.posterior import DRAWS, columns, infer, optima
from nvmesim.calibrate.infer.problem import (
    Coordinate,
    Parameter,
    Problem,
    logarithms,
    problem_of,
)
from nvmesim.calibrate.points import Point
from nvmesim.catalog.links import command_time_ps
from nvmesim.catalog.profile import DriveProfile, Quantity, ReadSide

US, UNIT = 1e6, 4096
CHANNEL_PS = 5 * US
"""Channel time of 4 KiB at most. Assumed: 1.2 GB/s and overhead; with few dies it hardly shows."""
PAGE = 16 << 10
"""Bytes that a die reads at once. Source: the page of 3D TLC NAND is 16 KiB (data sheets of Micron
B27A and Samsung V6); the latency of a lone read grows by 13 us from 4 to 16 KiB, as its channel
takes, and by 28 to 64 KiB (`calibration/held-out`, R22)."""
CHANNEL_SHARE = 0.1
"""Of a lone read's latency, what the channel takes at most. Assumed."""
CHANNELS = 24
PATH_SHARE = 0.3
"""Of a lone read's latency, what a channel takes at most where it is the ceiling. Assumed."""
ENOUGH = 3
"""Depths from which on the number of dies is fitted."""
FAST = 800e3
"""Controller's commands per second where no point shows a ceiling. Assumed: a PCIe 4.0 drive."""
BEYOND = 4.0
"""Capacity of a part that is not the ceiling, in units of it. Assumed."""
SLOW_DIE_PS = 80 * US
"""Longest time of a die that is assumed: what a lone read takes beyond is of hosts and of the way.
Data sheets of TLC drives state 60 to 115 us for the whole read, with hosts of 10 us and more."""
DIES, DIES_SD = 64, 0.7
"""Dies where no row tells a lone latency or a ceiling, and the deviation of their logarithm.
Assumed: what requests in flight wait for each other tells them."""
GROWS = 1.08
"""Longest time of a request over the shortest, from which on requests are seen to wait."""
BUSY_DIES = 0.4
"""Of the controller's open rate, what dies are sure to carry. Assumed; `roomy` doubles it."""
CLEAN = 0.2
"""Error beside sampling, in units of the assumed, up to which a bank of dies explains a sweep."""
READ_NUMBERS = ("base", "die", "cv", "commands", "dies")

Progress = Callable[[str], None]
Ceiling = Literal["dies", "controller", "path"]
"""Ceiling of reads: the dies, which programs share; the controller, which all commands
share; or the reads' own path out (channels), which nothing shares."""
CEILINGS: Final[dict[Ceiling, str]] = {
    "dies": "the dies", "controller": "the controller", "path": "the reads' own channels",
}  # fmt: skip


@dataclass(frozen=True)
class ReadFit:
    """Fitted values with their intervals, ps and 1/s."""

    values: dict[str, float]
    bounds: dict[str, tuple[float, float]]
    """Of what the rows tell"""
    dies: int
    draws: Mapping[str, Floats] = field(default_factory=dict)
    """Name -> float64[n_draws]: joint draws"""
    notes: tuple[str, ...] = ()
    tau: float = 0.0
    """Error of the figures beside sampling, in units of what is assumed"""
    ceiling: Ceiling | None = None
    """Part that is taken for the ceiling where the rows cannot tell; None: they tell, or there is
    none"""
    unidentified: dict[str, str] = field(default_factory=dict)
    """Dotted key -> what would tell it"""
    cost: float = 0.0
    """Half a chi-square, where explanations are compared"""
    odds: float = 1.0
    """How common a ceiling so low is among data sheets, in units of their median's density"""

    @property
    def explains(self) -> bool:
        """True if sampling alone explains the figures: nothing but dies needs to be thought of."""
        return self.tau <= CLEAN


def fit_reads(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress,
    ceiling: Ceiling | None = "dies", mixed: float = 0.0, begun: BankOptimum | None = None,
) -> ReadFit:  # fmt: skip
    """Fit the read side on 4 KiB *points*: more depths, more numbers.

    *ceiling*: what fewer than three depths' ceiling is taken to be of; None: they are at none,
    unless their latency leaves no doubt. *mixed*: most requests/s of a mix, which with a path of
    the reads' own is what the controller does. *begun*: the optimum of all depths, where known.
    """
    if len({p.depth for p in points}) >= ENOUGH:
        return _swept(begun or bank_optimum(template, host, points, tell), tell)
    return _few(template, host, points, ceiling, mixed, tell)


# -- three depths and more ---------------------------------------------------------------------


@dataclass(frozen=True)
class BankOptimum:
    """A bank of dies where three depths or more are met best."""

    bank: Bank
    points: Sequence[Point]
    problem: Problem
    found: list[Solution]

    @property
    def values(self) -> dict[str, float]:
        """Numbers of the read side there."""
        return self.bank.values(self.found[0].values)

    @property
    def misses(self) -> bool:
        """True if the figures are further off than a usual error of the model explains."""
        return 2 * self.found[0].cost > self.problem.freedom


def bank_optimum(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress
) -> BankOptimum:
    """Return the bank of dies that meets *points* best; its distribution is not looked for."""
    tell("reads: the optimum")
    bank = _bank(template, host, points)

    def made(u: Floats) -> DriveProfile:
        return with_reads(template, bank.values(u))

    problem = problem_of(
        points, bank.coordinates(), made, host,
        others=bank.others(), profiled="command", snapped=bank.snapped, allowed=bank.allowed,
    )  # fmt: skip
    return BankOptimum(bank, points, problem, optima(problem))


def _swept(begun: BankOptimum, tell: Progress) -> ReadFit:
    bank, points = begun.bank, begun.points
    found = infer(begun.problem, begun=begun.found, tell=lambda step: tell(f"reads: {step}"))
    best = bank.values(found.best)
    draws = columns(found, bank.values)
    names = ["base", "die", "cv", *(["commands"] if bank.commands is None else []), "dies"]
    best["dies"] = max(1.0, round(best["dies"]))
    bounds = {name: span_of(draws[name], best[name]) for name in names}
    notes: list[str] = []
    unidentified: dict[str, str] = {}
    if bank.commands is None:
        slow, fast = bank.rate(found.span[1]), bank.rate(found.span[0])
        fast = bank.rate(0.0) if found.span[0] < OPEN else fast
        bounds["commands"] = min(slow, best["commands"]), max(fast, best["commands"])
    if bank.commands is None and found.span[0] < OPEN:
        unidentified["commands"] = "reads at more depth, with percentiles"
        notes.append(
            "reads: the dies are full before the controller is, so only a lower limit of its "
            f"commands per second is known: {bounds['commands'][0] / 1e3:.0f}k/s"
        )
    elif bank.commands is not None:
        unidentified["commands"] = "reads at more depth"
    if not any(p.percentiles_s for p in points):
        unidentified |= dict.fromkeys(
            ("dies", "read.die", "read.die_cv"), "p99 of reads at each depth"
        )
    return ReadFit(
        best, bounds, round(best["dies"]), {n: draws[n] for n in names},
        tuple(notes), found.tau, None, unidentified,
    )  # fmt: skip


def _bank(template: DriveProfile, host: BenchHost, points: Sequence[Point]) -> Bank:
    """Where the search begins, and what the depths of *points* tell of it."""
    ordered = sorted(points, key=lambda p: p.outstanding)
    held = held_ps(template)
    latency = _first_latency(ordered) * 1e12 - host_ps(host) - held
    ceiling = max(p.iops / p.targets for p in points)
    # without a ceiling, where each request gets half of what one alone gets, nothing tells the
    # controller's rate
    each = [p.iops / p.outstanding for p in points]
    full = min(each) < 0.5 * max(each)
    return Bank(
        latency=max(0.2 * held, 1.0, latency), ceiling=ceiling, held=held,
        commands=None if full else max(FAST, 4 * ceiling),
        measured=tuple(replace(p, iops=p.iops / p.targets, jobs=_share(p)) for p in ordered),
    )  # fmt: skip


def _share(point: Point) -> int:
    """Jobs of one of the point's drives."""
    return max(1, round(point.jobs / point.targets))


# -- fewer -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Few:
    """A bank of dies of a latency and a ceiling; ps and 1/s."""

    ceiling: Ceiling | None
    """None: no row is at one"""
    dies: int
    held: float
    out: float
    """Time of the data through the controller and the link"""

    def values(self, at: Mapping[str, float]) -> dict[str, float]:
        """Numbers of the profile."""
        latency, rate, share, cv = (at[name] for name in ("latency", "rate", "share", "cv"))
        dies = max(1, round(at.get("dies", self.dies)))
        inner = max(latency - self.held, 0.02 * latency)
        command = 1e12 / (rate if self.ceiling == "controller" else at["fast"])
        die = share * inner
        if self.ceiling == "dies":
            die = dies / rate * 1e12
        channel = min(CHANNEL_PS, CHANNEL_SHARE * inner)
        if self.ceiling == "path":
            few = int(np.clip(PATH_SHARE * inner * rate / 1e12, 1, CHANNELS))
            channel = few / rate * 1e12
        rest = command + channel + self.out
        if self.ceiling != "dies":
            die = min(die, max(0.95 * (inner - rest), 0.05 * inner))
        base = max(inner - die - rest, 1e-3 * inner)
        found = {"base": self.held + base, "die": die, "cv": cv, "dies": float(dies)}
        found["commands"] = 1e12 / command
        if self.ceiling == "path":
            found |= {"channels": float(few), "channel": channel}
        return found


def _few(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], ceiling: Ceiling | None,
    mixed: float, tell: Progress,
) -> ReadFit:  # fmt: skip
    """A latency, a ceiling, or both, from one or two depths; the rest as drives usually are."""
    tell(f"reads: ceiling of {CEILINGS[ceiling]}" if ceiling else "reads: no ceiling")
    lone, is_known = unloaded_latency_s(points, read=True)
    full = (RowKind.CEILING, RowKind.EITHER) if ceiling else (RowKind.CEILING,)
    saturated = [p for p in points if row_kind(p, lone, is_known=is_known) in full]
    top = max(p.iops / p.targets for p in points)
    held = held_ps(template)
    latency = max(lone * 1e12 - (host_ps(host) if is_known else 0.0), 0.2 * held, US / 2)
    took = [p.outstanding / p.iops for p in points if not p.is_cpu_bound]
    grows = ceiling is None and not (saturated or is_known) and _grows(took)
    if not is_known and not saturated and took and not grows:
        latency, is_known = min(took) * 1e12 - host_ps(host), True
    share = min(LIKELY_SHARE, SLOW_DIE_PS / latency)
    die_s = share * latency / 1e12
    kind = ceiling if saturated else None
    out = UNIT / template.read_bandwidth.value * 1e12
    out += command_time_ps(host.link, "read", UNIT, "up")
    fast, fast_sd = 1.01 * mixed if kind == "path" and mixed > top else max(FAST, BEYOND * top), 0.0
    if kind is None and host.link.kind in SHEET_CEILING:
        size = max(UNIT, min(p.block_size for p in points))
        fast, fast_sd = open_ceiling(host.link, size, top, read=True)
    if kind == "dies":
        rest = out + min(CHANNEL_PS, CHANNEL_SHARE * latency) + 1e12 / fast
        die = min(share * latency, max(0.95 * (latency - rest), 0.1 * latency))
        dies = max(1, int(np.floor(die * top / 1e12)))
    else:
        depth = min(max(round(p.outstanding / p.targets) for p in points), 1024)
        dies = roomy(depth, latency / 1e12, die_s, top if kind else max(top, BUSY_DIES * fast))
    bank = _Few(kind, dies, held, out)
    has_percentiles = any(p.percentiles_s for p in points)
    likely = Parameter("fast", fast, low=fast / 16, high=16 * fast, prior_sd=fast_sd)
    if kind is None:
        likely = replace(likely, low=min(1.02 * top, fast))
    fitted, assumed = _few_parameters(kind, latency, share, top, is_known, has_percentiles)
    if grows:  # a latency as drives have it, and so many dies that what waits at them is met
        fitted += [p for p in assumed if p.name == "latency"]
        assumed = [p for p in assumed if p.name != "latency"]
        fitted.append(Parameter("dies", DIES, low=1, high=16 * DIES, step=0.12, prior_sd=DIES_SD))
    assumed.append(likely)
    coordinates = logarithms(fitted)
    others = {"rate": top, "share": 1.0, **{p.name: p.start for p in assumed}}

    def values(u: Floats, more: Mapping[str, float] = others) -> dict[str, float]:
        found = np.exp(u).tolist()
        at = {**others, **more, **dict(zip((c.name for c in coordinates), found, strict=True))}
        return bank.values(at)

    problem = problem_of(points, coordinates, lambda u: with_reads(template, values(u)), host)
    found = optimum(problem)
    best = values(found.values)
    free = scattered(logarithms(assumed))
    table = [values(u, more) for u, more in zip(drawn(problem, found), free, strict=True)]
    draws = {n: np.array([row[n] for row in table]) for n in READ_NUMBERS}
    told = _told_of_few(bank, best, draws, is_known or grows, has_percentiles)
    odds = 1.0
    if kind is not None and host.link.kind in SHEET_CEILING:
        odds = sheet_odds(host.link, min(p.block_size for p in points), top)
    return replace(told, cost=found.cost, dies=round(best["dies"]), odds=odds)


def _grows(took: Sequence[float]) -> bool:
    return max(took, default=0.0) > GROWS * min(took, default=0.0)


def _few_parameters(
    kind: Ceiling | None,
    latency: float,
    share: float,
    top: float,
    is_known: bool,
    has_percentiles: bool,
) -> tuple[list[Parameter], list[Parameter]]:
    """Numbers that one or two depths determine, and those that are assumed."""
    fitted: list[Parameter] = []
    assumed: list[Parameter] = []
    lone_sd = 0.0 if is_known else LONE_DOUBT[True]
    cv_sd = 0.0 if has_percentiles else CV_DOUBT
    (fitted if is_known else assumed).append(
        Parameter("latency", latency, latency / 5, 3 * latency, 0.02, lone_sd)
    )
    (fitted if has_percentiles else assumed).append(
        Parameter("cv", LIKELY_CV, low=0.01, high=1.5, step=0.2, prior_sd=cv_sd)
    )
    if kind is not None:
        fitted.append(Parameter("rate", top, low=top / 1.3, high=3 * top, step=0.02))
    if kind != "dies":
        (fitted if has_percentiles else assumed).append(
            Parameter("share", share, min(0.05, share / 4), 0.995, 0.05, SHARE_DOUBT)
        )
    return fitted, assumed


def may_be_latency(points: Sequence[Point]) -> bool:
    """True if no row of *points* is at a ceiling for sure, and one may be."""
    lone, is_known = unloaded_latency_s(points, read=True)
    row_kinds = {row_kind(p, lone, is_known=is_known) for p in points}
    return RowKind.EITHER in row_kinds and RowKind.CEILING not in row_kinds


def scattered(assumed: Sequence[Coordinate]) -> list[dict[str, float]]:
    """`DRAWS` draws of what no row tells, from what is assumed of it, within its bounds."""
    rng = np.random.default_rng(3)
    columns = {
        c.name: np.exp(np.clip(c.start + c.doubt * rng.standard_normal(DRAWS), c.low, c.high))
        for c in assumed
    }
    return [{name: float(column[i]) for name, column in columns.items()} for i in range(DRAWS)]


def _told_of_few(
    bank: _Few,
    best: dict[str, float],
    draws: dict[str, Floats],
    is_known: bool,
    has_percentiles: bool,
) -> ReadFit:
    """Which numbers the rows tell, and what would tell the others."""
    if bank.ceiling == "dies":  # as many dies as the doubt about the share leaves open
        ratio = np.exp(SHARE_DOUBT * np.random.default_rng(2).standard_normal(len(draws["die"])))
        ratio = np.minimum(ratio, 0.98 * (draws["base"] + draws["die"]) / draws["die"])
        draws["base"] = draws["base"] + draws["die"] * (1 - ratio)
        draws["die"], draws["dies"] = draws["die"] * ratio, draws["dies"] * ratio
    names = ["base", *(["cv"] if has_percentiles else []), "die"] if is_known else []
    names += ["commands"] if bank.ceiling == "controller" else []
    names += ["dies"] if bank.ceiling == "dies" else []
    bounds = {name: span_of(draws[name], best[name]) for name in names}
    unidentified: dict[str, str] = {}
    if not is_known:
        unidentified |= dict.fromkeys(("read.base", "read.die"), "a read at depth 1")
    if bank.ceiling is None:
        unidentified["commands"] = "reads at a depth where IOPS no longer grow"
    else:
        unidentified["commands"] = "reads at three depths with p99, or a 70/30 mix"
    unidentified["dies"] = "reads at three depths with p99"
    return ReadFit(best, bounds, bank.dies, draws, (), 0.0, bank.ceiling, unidentified)


def held_ps(template: DriveProfile) -> float:
    """Host time that the constant parts hold, ps: they cannot be shorter."""
    return template.host_submit.value if template.host_submit is not None else 0.0


def with_reads(template: DriveProfile, values: Mapping[str, float]) -> DriveProfile:
    """Return *template* with a read side of these values (ps, 1/s).

    Channels, which nothing tells, are fast enough not to cap what dies and controller do.
    """
    q = Quantity
    dies = max(1, round(values["dies"]))
    channels = min(round(values.get("channels", CHANNELS)), dies)
    most = min(values["commands"], dies / values["die"] * 1e12)
    shortest = min(CHANNEL_PS, CHANNEL_SHARE * (values["base"] + values["die"]))
    channel = values.get("channel", min(shortest, channels / most * 1e12 / 2))
    return with_numbers(template, {
        "dies": q(value=dies), "channels": q(value=channels),
        "commands": q(value=values["commands"]), "read.base": q(value=values["base"]),
        "read.die": q(value=values["die"]), "read.die_cv": q(value=values["cv"]),
        "read.channel": q(value=channel),
    })  # fmt: skip


def blank_reads() -> ReadSide:
    """Return a read side to start from."""
    q = Quantity
    return ReadSide(
        base=q(value=US), die=q(value=50 * US), channel=q(value=CHANNEL_PS),
        unit=q(value=PAGE, basis="assumed"),
    )  # fmt: skip


def _first_latency(ordered: Sequence[Point]) -> float:
    """Latency of the shallowest point, s: its mean, or what Little's law says."""
    first = ordered[0]
    return first.mean_s or first.outstanding / first.iops


def host_ps(host: BenchHost) -> float:
    """Host CPU time of a request that shares nothing, ps."""
    s = host.stack
    cycles = s.submit.value + s.complete.value
    if not s.polled:
        cycles += s.wakeup.value + s.interrupt.value
    return float(np.round(cycles * 1e3 / host.ghz))
