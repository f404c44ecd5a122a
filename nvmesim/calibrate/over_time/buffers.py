"""Write buffers as captures show them.

One step down in the bytes written per second is a buffer that was full: what was written until
then, less what drained meanwhile, is its size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nvmesim.array_types import Floats
from nvmesim.capture.capture import Capture, Captures
from nvmesim.catalog.profile import Quantity
from nvmesim.units import format_size

RATE_WINDOWS = 200
"""Windows that the bytes of single requests are summed in."""
LEAST_WINDOWS = 5
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

    *times_s*: ends of the windows; both float64[n]. When the drain began is only bounded (`START`),
    so the interval holds more often than 95 %.
    """
    if len(times_s) < 2 * LEAST_WINDOWS:
        return None
    # Of two constants the nearest, by least squares: the largest variance between the two sides.
    n, sums = len(bytes_per_s), np.cumsum(bytes_per_s)
    left = np.arange(LEAST_WINDOWS, n - LEAST_WINDOWS + 1)
    apart = sums[left - 1] / left - (sums[-1] - sums[left - 1]) / (n - left)
    i = int(left[int(np.argmax(left * (n - left) * apart**2))])
    fast, slow = bytes_per_s[:i], bytes_per_s[i:]
    high, low = float(fast.mean()), float(slow.mean())
    if low <= 0 or high < STEP * low or float(slow.std()) > STEADY * low:
        return None
    if float(fast.min()) < float(np.quantile(slow, 0.75)):  # it came back: no buffer
        return None
    window = float(np.median(np.diff(times_s)))
    # What went in is counted and not estimated; what drained meanwhile is known as well as the
    # drain (by batch means: Law, Simulation Modeling and Analysis, section 9.5.3), and the window
    # of the step is in part of either.
    ahead = float(np.sum(bytes_per_s[: i + 1] - low)) * window
    filled = ahead / (high - low)
    batches = max(2, min(20, len(slow) // 5))
    means = [float(part.mean()) for part in np.array_split(slow, batches)]
    drained = float(np.std(means, ddof=1) / np.sqrt(batches)) * filled
    half = 1.96 * float(np.hypot(drained, float(slow.std()) * window))
    late = START * low * window  # what was not drained before the drain began: only more can fit
    return Buffer(ahead, max(0.0, ahead - half), ahead + half + late, low, filled)


def buffers_of(captures: Captures) -> tuple[Buffer | None, dict[str, str]]:
    """The largest buffer that filled in *captures*, and what to say of each file that has one."""
    found: list[Buffer] = []
    said: dict[str, str] = {}
    for capture in captures.files:
        rates = rates_of(capture)
        buffer = None if rates is None else find_buffer(*rates)
        if buffer is not None:
            found.append(buffer)
            name = capture.file.name
            said[name] = (
                f"{name}: {buffer.text}; averages of the whole run describe neither state, so add "
                "a capture of the time after it"
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
        if frame.height < 20 * RATE_WINDOWS:
            return None
        done = frame["complete_ns"].to_numpy().astype(float) / 1e9
        edges = np.linspace(float(done[0]), float(done[-1]), RATE_WINDOWS + 1)
        moved, _ = np.histogram(done, edges, weights=frame["bytes"].to_numpy())
        return edges[1:], moved / np.diff(edges)
    if capture.series is None:
        return None
    for kind in ("bytes_per_s", "iops"):
        found = (
            capture.series.filter(chosen & (pl.col("kind") == kind))
            .group_by("time_s", maintain_order=True).agg(pl.col("value").sum())
            .sort("time_s")
        )  # fmt: skip
        if found.height >= 2 * LEAST_WINDOWS:
            rate = found["value"].to_numpy().astype(float)
            if kind == "iops":
                sizes = [m.conditions.block_size for m in capture.measurements]
                if not sizes or not isinstance(sizes[0], int):
                    return None
                rate = rate * sizes[0]
            return found["time_s"].to_numpy().astype(float), rate
    return None
