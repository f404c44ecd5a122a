"""Fit how a drive reads: constant part, dies, controller; and its large commands.

What the data determine depends on how many depths there are. One depth gives the constant part and
a spread; two add the ceiling; from three on the number of dies and their time are fitted too. All
that is fitted is inferred together (`inference`): the captures' figures allow valleys of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity, ReadSide
from nvmesim.fit.bench import Host, measure
from nvmesim.fit.evidence import intervals
from nvmesim.fit.inference import columns, infer
from nvmesim.fit.points import Point
from nvmesim.fit.search import Floats, Solution, misfit, solve
from nvmesim.fit.sweep_task import OPEN, Bank, sweep_task

US = 1e6
CHANNEL_PS = 3 * US
"""Channel time of 4 KiB. Assumed: 1.2 GB/s and overhead; with few dies it hardly shows."""
ASSUMED_DIES = 64
ENOUGH = 3
"""Depths from which on the number of dies is fitted."""
FAST = 800e3
"""Controller's commands per second where no point shows a ceiling. Assumed: a PCIe 4.0 drive."""
CLEAN = 0.2
"""Error beside sampling, in units of the assumed, up to which a bank of dies explains a sweep."""
REQUESTS = 25_000
ENGINES = (1, 2, 3, 4, 5, 6)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ReadFit:
    """Fitted values with their intervals, ps and 1/s."""

    values: dict[str, float]
    bounds: dict[str, tuple[float, float]]
    dies: int
    fitted_dies: bool
    draws: Mapping[str, Floats] = field(default_factory=dict)
    """Name -> float64[n_draws]: joint draws of what was fitted"""
    notes: tuple[str, ...] = ()
    tau: float = 0.0
    """What the figures are off by beside sampling, in units of what is assumed"""

    @property
    def explains(self) -> bool:
        """Whether sampling alone explains the figures: nothing but dies needs to be thought of."""
        return self.tau <= CLEAN

    def quantity(self, name: str, source: str) -> Quantity:
        """Return the named value with its interval; assumed if it was not fitted."""
        if name not in self.bounds:
            return Quantity(value=self.values[name], basis="assumed")
        low, high = self.bounds[name]
        return Quantity(value=self.values[name], low=low, high=high, basis="fitted", source=source)


def fit_reads(
    template: DriveProfile, host: Host, points: Sequence[Point], tell: Progress
) -> ReadFit:
    """Fit the read side on 4 KiB *points* (more depths, more parameters)."""
    bank = _bank(template, host, points)

    def made(values: dict[str, float]) -> DriveProfile:
        return with_reads(template, values, max(1, round(values["dies"])))

    found = infer(sweep_task(bank, points, host, made), tell=lambda step: tell(f"reads: {step}"))
    best = bank.values(found.best)
    draws = columns(found, bank.values)
    told = ["base", "die", "cv"]
    told += ["commands"] if bank.commands is None else []
    told += ["dies"] if bank.dies is None else []
    best["dies"] = max(1.0, round(best["dies"]))
    bounds = {}
    for name in told:
        low, high = (float(v) for v in np.quantile(draws[name], (0.025, 0.975)))
        bounds[name] = min(low, best[name]), max(high, best[name])
    notes: list[str] = []
    if bank.commands is None:
        slow, fast = bank.rate(found.span[1]), bank.rate(found.span[0])
        fast = bank.rate(0.0) if found.span[0] < OPEN else fast
        bounds["commands"] = min(slow, best["commands"]), max(fast, best["commands"])
    if bank.commands is None and found.span[0] < OPEN:
        notes.append(
            "reads: the dies are full before the controller is, so its commands per second are "
            f"told from below only: at least {bounds['commands'][0] / 1e3:.0f}k/s"
        )
    return ReadFit(
        best, bounds, round(best["dies"]), bank.dies is None, {n: draws[n] for n in told},
        tuple(notes), found.tau,
    )  # fmt: skip


def _bank(template: DriveProfile, host: Host, points: Sequence[Point]) -> Bank:
    """Where the search begins, and what the depths of *points* tell of it."""
    ordered = sorted(points, key=lambda p: p.outstanding)
    held = held_ps(template)
    latency = _first_latency(ordered) * 1e12 - _host_ps(host) - held
    ceiling = max(p.iops for p in points)
    # without a ceiling, where each request gets half of what one alone gets, nothing tells the
    # controller's rate
    each = [p.iops / p.outstanding for p in points]
    full = min(each) < 0.5 * max(each)
    few = len({p.outstanding for p in points}) < ENOUGH
    return Bank(
        latency=max(0.2 * held, 1.0, latency), ceiling=ceiling, held=held,
        commands=None if full else max(FAST, 4 * ceiling), dies=ASSUMED_DIES if few else None,
    )  # fmt: skip


def held_ps(template: DriveProfile) -> float:
    """Host time that the constant parts hold, ps: they cannot be shorter."""
    return template.host_submit.value if template.host_submit is not None else 0.0


def with_reads(template: DriveProfile, values: dict[str, float], dies: int) -> DriveProfile:
    """Return *template* with a read side of these values (ps, 1/s)."""
    q = Quantity
    read = template.read.model_copy(
        update={
            "base": q(value=values["base"]),
            "die": q(value=values["die"]),
            "die_cv": q(value=values["cv"]),
        }
    )
    return template.model_copy(
        update={
            "dies": q(value=dies),
            "channels": q(value=min(8, dies)),
            "commands": q(value=values["commands"]),
            "read": read,
        }
    )


def blank_reads() -> ReadSide:
    """Return a read side to start from."""
    q = Quantity
    return ReadSide(base=q(value=US), die=q(value=50 * US), channel=q(value=CHANNEL_PS))


def fit_large_reads(
    profile: DriveProfile, host: Host, points: Sequence[Point], tell: Progress
) -> tuple[DriveProfile, dict[str, tuple[float, float]]]:
    """Fit the data engines on points of one size above 4 KiB, after the 4 KiB side.

    For every number of engines the time of a unit follows; the number with the least misfit wins.
    """
    best: tuple[float, int, Solution] | None = None
    units = points[0].block_size / 4096
    for count in ENGINES:
        tell(f"large reads: {count} data engines")
        start = count / (1.05 * max(p.iops for p in points)) / units * 1e12

        def residuals(x: Floats, count: int = count) -> list[float]:
            made = _with_engines(profile, count, float(x[0]))
            return [
                r
                for p in points
                for r in misfit(p, measure(made, host, p, requests=max(4000, REQUESTS // 4)))
            ]

        found = solve(residuals, [start], rounds=5)
        if best is None or found.cost < best[0]:
            best = (found.cost, count, found)
    if best is None:
        return profile, {}
    _, count, found = best
    spread = intervals(["split"], found.values, found.jacobian, found.residuals)
    return _with_engines(profile, count, float(found.values[0])), dict(spread)


def _with_engines(profile: DriveProfile, count: int, split_ps: float) -> DriveProfile:
    q = Quantity
    update = {"engines": q(value=count), "split": q(value=split_ps)}
    return profile.model_copy(update={"read": profile.read.model_copy(update=update)})


def _first_latency(ordered: Sequence[Point]) -> float:
    """Latency of the shallowest point, s: its mean, or what Little's law says."""
    first = ordered[0]
    return first.mean_s or first.outstanding / first.iops


def _host_ps(host: Host) -> float:
    """Host CPU time of a request that shares nothing, ps."""
    s = host.stack
    cycles = s.submit.value + s.complete.value
    if not s.polled:
        cycles += s.wakeup.value + s.interrupt.value
    return float(np.round(cycles * 1e3 / host.ghz))
