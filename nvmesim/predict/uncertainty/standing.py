"""Where a prediction stands: what is known beforehand of how sure it can be.

What limits it, how many rows its drives were fitted to, and how far from the nearest of them it is
asked. The model's error is learned as a function of these (`model_error`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from nvmesim.catalog.profile import DriveProfile
from nvmesim.predict.uncertainty.classes import CPU_BOUND
from nvmesim.predict.uncertainty.misfit import is_calibrated
from nvmesim.scenario.resolved import ResolvedScenario

READ_WEIGHT = 8
"""Doublings that the whole way from reads to writes counts as, where the nearest row is sought."""
FAR = 5.0
"""Doublings from which on a distance says no more."""
MANY = 2.0
"""Halvings of what seven rows leave open from which on further rows tell no more."""
FEW = ("Storage Spaces", "hardware RAID", "other RAID engines", "Windows")
"""Classes that the model was hardly ever held against."""
PLAIN = ("drives alone", CPU_BOUND, "shared targets", "links", "mixes")
"""Classes without an array."""
NEAR = (0.3, 1.0, 0.05)
"""Doublings of size and of depth, and share of reads, up to which a fitted row is near."""
Evidence = Literal["catalog", "near", "far"]
NAMES = ("all", "rows 0", "few rows", "deeper", "shallower", "size", "share of reads",
         "more drives", "CPU", "link", "array", "few sources", "latency",
         "drives, near")  # fmt: skip
"""Of `Standing.covariates`."""
AWAY = ("rows 0", "few rows", "deeper", "shallower", "size", "share of reads", "more drives")
"""Those that lead away from evidence: they never make a prediction surer."""


@dataclass(frozen=True)
class Standing:
    """What is known beforehand of one prediction."""

    model_class: str = ""
    limit: str = ""
    """The verdict: "drive", "cpu", "link" ..."""
    rows: int = 0
    """Rows that the drives were fitted to; 0: their numbers are a catalog's or a data sheet's."""
    depth: float = 0.0
    """log2 of the depth of a drive over that of the nearest of these rows."""
    size: float = 0.0
    """The same of the bytes of a request."""
    drives: float = 0.0
    """The same of the drives."""
    read: float = 0.0
    """Share of reads less that of the nearest row."""

    @property
    def kind(self) -> str:
        """As "calibrated" or "catalog"."""
        return "calibrated" if self.rows else "catalog"

    @property
    def evidence(self) -> Evidence:
        """Whether rows were fitted, and whether one of them is near.

        >>> Standing(rows=3, depth=1.0).evidence, Standing(rows=3, size=4.0).evidence
        ('near', 'far')
        """
        if not self.rows:
            return "catalog"
        away = (self.size, self.depth, self.read)
        is_near = all(abs(x) <= most for x, most in zip(away, NEAR, strict=True))
        return "near" if is_near else "far"

    def covariates(self) -> tuple[float, ...]:
        """Numbers that the spread of the model's error is a function of, as `NAMES`.

        >>> Standing("drives alone", "drive", rows=3, depth=1.0).covariates()[:4]
        (1.0, 0.0, 1.0, 1.0)
        """
        is_array = self.model_class not in (*PLAIN, *FEW)
        return (
            1.0, float(not self.rows), self._few() if self.rows else 0.0,
            min(max(self.depth, 0.0), FAR), min(max(-self.depth, 0.0), FAR),
            min(abs(self.size), FAR), min(abs(self.read) * 2, 1.0),
            min(max(self.drives, 0.0), FAR), float(self.limit == "cpu"),
            float(self.limit == "link"), float(is_array), float(self.model_class in FEW),
            float(self.limit == "latency-bound"),
            float(self.limit == "drive" and self.evidence == "near"),
        )  # fmt: skip

    def _few(self) -> float:
        """0 for seven rows, 2 for one, -1 for fifteen."""
        return max(3 - math.log2(1 + self.rows), -MANY)

    def words(self) -> str:
        """What it rests on, in words.

        >>> Standing("mixes", rows=3, depth=2.0, read=-0.3).words()
        'fitted to 3 rows, asked at 4 times the depth and another share of reads'
        """
        if not self.rows:
            return "not fitted to captures"
        far = [f"{2**abs(x):.3g} times the {name}" if x > 0 else f"a {2**-x:.3g}th of the {name}"
               for name, x in (("depth", self.depth), ("size", self.size), ("drives", self.drives))
               if abs(x) > 0.3]  # fmt: skip
        far += ["another share of reads"] if abs(self.read) > 0.05 else []
        asked = " and ".join(far)
        rows = f"fitted to {self.rows} row{'s' if self.rows > 1 else ''}"
        return f"{rows}, asked at {asked}" if asked else rows

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def standing(scenario: ResolvedScenario, model_class: str, limit: str) -> Standing:
    """Return where the prediction of *scenario* stands: by its drives with the fewest rows."""
    each = [_of(drive.profile, scenario) for drive in scenario.drives]
    if model_class == CPU_BOUND:  # then the stack must have been captured
        stacks = {c.stack for d in scenario.drives if (c := d.profile.captured) and c.stack}
        each = each if stacks <= {scenario.stack.name} else []
    if not each or not all(each):
        return Standing(model_class, limit)
    rows, near = min((e for e in each if e is not None), key=lambda e: e[0])
    return Standing(model_class, limit, rows, *near)


def _of(
    profile: DriveProfile, scenario: ResolvedScenario
) -> tuple[int, tuple[float, float, float, float]] | None:
    rows = [r for r in profile.residuals if not r.held_out]
    if not rows or not scenario.workload:
        depths = profile.captured.depths if profile.captured else ()
        return (max(1, len(depths)), (0.0,) * 4) if is_calibrated(profile) else None
    group = max(scenario.workload, key=lambda g: g.in_flight if not g.is_open else 0)
    n = len(scenario.drives)
    depth = 1.0 if group.is_open else max(group.in_flight, 1) / n
    size = sum(size * share for size, share in group.block_sizes)
    near = (
        (math.log2(max(depth, 0.125) / max(r.depth, 0.125)), math.log2(size / r.block_size),
         math.log2(n / r.drives), group.read - r.read)
        for r in rows
    )  # fmt: skip
    return len(rows), min(near, key=lambda d: sum(map(abs, d[:3])) + READ_WEIGHT * abs(d[3]))
