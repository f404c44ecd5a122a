"""Rows of the drives in the picture: of many, equal ones share a row and odd ones keep theirs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean, median
from typing import Final

from nvmesim.predict.result import Result
from nvmesim.scenario.resolved import Drive, ResolvedScenario
from nvmesim.show.picture.loads import Loads
from nvmesim.show.words import kiops, percent

ONE_BY_ONE: Final = 8
"""A server with so many drives shows each in a row of its own."""
LEAST_FOLDED: Final = 3
"""Fewer equal drives than this are not worth a row that stands for many."""
ODD: Final = 0.1
"""A drive whose share of busy time is so far from the middle one is odd."""


@dataclass(frozen=True)
class DriveRow:
    """One row: a drive, or several that are equal and equally busy."""

    drives: tuple[Drive, ...]
    busy: float
    """Of the busiest."""
    least: float
    """Of the least busy."""
    words: str
    """Commands per second of each, and what is odd about it."""

    @property
    def name(self) -> str:
        """Its drives, as short as they can be named."""
        if len(self.drives) == 1:
            return self.drives[0].name
        return f"{len(self.drives)} × {together([d.name for d in self.drives])}"

    @property
    def percent(self) -> str:
        """How busy: a range where the drives differ."""
        low, high = percent(self.least), percent(self.busy)
        return high if low == high else f"{low.removesuffix(' %')}–{high}"


def drive_rows(drives: Sequence[Drive], result: Result, load: Loads) -> tuple[DriveRow, ...]:
    """Rows of *drives*, which hang on one adapter or socket, in the order of their first drives."""
    scenario = result.resolved
    assert isinstance(scenario, ResolvedScenario)
    marks = _marks(scenario, result)
    fold = len(scenario.drives) > ONE_BY_ONE
    alike: dict[object, list[Drive]] = {}
    for drive in drives:
        key = (drive.profile.name, drive.link, marks.get(drive.index)) if fold else drive.index
        alike.setdefault(key, []).append(drive)
    found: list[DriveRow] = []
    for equal in alike.values():
        busy = {d.index: load.drive.get(d.index, 0.0) for d in equal}
        middle = median(busy.values())
        close = [d for d in equal if abs(busy[d.index] - middle) <= ODD]
        folded = close if len(close) >= LEAST_FOLDED else []
        shared = {d.index for d in folded}
        rows = [folded] if folded else []
        rows += [[d] for d in equal if d.index not in shared]
        found += [_row(tuple(row), busy, result, marks) for row in rows]
    return tuple(sorted(found, key=lambda row: row.drives[0].index))


def _row(
    drives: tuple[Drive, ...], busy: dict[int, float], result: Result, marks: dict[int, str]
) -> DriveRow:
    known = [busy[d.index] for d in drives]
    words = _rates(drives, result)
    mark = marks.get(drives[0].index)
    if mark is not None:
        words = mark if words in ("", "idle") else f"{mark} · {words}"
    return DriveRow(drives, max(known), min(known), words)


def _marks(scenario: ResolvedScenario, result: Result) -> dict[int, str]:
    """Drive -> "failed" or "rebuilt"."""
    rebuilt = result.rebuild.drive if result.rebuild is not None else None
    marks = {v.members[m]: "failed" for v in scenario.volumes for m in v.degraded}
    return marks | {d.index: "rebuilt" for d in scenario.drives if d.name == rebuilt}


def _rates(drives: Sequence[Drive], result: Result) -> str:
    """Commands per second that each of *drives* serves."""
    members = [result.members[d.index] for d in drives if d.index < len(result.members)]
    if not members:
        return ""
    rate = result.total.iops.value
    both = (("read", mean(m.reads_per_request for m in members)),
            ("write", mean(m.writes_per_request for m in members)))  # fmt: skip
    parts = [f"{what} {kiops(each * rate)}" for what, each in both if each > 0]
    text = " · ".join(parts) or "idle"
    return f"each {text}" if len(members) > 1 else text


def together(names: Sequence[str]) -> str:
    """Many names as one: ranges of numbers where the names differ in nothing else.

    >>> together([f"drive{i}" for i in (0, 2, 3, 4)])
    'drive0, 2–4'
    >>> together(["left", "right", "middle"])
    'left … middle'
    """
    split = [re.fullmatch(r"(.*?)(\d+)", name) for name in names]
    stems = {m[1] if m else None for m in split}
    if len(stems) > 1 or None in stems:
        return f"{names[0]} … {names[-1]}"
    numbers = sorted(int(m[2]) for m in split if m)
    runs = [
        [n for _, n in run]
        for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ]
    notes = [str(r[0]) if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in runs]
    return f"{stems.pop()}{', '.join(notes)}" if len(notes) <= 3 else f"{names[0]} … {names[-1]}"
