"""Compiled running statistics of requests: one pass, memory that does not grow with the rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from nvmesim.capture.readers.block.blkparse_kernel import compiled
from nvmesim.capture.requests.codes_kernel import UNKNOWN_TIME
from nvmesim.capture.requests.pairing_kernel import (
    OUT_BYTES,
    OUT_COMPLETE,
    OUT_DEPTH,
    OUT_DEVICE,
    OUT_ISSUE,
    OUT_OFFSET,
    OUT_OP,
)

BITS: Final = 7
"""2**7 bins an octave: a bin's middle is within 1/2**8 = 0.4 % of every sample in it."""
PER_OCTAVE: Final = 1 << BITS
MAX_LATENCY: Final = 1 << 50
"""ns, 13 days: longer ones share the last bin."""
N_BINS: Final = (50 - BITS + 1) * PER_OCTAVE

N_SIZES: Final = 64
"""Distinct sizes counted per group; later ones are lumped together (bytes = -1 there)."""

# Rows of the sums (int64 exact) of one group = device x operation.
COUNT, BYTES, LATENCY, SHORTEST, LONGEST, FIRST, LAST, DEPTHS, DEEPEST = range(9)
TIMED, SEQUENTIAL, NEXT_OFFSET, N_SUMS = range(9, 13)


@compiled
def bin_of(value: int) -> int:
    """Histogram bin of a latency in ns, after fio's law.

    Source: fio stat.c, plat_val_to_idx, with 7 bits instead of 6.
    """
    if value >= MAX_LATENCY:
        return N_BINS - 1
    if value < PER_OCTAVE:
        return max(value, 0)
    octave = 0
    shifted = value >> BITS
    while shifted > 1:
        shifted >>= 1
        octave += 1
    return (octave + 1) * PER_OCTAVE + ((value >> octave) - PER_OCTAVE)


@compiled
def _count_size(sizes: np.ndarray, size: int) -> None:
    """sizes: int64[N_SIZES + 1, 2], (bytes, count) rows; the last is for what has no room."""
    for k in range(N_SIZES):
        if sizes[k, 1] == 0:
            sizes[k, 0] = size
        if sizes[k, 0] == size:
            sizes[k, 1] += 1
            return
    sizes[N_SIZES, 1] += 1


@compiled
def tally(
    out: np.ndarray, n_ops: int, sums: np.ndarray, squares: np.ndarray, bins: np.ndarray,
    sizes: np.ndarray,
) -> None:  # fmt: skip
    """Add requests to the statistics of their groups, group = device * n_ops + operation.

    out: int64[N_OUT, n]. sums: int64[N_SUMS, groups]. squares: float64[groups], ns**2. bins:
    int64[groups, N_BINS]. sizes: int64[groups, N_SIZES + 1, 2].
    """
    for i in range(out.shape[1]):
        group = out[OUT_DEVICE, i] * n_ops + min(out[OUT_OP, i], n_ops - 1)
        issue = out[OUT_ISSUE, i]
        complete = out[OUT_COMPLETE, i]
        sums[COUNT, group] += 1
        sums[BYTES, group] += out[OUT_BYTES, i]
        first = issue if issue != UNKNOWN_TIME else complete
        last = complete if complete != UNKNOWN_TIME else issue
        sums[FIRST, group] = min(sums[FIRST, group], first)
        sums[LAST, group] = max(sums[LAST, group], last)
        sums[DEPTHS, group] += out[OUT_DEPTH, i]
        sums[DEEPEST, group] = max(sums[DEEPEST, group], out[OUT_DEPTH, i])
        if out[OUT_OFFSET, i] == sums[NEXT_OFFSET, group]:
            sums[SEQUENTIAL, group] += 1
        sums[NEXT_OFFSET, group] = out[OUT_OFFSET, i] + out[OUT_BYTES, i]
        _count_size(sizes[group], out[OUT_BYTES, i])
        if issue == UNKNOWN_TIME or complete == UNKNOWN_TIME:
            continue
        latency = complete - issue
        sums[TIMED, group] += 1
        sums[LATENCY, group] += min(latency, MAX_LATENCY)
        sums[SHORTEST, group] = min(sums[SHORTEST, group], latency)
        sums[LONGEST, group] = max(sums[LONGEST, group], latency)
        squares[group] += float(latency) * float(latency)
        bins[group, bin_of(latency)] += 1
