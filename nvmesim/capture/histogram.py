"""Latency histograms: fio's bin law, merging distributions, and percentiles of bins.

Percentiles are never averaged: two distributions merge only if both have their bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from nvmesim.capture.capture import Latency

FIO_PERCENTILES: Final = (
    *(1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0),
    *(95.0, 99.0, 99.5, 99.9, 99.95, 99.99),
)
"""Percentiles that fio reports by default. Source: fio HOWTO, percentile_list."""
FIO_BITS: Final = 6
"""Source: fio stat.h, FIO_IO_U_PLAT_BITS: 64 bins an octave, so a midpoint is off by < 1/128."""


def fio_bin_value(index: np.ndarray | int) -> np.ndarray:
    """Midpoint of fio's histogram bins, in the unit that fio counted (ns since 3.0, us before).

    *index*: int64[n]. Below 128 a bin is one unit wide and holds exactly its own value.
    Source: fio stat.c, plat_idx_to_val.

    >>> fio_bin_value(np.array([0, 127, 128, 191, 192])).tolist()
    [0.0, 127.0, 129.0, 255.0, 258.0]
    """
    index = np.asarray(index, dtype=np.int64)
    octave = np.maximum((index >> FIO_BITS) - 1, 0)
    low = (np.int64(1) << (octave + FIO_BITS)) + (index % (1 << FIO_BITS)) * (1 << octave)
    middle = low + np.where(octave > 0, (1 << octave) >> 1, 0)
    return np.where(index < 2 << FIO_BITS, index, middle).astype(np.float64)


def fio_bin_index(value: np.ndarray) -> np.ndarray:
    """Bin of each value, the inverse of `fio_bin_value`; int64[n] >= 0 -> int64[n].

    >>> fio_bin_index(np.array([0, 127, 128, 255, 256])).tolist()
    [0, 127, 128, 191, 192]
    """
    # frexp is exact below 2**53 ns, a hundred days.
    octave = np.maximum(np.frexp(value.astype(np.float64))[1] - 1 - FIO_BITS, 0).astype(np.int64)
    index: np.ndarray = (octave << FIO_BITS) + (value >> octave)
    return index


def percentiles_of_bins(
    bin_s: np.ndarray, bin_count: np.ndarray, percents: Iterable[float]
) -> dict[float, float]:
    """Nearest-rank percentiles of a histogram, as fio reports them.

    float64[n_bins] in s, ascending, and int64[n_bins]; k = ceil(p/100 N), the value of its bin.

    >>> percentiles_of_bins(np.array([1.0, 2.0, 5.0]), np.array([50, 49, 1]), [50.0, 99.0, 99.5])
    {50.0: 1.0, 99.0: 2.0, 99.5: 5.0}
    """
    below = np.cumsum(bin_count)
    total = int(below[-1])
    # Fractions such as 99.9 % of 1000 must not become rank 1000 by a rounding of 1e-13.
    ranks = [max(1, math.ceil(round(p / 100 * total, 6))) for p in percents]
    return {
        p: float(bin_s[np.searchsorted(below, rank)])
        for p, rank in zip(percents, ranks, strict=True)
    }


def merge_latencies(parts: Sequence[Latency | None]) -> Latency | None:
    """Merge distributions of jobs that ran together; None if one of them has none.

    Mean, deviation, minimum and maximum merge exactly. Percentiles come from merged bins; without
    bins in every part there are none.
    """
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    if len(known) == 1:
        return known[0]
    count = sum(part.count for part in known)
    means, deviations = (_known(getattr(p, f"{x}_s") for p in known) for x in ("mean", "stddev"))
    mean = stddev = None
    if means and count:
        mean = sum(p.count * m for p, m in zip(known, means, strict=True)) / count
        squares = [d**2 + (m - mean) ** 2 for d, m in zip(deviations, means, strict=False)]
        if squares:
            stddev = math.sqrt(
                sum(p.count * s for p, s in zip(known, squares, strict=True)) / count
            )
    bins = _merge_bins(known)
    percents = sorted({p for part in known for p in part.percentiles_s})
    return Latency(
        count=count,
        mean_s=mean,
        min_s=min(_known(part.min_s for part in known), default=None),
        max_s=max(_known(part.max_s for part in known), default=None),
        stddev_s=stddev,
        percentiles_s=percentiles_of_bins(*bins, percents) if bins and percents else {},
        bin_s=bins[0] if bins else None,
        bin_count=bins[1] if bins else None,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    """Return the values if every one is known, else none of them."""
    every = list(values)
    known = [value for value in every if value is not None]
    return known if len(known) == len(every) else []


def _merge_bins(parts: Sequence[Latency]) -> tuple[np.ndarray, np.ndarray] | None:
    values = [part.bin_s for part in parts if part.bin_s is not None]
    counts = [part.bin_count for part in parts if part.bin_count is not None]
    if not len(values) == len(counts) == len(parts):
        return None
    merged, place = np.unique(np.concatenate(values), return_inverse=True)
    total = np.zeros(len(merged), dtype=np.int64)
    np.add.at(total, place, np.concatenate(counts))
    return merged, total
