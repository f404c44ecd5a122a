"""Fit how a drive writes: acknowledgement, and what limits it when it is pressed.

A ceiling on writes is the drain (programs behind a full buffer, which reads then wait for), or the
controller (write commands per second, which reads do not feel but for their share of it), or there
is not a buffer and writes queue for the dies as reads do (virtual disks). The write points tell the
last from the others by how the ceiling is approached; captures of a mix tell the first two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.laws import LONE_DOUBT, Told, lone_s, told
from nvmesim.calibrate.drive.read_side import BEYOND, Progress, held_ps, scattered
from nvmesim.calibrate.evidence import drawn
from nvmesim.calibrate.infer.figures import efforts, problem_of
from nvmesim.calibrate.infer.optimum import optimum
from nvmesim.calibrate.infer.problem import Row, logarithms
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile, Quantity, WriteSide

US = 1e6
BUFFER = 4 << 20
"""Write buffer, bytes. Assumed: in the steady state its size does not matter to the rate."""
SLOTS = 8
"""Of the buffer for each die, at least: fewer would leave dies idle."""
CV, CV_DOUBT = 0.15, 0.7
"""Variation of an acknowledgement, and the doubt of its logarithm where no percentiles tell it."""
ACKNOWLEDGED = 0.8
"""Of a lone write's latency, what the acknowledgement takes; the rest is the way. A start."""
TOTAL = 30_000
"""Requests of one candidate at most, about: no tail is fitted, and a rate hardly scatters."""
Limit = Literal["drain", "controller", "through"]
LIMITS: dict[Limit, str] = {
    "drain": "the drain of the buffer",
    "controller": "the controller",
    "through": "no buffer",
}


@dataclass(frozen=True)
class WriteFit:
    """The fitted profile and the intervals of what was fitted."""

    profile: DriveProfile
    bounds: dict[str, tuple[float, float]]
    """Of what the rows tell"""
    limit: Limit
    cost: float
    draws: dict[str, Floats]
    """Name -> float64[n_draws], joint"""
    untold: dict[str, str] = field(default_factory=dict)


def blank_writes() -> WriteSide:
    """Return a write side to start from; all of it assumed."""
    q = Quantity
    return WriteSide(base=q(value=15 * US), program=q(value=100 * US), buffer=q(value=BUFFER))


def fit_writes(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], limit: Limit, tell: Progress
) -> WriteFit:
    """Fit the write side on *points* of one size, its ceiling taken to be of *limit*."""
    tell(f"writes: limited by {LIMITS[limit]}")
    lone, is_known = lone_s(points, read=False)
    tells = {told(p, lone, is_known=is_known) for p in points}
    at_ceiling = Told.CEILING in tells or (Told.EITHER in tells and not is_known)
    top = 1.02 * max(p.iops / p.targets for p in points)
    shown = any(p.percentiles_s for p in points)
    several = len({p.outstanding for p in points}) > 1
    latency = lone * 1e12
    least = max(0.02 * latency, held_ps(template))
    share = 0.2 if limit == "through" and several else ACKNOWLEDGED
    begin = max(0.5 * US, 1.1 * least, share * latency)
    rows: list[Row] = []
    loose: list[Row] = []
    doubt = 0.0 if is_known else LONE_DOUBT[False]
    first = ("base", begin, least, max(1.5 * latency, 2 * begin), 0.03, doubt)
    (rows if is_known else loose).append(first)
    (rows if shown else loose).append(("cv", CV, 0.01, 1.5, 0.2, 0.0 if shown else CV_DOUBT))
    if at_ceiling or several:
        rows.append(("rate", top, top / 1.4, 30 * top, 0.03, 0.0))
    coordinates = logarithms(rows)
    others = {"rate": BEYOND * top, **{row[0]: row[1] for row in loose}}

    def made(u: Floats) -> DriveProfile:
        found = np.exp(u).tolist()
        at = {**others, **dict(zip((c.name for c in coordinates), found, strict=True))}
        return with_writes(template, at["base"], at["cv"], at["rate"], limit)

    problem = problem_of(points, coordinates, made, host)
    found = optimum(problem, effort=min(1.0, TOTAL / sum(efforts(points))))
    moved = found.values + drawn(found.jacobian, found.residuals)
    columns = np.exp(np.clip(moved, problem.low, problem.high)).T
    draws = dict(zip(problem.names, columns, strict=True))
    free = scattered(logarithms(loose), len(moved))
    draws |= {row[0]: np.array([f[row[0]] for f in free]) for row in loose}
    best = dict(zip(problem.names, np.exp(found.values).tolist(), strict=True))
    bounds = {}
    for name in best:
        low, high = (float(v) for v in np.quantile(draws[name], (0.025, 0.975)))
        bounds[name] = min(low, best[name]), max(high, best[name])
    untold = {} if is_known else {"write.base": "a write at depth 1"}
    if "rate" not in problem.names:
        untold["write.program"] = "writes at a depth where IOPS no longer grow"
    return WriteFit(made(found.values), bounds, limit, found.cost, draws, untold)


def with_writes(
    template: DriveProfile, base_ps: float, cv: float, rate: float, limit: Limit
) -> DriveProfile:
    """Return *template* with writes acknowledged after *base_ps*, at most *rate* a second."""
    q, w = Quantity, template.write
    drain = 20 * rate if limit == "controller" else rate
    write = template.write.model_copy(
        update={
            "base": q(value=base_ps),
            "base_cv": q(value=cv if limit != "through" else 0.1),
            "program_cv": q(value=cv if limit == "through" else 0.1),
            "through": limit == "through",
            "program": q(value=template.dies.value / drain * 1e12),
            "commands": q(value=rate) if limit == "controller" else None,
            # assumed, it must not cap what dies drain
            "buffer": q(value=max(w.buffer.value, SLOTS * template.dies.value * w.unit.value)),
        }
    )
    return template.model_copy(update={"write": write})
