"""Student's t without SciPy, whose import takes longer than many a prediction."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

STEPS: Final = 60
"""Of Newton's method; it stops when nothing changes any more."""


@cache
def two_sided(freedom: int, share: float = 0.95) -> float:
    """How many standard errors hold *share* (0.7 or more) of Student's t, *freedom* degrees of it.

    >>> round(two_sided(23), 6), round(two_sided(5), 6), round(two_sided(1), 6)
    (2.068658, 2.570582, 12.706205)
    """
    tail = 1 - share
    t = 1.0
    for _ in range(STEPS):
        # the share beyond t is convex: from the left, Newton's steps do not leap over it
        step = (1 - _within(t, freedom) - tail) / (2 * _density(t, freedom))
        t += step
        if abs(step) < 1e-15 * t:
            break
    return t


def _within(t: float, freedom: int) -> float:
    """P(-t < T < t). Source: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _density(t: float, freedom: int) -> float:
    log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    log -= (freedom + 1) / 2 * math.log1p(t * t / freedom)
    return math.exp(log) / math.sqrt(freedom * math.pi)
