"""Fit how a drive reads: constant part, dies, controller; and its large commands.

What the data determine depends on how many depths there are. From three on the number of dies and
their time are fitted with all else, together. Fewer tell a latency, or a ceiling, and not what the
ceiling is of: that is fitted once for each explanation, and assumed numbers give way to measured
ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.datasheet import Expected
from nvmesim.calibrate.drive import laws, open_ceilings
from nvmesim.calibrate.evidence import Ceiling, Side, with_draws, with_span
from nvmesim.calibrate.infer.optimum import Solution, solved
from nvmesim.calibrate.infer.posterior import columns, infer, optima
from nvmesim.calibrate.infer.problem import Parameter, Problem, problem_of
from nvmesim.calibrate.points import Point, sources
from nvmesim.catalog.links import command_time_ps
from nvmesim.catalog.profile import DriveProfile
from nvmesim.catalog.quantity import with_numbers

US, UNIT = 1e6, 4096
CHANNEL_PS = 5 * US
"""Channel time of 4 KiB at most. Assumed: 1.2 GB/s and overhead; with few dies it hardly shows."""
PAGE = 16 << 10
"""Bytes that a die reads at once. Source: the page of 3D TLC NAND is 16 KiB (data sheets of Micron
B27A and Samsung V6)."""
FEW_PAGES = 4 * PAGE
"""Bytes up to which a read tells the rate of small ones, and not of its bytes. Assumed."""
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
OR_MIX = ", or a 70/30 mix"
"""What would tell as well, where there is none."""
CLEAN = 0.2
"""Error beside sampling, in units of the assumed, up to which a bank of dies explains a sweep."""

Progress = Callable[[str], None]
CEILINGS: Final[dict[Ceiling, str]] = {
    "dies": "the dies", "controller": "the controller", "path": "the reads' own channels",
}  # fmt: skip


READ_KEYS: Final = {
    "base": "read.base", "die": "read.die", "cv": "read.die_cv", "commands": "commands",
    "dies": "dies",
}  # fmt: skip


def fit_reads(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress,
    ceiling: Ceiling | None = "dies", mixed: float = 0.0, begun: BankOptimum | None = None,
    least_s: float = math.inf,
) -> Side:  # fmt: skip
    """Fit the read side on 4 KiB *points*: more depths, more numbers.

    *ceiling*: what fewer than three depths' ceiling is taken to be of; None: they are at none,
    unless their latency leaves no doubt. *mixed*: most requests/s of a mix, which with a path of
    the reads' own is what the controller does. *begun*: the optimum of all depths, where known.
    *least_s*: what larger reads take of which fewer were in flight: a lone one takes no more.
    """
    if len({p.depth for p in points}) >= ENOUGH:
        return _swept(template, begun or bank_optimum(template, host, points, tell), tell)
    return _few(template, host, points, ceiling, mixed, tell, least_s)


# -- three depths and more ---------------------------------------------------------------------


@dataclass(frozen=True)
class BankOptimum:
    """A bank of dies where three depths or more are met best."""

    bank: laws.Bank
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

    problem = problem_of(
        points, bank.coordinates(), lambda u: with_reads(template, bank.values(u)), host,
        others=tuple(bank.others()), profiled="command", snapped=bank.snapped, allowed=bank.allowed,
    )  # fmt: skip
    return BankOptimum(bank, points, problem, optima(problem))


def _swept(template: DriveProfile, begun: BankOptimum, tell: Progress) -> Side:
    bank, points = begun.bank, begun.points
    found = infer(begun.problem, begun=begun.found, tell=lambda step: tell(f"reads: {step}"))
    best, is_open = bank.values(found.best), bank.commands is None
    names = ["base", "die", "cv", *(["commands"] if is_open else []), "dies"]
    draws = columns(found, bank.values)
    side = _side(template, best, {n: draws[n] for n in names}, names, points)
    slow, fast = bank.rate(found.span[1]), bank.rate(found.span[0])
    unidentified = {} if is_open else {"commands": "reads at more depth"}
    notes: list[str] = []
    if is_open and found.span[0] < laws.OPEN:
        fast = bank.rate(0.0)
        unidentified["commands"] = "reads at more depth, with percentiles"
        least = max(bank.ceiling, min(slow, best["commands"]))
        notes.append(
            "reads: the dies are full before the controller is, so only a lower limit of its "
            f"commands per second is known: {least / 1e3:.0f}k/s"
        )
    if is_open:
        profile = with_span(side.profile, "commands", (slow, fast), sources(points))
        side = replace(side, profile=profile)
    if not any(p.percentiles_s for p in points):
        unidentified |= dict.fromkeys(
            ("dies", "read.die", "read.die_cv"), "p99 of reads at each depth"
        )
    return replace(side, notes=tuple(notes), unidentified=unidentified, tau=found.tau)


def _side(
    template: DriveProfile, best: Mapping[str, float], draws: Mapping[str, Floats],
    told: Sequence[str], points: Sequence[Point],
) -> Side:  # fmt: skip
    """Reads of the values *best* with their *draws*; *points* tell those that are *told*."""
    drawn = {READ_KEYS[name]: column for name, column in draws.items()}
    loose = [READ_KEYS[name] for name in draws if name not in told]
    profile = with_draws(with_reads(template, best), drawn, sources(points), loose)
    words = tuple("dies" if name == "dies" else f"read {name}" for name in told)
    return Side(profile, drawn, told=words)


def _bank(template: DriveProfile, host: BenchHost, points: Sequence[Point]) -> laws.Bank:
    """Where the search begins, and what the depths of *points* tell of it."""
    ordered = sorted(points, key=lambda p: p.outstanding)
    held = held_ps(template)
    first = ordered[0].mean_s or ordered[0].outstanding / ordered[0].iops
    latency = first * 1e12 - host_ps(host) - held
    ceiling = max(p.iops / p.targets for p in points)
    # without a ceiling, where each request gets half of what one alone gets, nothing tells the
    # controller's rate
    each = [p.iops / p.outstanding for p in points]
    full = min(each) < 0.5 * max(each)
    return laws.Bank(
        latency=max(0.2 * held, 1.0, latency), ceiling=ceiling, held=held,
        commands=None if full else max(FAST, 4 * ceiling),
        measured=tuple(
            replace(p, iops=p.iops / p.targets, jobs=max(1, round(p.jobs / p.targets)))
            for p in ordered
        ),
    )  # fmt: skip


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
    mixed: float, tell: Progress, least_s: float,
) -> Side:  # fmt: skip
    """A latency, a ceiling, or both, from one or two depths; the rest as drives usually are."""
    tell(f"reads: ceiling of {CEILINGS[ceiling]}" if ceiling else "reads: no ceiling")
    stated, stated_s = host.sheet.get("random_read"), host.sheet.get("read_latency")
    lone, is_known = laws.unloaded_latency_s(points, read=True, stated=stated_s)
    if not is_known and least_s < min(p.outstanding / p.iops for p in points):
        lone, is_known = min(lone, least_s), True
    full = (laws.RowKind.CEILING, laws.RowKind.EITHER) if ceiling else (laws.RowKind.CEILING,)
    saturated = [p for p in points if laws.row_kind(p, lone, is_known=is_known) in full]
    if is_known and lone > laws.LATE_READ_S and host.link.kind == "pcie":
        stated = stated or open_ceilings.of_link(host.link, *open_ceilings.LATE)
    top = max(p.iops / p.targets for p in points)
    held = held_ps(template)
    latency = max(lone * 1e12 - (host_ps(host) if is_known else 0.0), 0.2 * held, US / 2)
    took = [p.outstanding / p.iops for p in points if not p.is_cpu_bound]
    grows = ceiling is None and not (saturated or is_known)
    grows = grows and max(took, default=0.0) > GROWS * min(took, default=0.0)
    if not is_known and not saturated and took and not grows:
        latency, is_known = min(took) * 1e12 - host_ps(host), True
    share = min(laws.LIKELY_SHARE, SLOW_DIE_PS / latency)
    if is_known and latency > laws.SLOW_READ_S * 1e12:
        stated = host.sheet.get("random_read", open_ceilings.REMOTE)
    die_s = share * latency / 1e12
    kind = ceiling if saturated else None
    out = UNIT / template.read_bandwidth.value * 1e12
    out += command_time_ps(host.link, "read", UNIT, "up")
    fast, fast_sd = 1.01 * mixed if kind == "path" and mixed > top else max(FAST, BEYOND * top), 0.0
    if kind is None and host.link.kind in open_ceilings.SHEET_CEILING:
        smallest = min(p.block_size for p in points)
        # larger ones of a few pages end at bytes, and no sooner at requests than small ones
        size = smallest if smallest > FEW_PAGES else UNIT
        fast, fast_sd = open_ceilings.open_ceiling(host.link, size, top, read=True, stated=stated)
        met = Expected(laws.reads_at_once(points) / lone, laws.DIES_BY_WAIT_SD)
        if not stated and met.value < fast:  # those that are in flight meet at few dies
            fast, fast_sd = open_ceilings.open_ceiling(host.link, size, top, read=True, stated=met)
    if kind == "dies":
        rest = out + min(CHANNEL_PS, CHANNEL_SHARE * latency) + 1e12 / fast
        die = min(share * latency, max(0.95 * (latency - rest), 0.1 * latency))
        dies = max(1, int(np.floor(die * top / 1e12)))
    else:
        depth = min(max(round(p.outstanding / p.targets) for p in points), 1024)
        dies = laws.roomy(depth, latency / 1e12, die_s, top if kind else max(top, BUSY_DIES * fast))
    bank = _Few(kind, dies, held, out)
    least = min(1.02 * top, fast) if kind is None else fast / 16
    likely = Parameter("fast", fast, least, 16 * fast, prior_sd=fast_sd, told=False)
    has_percentiles = any(p.percentiles_s for p in points)
    parameters = _few_parameters(kind, latency, share, top, is_known, has_percentiles)
    if grows:  # a latency as drives have it, and so many dies that what waits at them is met
        parameters = [*parameters[1:], replace(parameters[0], told=True)]
        parameters.append(Parameter("dies", DIES, 1, 16 * DIES, 0.12, DIES_SD))
    others = {"rate": top, "share": 1.0}

    def make(at: Mapping[str, float]) -> DriveProfile:
        return with_reads(template, bank.values({**others, **at}))

    found = solved(points, host, make, [*parameters, likely])
    best = bank.values({**others, **found.best})
    table = [bank.values({**others, **at}) for at in found.draws]
    draws = {n: np.array([row[n] for row in table]) for n in READ_KEYS}
    side = _told_of_few(template, bank, points, best, draws, is_known or grows)
    odds = 1.0
    if kind is not None and host.link.kind in open_ceilings.SHEET_CEILING:
        odds = open_ceilings.sheet_odds(host.link, min(p.block_size for p in points), top, stated)
    return replace(side, cost=found.optimum.cost, odds=odds)


def _few_parameters(
    kind: Ceiling | None, latency: float, share: float, top: float, is_known: bool,
    has_percentiles: bool,
) -> list[Parameter]:  # fmt: skip
    """Numbers that one or two depths determine, or may determine."""
    lone_sd = 0.0 if is_known else laws.LONE_DOUBT[True]
    cv_sd = 0.0 if has_percentiles else laws.CV_DOUBT
    found = [
        Parameter("latency", latency, latency / 5, 3 * latency, 0.02, lone_sd, is_known),
        Parameter("cv", laws.LIKELY_CV, 0.01, 1.5, 0.2, cv_sd, has_percentiles),
    ]
    if kind is not None:
        found.append(Parameter("rate", top, low=top / 1.3, high=3 * top, step=0.02))
    if kind != "dies":
        least, sd = min(0.05, share / 4), laws.SHARE_DOUBT
        found.append(Parameter("share", share, least, 0.995, 0.05, sd, has_percentiles))
    return found


def may_be_latency(points: Sequence[Point]) -> bool:
    """True if no row of *points* is at a ceiling for sure, and one may be."""
    lone, is_known = laws.unloaded_latency_s(points, read=True)
    row_kinds = {laws.row_kind(p, lone, is_known=is_known) for p in points}
    return laws.RowKind.EITHER in row_kinds and laws.RowKind.CEILING not in row_kinds


def _told_of_few(
    template: DriveProfile, bank: _Few, points: Sequence[Point], best: dict[str, float],
    draws: dict[str, Floats], is_known: bool,
) -> Side:  # fmt: skip
    """Which numbers the rows tell, and what would tell the others."""
    if bank.ceiling == "dies":  # as many dies as the doubt about the share leaves open
        ratio = np.exp(
            laws.SHARE_DOUBT * np.random.default_rng(2).standard_normal(len(draws["die"]))
        )
        ratio = np.minimum(ratio, 0.98 * (draws["base"] + draws["die"]) / draws["die"])
        draws["base"] = draws["base"] + draws["die"] * (1 - ratio)
        draws["die"], draws["dies"] = draws["die"] * ratio, draws["dies"] * ratio
    shape = ["cv"] if any(p.percentiles_s for p in points) else []
    names = ["base", *shape, "die"] if is_known else []
    names += ["commands"] if bank.ceiling == "controller" else []
    unidentified: dict[str, str] = {}
    if not is_known:
        unidentified |= dict.fromkeys(("read.base", "read.die"), "a read at depth 1")
    if bank.ceiling is None:
        unidentified["commands"] = "reads at a depth where IOPS no longer grow"
    else:
        unidentified["commands"] = f"reads at three depths with p99{OR_MIX}"
    unidentified["dies"] = "reads at three depths with p99"
    side = _side(template, best, draws, names, points)
    return replace(side, ceiling=bank.ceiling, unidentified=unidentified)


def held_ps(template: DriveProfile) -> float:
    """Host time that the constant parts hold, ps: they cannot be shorter."""
    return template.host_submit.value if template.host_submit is not None else 0.0


def with_reads(template: DriveProfile, values: Mapping[str, float]) -> DriveProfile:
    """Return *template* with a read side of these values (ps, 1/s).

    Channels, which nothing tells, are fast enough not to cap what dies and controller do.
    """
    dies = max(1, round(values["dies"]))
    channels = min(round(values.get("channels", CHANNELS)), dies)
    most = min(values["commands"], dies / values["die"] * 1e12)
    shortest = min(CHANNEL_PS, CHANNEL_SHARE * (values["base"] + values["die"]))
    channel = values.get("channel", min(shortest, channels / most * 1e12 / 2))
    return with_numbers(template, {
        "dies": dies, "channels": channels, "commands": values["commands"],
        "read.base": values["base"], "read.die": values["die"], "read.die_cv": values["cv"],
        "read.channel": channel,
    })  # fmt: skip


def host_ps(host: BenchHost) -> float:
    """Host CPU time of a request that shares nothing, ps."""
    s = host.stack
    cycles = s.submit.value + s.complete.value
    if not s.polled:
        cycles += s.wakeup.value + s.interrupt.value
    return float(np.round(cycles * 1e3 / host.ghz))
