"""What one timed piece of a run says, and latencies that add up over pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Sample:
    """One timed piece."""

    requests: int
    cpu_s: float
    mean_us: float
    p99_us: float
    iops: float
    """Requests per simulated second."""

    @property
    def rate(self) -> float:
        """Requests per CPU second."""
        return self.requests / max(self.cpu_s, 1e-9)


Piece = Callable[[int], Sample]
"""Simulates so many requests more of one model, and times them."""


@dataclass
class Latencies:
    """Collects latencies of a Python implementation; times in us."""

    values: list[float] = field(default_factory=list)

    def sample(self, cpu_s: float, simulated_us: float) -> Sample:
        """Return all that was collected as a sample, and forget it."""
        x = np.array(self.values)
        self.values = []
        return Sample(
            len(x), cpu_s, float(x.mean()), float(np.quantile(x, 0.99)),
            len(x) / simulated_us * 1e6,
        )  # fmt: skip
