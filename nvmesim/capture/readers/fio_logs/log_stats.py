"""Running statistics of a fio log, in memory that does not grow with it."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nvmesim.capture.capture import Latency, OpResult
from nvmesim.capture.histogram import (
    FIO_PERCENTILES,
    fio_bin_index,
    fio_bin_value,
    percentiles_of_bins,
)
from nvmesim.capture.readers.fio_logs.log_rows import Rows

NS_PER_S: Final = 10**9
N_BINS: Final = 64 * 45
"""Bins up to 2**50 ns, 13 days."""
N_WINDOWS: Final = 4096
"""Windows of the series for drift; their width doubles when the log outgrows them."""
FIRST_WINDOW_NS: Final = 10**8
STEP_NS: Final = NS_PER_S
"""Rows of threads interleave by less; a longer step back starts another job or run."""
DRIFT: Final = 0.2
"""Change of the mean between the first and last quarter that is worth a warning."""
MIN_DRIFT_S: Final = 1.0
OPS: Final = ("read", "write")


class LogStats:
    """Counts, sums, extremes and a histogram of 0.8 % an operation, and means over time."""

    def __init__(self, kind: str, is_averaged: bool) -> None:
        self.kind, self.is_averaged = kind, is_averaged
        self.rows = self.skipped = self.steps_back = 0
        self.count, self.bytes, self.total = [0, 0], [0, 0], [0, 0]
        self.low, self.high = [2**62, 2**62], [0, 0]
        self.squares = [0.0, 0.0]
        self.bins = np.zeros((2, N_BINS), np.int64)
        self.sizes: set[int] = set()
        self.first_ns, self.last_ns = 2**62, 0
        self._window_ns = FIRST_WINDOW_NS
        self._sums = np.zeros((2, 2, N_WINDOWS))
        self._before_ns = 0

    def add(self, rows: Rows, skipped: int) -> None:
        """Count *rows*, and how many were skipped between them."""
        self.skipped += skipped
        self.rows += rows.value.size
        if not rows.value.size:
            return
        self._times(rows.time_ns)
        if len(self.sizes) < 2:
            self.sizes.update((int(rows.bytes.min()), int(rows.bytes.max())))
        for k in range(2):
            mine = rows.op == k
            if mine.any():
                self._add_op(k, rows.time_ns[mine], rows.value[mine], rows.bytes[mine])

    def end_file(self) -> None:
        """Say that the next rows are of another file, whose times start anew."""
        self._before_ns = 0

    def _times(self, time: np.ndarray) -> None:
        before = np.concatenate(([self._before_ns], time[:-1]))
        self.steps_back += int(np.count_nonzero(before - time > STEP_NS))
        self._before_ns = int(time[-1])
        self.first_ns = min(self.first_ns, int(time.min()))
        self.last_ns = max(self.last_ns, int(time.max()))
        while self.last_ns // self._window_ns >= N_WINDOWS:
            self._sums[:, :, : N_WINDOWS // 2] = self._sums[:, :, ::2] + self._sums[:, :, 1::2]
            self._sums[:, :, N_WINDOWS // 2 :] = 0
            self._window_ns *= 2

    def _add_op(self, k: int, time: np.ndarray, value: np.ndarray, n_bytes: np.ndarray) -> None:
        self.count[k] += len(value)
        self.bytes[k] += int(n_bytes.sum())
        # 100,000 rows of a batch x 2**50 ns stay below 2**67: a float sum cannot wrap.
        is_safe = int(value.max()) < 2**40
        self.total[k] += int(value.sum() if is_safe else value.sum(dtype=np.float64))
        self.low[k] = min(self.low[k], int(value.min()))
        self.high[k] = max(self.high[k], int(value.max()))
        real = value.astype(np.float64)
        self.squares[k] += float((real * real).sum())
        self.bins[k] += np.bincount(fio_bin_index(value), minlength=N_BINS)[:N_BINS]
        window = np.maximum(time, 0) // self._window_ns
        self._sums[k, 0] += np.bincount(window, minlength=N_WINDOWS)
        self._sums[k, 1] += np.bincount(window, weights=real, minlength=N_WINDOWS)

    @property
    def span_s(self) -> float:
        """Time from the start of the job, or the first row if that is late, to the last row."""
        start = 0 if self.first_ns < NS_PER_S else self.first_ns
        return max(self.last_ns - start, 0) / NS_PER_S

    @property
    def one_size(self) -> int | None:
        """The block size if all requests had the same."""
        return next(iter(self.sizes)) if len(self.sizes) == 1 else None

    def result(self, k: int, span_s: float) -> OpResult:
        """Return what operation *k* (0 reads, 1 writes) did in *span_s*."""
        rate = 1 / span_s if span_s else 0.0
        latency = self._latency(k) if self.kind in ("clat", "lat", "slat") else None
        return OpResult(
            count=self.count[k],
            bytes=self.bytes[k],
            iops=self.count[k] * rate,
            bytes_per_s=self.bytes[k] * rate,
            clat=latency if self.kind == "clat" else None,
            lat=latency if self.kind == "lat" else None,
            slat=latency if self.kind == "slat" else None,
        )

    def _latency(self, k: int) -> Latency:
        count = self.count[k]
        mean = self.total[k] / count
        used = np.flatnonzero(self.bins[k])
        counts = self.bins[k][used]
        values = fio_bin_value(used) / NS_PER_S
        return Latency(
            count=count,
            mean_s=mean / NS_PER_S,
            min_s=self.low[k] / NS_PER_S,
            max_s=self.high[k] / NS_PER_S,
            stddev_s=math.sqrt(max(self.squares[k] / count - mean * mean, 0.0)) / NS_PER_S,
            percentiles_s=percentiles_of_bins(values, counts, FIO_PERCENTILES),
            bin_s=values,
            bin_count=counts,
        )

    def caveats(self) -> list[str]:
        """Say what the course of time shows: drift, and steps back."""
        found = []
        if self.steps_back:
            found.append(
                f"its times step back {self.steps_back} times: it holds several jobs or runs"
            )
        if self.span_s >= MIN_DRIFT_S and not self.steps_back:
            found += [text for k in range(2) if (text := self._drift(k))]
        return found

    def _drift(self, k: int) -> str:
        used = self.last_ns // self._window_ns + 1
        quarter = int(used) // 4
        counts, sums = self._sums[k, 0], self._sums[k, 1]
        ends = (slice(0, quarter), slice(int(used) - quarter, int(used)))
        if quarter < 2 or any(counts[end].sum() == 0 for end in ends):
            return ""
        first, last = (float(sums[end].sum() / counts[end].sum()) for end in ends)
        if not first or abs(last / first - 1) <= DRIFT:
            return ""
        change = f"{last / first - 1:+.0%}"
        return f"drift: mean {self.kind} of {OPS[k]}s {change} from the first quarter to the last"
