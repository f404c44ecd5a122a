"""Where a series of window means steps down for good.

Such a step in the bytes written per second is a buffer that was full: what was written until then,
less what drained meanwhile, is its size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nvmesim.array_types import Floats
from nvmesim.catalog.profile import Quantity
from nvmesim.units import format_size


def best_split(values: Floats, least: int = 1) -> int:
    """How many first values to part from the rest, *least* on either side, for two constants.

    By the largest variance between the two sides: least squares, and Otsu 1979 on sorted values.

    >>> best_split(np.array([3.0, 3.1, 2.9, 1.0, 1.1]))
    3
    """
    n = len(values)
    left = np.arange(least, n - least + 1)
    sums = np.cumsum(values)
    first = sums[left - 1] / left
    second = (sums[-1] - sums[left - 1]) / (n - left)
    return int(left[int(np.argmax(left * (n - left) * (first - second) ** 2))])


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
    i = best_split(bytes_per_s, LEAST_WINDOWS)
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
