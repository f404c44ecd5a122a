"""A fit: its profile with intervals and joint draws, and what is shown beside it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from nvmesim.array_types import Floats
from nvmesim.calibrate.bench import BenchAnswer
from nvmesim.calibrate.points import Point
from nvmesim.catalog.load import quantities
from nvmesim.catalog.profile import DriveProfile, JointDraws, Quantity, StackProfile
from nvmesim.catalog.quantity import with_numbers
from nvmesim.catalog.toml import quantity_at
from nvmesim.drawing import Drawable
from nvmesim.model.lowered import in_words

Profile = TypeVar("Profile", DriveProfile, StackProfile)

Ceiling = Literal["dies", "controller", "path"]
"""Ceiling of reads: the dies, which programs share; the controller, which all commands
share; or the reads' own path out (channels), which nothing shares."""
ROWS = 64
"""Draws that a profile carries; a file of them stays below 6 kB."""


def with_draws(
    profile: Profile, columns: Mapping[str, Floats], source: str, assumed: Collection[str] = ()
) -> Profile:
    """Return *profile* with the 95 % interval of each dotted key in *columns*, and its *source*.

    Keys in *assumed* get an interval too, and stay assumed.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> new = with_draws(drive, {"read.die": np.linspace(50e6, 70e6, 201)}, "a capture")
    >>> new.read.die.basis, new.read.die.low, new.read.die.value
    ('fitted', 50500000.0, 60000000.0)
    """
    for key, column in columns.items():
        low, high = (float(v) for v in np.quantile(column, (0.025, 0.975)))
        profile = with_span(profile, key, (low, high), "" if key in assumed else source)
    return profile


def with_span(profile: Profile, key: str, span: tuple[float, float], source: str) -> Profile:
    """Return *profile* with the 95 % interval *span* of the number at *key*; blank: assumed."""
    value = quantity_at(profile, key)[0].value
    number = Quantity(
        value=value, low=min(span[0], value), high=max(span[1], value), source=source,
        basis="fitted" if source else "assumed",
    )  # fmt: skip
    return with_numbers(profile, {key: number})


def joint_of(
    profile: DriveProfile | StackProfile, columns: Mapping[str, Floats]
) -> JointDraws | None:
    """Return *columns* (dotted key -> float64[n_draws]) as factors of the profile's own values.

    None without columns.

    >>> from nvmesim.catalog.load import get
    >>> drive = get("drive", "intel-p4610-1.6tb")
    >>> joint_of(drive, {"read.die": np.array([57e6, 63e6])}).factors
    ((0.95,), (1.05,))
    """
    if not columns:
        return None
    values = {key: q.value for key, q in quantities(profile)}
    names = tuple(columns)
    table = np.stack([columns[n] / values[n] for n in names], axis=1)
    chosen = np.unique(np.linspace(0, len(table) - 1, ROWS).round().astype(int))
    rows = tuple(tuple(float(f"{f:.4g}") for f in table[i]) for i in chosen)
    return JointDraws(names=names, factors=rows)


@dataclass(frozen=True)
class Side:
    """How a drive reads, or writes, as rows tell it."""

    profile: DriveProfile
    """With the intervals and the sources of that side's numbers"""
    columns: Mapping[str, Floats]
    """Dotted key -> float64[n_draws], joint"""
    cost: float = 0.0
    """Half a chi-square, where explanations are compared"""
    told: tuple[str, ...] = ()
    """Numbers that the rows tell, in words"""
    unidentified: Mapping[str, str] = field(default_factory=dict)
    """Dotted key -> what would tell it"""
    notes: tuple[str, ...] = ()
    ceiling: Ceiling | None = None
    """Part that is taken for the ceiling where the rows cannot tell; None: they tell, or there is
    none"""
    tau: float = 0.0
    """Error of the figures beside sampling, in units of what is assumed"""
    odds: float = 1.0
    """How common a ceiling so low is among data sheets, in units of their median's density"""


@dataclass(frozen=True)
class Judged:
    """One point, measured and simulated."""

    point: Point
    answer: BenchAnswer
    used: bool = True
    """True if it was fitted; held-out points were not."""

    @property
    def measured(self) -> dict[str, float | None]:
        """Named figures of the capture: IOPS, seconds."""
        p = self.point
        named = {f"p{k:g}_s": v for k, v in p.percentiles_s.items()}
        return {"iops": p.iops, "mean_s": p.mean_s, **named, "cpu_s": p.cpu_s}

    @property
    def model(self) -> dict[str, float | None]:
        """Return the same figures, simulated."""
        a = self.answer
        named = {f"p{k:g}_s": a.percentiles_s.get(k) for k in self.point.percentiles_s}
        return {"iops": a.iops, "mean_s": a.mean_s, **named, "cpu_s": a.cpu_s}

    @property
    def residual(self) -> dict[str, float]:
        """Simulated / measured - 1, where both are known."""
        model = self.model
        both = {k: (model[k], v) for k, v in self.measured.items() if v}
        return {k: m / v - 1 for k, (m, v) in both.items() if m is not None and v is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the object of the interface."""
        p = self.point
        return {
            "op": p.op,
            "block_size": p.block_size,
            "jobs": p.jobs,
            "iodepth": p.iodepth,
            "queue_depth": p.outstanding,
            "held_out": p.held_out,
            "fitted": self.used and not p.held_out,
            "cpu_bound": p.is_cpu_bound,
            "source": p.source,
            "measured": self.measured,
            "model": self.model,
            "residual": self.residual,
        }


POOR: Final = 0.25
"""Error of IOPS from which a drive does not reproduce its rows."""
MISSED: Final = {"p50_s": 0.15, "p99_s": 0.3, "p99.9_s": 0.5}
"""Errors of a percentile beyond which a fit says so. A choice: what a reader calls far."""


def percentiles_missed(judged: Sequence[Judged], included: bool = False) -> list[str]:
    """Say which percentiles the fitted drive does not tell, over all points.

    A mean may fit where the shape does not: a drive of another kind, or another host's time, which
    is in the drive's if it is *included*.

    >>> seen = Point("1x1", 1.0, True, 4096, 1, 1, 1e4, 1e-4, {99.0: 2e-4})
    >>> percentiles_missed([Judged(seen, BenchAnswer(1e4, 1e-4, {99.0: 5e-4}))])[0][:35]
    'p99 is off by +150 % at 1 of 1 poin'
    """
    said = []
    for name, limit in MISSED.items():
        off = [r for j in judged if (r := j.residual.get(name)) is not None]
        far = [r for r in off if abs(r) > limit]
        if far:
            low, high = (f"{100 * r:+.0f}" for r in (min(far), max(far)))
            span = f"{low} %" if low == high else f"{low} to {high} %"
            what = name.removesuffix("_s")
            advice = ""
            if 2 * len(far) >= len(off):
                host = "state the host that measured (--captured-on), or " if included else ""
                advice = f": do not use {what} of this profile; {host}add captures"
            said.append(f"{what} is off by {span} at {len(far)} of {len(off)} points{advice}")
    return said


@dataclass(frozen=True)
class DriveFit(Drawable):
    """A fitted drive and the evidence for it."""

    profile: DriveProfile
    points: tuple[Judged, ...]
    warnings: tuple[str, ...] = ()
    free_parameters: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    """Its own rows that it misses by more than a profile may: one line each"""
    carried: tuple[str, ...] = ()
    """The same of rows that only predictions of their own kind rest on: slow mixes, and streams"""

    @property
    def meets_all(self) -> bool:
        """True if it misses none of its rows by more than a profile may."""
        return not (self.misses or self.carried)

    @property
    def residuals(self) -> npt.NDArray[np.float64]:
        """float64[n_points]: simulated / measured IOPS - 1."""
        return np.array([j.residual["iops"] for j in self.points])

    @property
    def held_out(self) -> npt.NDArray[np.bool_]:
        """bool[n_points]: not used for fitting."""
        return np.array([j.point.held_out for j in self.points], bool)

    @property
    def worst(self) -> float:
        """Largest |relative error| on IOPS: of the held-out points, if there are any."""
        chosen = self.held_out if self.held_out.any() else np.ones(len(self.points), bool)
        return float(np.abs(self.residuals[chosen]).max())

    @property
    def verdict(self) -> str:
        """One sentence: whether it can be used, how near it is, and what it does not know."""
        used = [j for j in self.points if j.used and not j.point.held_out]
        own = [j for j in used if not j.point.is_stated] or used  # else the rows are a sheet's
        worst = max((abs(j.residual["iops"]) for j in own), default=0.0)
        rows = f"all {len(own)} rows" if len(own) > 1 else "its one row"
        if self.misses:
            return (
                f"Not to be used as it is: {len(self.misses)} of {len(own)} rows are missed, the "
                f"worst by {worst:.0%} of its IOPS."
            )
        said = f"Reproduces {rows} within {max(worst, 0.001):.1%} of IOPS"
        if worst > POOR:
            said = f"Off by up to {worst:.0%} of IOPS at {rows}"
        held = [abs(j.residual["iops"]) for j in self.points if j.point.held_out]
        if held:
            said += f", and the held-out rows within {max(held):.1%}"
        if untold := self.profile.untold:
            said += f"; the rows do not tell {in_words(untold)}"
        if self.profile.alternatives:
            share = sum(a.weight for a in self.profile.alternatives)
            said += f"; {share:.0%} likely another explanation of them holds, which the intervals "
            said += "of predictions cover"
        return said + "."

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``calibrate --json`` prints."""
        return {
            "profile": self.profile.model_dump(mode="json"),
            "points": [j.to_json() for j in self.points],
            "free_parameters": list(self.free_parameters),
            "verdict": self.verdict,
            "misses": list(self.misses),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class StackFit(Drawable):
    """A fitted stack and the evidence for it."""

    profile: StackProfile
    points: tuple[Judged, ...]
    ghz: float
    warnings: tuple[str, ...] = ()
    drive: DriveProfile | None = None
    """The drive that was fitted along with it."""

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``calibrate --stack --json`` prints."""
        return {
            "profile": self.profile.model_dump(mode="json"),
            "ghz": self.ghz,
            "points": [j.to_json() for j in self.points],
            "warnings": list(self.warnings),
        }
