"""Take the smaller drive wherever the larger one earns too little, or misses its rows.

A bank of dies behind a controller has more numbers than rows of a few sizes and depths determine. A
latency and a bandwidth (`line_fit`) are tried beside it, for reads and for writes, and win unless
the larger model explains the rows better by more than its numbers cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nvmesim.calibrate.bench import BenchHost, measure
from nvmesim.calibrate.drive.explanations import Explanation
from nvmesim.calibrate.drive.gate import MISS
from nvmesim.calibrate.drive.read_side import Progress
from nvmesim.calibrate.points import Point
from nvmesim.calibrate.smallest.line_fit import MEDIA_S, LineFit, better, fit_line
from nvmesim.catalog.profile import DriveProfile, Quantity

REQUESTS: Final = 12_000
LARGE_NUMBERS: Final = 2
"""Numbers of large reads: data engines and the time of a unit."""


def smaller(
    best: Explanation, host: BenchHost, reads: Sequence[Point], writes: Sequence[Point],
    mixes: Sequence[Point], tell: Progress,
) -> Explanation:  # fmt: skip
    """*best*, or what explains *reads* and *writes* with fewer numbers, and *mixes* no worse."""
    for points, others in ((reads, writes), (writes, reads)):
        if len(points) < 2 or best.profile.rounds is not None:
            continue
        off = [_off(best.profile, host, p) for p in points]
        if not _is_asked(points, off):
            continue
        found = fit_line(best.profile, host, points, tell, batches=not others)
        if not better(found, off, _numbers(best, points)):
            continue
        made = _adopted(best, found, is_read=points is reads)
        if _off_all(made.profile, host, mixes) <= _off_all(best.profile, host, mixes) + MISS:
            best = made
    return best


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
    if max(abs(x) for x in off) > math.log1p(MISS):
        return True
    if len({p.block_size for p in points}) < 2:
        return False
    lone = min(p.outstanding / p.iops for p in points)
    return points[0].read_fraction == 0 or lone < MEDIA_S


def _numbers(best: Explanation, points: Sequence[Point]) -> int:
    """How many numbers of *best* are fitted to rows such as *points*."""
    if points[0].read_fraction == 0:
        return len(best.writes.bounds) if best.writes is not None else 1
    large = LARGE_NUMBERS if best.profile.read.engines is not None else 0
    return large + (len(best.reads.bounds) if best.reads is not None else 1)


def _adopted(best: Explanation, found: LineFit, *, is_read: bool) -> Explanation:
    """*best* with one side as *found*."""
    side = ("read", "dies", "commands") if is_read else ("write",)
    kept = {k: v for k, v in best.joint.items() if k.partition(".")[0] not in side}
    unidentified = {k: v for k, v in best.unidentified.items() if k.partition(".")[0] not in side}
    profile = found.profile
    if is_read:  # the same drain from another number of dies
        ratio = profile.dies.value / best.profile.dies.value
        profile = _scaled(profile, ratio)
        kept = {k: v * ratio if k == "write.program" else v for k, v in kept.items()}
    length = len(next(iter(found.columns.values())))
    kept = {k: np.resize(v, length) for k, v in kept.items()}
    found_of = replace(
        best, profile=profile, joint={**kept, **found.columns}, notes=(*best.notes, found.note),
        unidentified={**unidentified, **found.unidentified}, suspends=None,
    )  # fmt: skip
    if is_read:
        return replace(found_of, ceiling=None, reads=None)
    return replace(found_of, limit=None, writes=None)


def _scaled(profile: DriveProfile, ratio: float) -> DriveProfile:
    program = profile.write.program
    ends = {k: v * ratio for k in ("low", "high") if (v := getattr(program, k)) is not None}
    update: dict[str, Quantity] = {
        "program": program.model_copy(update={"value": program.value * ratio, **ends})
    }
    return profile.model_copy(update={"write": profile.write.model_copy(update=update)})
