"""The model's error on the published sets: the table that predictions draw on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nvmesim.predict.uncertainty.model_error import (
    GROUPS,
    TABLES,
    Miss,
    model_error,
    table_of,
    write_learned,
)
from nvmesim.predict.uncertainty.numbers import Z95
from nvmesim.predict.uncertainty.parts import Parts
from nvmesim.study.validate.held_cases import find_cases
from nvmesim.study.validate.held_out import CaseAnswer, Prediction
from nvmesim.study.validate.predict import Value
from nvmesim.study.validate.published import restates
from nvmesim.study.validate.score import Line, Score, is_other_stack

DISK = "hdd-7200"
"""What stands for a hard disk in the catalog."""


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
    spans = (parts.simulation, parts.numbers, parts.misfit)
    halves = [(down + up) / 2 for down, up in spans]
    return math.hypot(*halves, noise) / Z95


def relearned(scores: Sequence[Score]) -> tuple[Score, ...]:
    """Return *scores* with the model's part of every interval learned from the other sources.

    Nothing is simulated again: what a prediction says and its other parts do not depend on it.
    """
    table = (*misses(scores), *table_of(TABLES[1]))
    return tuple(
        replace(one, lines=tuple(_relearned(line, table) for line in one.lines)) for one in scores
    )


def _relearned(line: Line, table: tuple[Miss, ...]) -> Line:
    catalog = line.catalog and _with_error(line.catalog, line, table)
    return replace(line, value=_with_error(line.value, line, table), catalog=catalog)


def _with_error(value: Value, line: Line, table: tuple[Miss, ...]) -> Value:
    if value.parts is None or line.row.metric not in GROUPS:
        return value
    source = line.published.file.source
    half = model_error(value.standing, line.row.metric, without=source, table=table).half
    parts = replace(value.parts, model=(half, half))
    low, high = parts.around(value.value)
    return replace(value, low=low, high=high, parts=parts)


def write_misses(scores: Sequence[Score]) -> Path:
    """Write the table of the published sets beside the code that reads it; return where."""
    return write_learned(TABLES[0], misses(scores))


# Held-out rows -----------------------------------------------------------------------------------


def held_misses(answers: Sequence[CaseAnswer]) -> list[Miss]:
    """Return how far the model was off on each held-out row that tells about it.

    Hard disks are left out: the numbers are learned for flash. So are fits that are refused: no
    prediction is made with them unless it is forced.
    """
    disks = {case.name for case in find_cases() if case.facts.get("catalog") == DISK}
    refused = {(f.case, f.split) for a in answers for f in a.failures if f.what == "refused"}
    return [
        Miss(p.source, p.case, f"{p.split}: {p.row}", p.metric, math.log(p.measured / p.predicted),
             known_of(Parts(**p.parts), 0.0), p.standing, Parts(**p.parts).room)
        for a in answers for p in a.predictions
        if p.case not in disks and (p.case, p.split) not in refused
        and not p.is_restated and p.metric in GROUPS
        and p.measured > 0 and p.predicted > 0
    ]  # fmt: skip


def write_held_misses(answers: Sequence[CaseAnswer]) -> Path:
    """Write their table beside the code that reads it; return where."""
    return write_learned(TABLES[1], held_misses(answers))


def held_relearned(answers: Sequence[CaseAnswer]) -> list[CaseAnswer]:
    """Return *answers* with the model's part of every interval learned from the other sources."""
    table = (*table_of(TABLES[0]), *held_misses(answers))

    def learned(p: Prediction) -> Prediction:
        if p.metric not in GROUPS:
            return p
        half = model_error(p.standing, p.metric, without=p.source, table=table).half
        low, high = replace(Parts(**p.parts), model=(half, half)).around(p.predicted)
        return replace(p, low=low, high=high)

    return [replace(a, predictions=tuple(map(learned, a.predictions))) for a in answers]
