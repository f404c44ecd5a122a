"""Fit what larger reads take: the data engines that move their units one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.drive.read_side import Progress
from nvmesim.calibrate.evidence import intervals
from nvmesim.calibrate.infer.optimum import Solution, misfit, solve
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile, Quantity

REQUESTS = 6_250
"""Of one candidate: rates hardly scatter."""
ENGINES = (1, 2, 3, 4, 5, 6)
NOT_WORSE = 1.92
"""Half of a chi-square of one degree, 95 %: a number of engines so little worse may be right."""


def fit_large_reads(
    profile: DriveProfile, host: BenchHost, points: Sequence[Point], tell: Progress
) -> tuple[DriveProfile, dict[str, tuple[float, float]]]:
    """Fit the data engines on points of one size above 4 KiB, after the 4 KiB side.

    For every number of engines the time of a unit follows; the number with the least misfit wins.
    Rows of one request at a time say nothing of how many there are: then it is the most, as few
    would cap what more depth brings.
    """
    lone = max(p.outstanding for p in points) == 1
    tried: list[tuple[float, int, Solution]] = []
    units = points[0].block_size / 4096
    for count in ENGINES[-1:] if lone else ENGINES:
        tell(f"large reads: {count} data engines")
        start = count / (1.05 * max(p.iops for p in points)) / units * 1e12

        def residuals(x: Floats, count: int = count) -> list[float]:
            made = _with_engines(profile, count, float(x[0]))
            return [r for p in points for r in misfit(p, measure(made, host, p, requests=REQUESTS))]

        found = solve(residuals, [start], rounds=3)
        tried.append((found.cost, count, found))
    least, count, found = min(tried, key=lambda t: t[:2])
    spread = dict(intervals(["split"], found.values, found.jacobian, found.residuals))
    open_counts = [other for cost, other, _ in tried if cost <= least + NOT_WORSE]
    spread["engines"] = (min(open_counts), ENGINES[-1] if lone else max(open_counts))
    return _with_engines(profile, count, float(found.values[0])), spread


def _with_engines(profile: DriveProfile, count: int, split_ps: float) -> DriveProfile:
    q = Quantity
    update = {"engines": q(value=count), "split": q(value=split_ps)}
    return profile.model_copy(update={"read": profile.read.model_copy(update=update)})
