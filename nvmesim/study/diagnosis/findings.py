"""What `ns.diagnose` returns: rows beside their predictions, explanations, what to measure next."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nvmesim.measure.figures import Interval
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.study.diagnosis.evidence import LEAST_NOISE
from nvmesim.study.diagnosis.short_runs import Change

STRAY: Final = 0.25
"""Share of a healthy server's rows that may lie outside of their intervals."""
FITS: Final = 0.05
"""Least probability of an explanation that is said to fit."""


@dataclass(frozen=True)
class Explanation:
    """One thing that may be different on the server."""

    code: str
    """Of its mistake; two joined by "+"."""
    name: str
    """Its likeliest form, in words."""
    probability: float
    """Of all forms together."""
    changes: Change
    """The likeliest form as ``--set`` takes it; empty: nothing is changed."""
    iops: Interval | None
    """Predicted with it, of the row that differs most; None: not simulated."""
    check: str = ""
    mend: str = ""
    source: str = ""
    alike: tuple[str, ...] = ()
    """Codes of listed explanations under which these rows would be the same."""

    def to_json(self) -> dict[str, Any]:
        """Return the object of `diagnose --json`."""
        return {"set" if name == "changes" else name: v for name, v in vars(self).items()}


@dataclass(frozen=True)
class ComparedRow:
    """A measured row beside its prediction."""

    label: str
    measured: float
    predicted: Interval
    p99_measured_s: float | None
    p99_predicted_s: float | None

    @property
    def around(self) -> Interval:
        """The measured rate and how far a repeat of the run may lie from it, 95 %."""
        factor = math.exp(Z95 * LEAST_NOISE)
        return Interval(self.measured, self.measured / factor, self.measured * factor)

    @property
    def is_inside(self) -> bool:
        """True if the measured rate lies inside the predicted interval."""
        return self.predicted.low <= self.measured <= self.predicted.high

    def to_json(self) -> dict[str, Any]:
        """Return the object of `diagnose --json`."""
        within = [self.around.low, self.around.high]
        return {**vars(self), "measured_within": within, "inside": self.is_inside}


@dataclass(frozen=True)
class NextMeasurement:
    """The measurement that tells the likeliest explanations apart, not one that was made."""

    workload: Mapping[str, Any]
    drives: int | None
    """Number of drives that are loaded, alone; None: the whole."""
    tells: tuple[str, ...]
    """The two explanations between which it decides; one alone where none fits."""
    iops: tuple[float, ...]
    """Predicted under each."""

    def to_json(self) -> dict[str, Any]:
        """Return the object of `diagnose --json`."""
        read = self.workload["read"]
        return {
            "op": {1.0: "randread", 0.0: "randwrite"}.get(read, f"randrw:{100 * read:g}"),
            "block_size": self.workload["block_size"], "jobs": self.workload["threads_total"],
            "iodepth": self.workload["outstanding"], "drives": self.drives,
            "tells": list(self.tells), "iops": list(self.iops),
        }  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """What was measured, what was predicted, and what explains the difference."""

    scenario: str
    rows: tuple[ComparedRow, ...]
    healthy: float
    """Probability that the server is as its scenario says, or that these rows do not show what is
    different."""
    explanations: tuple[Explanation, ...]
    """The likeliest first; "none of these" among them."""
    next: NextMeasurement | None
    left_out: tuple[str, ...] = ()
    """Rows that could not be compared, and why."""
    notes: tuple[str, ...] = ()
    """What the captures say of how they measured."""
    tried: tuple[str, ...] = ()
    """Codes of all mistakes of which a form was simulated."""
    nearest: tuple[str, float] | None = None
    """The form that fits best, and how far off it leaves the row that it misses most, relative;
    None: none changes what these rows show."""

    @property
    def is_healthy(self) -> bool:
        """True if nothing explains the rows better than the scenario as it is, and it does."""
        is_likeliest = all(self.healthy >= e.probability for e in self.explanations)
        return is_likeliest and not self._are_outside

    @property
    def is_unexplained(self) -> bool:
        """True if rows lie outside of their intervals and no mistake that was tried fits them."""
        known = (e.probability for e in self.explanations if e.code != "unknown")
        return self._are_outside and max(known, default=0.0) < FITS

    @property
    def _are_outside(self) -> bool:
        return sum(not row.is_inside for row in self.rows) > STRAY * len(self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `diagnose --json` prints."""
        return dict(vars(self))
