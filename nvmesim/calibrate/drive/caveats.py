"""Caveats of a fitted drive: rows that it misses, and what its rows do not determine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nvmesim.calibrate.drive.explanations import Explanation
from nvmesim.calibrate.evidence import Judged, percentiles_missed
from nvmesim.calibrate.points import Point
from nvmesim.catalog.profile import DriveProfile

FAR_OFF: Final = 0.1
"""Relative error on IOPS from which a row counts as missed: beyond what captures scatter."""


@dataclass(frozen=True)
class Rows:
    """The rows that a drive was fitted to."""

    used: Sequence[Point]
    reads: Sequence[Point]
    writes: Sequence[Point]


def caveats(rows: Rows, judged: Sequence[Judged], included: bool) -> Iterator[str]:
    """Yield a sentence for each thing that the *rows* leave in doubt, and for each missed row.

    *included*: the host's constant part is in the profile.
    """
    if included:
        yield (
            "no --captured-on: the host's constant part stays in the profile (host_included = true)"
        )
    if not rows.writes:
        yield "no writes were measured: the write side is assumed"
    if not rows.reads:
        yield "no reads were measured: the read side is assumed"
    for j in far_off(judged, included):
        yield (
            f"{j.point.name}: the fitted drive does {100 * j.residual['iops']:+.0f} % IOPS; a "
            "mechanism is missing there, or the point was disturbed"
        )
    yield from percentiles_missed(judged)


def undetermined(
    profile: DriveProfile,
    rows: Rows,
    unknown: Mapping[str, str],
    free: Collection[str],
    others: Sequence[tuple[Explanation, float]],
) -> Iterator[str]:
    """Yield what the *rows* do not determine, and which other explanations predictions draw from.

    *unknown* are the numbers that they leave open, with what would tell; *free* what was fitted.
    """
    depths = len({p.outstanding for p in rows.reads})
    if "dies" in unknown and "dies" not in free:
        yield (
            f"reads at {depths} depth(s): the number of dies ({profile.dies.value:g}) is "
            "assumed, so do not trust the tail at other depths"
        )
    if "commands" in unknown and "read commands" not in free and depths:
        yield (
            "no point determines the drive's commands per second, they are assumed; "
            f"{unknown['commands']} would"
        )
    if others:
        listed = "; ".join(f"{100 * w:.0f} %: {e.name}" for e, w in others)
        yield (
            f"these rows have several explanations, and predictions draw from all of them "
            f"({listed}); a 70/30 capture would decide"
        )
    if len(rows.used) == 1:
        yield "one point: away from its depth every number is a guess"


def far_off(judged: Sequence[Judged], included: bool) -> list[Judged]:
    """Return the rows that the drive misses; one that measured its host's full thread is none."""
    of_drive = [j for j in judged if not (j.point.is_cpu_bound and included)]
    return [j for j in of_drive if abs(j.residual["iops"]) > FAR_OFF]


def missed(judged: Sequence[Judged], included: bool) -> dict[str, float]:
    """Return the largest error on IOPS of each operation that is missed: predictions repeat it."""
    found: dict[str, float] = {}
    for j in far_off(judged, included):
        error = j.residual["iops"]
        found[j.point.op] = max(found.get(j.point.op, 0.0), error, key=abs)
    return {op: round(float(error), 3) for op, error in found.items()}
