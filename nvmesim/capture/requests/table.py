"""From blocks of requests to a `Capture`: the table, kept or read again, and its statistics.

A reader of a request-level format is a function ``blocks(source, notes)`` that yields `Block`s in
file order. It runs once for the statistics; the table is kept while it is small, else it is the
same function again behind a lazy frame, so that a trace larger than memory is read in batches.
Where a file gives issue and latency on one line, the depth is worked out here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

from nvmesim.capture.capture import (
    OPS,
    REQUEST_SCHEMA,
    Capture,
    Conditions,
    Latency,
    Measurement,
    OpResult,
    fio_bin_index,
    lazy_table,
    percentiles_of_bins,
)
from nvmesim.capture.caveats import FEWEST
from nvmesim.capture.lines import STEPS_BACK, Notes
from nvmesim.capture.requests import (
    LONGEST_NS,
    OUT_BYTES,
    OUT_COMPLETE,
    OUT_DEPTH,
    OUT_DEVICE,
    OUT_ISSUE,
    OUT_OFFSET,
    OUT_OP,
    UNKNOWN_TIME,
)
from nvmesim.capture.text import Source
from nvmesim.warning import Warning

KEEP_ROWS: Final = 2_000_000
"""Rows kept in memory (about 60 bytes each); a longer table is read again when asked for."""
LARGEST_BYTES: Final = 2**40
LARGEST_OFFSET: Final = 2**62
LARGEST_TIME: Final = 4 * 10**18
STEP_NS: Final = 10**9


@dataclass(frozen=True)
class Block:
    """Some requests. rows: int64[N_OUT, n]; names: device by index.

    `UNKNOWN_TIME` stands for an unknown issue, completion or offset, 0 for an unknown depth and
    2 or more for an unknown operation.
    """

    rows: np.ndarray
    names: list[str]


Blocks = Callable[[Source, Notes], Iterator[Block]]


def block_frame(block: Block) -> pl.DataFrame:
    """The rows of *block* as a frame of `REQUEST_SCHEMA`."""
    rows = block.rows
    issue, complete = rows[OUT_ISSUE], rows[OUT_COMPLETE]
    ops = pl.Series([*OPS, None], dtype=REQUEST_SCHEMA["op"])
    names = pl.Series([*block.names, None], dtype=pl.String)
    issues, completes = _known(issue), _known(complete)
    depth = pl.Series(rows[OUT_DEPTH].astype(np.int32))
    return pl.DataFrame(
        [
            issues.alias("issue_ns"),
            completes.alias("complete_ns"),
            (completes - issues).alias("latency_ns"),
            ops.gather(np.minimum(rows[OUT_OP], len(OPS))).alias("op"),
            pl.Series("bytes", rows[OUT_BYTES]),
            _known(rows[OUT_OFFSET]).alias("offset"),
            names.gather(rows[OUT_DEVICE]).alias("device"),
            (depth if depth.min() else depth.replace(0, None)).alias("depth"),
        ]
    )


def _known(values: np.ndarray) -> pl.Series:
    """*values* with null for `UNKNOWN_TIME`."""
    series = pl.Series(values)
    return series.replace(UNKNOWN_TIME, None) if bool((values == UNKNOWN_TIME).any()) else series


def _by_completion(frame: pl.DataFrame) -> pl.DataFrame:
    """*frame* in order of completion."""
    if frame["complete_ns"].is_sorted():
        return frame
    return frame.sort("complete_ns", maintain_order=True)


def requests_capture(
    source: Source, format_name: str, blocks: Blocks, *, version: str | None = None
) -> Capture:
    """Read *source* through *blocks* into a capture, a measurement a device.

    Raises CaptureError if the file holds no request at all.
    """
    notes, tally = Notes(), Tally()
    kept: list[Block] = []
    for block in blocks(source, notes):
        tally.add(block.rows, block.names)
        kept.append(block)
        if tally.rows > KEEP_ROWS:
            kept.clear()
    if tally.rows == 0:
        why = "; ".join(notes.warnings) or f"{notes.skipped} lines skipped"
        raise source.error(
            f"{format_name} without one whole request ({why})",
            "capture both issues and completions",
        )
    is_kept = tally.rows <= KEEP_ROWS
    whole: list[pl.DataFrame] = []

    def frames() -> Iterator[pl.DataFrame]:
        if not is_kept:
            yield from (_by_completion(block_frame(block)) for block in blocks(source, Notes()))
            return
        if not whole:
            whole.append(_by_completion(pl.concat([block_frame(block) for block in kept])))
        yield from whole

    warnings = list(dict.fromkeys(notes.warnings))
    if notes.skipped:
        warnings.append(f"{notes.skipped} lines skipped: damaged, or of no known kind")
    return Capture(
        file=source.path,
        format=format_name,
        version=version,
        measurements=tally.measurements(),
        rows=tally.rows,
        skipped=notes.skipped,
        requests=lazy_table(frames),
        warnings=tuple(warnings),
    )


def rows_of(
    issue: np.ndarray, complete: np.ndarray, offset: np.ndarray, size: np.ndarray,
    device: np.ndarray, op: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Return the rows of a `Block` from columns, their depths zero."""
    return np.array([issue, complete, offset, size, device, np.zeros_like(issue), op], np.int64)


def _sane(rows: np.ndarray, has_latency: bool) -> np.ndarray:
    """bool[n], whether a request is possible; with *has_latency* it must have one."""
    issue, complete = rows[OUT_ISSUE], rows[OUT_COMPLETE]
    n_bytes, offset, op = rows[OUT_BYTES], rows[OUT_OFFSET], rows[OUT_OP]
    took = complete - issue
    within: np.ndarray = (took >= 0) & (took <= LONGEST_NS)
    if not has_latency:
        within |= complete == UNKNOWN_TIME
    within &= (np.abs(issue) <= LARGEST_TIME) & (n_bytes >= 1) & (n_bytes <= LARGEST_BYTES)
    within &= (offset >= 0) & (offset <= LARGEST_OFFSET) & ((op == 0) | (op == 1))
    return within


def timed_rows(batches: Iterator[Block], notes: Notes, *, has_latency: bool) -> Iterator[Block]:
    """Yield what is possible of *batches*, in order of the file, times from the first issue on.

    The depth is exact while requests do not overlap the border of two batches (some 60,000 rows)
    out of order of issue.
    """
    flying: dict[int, np.ndarray] = {}
    back = 0
    start: int | None = None
    last = np.empty((2, 0), np.int64)
    times = [OUT_ISSUE, OUT_COMPLETE]
    for batch in batches:
        good = _sane(batch.rows, has_latency)
        notes.skipped += int((~good).sum())
        rows = np.ascontiguousarray(batch.rows[:, good])
        if rows.shape[1] == 0:
            continue
        start = int(rows[OUT_ISSUE, 0]) if start is None else start
        rows[times] -= np.where(rows[times] == UNKNOWN_TIME, 0, start)
        border = np.concatenate((last, rows[times, :1]), axis=1)
        back += steps_back(*rows[times]) + steps_back(*border)
        last = rows[times, -1:]
        if not (rows[OUT_COMPLETE] == UNKNOWN_TIME).any():
            _fill_depth(rows, flying)
        yield Block(rows, batch.names)
    text = "places where the time steps back by more than a second (depths unreliable)"
    notes.say(back, STEPS_BACK, text)


def steps_back(issue: np.ndarray, complete: np.ndarray) -> int:
    """How often the time steps back by more than a second from one row to the next.

    One request that takes seconds steps back in its issue or its completion only.
    """
    at = np.flatnonzero(issue[1:] - issue[:-1] < -STEP_NS)
    before, behind = complete[at], complete[at + 1]
    unknown = (before == UNKNOWN_TIME) | (behind == UNKNOWN_TIME)
    return int((unknown | (behind - before < -STEP_NS)).sum())


def _fill_depth(rows: np.ndarray, flying: dict[int, np.ndarray]) -> None:
    """Fill in how many were outstanding at each issue: issued less completed so far, itself too.

    *flying*: completion times of earlier batches' requests that may still be outstanding, by
    device.
    """
    devices = rows[OUT_DEVICE]
    by_device = np.lexsort((rows[OUT_ISSUE], devices))
    for mine in np.split(by_device, np.flatnonzero(np.diff(devices[by_device])) + 1):
        device, issue = int(devices[mine[0]]), rows[OUT_ISSUE, mine]
        earlier = flying.get(device, np.empty(0, np.int64))
        ends = np.sort(np.concatenate((earlier, rows[OUT_COMPLETE, mine])))
        done = np.searchsorted(ends, issue, side="right")
        # A request that ends as it starts is outstanding at its own issue.
        depth = np.maximum(np.arange(1, issue.size + 1) + earlier.size - done, 1)
        rows[OUT_DEPTH, mine] = depth
        flying[device] = ends[done[-1] :]


# -- statistics ------------------------------------------------------------------------------------
#
# A group a device and operation, in memory that does not grow with the rows.

BITS: Final = 7
"""2**7 bins an octave: a bin's middle is within 1/2**8 = 0.4 % of every sample in it."""
PER_OCTAVE: Final = 1 << BITS
MAX_LATENCY: Final = 1 << 50
"""ns, 13 days: longer ones share the last bin."""
N_BINS: Final = (50 - BITS + 1) * PER_OCTAVE

N_SIZES: Final = 64
"""Distinct sizes counted per group; later ones are lumped together as `OTHER_SIZES`."""
OTHER_SIZES: Final = -1

# Rows of the sums (int64, exact) of the groups.
COUNT, BYTES, LATENCY, SHORTEST, LONGEST, FIRST, LAST, DEPTHS, DEEPEST = range(9)
TIMED, SEQUENTIAL, NEXT_OFFSET, N_SUMS = range(9, 13)
_START: Final = np.zeros(N_SUMS, np.int64)
_START[[SHORTEST, FIRST]] = np.iinfo(np.int64).max
_START[[LONGEST, LAST, NEXT_OFFSET]] = np.iinfo(np.int64).min

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
        self._sums = np.zeros((N_SUMS, 0), np.int64)
        self._squares = np.zeros(0)
        self._bins = np.zeros((0, N_BINS), np.int64)
        self._sizes: list[dict[int, int]] = []

    def add(self, rows: np.ndarray, names: list[str]) -> None:
        """Count *rows* as in a `Block`; devices beyond 1,365 share the last group."""
        self._grow(names)
        self.rows += rows.shape[1]
        if not rows.shape[1]:
            return
        device = np.minimum(rows[OUT_DEVICE], len(self._names) - 1)
        group = device * N_OPS + np.minimum(rows[OUT_OP], N_OPS - 1)
        order = np.argsort(group.astype(np.int16), kind="stable")
        rows, group = rows[:, order], group[order]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        groups, ends = group[starts], np.append(starts[1:], group.size)
        self._add_sums(rows, groups, starts, ends)
        for g, first, end in zip(groups.tolist(), starts.tolist(), ends.tolist(), strict=True):
            _count_sizes(self._sizes[g], rows[OUT_BYTES, first:end])
        timed = _is_timed(rows)
        if timed.any():
            more = self._sums.shape[1] - self._bins.shape[0]
            new_bins = np.zeros((more, N_BINS), np.int64)
            self._bins = np.concatenate((self._bins, new_bins)) if more else self._bins
            latency, group = (rows[OUT_COMPLETE] - rows[OUT_ISSUE])[timed], group[timed]
            np.add.at(self._squares, group, latency.astype(np.float64) ** 2)
            bins = fio_bin_index(np.clip(latency, 0, MAX_LATENCY - 1), BITS)
            np.add.at(self._bins.reshape(-1), group * N_BINS + bins, 1)

    def _add_sums(
        self, rows: np.ndarray, groups: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> None:
        """Add rows that are sorted by group: those of *groups* go from *starts* to *ends*."""
        issue, complete, timed = rows[OUT_ISSUE], rows[OUT_COMPLETE], _is_timed(rows)
        latency = complete - issue
        following = rows[OUT_OFFSET] + rows[OUT_BYTES]
        expected = np.roll(following, 1)
        expected[starts] = self._sums[NEXT_OFFSET, groups]
        for row, add, values in (
            (COUNT, np.add, np.ones_like(issue)),
            (BYTES, np.add, rows[OUT_BYTES]),
            (FIRST, np.minimum, np.where(issue == UNKNOWN_TIME, complete, issue)),
            (LAST, np.maximum, np.where(complete == UNKNOWN_TIME, issue, complete)),
            (DEPTHS, np.add, rows[OUT_DEPTH]),
            (DEEPEST, np.maximum, rows[OUT_DEPTH]),
            (SEQUENTIAL, np.add, (rows[OUT_OFFSET] == expected).astype(np.int64)),
            (TIMED, np.add, timed.astype(np.int64)),
            (LATENCY, np.add, np.where(timed, np.minimum(latency, MAX_LATENCY), 0)),
            (SHORTEST, np.minimum, np.where(timed, latency, _START[SHORTEST])),
            (LONGEST, np.maximum, np.where(timed, latency, _START[LONGEST])),
        ):
            self._sums[row, groups] = add(self._sums[row, groups], add.reduceat(values, starts))
        self._sums[NEXT_OFFSET, groups] = following[ends - 1]

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
        self._sums = np.concatenate((self._sums, np.tile(_START[:, None], more)), axis=1)
        self._squares = np.concatenate((self._squares, np.zeros(more)))
        self._sizes += ({} for _ in range(more))

    def _measurement(self, device: int) -> Measurement | None:
        groups = slice(device * N_OPS, (device + 1) * N_OPS)
        sums = self._sums[:, groups]
        counts = sums[COUNT].tolist()
        total, known = sum(counts), sum(counts[: len(OPS)])
        if total == 0:
            return None
        span_s = (int(sums[LAST].max()) - int(sums[FIRST].min())) * S_PER_NS
        warnings = [f"{counts[-1]} requests of unknown operation"] if counts[-1] else []
        if not sums[TIMED].any():
            warnings.append("no latencies in this format: arrivals only")
        warnings += [
            Warning("few-requests", f"{n} {op}{'' if n == 1 else 's'}: too few for a rate")
            for op, n in zip(OPS, counts, strict=False)
            if 0 < n < FEWEST
        ]
        has_depth = sums[DEEPEST].max() > 0
        conditions = Conditions(
            read_fraction=counts[0] / known if known else None,
            access=_access(int(sums[SEQUENTIAL].sum()), total),
            block_size=_block_size(self._sizes[groups]),
            targets=1,
            duration_s=span_s if span_s > 0 else None,
            depth_mean=int(sums[DEPTHS].sum()) / total if has_depth else None,
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
        count, n_bytes = int(sums[COUNT]), int(sums[BYTES])
        has_rate = span_s > 0 and count >= FEWEST
        return OpResult(
            count=count,
            bytes=n_bytes,
            iops=count / span_s if has_rate else 0.0,
            bytes_per_s=n_bytes / span_s if has_rate else 0.0,
            clat=self._latency(group) if sums[TIMED] else None,
        )

    def _latency(self, group: int) -> Latency:
        sums = self._sums[:, group]
        timed = int(sums[TIMED])
        mean = int(sums[LATENCY]) / timed
        variance = max(float(self._squares[group]) / timed - mean * mean, 0.0)
        used = np.flatnonzero(self._bins[group])
        counts = self._bins[group][used]
        low, high = int(sums[SHORTEST]), int(sums[LONGEST])
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
    octave = np.maximum(bins // PER_OCTAVE - 1, 0)
    within = np.where(bins < PER_OCTAVE, bins, bins % PER_OCTAVE + PER_OCTAVE)
    width = np.left_shift(1, octave)
    middles: np.ndarray = within * width + (width - 1) / 2
    return middles


def _access(sequential: int, total: int) -> Literal["random", "sequential"] | None:
    """Sequential if nearly every request starts where its device's previous one ended."""
    share = sequential / total
    if share >= SEQUENTIAL_SHARE:
        return "sequential"
    return "random" if share <= RANDOM_SHARE else None


def _block_size(sizes: list[dict[int, int]]) -> int | dict[int, float] | None:
    """The one size, or size -> fraction; None when there are more sizes than were counted."""
    seen = sorted(pair for counts in sizes for pair in counts.items())
    if seen[0][0] == OTHER_SIZES:
        return None
    total = sum(count for _, count in seen)
    mix: dict[int, float] = {}
    for size, count in seen:
        mix[size] = mix.get(size, 0.0) + count / total
    return next(iter(mix)) if len(mix) == 1 else mix


def _count_sizes(counts: dict[int, int], sizes: np.ndarray) -> None:
    """Add *sizes* to the counts by size; what finds no room among them to `OTHER_SIZES`."""
    values, firsts, found = np.unique(sizes, return_index=True, return_counts=True)
    for k in np.argsort(firsts).tolist():
        size = int(values[k])
        key = size if size in counts or len(counts) < N_SIZES else OTHER_SIZES
        counts[key] = counts.get(key, 0) + int(found[k])


def _is_timed(rows: np.ndarray) -> np.ndarray:
    """bool[n], whether both ends of a request are known."""
    timed: np.ndarray = (rows[OUT_ISSUE] != UNKNOWN_TIME) & (rows[OUT_COMPLETE] != UNKNOWN_TIME)
    return timed
