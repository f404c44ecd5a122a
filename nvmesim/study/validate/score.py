"""Predicted against measured, line by line, what that adds up to, and what is learned from it.

The model's error is learned from the published sets and from held-out rows: tables that predictions
draw on.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nvmesim.predict.uncertainty.model_error import (
    GROUPS,
    TABLES,
    Miss,
    model_error,
    table_of,
)
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.predict.uncertainty.parts import Parts
from nvmesim.predict.uncertainty.standing import CPU_BOUND
from nvmesim.study.validate.answer import Prediction
from nvmesim.study.validate.coverage import Coverage, CoveredRow, coverage
from nvmesim.study.validate.predict import EQUAL, Value
from nvmesim.study.validate.published import Published, Row, metric, restates, stack_of


@dataclass(frozen=True)
class Line:
    """One row of the scoreboard."""

    published: Published
    row: Row
    value: Value
    """The prediction with its parts, calibrated on the set's inputs."""
    catalog: Value | None = None
    """The same from catalog profiles; None where that cannot be."""
    naive: float | None = None
    """Answer of the naive rule; None where it has none."""
    not_counted: str = ""
    """Why the row says nothing about the model; empty: it counts."""

    @property
    def error(self) -> float:
        """Relative, or in points; of a range: how far outside it, 0 inside."""
        return error(self.row, self.value.value)

    @property
    def within_budget(self) -> bool | None:
        """None where nothing is promised: inputs and rows that are only shown."""
        if self.row.role != "target":
            return None
        allowed = self.published.file.budget.get(self.row.metric.partition(":")[0], 0.0)
        return self.error == 0 if self.row.measured is None else abs(self.error) <= allowed + 1e-12

    @property
    def inside(self) -> bool:
        """True if the predicted interval holds the measured value (or meets the range)."""
        low, high = self.row.span
        return self.value.low <= high and self.value.high >= low

    @property
    def counted(self) -> bool:
        """True if the row is in the headline."""
        return self.row.role == "target" and not self.not_counted

    def to_json(self) -> dict[str, Any]:
        """Return the object of `validate --json`."""
        row, rows = self.row, len(self.published.inputs)
        measured: Any = [row.low, row.high] if row.measured is None else row.measured
        judged = _judged(self, self.value)
        return {
            "set": self.published.name, "role": row.role, "config": row.config,
            "metric": row.metric, "reference": row.reference or None, "measured": measured,
            "predicted": _ends(self.value), "error": self.error,
            "within_budget": self.within_budget, "inside_interval": self.inside,
            "verdict": self.value.verdict, "note": row.note,
            "source": self.published.file.source, "naive": self.naive, "counted": self.counted,
            "not_counted": self.not_counted or None,
            "catalog": self.catalog and _ends(self.catalog),
            # What the prediction was told: "3 rows" of the set, or "catalog".
            "information": f"{rows} row{'s' if rows > 1 else ''}" if rows else "catalog",
            "limit": self.value.verdict, "crps": judged.crps if judged else None,
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
        """True if every target is within the set's stated budget."""
        return all(line.within_budget for line in self.targets)


def score(published: Published, prediction: Prediction) -> Score:
    """Compare *prediction* with what *published* measured."""
    lines = tuple(_line(published, row, prediction) for row in published.rows)
    return Score(published, prediction, lines)


def _line(published: Published, row: Row, prediction: Prediction) -> Line:
    value = prediction.values[row.key]
    # rows of the array or the stack tell as much as rows of a drive
    rows = max(value.standing.rows, len(published.inputs))
    sheet = value.standing.sheet if value.standing.rows == rows else ""  # the set's rows are nearer
    value = replace(value, standing=replace(value.standing, rows=rows, sheet=sheet))
    naive = _naive(row, prediction)
    why_not = not_counted(row, published.rows, value, naive)
    if not why_not and is_other_stack(published, row, value):
        why_not = "limited by a stack that no input measures"
    return Line(published, row, value, prediction.catalog.get(row.key), naive, why_not)


def _ends(found: Value) -> dict[str, Any]:
    """Return an interval as JSON; null ends where none is printed."""
    known = found.low < found.high
    return {"value": found.value, "low": found.low if known else None,
            "high": found.high if known else None}  # fmt: skip


def is_other_stack(published: Published, row: Row, value: Value) -> bool:
    """Return whether *row* is bound by a CPU whose stack no input tells: it is not calibrated."""
    if value.standing.model_class != CPU_BOUND:
        return False
    configs = published.file.configs
    given = {stack_of(configs[r.config]) for r in published.rows if r.role == "input"}
    return stack_of(configs[row.config]) not in given


def _naive(row: Row, prediction: Prediction) -> float | None:
    """The naive answer in the row's metric: IOPS, or what they make of the mean latency."""
    rate = prediction.naive.get(row.config)
    if rate is None or rate <= 0 or row.metric not in ("iops", "lat_mean_us"):
        return None
    in_flight = prediction.in_flight.get(row.config, 0.0)
    return rate if row.metric == "iops" else in_flight / rate * 1e6 or None


def not_counted(row: Row, rows: Sequence[Row], value: Value, naive: float | None) -> str:
    """Return why a row says nothing about the model; empty if it does.

    >>> given = Row("c", "iops", 200.0, None, None, "input")
    >>> again = Row("d", "iops", 200.0, None, None, "target")
    >>> not_counted(again, [given, again], Value.plain(200.0), None)
    'has no interval'
    """
    if row.measured is None:
        return "a statement without a number"
    if value.parts is None:
        return "follows from others" if value.low < value.high else "has no interval"
    if restates(row, rows):
        return "restates an input"
    same = {r.metric for r in rows if r.config == row.config and r.role == "target"}
    if row.metric == "lat_mean_us" and "iops" in same:
        return "arithmetic on its IOPS"
    if naive and abs(value.value / naive - 1) < EQUAL:
        return "equals the naive rule"
    return ""


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
    """Summary of the targets of several sets."""

    targets: int
    iops_median: float
    """Median of |error| over targets that are IOPS."""
    iops_p90: float
    cpu_worst: float
    """Largest error of CPU %, points."""
    met: int
    calibrated: Coverage
    catalog: Coverage


def summary(scores: Sequence[Score]) -> Summary:
    """Return what the targets of *scores* add up to; NaN where there is nothing."""
    lines = [line for s in scores for line in s.targets]
    iops = [line for line in lines if line.row.metric == "iops" and line.row.measured is not None]
    errors = [abs(line.error) for line in iops]
    cpu = [abs(line.error) for line in lines if line.row.metric == "cpu_pct"]
    counted = [line for line in lines if line.counted]
    return Summary(
        targets=len(lines),
        iops_median=float(np.median(errors)) if errors else math.nan,
        iops_p90=float(np.quantile(errors, 0.9)) if errors else math.nan,
        cpu_worst=max(cpu, default=math.nan),
        met=sum(bool(line.within_budget) for line in lines),
        calibrated=coverage(_judged(line, line.value) for line in counted),
        catalog=coverage(_judged(line, line.catalog) for line in counted),
    )


def _judged(line: Line, value: Value | None) -> CoveredRow | None:
    if value is None or value.parts is None or line.row.measured is None or value.value <= 0:
        return None
    source = line.published.file.source
    return CoveredRow(source, line.row.measured, value.value, value.low, value.high, line.naive)


def misses(scores: Sequence[Score]) -> Iterator[Miss]:
    """Yield how far the model was off on each measured number that tells about it.

    Calibrated: the targets, unless they restate an input or are arithmetic on another row. From the
    catalog: every such row, as nothing of the set was used.
    """
    for score in scores:
        for line in score.lines:
            for value, is_fitted in ((line.value, True), (line.catalog, False)):
                found = _miss(score, line, value, is_fitted=is_fitted)
                if found is not None:
                    yield found


def _miss(score: Score, line: Line, value: Value | None, *, is_fitted: bool) -> Miss | None:
    row, published = line.row, score.published
    if value is None or value.parts is None or row.measured is None or row.role == "shown":
        return None
    if row.metric not in GROUPS or value.value <= 0 or row.measured <= 0:
        return None
    if is_fitted and (row.role == "input" or restates(row, published.rows)
                      or is_other_stack(published, row, value)):  # fmt: skip
        return None
    rates = {r.config for r in published.rows if r.metric == "iops"}
    if row.metric == "lat_mean_us" and row.config in rates:
        return None
    noise = published.file.noise.get(row.metric, 0.0)
    return Miss(
        published.file.source, published.name, row.config, row.metric,
        math.log(row.measured / value.value), known_of(value.parts, noise), value.standing,
        value.parts.room,
    )  # fmt: skip


def known_of(parts: Parts, noise: float) -> float:
    """Standard deviation that simulation, numbers, misfit and measurement explain."""
    halves = [(down + up) / 2 for down, up in (parts.simulation, parts.numbers, parts.misfit)]
    return math.hypot(*halves, noise) / Z95


def relearned(scores: Sequence[Score]) -> tuple[Score, ...]:
    """Return *scores* with the model's part of every interval learned from the other sources.

    Nothing is simulated again: what a prediction says and its other parts do not depend on it.
    """
    table = (*misses(scores), *table_of(TABLES[1]))

    def again(line: Line) -> Line:
        catalog = line.catalog and _with_error(line.catalog, line, table)
        return replace(line, value=_with_error(line.value, line, table), catalog=catalog)

    return tuple(replace(one, lines=tuple(map(again, one.lines))) for one in scores)


def _with_error(value: Value, line: Line, table: tuple[Miss, ...]) -> Value:
    if value.parts is None or line.row.metric not in GROUPS:
        return value
    source = line.published.file.source
    error = model_error(value.standing, line.row.metric, without=source, table=table)
    parts = replace(value.parts, model=error.span)
    low, high = parts.around(value.value)
    return replace(value, low=low, high=high, parts=parts)
