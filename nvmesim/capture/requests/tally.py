"""Running statistics of requests, a group a device and operation, and the measurements of them."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from nvmesim.capture.capture import OPS, Conditions, Latency, Measurement, OpResult
from nvmesim.capture.caveats import FEWEST
from nvmesim.capture.histogram import percentiles_of_bins
from nvmesim.capture.requests import tally_kernel as kernel
from nvmesim.capture.requests.codes_kernel import UNKNOWN_TIME
from nvmesim.capture.requests.pairing_kernel import OUT_COMPLETE, OUT_DEVICE

PERCENTILES: Final = (1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999)
N_OPS: Final = len(OPS) + 1
SEQUENTIAL_SHARE: Final = 0.9
RANDOM_SHARE: Final = 0.1
MAX_GROUPS: Final = 4096
S_PER_NS: Final = 1e-9


class Tally:
    """Counts, sums and a latency histogram (bins of 0.8 %) per device and operation."""

    def __init__(self) -> None:
        self.rows = 0
        self._names: list[str] = []
        self._sums = np.zeros((kernel.N_SUMS, 0), np.int64)
        self._squares = np.zeros(0)
        self._bins = np.zeros((0, kernel.N_BINS), np.int64)
        self._sizes = np.zeros((0, kernel.N_SIZES + 1, 2), np.int64)

    def add(self, rows: np.ndarray, names: list[str]) -> None:
        """Count *rows* as in a `Block`; devices beyond 1,365 share the last group."""
        self._grow(names)
        self.rows += rows.shape[1]
        rows = np.array(rows)
        rows[OUT_DEVICE] = np.minimum(rows[OUT_DEVICE], len(self._names) - 1)
        if (rows[OUT_COMPLETE] != UNKNOWN_TIME).any():
            more = self._sums.shape[1] - self._bins.shape[0]
            new_bins = np.zeros((more, kernel.N_BINS), np.int64)
            self._bins = np.concatenate((self._bins, new_bins)) if more else self._bins
        kernel.tally(rows, N_OPS, self._sums, self._squares, self._bins, self._sizes)

    def measurements(self) -> tuple[Measurement, ...]:
        """One measurement for each device that did anything."""
        found = (self._measurement(i) for i in range(len(self._names)))
        return tuple(m for m in found if m is not None)

    def _grow(self, names: list[str]) -> None:
        limit = MAX_GROUPS // N_OPS
        new = names[len(self._names) : limit]
        if not new:
            return
        if len(self._names) + len(new) == limit:
            new[-1] = "others"
        more = len(new) * N_OPS
        self._names += new
        sums = np.zeros((kernel.N_SUMS, more), np.int64)
        sums[[kernel.SHORTEST, kernel.FIRST]] = np.iinfo(np.int64).max
        sums[[kernel.LONGEST, kernel.LAST, kernel.NEXT_OFFSET]] = np.iinfo(np.int64).min
        self._sums = np.concatenate((self._sums, sums), axis=1)
        self._squares = np.concatenate((self._squares, np.zeros(more)))
        sizes = np.zeros((more, kernel.N_SIZES + 1, 2), np.int64)
        sizes[:, kernel.N_SIZES, 0] = -1
        self._sizes = np.concatenate((self._sizes, sizes))

    def _measurement(self, device: int) -> Measurement | None:
        groups = slice(device * N_OPS, (device + 1) * N_OPS)
        sums = self._sums[:, groups]
        counts = sums[kernel.COUNT].tolist()
        total, known = sum(counts), sum(counts[: len(OPS)])
        if total == 0:
            return None
        span_s = (int(sums[kernel.LAST].max()) - int(sums[kernel.FIRST].min())) * S_PER_NS
        warnings = [f"{counts[-1]} requests of unknown operation"] if counts[-1] else []
        if not sums[kernel.TIMED].any():
            warnings.append("no latencies in this format: arrivals only")
        warnings += [
            f"{n} {op}{'' if n == 1 else 's'}: too few for a rate"
            for op, n in zip(OPS, counts, strict=False)
            if 0 < n < FEWEST
        ]
        has_depth = sums[kernel.DEEPEST].max() > 0
        conditions = Conditions(
            read_fraction=counts[0] / known if known else None,
            access=_access(int(sums[kernel.SEQUENTIAL].sum()), total),
            block_size=_block_size(self._sizes[groups].reshape(-1, 2)),
            targets=1,
            duration_s=span_s if span_s > 0 else None,
            depth_mean=int(sums[kernel.DEPTHS].sum()) / total if has_depth else None,
        )
        results = [
            self._op_result(device * N_OPS + i, span_s) if n else None for i, n in enumerate(counts)
        ]
        return Measurement(
            label=self._names[device],
            conditions=conditions,
            ops={op: r for op, r in zip(OPS, results, strict=False) if r is not None},
            warnings=tuple(warnings),
            mixed=results[-1],
        )

    def _op_result(self, group: int, span_s: float) -> OpResult:
        sums = self._sums[:, group]
        count, n_bytes = int(sums[kernel.COUNT]), int(sums[kernel.BYTES])
        has_rate = span_s > 0 and count >= FEWEST
        return OpResult(
            count=count,
            bytes=n_bytes,
            iops=count / span_s if has_rate else 0.0,
            bytes_per_s=n_bytes / span_s if has_rate else 0.0,
            clat=self._latency(group) if sums[kernel.TIMED] else None,
        )

    def _latency(self, group: int) -> Latency:
        sums = self._sums[:, group]
        timed = int(sums[kernel.TIMED])
        mean = int(sums[kernel.LATENCY]) / timed
        variance = max(float(self._squares[group]) / timed - mean * mean, 0.0)
        used = np.flatnonzero(self._bins[group])
        counts = self._bins[group][used]
        low, high = int(sums[kernel.SHORTEST]), int(sums[kernel.LONGEST])
        middles = np.clip(bin_middle_ns(used), low, high)
        values = middles * S_PER_NS
        return Latency(
            count=timed,
            mean_s=mean * S_PER_NS,
            min_s=low * S_PER_NS,
            max_s=high * S_PER_NS,
            stddev_s=variance**0.5 * S_PER_NS,
            percentiles_s=percentiles_of_bins(values, counts, PERCENTILES),
            bin_s=values,
            bin_count=counts,
        )


def bin_middle_ns(bins: np.ndarray) -> np.ndarray:
    """Middles, float64[n] in ns, of the histogram bins with these numbers.

    >>> bin_middle_ns(np.array([5, 128, 256])).tolist()
    [5.0, 128.0, 256.5]
    """
    octave = np.maximum(bins // kernel.PER_OCTAVE - 1, 0)
    within = np.where(bins < kernel.PER_OCTAVE, bins, bins % kernel.PER_OCTAVE + kernel.PER_OCTAVE)
    width = np.left_shift(1, octave)
    middles: np.ndarray = within * width + (width - 1) / 2
    return middles


def _access(sequential: int, total: int) -> Literal["random", "sequential"] | None:
    """Sequential if nearly every request starts where its device's previous one ended."""
    share = sequential / total
    if share >= SEQUENTIAL_SHARE:
        return "sequential"
    return "random" if share <= RANDOM_SHARE else None


def _block_size(sizes: np.ndarray) -> int | dict[int, float] | None:
    """The one size, or size -> fraction; None when there are more sizes than were counted."""
    if sizes[sizes[:, 0] < 0][:, 1].sum() > 0:
        return None
    seen = sizes[sizes[:, 1] > 0]
    total = int(seen[:, 1].sum())
    mix: dict[int, float] = {}
    for size, count in sorted(seen.tolist()):
        mix[size] = mix.get(size, 0.0) + count / total
    return next(iter(mix)) if len(mix) == 1 else mix
