"""The model's error on the published sets: the table that predictions draw on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import nvmesim.predict.uncertainty.model_error as errors
from nvmesim.files import write_text
from nvmesim.measure.figures import Interval
from nvmesim.predict.uncertainty.model_error import GROUPS, Kind, Miss, model_error, write_table
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.predict.uncertainty.parts import Parts
from nvmesim.study.validate.predict import Value
from nvmesim.study.validate.published import restates
from nvmesim.study.validate.score import Line, Score, is_other_stack


def misses(scores: Sequence[Score]) -> Iterator[Miss]:
    """Yield how far the model was off on each measured number that tells about it.

    Calibrated: the targets, unless they restate an input or are arithmetic on another row. From the
    catalog: every such row, as nothing of the set was used.
    """
    for score in scores:
        for line in score.lines:
            for kind, value in (("calibrated", line.value), ("catalog", line.catalog)):
                found = _miss(score, line, "catalog" if kind == "catalog" else "calibrated", value)
                if found is not None:
                    yield found


def _miss(score: Score, line: Line, kind: Kind, value: Value | None) -> Miss | None:
    row = line.row
    if value is None or value.parts is None or row.measured is None or row.role == "shown":
        return None
    if row.metric not in GROUPS or value.value <= 0 or row.measured <= 0:
        return None
    if kind == "calibrated" and (row.role == "input" or restates(row, score.published.rows)):
        return None
    if kind == "calibrated" and is_other_stack(score.published, row, value):
        return None
    if row.metric == "lat_mean_us" and _has_iops(score, row.config):
        return None
    noise = score.published.file.noise.get(row.metric, 0.0)
    return Miss(
        line.source, line.set, row.config, row.metric, value.model_class, kind,
        math.log(row.measured / value.value), _known(value.parts, noise),
    )  # fmt: skip


def _has_iops(score: Score, config: str) -> bool:
    return any(r.config == config and r.metric == "iops" for r in score.published.rows)


def _known(parts: Parts, noise: float) -> float:
    """Standard deviation that simulation, numbers, misfit and measurement explain."""
    spans = (parts.simulation, parts.numbers, parts.misfit)
    halves = [(down + up) / 2 for down, up in spans]
    return math.hypot(*halves, noise) / Z95


def relearned(scores: Sequence[Score]) -> tuple[Score, ...]:
    """Return *scores* with the model's part of every interval learned from the other sources.

    Nothing is simulated again: what a prediction says and its other parts do not depend on it.
    """
    table = tuple(misses(scores))
    return tuple(
        replace(one, lines=tuple(_relearned(line, table) for line in one.lines)) for one in scores
    )


def _relearned(line: Line, table: Sequence[Miss]) -> Line:
    value = line.value and _with_error(line.value, line, "calibrated", table)
    catalog = line.catalog and _with_error(line.catalog, line, "catalog", table)
    if value is None:
        return line
    low, high = line.row.span
    return replace(
        line, value=value, catalog=catalog, predicted=Interval(value.value, value.low, value.high),
        inside=value.low <= high and value.high >= low,
    )  # fmt: skip


def _with_error(value: Value, line: Line, kind: Kind, table: Sequence[Miss]) -> Value:
    if value.parts is None or line.row.metric not in GROUPS:
        return value
    found = model_error(value.model_class, kind, line.row.metric, without=line.source, table=table)
    parts = replace(value.parts, model=(found.half, found.half))
    low, high = parts.around(value.value)
    return replace(value, low=low, high=high, parts=parts)


def write_learned(scores: Sequence[Score]) -> Path:
    """Write the table beside the code that reads it; return where."""
    path = Path(errors.__file__).with_name("model_error.csv")
    write_text(path, write_table(misses(scores)))
    return path
