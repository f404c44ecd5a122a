"""Where a series of window means changes its level: once for good, or to and fro.

One step down in the bytes written per second is a buffer that was full: what was written until
then, less what drained meanwhile, is its size. A series that turns between two well-separated,
lasting levels has episodes of garbage collection (`catalog.profile.GarbageCollection`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nvmesim.array_types import Bools, Floats
from nvmesim.catalog.profile import Quantity
from nvmesim.units import format_size

Kind = Literal["latency", "rate"]
"""Whether large values are slow, or small ones are."""


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


# One step for good: a buffer ----------------------------------------------------------------------

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
    if float(fast.min()) < float(np.quantile(slow, 0.75)):  # it came back: episodes, not a buffer
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


# To and fro: episodes -----------------------------------------------------------------------------

MIN_WINDOWS = 40
MIN_EPISODES = 4
"""Episodes that must begin and end within the series."""
MIN_FACTOR = 1.15
SEPARATION = 2.5
"""Distance of the medians in pooled standard deviations; noise alone splits at up to 1.7."""
MIN_LENGTH = 2.0
"""Mean length of an episode and of a pause, in windows."""
TURN = 12.0
"""Cost of a turn, in squared standard deviations: two windows of noise alone do not pay for it."""
PASSES = 4


@dataclass(frozen=True)
class Episodes:
    """A drive's episodes in a series; times in seconds."""

    on_s: float
    off_s: float
    factor: float
    """How many times slower the drive is within them"""
    count: int
    """Episodes that ended within the series."""
    window_s: float
    slow: Bools
    """bool[n_windows]: within an episode"""
    times_s: Floats
    """float64[n_windows]: middle of each window"""

    @property
    def text(self) -> str:
        """One line for a person."""
        return (
            f"{self.count} episodes of {1e3 * self.on_s:.3g} ms, {1e3 * self.off_s:.3g} ms apart, "
            f"{self.factor:.2f} times slower"
        )

    @property
    def slowing(self) -> float:
        """Mean program time with episodes, in units of that without: dies of a full buffer work."""
        return (self.on_s + self.off_s) / (self.off_s + self.on_s / self.factor)

    def spans(self) -> tuple[tuple[float, float], ...]:
        """Start and end of each, s."""
        turns = np.flatnonzero(np.diff(np.concatenate([[0], self.slow.astype(int), [0]])))
        half, last = self.window_s / 2, len(self.times_s) - 1
        return tuple(
            (float(self.times_s[a]) - half, float(self.times_s[min(b - 1, last)]) + half)
            for a, b in zip(turns[::2], turns[1::2], strict=True)
        )


def find_episodes(times_s: Floats, values: Floats, *, kind: Kind) -> Episodes | None:
    """Return the episodes of a series of means over windows of one length, or None.

    *times_s*, *values*: float64[n].
    """
    n = len(values)
    if n < MIN_WINDOWS or not np.all(np.isfinite(values)) or float(values.min()) <= 0:
        return None
    x = np.log(values) if kind == "latency" else -np.log(values)
    window = float(np.median(np.diff(times_s)))
    slow = two_levels(x)
    if window <= 0 or slow.all() or not slow.any() or not _are_apart(x, slow):
        return None
    turns = np.diff(slow.astype(int))
    n_on, n_off = int(np.sum(turns == -1)), int(np.sum(turns == 1))
    in_on, in_off = int(slow.sum()), int((~slow).sum())
    if min(n_on, n_off) < MIN_EPISODES or min(in_on / n_on, in_off / n_off) < MIN_LENGTH:
        return None
    # Turns that there were for each that windows show, as short episodes fall between them: chances
    # of a chain in continuous time sum to 1 - exp(-rates window). Source: Kalbfleisch and Lawless
    # 1985, two states.
    chance = min(n_on / in_on + n_off / in_off, 0.9)
    missed = float(-np.log1p(-chance) / chance)
    # Windows that a turn cuts are of neither level; nor are programs that it found in service.
    inner = np.ones(n, bool)
    inner[:-1] &= turns == 0
    inner[1:] &= turns == 0
    inner[2:] &= turns[:-1] == 0
    fast, slower = (
        float(values[chosen if (chosen := inner & (slow == state)).any() else slow == state].mean())
        for state in (False, True)
    )
    return Episodes(
        in_on * window / n_on / missed, in_off * window / n_off / missed,
        max(slower / fast, fast / slower), n_on, window, slow, times_s,
    )  # fmt: skip


def two_levels(x: Floats) -> Bools:
    """bool[n]: the upper state, by the two-level series with turns that lies nearest to *x*.

    Source: Killick, Fearnhead and Eckley 2012, penalised change points (`TURN`); two levels make it
    a shortest path.
    """
    ordered = np.sort(x)
    i = best_split(ordered)
    upper: Bools = x > (ordered[i - 1] + ordered[i]) / 2
    for _ in range(PASSES):
        if upper.all() or not upper.any():
            break
        levels = np.array([x[~upper].mean(), x[upper].mean()])
        spread = max(float(np.abs(x - levels[upper.astype(int)]).std()), 1e-6)
        upper = _shortest((((x[:, None] - levels) / spread) ** 2).tolist())
    return upper


def _shortest(near: list[list[float]]) -> Bools:
    """bool[n]: the second column where a path of least cost runs through it."""
    a = b = 0.0
    came: list[tuple[bool, bool]] = []  # whether the best way to each column turned
    for to_a, to_b in near:
        came.append((b + TURN < a, a + TURN < b))
        a, b = min(a, b + TURN) + to_a, min(b, a + TURN) + to_b
    out = np.zeros(len(near), bool)
    at = b < a
    for i in range(len(near) - 1, -1, -1):
        out[i] = at
        at ^= came[i][int(at)]
    return out


def _are_apart(x: Floats, slow: Bools) -> bool:
    """True if the medians of the two states are further apart than noise splits."""
    a, b = x[~slow], x[slow]
    pooled = np.sqrt((a.var() * len(a) + b.var() * len(b)) / len(x))
    gap = float(np.median(b) - np.median(a))
    return gap > float(np.log(MIN_FACTOR)) and gap >= SEPARATION * max(float(pooled), 1e-9)
