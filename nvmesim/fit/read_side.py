"""Fit how a drive reads: constant part, dies, controller; and its large commands.

What the data determine depends on how many depths there are. One depth gives the constant part and
a spread; two add the ceiling; from three on the number of dies and their time are fitted too: a
grid over the number of dies (it is a count), least squares over the rest at each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity, ReadSide
from nvmesim.fit.bench import Host, measure
from nvmesim.fit.evidence import intervals
from nvmesim.fit.points import Point
from nvmesim.fit.search import Floats, Solution, misfit, solve

US = 1e6
CHANNEL_PS = 3 * US
"""Channel time of 4 KiB. Assumed: 1.2 GB/s and overhead; with few dies it hardly shows."""
ASSUMED_DIES = 64
DIES_GRID = (0.8, 1.0, 1.2, 1.45, 1.75, 2.2)
"""Tried numbers of dies, in units of ceiling x die time (Little's law: what keeps it busy)."""
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
    cost: float

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
    names = ("base", "die", "cv", "commands")
    ordered = sorted(points, key=lambda p: p.outstanding)
    latency = _first_latency(ordered) * 1e12
    ceiling = 1.02 * max(p.iops for p in points)
    overhead = _host_ps(host)
    die = max(1.0, 0.8 * (latency - overhead))
    depths = len({p.outstanding for p in points})
    base = max(0.5 * US, 0.1 * (latency - overhead))

    def profile(x: Sequence[float] | Floats, dies: int) -> DriveProfile:
        return with_reads(template, dict(zip(names, x, strict=False)), dies)

    def at_dies(dies: int, start: Sequence[float], free: int, rounds: int) -> Solution:
        fixed = list(start[free:])

        def residuals(x: Floats) -> list[float]:
            made = profile([*x, *fixed], dies)
            return [r for p in points for r in misfit(p, measure(made, host, p, requests=REQUESTS))]

        low = [0.05 * US, 0.05 * latency, 0.01, ceiling / 1.3]
        high = [latency, latency, 0.6, 30 * ceiling]
        return solve(residuals, start[:free], rounds=rounds, low=low[:free], high=high[:free])

    start = [base, die, 0.1, ceiling]
    if depths < 3:
        free = 3 if depths == 1 else 4
        start[3] = ceiling if depths == 2 else 4 * ceiling
        tell("reads: fitting the constant part" + (" and the ceiling" if free == 4 else ""))
        found = at_dies(ASSUMED_DIES, start, free, 8)
        return _result(names, found, start, ASSUMED_DIES, fitted_dies=False)
    busy = max(1.0, ceiling * die / 1e12)
    best: tuple[float, int, Solution] | None = None
    for factor in DIES_GRID:
        dies = max(1, round(busy * factor))
        tell(f"reads: {dies} dies")
        found = at_dies(dies, start, 4, 4)
        if best is None or found.cost < best[0]:
            best = (found.cost, dies, found)
        elif found.cost > 6 * best[0] and factor > 1:
            break
    if best is None:
        return _result(names, at_dies(ASSUMED_DIES, start, 4, 4), start, ASSUMED_DIES, False)
    for factor in (0.94, 1.06):
        dies = max(1, round(best[1] * factor))
        tell(f"reads: {dies} dies")
        found = at_dies(dies, best[2].values.tolist(), 4, 4)
        if found.cost < best[0]:
            best = (found.cost, dies, found)
    tell(f"reads: {best[1]} dies, last rounds")
    last = at_dies(best[1], best[2].values.tolist(), 4, 8)
    return _result(names, last, start, best[1], fitted_dies=True)


def _result(
    names: Sequence[str], found: Solution, start: Sequence[float], dies: int, fitted_dies: bool
) -> ReadFit:
    free = len(found.values)
    values = dict(zip(names, [*found.values, *start[free:]], strict=True))
    spread = intervals(names[:free], found.values, found.jacobian, found.residuals)
    return ReadFit(values, dict(spread), dies, fitted_dies, found.cost)


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
