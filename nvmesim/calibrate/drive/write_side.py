"""Fit how a drive writes: acknowledgement, and what limits it when it is pressed.

A ceiling on writes is the drain (programs behind a full buffer, which reads then wait for), or the
controller (write commands per second, which reads do not feel but for their share of it), or there
is not a buffer and writes queue for the dies as reads do (virtual disks). The write points tell the
last from the others by how the ceiling is approached; captures of a mix tell the first two apart.
Where no row shows a ceiling, it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost
from nvmesim.calibrate.drive.laws import (
    LONE_DOUBT,
    SHEET_CEILING,
    RowKind,
    lasting,
    open_writes,
    row_kind,
    unloaded_latency_s,
)
from nvmesim.calibrate.drive.read_side import BEYOND, Progress, held_ps, scattered
from nvmesim.calibrate.evidence import drawn, span_of, with_numbers
from nvmesim.calibrate.infer.optimum import Solution, optimum
from nvmesim.calibrate.infer.problem import Parameter, Problem, efforts, logarithms, problem_of
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.smallest.line import line_of
from nvmesim.catalog.links import Link
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
OPEN_SD: Final = 0.85
"""Standard deviation of the logarithm of a ceiling that no row shows, about `BEYOND` times the
highest rate in the rows: 95 % of it is below 20 times. Assumed."""
MOST_OPEN: Final = 64.0
"""Such a ceiling in units of that rate, at most."""
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
    unidentified: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteParameters:
    """Numbers of a write side: those that its rows determine, and those that stay open."""

    fitted: tuple[Parameter, ...]
    assumed: tuple[Parameter, ...]
    is_known: bool
    """True if a row tells the latency of a lone write"""
    steady: tuple[float, float] | None = None
    """Writes/s that rows show, and that large ones would move, where only these tell a ceiling"""

    def values(self, u: Floats) -> dict[str, float]:
        """All numbers by name, where the fitted ones have the logarithms *u*."""
        found = dict(zip((p.name for p in self.fitted), np.exp(u).tolist(), strict=True))
        return {**{p.name: p.start for p in self.assumed}, **found}


def blank_writes() -> WriteSide:
    """Return a write side to start from; all of it assumed."""
    q = Quantity
    return WriteSide(base=q(value=15 * US), program=q(value=100 * US), buffer=q(value=BUFFER))


def fit_writes(
    template: DriveProfile, host: BenchHost, points: Sequence[Point], limit: Limit, tell: Progress
) -> WriteFit:
    """Fit the write side on *points* of one size, its ceiling taken to be of *limit*."""
    tell(f"writes: limited by {LIMITS[limit]}")
    parameters = write_parameters(template, host.link, points, limit)

    def build_profile(u: Floats) -> DriveProfile:
        values = parameters.values(u)
        return with_writes(template, values["base"], values["cv"], values["rate"], limit)

    problem = problem_of(points, logarithms(parameters.fitted), build_profile, host)
    found = optimum(problem, effort=min(1.0, TOTAL / sum(efforts(points))))
    return _write_fit(problem, found, parameters, build_profile, limit)


def write_parameters(
    template: DriveProfile, link: Link, points: Sequence[Point], limit: Limit
) -> WriteParameters:
    """What *points* determine of the acknowledgement, its variation and the highest rate."""
    lone, is_known = unloaded_latency_s(points, read=False)
    top = 1.02 * max(p.iops / p.targets for p in points)
    has_percentiles = any(p.percentiles_s for p in points)
    has_depths = len({p.outstanding for p in points}) > 1
    latency = lone * 1e12
    least = max(0.02 * latency, held_ps(template))
    share = 0.2 if limit == "through" and has_depths else ACKNOWLEDGED
    begin = max(0.5 * US, 1.1 * least, share * latency)
    fitted: list[Parameter] = []
    assumed: list[Parameter] = []
    lone_sd, cv_sd = 0.0 if is_known else LONE_DOUBT[False], 0.0 if has_percentiles else CV_DOUBT
    base = Parameter("base", begin, least, max(1.5 * latency, 2 * begin), prior_sd=lone_sd)
    (fitted if is_known else assumed).append(base)
    cv = Parameter("cv", CV, low=0.01, high=1.5, step=0.2, prior_sd=cv_sd)
    (fitted if has_percentiles else assumed).append(cv)
    steady = None
    if limit == "through" or _shows_ceiling(points, lone, is_known):
        fitted.append(Parameter("rate", top, low=top / 1.4, high=30 * top))
    else:
        rate, sd = BEYOND * top, OPEN_SD
        if link.kind in SHEET_CEILING:
            moved = told_writes(template, points[0].block_size)
            rate, sd, steady = open_writes(
                link, points[0].block_size, top, moved, is_stated=points[0].is_stated
            )
        assumed.append(Parameter("rate", rate, low=top, high=MOST_OPEN * rate, prior_sd=sd))
    return WriteParameters(tuple(fitted), tuple(assumed), is_known, steady)


def told_writes(template: DriveProfile, size: int) -> float | None:
    """Writes/s of *size* bytes that move as much as large ones; None if no row tells that."""
    width = template.write_bandwidth
    return width.value / size if width.basis == "fitted" else None


def _shows_ceiling(points: Sequence[Point], lone: float, is_known: bool) -> bool:
    """True if a row of *points* waited for more than its own service.

    Of rows at several depths the evidence of a ceiling must be strong: N / X grows with N.
    """
    row_kinds = {row_kind(p, lone, is_known=is_known) for p in points}
    if RowKind.CEILING in row_kinds or (RowKind.EITHER in row_kinds and not is_known):
        return True
    return line_of(points).has_ceiling


def _write_fit(
    problem: Problem, found: Solution, parameters: WriteParameters,
    build_profile: Callable[[Floats], DriveProfile], limit: Limit,
) -> WriteFit:  # fmt: skip
    """The profile at the optimum that was *found*, with the draws about it."""
    draws = dict(zip(problem.names, np.exp(drawn(problem, found)).T, strict=True))
    free = scattered(logarithms(parameters.assumed))
    draws |= {p.name: np.array([f[p.name] for f in free]) for p in parameters.assumed}
    if "rate" in draws and parameters.steady is not None:
        draws["rate"] = lasting(draws["rate"], *parameters.steady)
    values = parameters.values(found.values)
    bounds = {name: span_of(draws[name], values[name]) for name in problem.names}
    unidentified = {} if parameters.is_known else {"write.base": "a write at depth 1"}
    if "rate" not in problem.names:
        unidentified["write.program"] = "writes at a depth where IOPS no longer grow"
    return WriteFit(build_profile(found.values), bounds, limit, found.cost, draws, unidentified)


def with_writes(
    template: DriveProfile, base_ps: float, cv: float, rate: float, limit: Limit
) -> DriveProfile:
    """Return *template* with writes acknowledged after *base_ps*, at most *rate* a second."""
    q, w = Quantity, template.write
    drain = 20 * rate if limit == "controller" else rate
    # assumed, the buffer must not cap what dies drain
    buffer = max(w.buffer.value, SLOTS * template.dies.value * w.unit.value)
    return with_numbers(template, {
        "write.base": q(value=base_ps), "write.buffer": q(value=buffer),
        "write.base_cv": q(value=cv if limit != "through" else 0.1),
        "write.program_cv": q(value=cv if limit == "through" else 0.1),
        "write.through": limit == "through",
        "write.program": q(value=template.dies.value / drain * 1e12),
        "write.commands": q(value=rate) if limit == "controller" else None,
    })  # fmt: skip
