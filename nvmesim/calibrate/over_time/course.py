"""The course of a capture over time, as its log has it, and what happens in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

from nvmesim.array_types import Floats
from nvmesim.calibrate.over_time.buffer import find_buffer
from nvmesim.calibrate.over_time.episodes import Episodes, Kind, episodes_of_requests, find_episodes
from nvmesim.capture.capture import Capture, Captures

Unit = Literal["s", "requests/s", "bytes/s"]

_ENDING: Final = re.compile(r"(_(clat|slat|lat|iops|bw)(\.\d+)?)?\.[a-z]+(\.(gz|zst|xz))?$")
WINDOWS: Final = 240
"""Most windows that a course is drawn in."""
LEAST: Final = 8
MOST: Final = 24
"""Courses that a report shows."""
KINDS: Final[tuple[tuple[str, Kind, Unit], ...]] = (
    ("clat", "latency", "s"), ("lat", "latency", "s"),
    ("iops", "rate", "requests/s"), ("bytes_per_s", "rate", "bytes/s"),
)  # fmt: skip


@dataclass(frozen=True)
class Course:
    """Means of one operation over windows of time."""

    name: str
    """Of the file."""
    op: str
    unit: Unit
    times_s: Floats
    """float64[n]: end of each window"""
    values: Floats
    """float64[n]"""
    episodes: tuple[tuple[float, float], ...] = ()
    """(start, end), s, of each episode in which the disk was slower"""
    step_s: float | None = None
    """When its rate stepped down for good: a buffer was full, or what was saved up was spent"""

    @property
    def label(self) -> str:
        """Name of the file without what all of them end in.

        >>> Course("rr_qd4_clat.1.log.gz", "read", "s", np.zeros(0), np.zeros(0)).label
        'rr_qd4'
        """
        return _ENDING.sub("", self.name)


def courses_of(captures: Captures) -> tuple[Course, ...]:
    """Courses of the files that have any, latencies before rates; at most `MOST`."""
    found: list[Course] = []
    for capture in captures.files:
        found += _of_requests(capture) if capture.requests is not None else _of_series(capture)
    found.sort(key=lambda c: (c.unit != "s", c.op))
    return tuple(found[:MOST])


def _of_series(capture: Capture) -> list[Course]:
    if capture.series is None:
        return []
    found = []
    for op in ("read", "write"):
        rows = capture.series.filter(pl.col("op").cast(pl.String) == op)
        for name, kind, unit in KINDS:
            chosen = rows.filter(pl.col("kind") == name).sort("time_s")
            if chosen.height < LEAST:
                continue
            times = chosen["time_s"].to_numpy().astype(float)
            values = chosen["value"].to_numpy().astype(float)
            slow = find_episodes(times, values, kind=kind)
            step = find_buffer(times, values) if kind == "rate" else None
            at, means = _thinned(times, values)
            found.append(
                Course(
                    capture.file.name, op, unit, at, means, _spans(slow),
                    None if step is None else float(times[0]) + step.filled_s,
                )
            )  # fmt: skip
            break
    return found


def _of_requests(capture: Capture) -> list[Course]:
    """Mean latency in windows, of single requests."""
    found = []
    for op in ("read", "write"):
        frame = (
            capture.requests.filter(
                (pl.col("op").cast(pl.String) == op) & (pl.col("latency_ns") > 0)
                & pl.col("complete_ns").is_not_null()
            )
            .select("complete_ns", "latency_ns")
            .sort("complete_ns")
            .collect()
            if capture.requests is not None
            else pl.DataFrame()
        )  # fmt: skip
        if frame.height < LEAST * LEAST:
            continue
        done = frame["complete_ns"].to_numpy().astype(float) / 1e9
        latency = frame["latency_ns"].to_numpy().astype(float) / 1e9
        slow = episodes_of_requests(done, latency)
        at, means = _thinned(done, latency)
        found.append(Course(capture.file.name, op, "s", at, means, _spans(slow)))
    return found


def _thinned(times_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Ends and means of at most `WINDOWS` windows of equal time; empty ones are left out."""
    count = min(WINDOWS, max(LEAST, len(values) // 4)) if len(values) > WINDOWS else 0
    if not count:
        return times_s, values
    edges = np.linspace(times_s[0], times_s[-1], count + 1)
    window = np.clip(np.searchsorted(edges, times_s, side="left") - 1, 0, count - 1)
    number = np.bincount(window, minlength=count)
    total = np.bincount(window, weights=values, minlength=count)
    full = number > 0
    return edges[1:][full], total[full] / number[full]


def _spans(found: Episodes | None) -> tuple[tuple[float, float], ...]:
    """Start and end of each slow stretch."""
    if found is None:
        return ()
    turns = np.flatnonzero(np.diff(np.concatenate([[0], found.slow.astype(int), [0]])))
    half = found.window_s / 2
    last = len(found.times_s) - 1
    return tuple(
        (float(found.times_s[a]) - half, float(found.times_s[min(b - 1, last)]) + half)
        for a, b in zip(turns[::2], turns[1::2], strict=True)
    )


def by_kind(courses: Sequence[Course]) -> dict[tuple[str, Unit], list[Course]]:
    """Courses that one chart shows: of one operation, in one unit."""
    groups: dict[tuple[str, Unit], list[Course]] = {}
    for course in courses:
        groups.setdefault((course.op, course.unit), []).append(course)
    return groups
