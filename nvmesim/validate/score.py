"""Predicted against measured, line by line, and what that adds up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nvmesim.result.result import Interval
from nvmesim.validate.answer import Prediction
from nvmesim.validate.metrics import metric
from nvmesim.validate.published import Published, Row


@dataclass(frozen=True)
class Line:
    """One row of the scoreboard."""

    set: str
    row: Row
    predicted: Interval
    error: float
    """Relative, or in points; of a range: how far outside it, 0 inside."""
    within_budget: bool | None
    """None where nothing is promised: inputs and rows that are only shown."""
    inside: bool
    """Whether the predicted interval holds the measured value (or meets the range)."""
    verdict: str

    def to_json(self) -> dict[str, Any]:
        """Return the object of `validate --json`."""
        row = self.row
        measured: Any = row.measured
        if measured is None:
            measured = [row.low, row.high]
        return {
            "set": self.set, "role": row.role, "config": row.config, "metric": row.metric,
            "reference": row.reference or None, "measured": measured,
            "predicted": self.predicted.to_json(), "error": self.error,
            "within_budget": self.within_budget, "inside_interval": self.inside,
            "verdict": self.verdict, "note": row.note,
        }  # fmt: skip


@dataclass(frozen=True)
class Score:
    """A set with its lines."""

    published: Published
    prediction: Prediction
    lines: tuple[Line, ...]

    @property
    def targets(self) -> tuple[Line, ...]:
        """Lines that count."""
        return tuple(line for line in self.lines if line.row.role == "target")

    @property
    def met(self) -> bool:
        """Whether every target is within the set's stated budget."""
        return all(line.within_budget for line in self.targets)


def score(published: Published, prediction: Prediction) -> Score:
    """Compare *prediction* with what *published* measured."""
    lines = tuple(_line(published, row, prediction) for row in published.rows)
    return Score(published, prediction, lines)


def _line(published: Published, row: Row, prediction: Prediction) -> Line:
    predicted = prediction.values[row.key]
    off = error(row, predicted.value)
    within: bool | None = None
    if row.role == "target":
        allowed = published.file.budget.get(row.metric.partition(":")[0], 0.0)
        within = off == 0 if row.measured is None else abs(off) <= allowed + 1e-12
    low, high = row.span
    inside = predicted.low <= high and predicted.high >= low
    return Line(published.name, row, predicted, off, within, inside, prediction.verdicts[row.key])


def error(row: Row, predicted: float) -> float:
    """How far *predicted* is from what was measured: a share of it, or points.

    >>> round(error(Row("c", "iops", 200.0, None, None, "target"), 210.0), 6)
    0.05
    >>> error(Row("c", "loss_pct", None, 10, 25, "target", "d"), 28.0)
    3.0
    """
    points = metric(row.metric).points
    if row.measured is not None:
        return predicted - row.measured if points else predicted / row.measured - 1
    low, high = row.span
    if low <= predicted <= high:
        return 0.0
    edge = low if predicted < low else high
    return predicted - edge if points else predicted / edge - 1


@dataclass(frozen=True)
class Summary:
    """What the targets of several sets add up to."""

    targets: int
    iops_median: float
    """Median of |error| over targets that are IOPS."""
    iops_p90: float
    cpu_worst: float
    """Largest error of CPU %, points."""
    covered: float
    """Share of the targets that lie in their predicted interval."""
    half_width: float
    """Median relative half-width of the predicted intervals of IOPS."""
    met: int
    ranges: int
    ranges_met: int


def summary(scores: Sequence[Score]) -> Summary:
    """Return what the targets of *scores* add up to; NaN where there is nothing."""
    lines = [line for s in scores for line in s.targets]
    iops = [line for line in lines if line.row.metric == "iops" and line.row.measured is not None]
    errors = [abs(line.error) for line in iops]
    halves = [
        (line.predicted.high - line.predicted.low) / 2 / line.predicted.value for line in iops
    ]
    cpu = [abs(line.error) for line in lines if line.row.metric == "cpu_pct"]
    ranges = [line for line in lines if line.row.measured is None]
    return Summary(
        targets=len(lines),
        iops_median=float(np.median(errors)) if errors else math.nan,
        iops_p90=float(np.quantile(errors, 0.9)) if errors else math.nan,
        cpu_worst=max(cpu, default=math.nan),
        covered=sum(line.inside for line in lines) / len(lines) if lines else math.nan,
        half_width=float(np.median(halves)) if halves else math.nan,
        met=sum(bool(line.within_budget) for line in lines),
        ranges=len(ranges),
        ranges_met=sum(bool(line.within_budget) for line in ranges),
    )
