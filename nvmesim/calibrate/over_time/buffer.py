"""A write buffer that fills during a capture: how much it holds, and the rate at which it drains.

A long write runs at the pace of the buffer until it is full, and then at that of the drain: one
step down in bytes per second. What was written until the step, less what drained meanwhile, is the
buffer. A step that is not there, or one of many (episodes), is not a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nvmesim.array_types import Floats
from nvmesim.capture.capture import Capture, Captures
from nvmesim.catalog.profile import Quantity
from nvmesim.units import format_size

WINDOWS = 200
"""Windows that single requests are summed in."""
LEAST = 5
"""Windows on either side of the step, at least."""
STEP = 1.3
"""Rate before the step in units of that after it, at least."""
START = 0.5
"""Windows that a disk may take to begin to drain: what is in program still holds its place."""
STEADY = 0.3
"""Coefficient of variation of the rate after the step, at most: else it is not a steady drain."""


@dataclass(frozen=True)
class Buffer:
    """A write buffer as a capture shows it."""

    size: float
    """Bytes"""
    low: float
    high: float
    """95 % interval of the size"""
    drain: float
    """Bytes per second once it is full"""
    filled_s: float
    """When it was full"""

    def quantity(self, source: str) -> Quantity:
        """Return the size as a profile has it."""
        return Quantity(
            value=self.size, low=self.low, high=self.high, basis="fitted", source=source
        )

    @property
    def text(self) -> str:
        """One line for a person."""
        return (
            f"a write buffer of about {format_size(round(self.size / 2**20) * 2**20)} "
            f"({self.low / 1e9:.3g} to {self.high / 1e9:.3g} GB) was full after "
            f"{self.filled_s:.3g} s, and drains at {self.drain / 1e9:.3g} GB/s"
        )


def find_buffer(times_s: Floats, bytes_per_s: Floats) -> Buffer | None:
    """Return the buffer that filled in a series of rates over windows of one length, or None.

    *times_s*: ends of the windows; both float64[n]. The step is where two constants fit best
    (least squares); the interval is of how surely the drain is known, one window's
    scatter, and when the drain began. That is only bounded (`START`), so the interval holds more
    often than 95 %.
    """
    n = len(times_s)
    if n < 2 * LEAST:
        return None
    total = np.cumsum(bytes_per_s)
    left = np.arange(LEAST, n - LEAST + 1)
    first = total[left - 1] / left
    second = (total[-1] - total[left - 1]) / (n - left)
    between = left * (n - left) * (first - second) ** 2
    i = int(left[int(np.argmax(between))])
    fast, slow = bytes_per_s[:i], bytes_per_s[i:]
    high, low = float(fast.mean()), float(slow.mean())
    if low <= 0 or high < STEP * low or float(slow.std()) > STEADY * low:
        return None
    if float(fast.min()) < float(np.quantile(slow, 0.75)):  # it came back: episodes, not a buffer
        return None
    window = float(np.median(np.diff(times_s)))
    # What went in is counted and not estimated; what drained meanwhile is known as well as the
    # drain, and the window of the step is in part of either.
    ahead = float(np.sum(bytes_per_s[: i + 1] - low)) * window
    filled = ahead / (high - low)
    drained = _error_of_mean(slow) * filled
    begun = float(slow.std()) * window
    half = 1.96 * float(np.hypot(drained, begun))
    late = START * low * window  # what was not drained before the drain began: only more can fit
    return Buffer(ahead, max(0.0, ahead - half), ahead + half + late, low, filled)


def _error_of_mean(values: Floats) -> float:
    """Standard error of the mean of windows that may follow each other.

    From means of batches. Source: Law, Simulation Modeling and Analysis, section 9.5.3.
    """
    batches = max(2, min(20, len(values) // 5))
    means = [float(part.mean()) for part in np.array_split(values, batches)]
    return float(np.std(means, ddof=1) / np.sqrt(batches))


def buffer_of(capture: Capture) -> Buffer | None:
    """The buffer that filled during the writes of *capture*: from its requests, or its series."""
    found = rates_of(capture)
    return None if found is None else find_buffer(*found)


def buffers_of(captures: Captures) -> tuple[Buffer | None, list[str]]:
    """The largest buffer that filled in *captures*, and what to say of each."""
    found: list[Buffer] = []
    said = []
    for capture in captures.files:
        buffer = buffer_of(capture)
        if buffer is not None:
            found.append(buffer)
            said.append(
                f"{capture.file.name}: {buffer.text}; averages of the whole run describe "
                "neither state, so add a capture of the time after it"
            )
    return max(found, key=lambda b: b.size, default=None), said


def rates_of(capture: Capture, ops: Sequence[str] = ("write",)) -> tuple[Floats, Floats] | None:
    """Ends of windows, s, and bytes moved per second by *ops* in each; None: not known."""
    chosen = pl.col("op").cast(pl.String).is_in(list(ops))
    if capture.requests is not None:
        frame = (
            capture.requests.filter(
                chosen & pl.col("complete_ns").is_not_null() & (pl.col("bytes") > 0)
            )
            .select("complete_ns", "bytes")
            .sort("complete_ns")
            .collect()
        )
        if frame.height < 20 * WINDOWS:
            return None
        done = frame["complete_ns"].to_numpy().astype(float) / 1e9
        edges = np.linspace(float(done[0]), float(done[-1]), WINDOWS + 1)
        moved, _ = np.histogram(done, edges, weights=frame["bytes"].to_numpy())
        return edges[1:], moved / np.diff(edges)
    return None if capture.series is None else _of_series(capture, capture.series.filter(chosen))


def _of_series(capture: Capture, series: pl.DataFrame) -> tuple[Floats, Floats] | None:
    """Of windows as the tool wrote them; several operations of one window are summed."""
    for kind in ("bytes_per_s", "iops"):
        found = (
            series.filter(pl.col("kind") == kind)
            .group_by("time_s", maintain_order=True).agg(pl.col("value").sum())
            .sort("time_s")
        )  # fmt: skip
        if found.height >= 2 * LEAST:
            rate = found["value"].to_numpy().astype(float)
            if kind == "iops":
                sizes = [m.conditions.block_size for m in capture.measurements]
                if not sizes or not isinstance(sizes[0], int):
                    return None
                rate = rate * sizes[0]
            return found["time_s"].to_numpy().astype(float), rate
    return None
