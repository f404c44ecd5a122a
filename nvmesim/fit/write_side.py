"""Fit how a drive writes: acknowledgement, and what limits it when it is pressed.

A ceiling on writes is the drain (programs behind a full buffer, which reads then wait for), or the
controller (write commands per second, which reads do not feel), or there is no buffer and writes
queue for the dies as reads do (virtual disks). The write points tell the last from the others by
how the ceiling is approached; captures of a mix tell the first two apart. Without a mix the drain
is taken, the more careful of the two, and said to be assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nvmesim.catalog.profile import DriveProfile, Quantity, WriteSide
from nvmesim.fit.bench import Host, measure
from nvmesim.fit.evidence import drawn, intervals
from nvmesim.fit.points import Point
from nvmesim.fit.read_side import Progress, held_ps
from nvmesim.fit.search import Floats, Solution, misfit, solve

US = 1e6
BUFFER = 4 << 20
"""Write buffer, bytes. Assumed: in the steady state its size does not matter to the rate."""
REQUESTS = 25_000
Limit = Literal["drain", "controller", "through"]
LIMITS: dict[Limit, str] = {
    "drain": "limited by the drain of the buffer",
    "controller": "limited by the controller",
    "through": "no buffer",
}


@dataclass(frozen=True)
class WriteFit:
    """The fitted profile and the intervals of what was fitted."""

    profile: DriveProfile
    bounds: dict[str, tuple[float, float]]
    limit: Limit
    told_by_mix: bool
    draws: dict[str, Floats]
    """Name -> float64[n_draws], joint"""


def blank_writes() -> WriteSide:
    """Return a write side to start from; all of it assumed."""
    q = Quantity
    return WriteSide(base=q(value=15 * US), program=q(value=100 * US), buffer=q(value=BUFFER))


def fit_writes(
    template: DriveProfile,
    host: Host,
    points: Sequence[Point],
    mixes: Sequence[Point],
    tell: Progress,
) -> WriteFit:
    """Fit the write side on *points*; *mixes* decide what the ceiling is made of."""
    tries: list[tuple[float, WriteFit]] = []
    deep = len({p.outstanding for p in points}) > 2
    limits: list[Limit] = ["drain"]
    limits += ["controller"] if mixes else []
    limits += ["through"] if deep else []
    for limit in limits:
        tell(f"writes: {LIMITS[limit]}")
        made, bounds, cost, draws = _fit(template, host, points, limit)
        for p in mixes:
            cost += sum(r * r for r in misfit(p, measure(made, host, p, requests=REQUESTS))[:2]) / 2
        tries.append((cost, WriteFit(made, bounds, limit, bool(mixes), draws)))
    return min(tries, key=lambda t: t[0])[1]


def _fit(
    template: DriveProfile, host: Host, points: Sequence[Point], limit: Limit
) -> tuple[DriveProfile, dict[str, tuple[float, float]], float, dict[str, Floats]]:
    ordered = sorted(points, key=lambda p: p.outstanding)
    first = ordered[0]
    latency = (first.mean_s or first.outstanding / first.iops) * 1e12
    ceiling = 1.02 * max(p.iops for p in points)
    depths = len({p.outstanding for p in points})
    names = ["base", "cv", "rate"][: 3 if depths > 1 else 2]

    def profile(x: Sequence[float] | Floats) -> DriveProfile:
        rate = float(x[2]) if len(x) > 2 else 2 * ceiling
        return with_writes(template, float(x[0]), float(x[1]), rate, limit)

    def residuals(x: Floats) -> list[float]:
        made = profile(x)
        return [r for p in points for r in misfit(p, measure(made, host, p, requests=REQUESTS))]

    share = 0.2 if limit == "through" else 0.8
    least = max(0.02 * latency, held_ps(template))
    start = [max(0.5 * US, 1.1 * least, share * latency), 0.15, ceiling][: len(names)]
    low = [least, 0.01, ceiling / 1.3][: len(names)]
    high = [1.5 * max(latency, least), 1.5, 30 * ceiling][: len(names)]
    found: Solution = solve(residuals, start, rounds=7, low=low, high=high)
    spread = intervals(names, found.values, found.jacobian, found.residuals)
    columns = (found.values * np.exp(drawn(found.jacobian, found.residuals))).T
    draws = dict(zip(names, columns, strict=True))
    return profile(found.values), dict(spread), found.cost, draws


def with_writes(
    template: DriveProfile, base_ps: float, cv: float, rate: float, limit: Limit
) -> DriveProfile:
    """Return *template* with writes acknowledged after *base_ps*, at most *rate* a second."""
    q = Quantity
    drain = 20 * rate if limit == "controller" else rate
    write = template.write.model_copy(
        update={
            "base": q(value=base_ps),
            "base_cv": q(value=cv if limit != "through" else 0.1),
            "program_cv": q(value=cv if limit == "through" else 0.1),
            "through": limit == "through",
            "program": q(value=template.dies.value / drain * 1e12),
            "commands": q(value=rate) if limit == "controller" else None,
        }
    )
    return template.model_copy(update={"write": write})
