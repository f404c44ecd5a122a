"""From blocks of requests to a `Capture`: the table, kept or read again, and its statistics.

A reader of a request-level format is a function ``blocks(source, notes)`` that yields `Block`s in
file order. It runs once for the statistics; the table is kept while it is small, else it is the
same function again behind a lazy frame, so that a trace larger than memory is read in batches.
Where a file gives issue and latency on one line, the depth is worked out here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
import polars as pl

from nvmesim.capture.capture import (
    OPS,
    REQUEST_SCHEMA,
    Access,
    Capture,
    Conditions,
    Latency,
    Measurement,
    OpResult,
    fio_bin_index,
    fio_bin_value,
    lazy_table,
    percentiles_of_bins,
)
from nvmesim.capture.caveats import FEWEST
from nvmesim.capture.checked_numbers import results
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

    @cache
    def whole() -> pl.DataFrame:
        return _by_completion(pl.concat([block_frame(block) for block in kept]))

    def frames() -> Iterator[pl.DataFrame]:
        if kept:
            yield whole()
        else:
            yield from (_by_completion(block_frame(block)) for block in blocks(source, Notes()))

    capture = results(
        source, format_name, tally.measurements(), notes.warnings, version=version,
        rows=tally.rows, skipped=notes.skipped,
    )  # fmt: skip
    return replace(capture, requests=lazy_table(frames))


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
        rows[OUT_DEPTH, mine] = np.maximum(np.arange(1, issue.size + 1) + earlier.size - done, 1)
        flying[device] = ends[done[-1] :]


# -- statistics ------------------------------------------------------------------------------------
#
# A row a device and operation, in memory that does not grow with the requests.

BITS: Final = 7
"""2**7 bins an octave: a bin's middle is within 1/2**8 = 0.4 % of every sample in it."""
MAX_LATENCY: Final = 1 << 50
"""ns, 13 days: longer ones share the last bin."""
N_SIZES: Final = 64
"""Distinct sizes that are counted apart; of a group with more they are one, `OTHER_SIZES`."""
OTHER_SIZES: Final = -1
PERCENTILES: Final = (1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999)
SEQUENTIAL_SHARE: Final = 0.9
"""Of requests that start where their device's previous one ended."""
RANDOM_SHARE: Final = 0.1
MAX_DEVICES: Final = 1365
S_PER_NS: Final = 1e-9
_GROUP: Final = ("device", "op")
_TOOK: Final = pl.col("took")
_END: Final = pl.col("offset") + pl.col("bytes")
_SUMS: Final = {
    # column: what it is of some requests of a group, and how two of them become one
    "count": (pl.len().cast(pl.Int64), pl.Expr.sum),
    "bytes": (pl.col("bytes").sum(), pl.Expr.sum),
    "first": (pl.coalesce("issue", "complete").min(), pl.Expr.min),
    "last": (pl.coalesce("complete", "issue").max(), pl.Expr.max),
    "depths": (pl.col("depth").sum(), pl.Expr.sum),
    "deepest": (pl.col("depth").max(), pl.Expr.max),
    "timed": (_TOOK.count().cast(pl.Int64), pl.Expr.sum),
    "latency": (_TOOK.clip(upper_bound=MAX_LATENCY).sum(), pl.Expr.sum),
    "squares": (_TOOK.cast(pl.Float64).pow(2).sum(), pl.Expr.sum),
    "shortest": (_TOOK.min(), pl.Expr.min),
    "longest": (_TOOK.max(), pl.Expr.max),
    "sequential": ((pl.col("offset") == _END.shift(1)).sum().cast(pl.Int64), pl.Expr.sum),
    "starts": (pl.col("offset").first(), pl.Expr.first),
    "ends": (_END.last(), pl.Expr.last),
}


class Tally:
    """Counts, sums and a latency histogram (bins of 0.8 %) per device and operation."""

    def __init__(self) -> None:
        self.rows = 0
        self._names: list[str] = []
        self._tables: dict[str, pl.DataFrame] = {}

    def add(self, rows: np.ndarray, names: list[str]) -> None:
        """Count *rows* as in a `Block`; devices beyond 1,365 share the last group."""
        self._names = names
        if not rows.shape[1]:
            return
        self.rows += rows.shape[1]
        frame = pl.DataFrame(
            {
                "issue": _known(rows[OUT_ISSUE]),
                "complete": _known(rows[OUT_COMPLETE]),
                "offset": rows[OUT_OFFSET],
                "bytes": rows[OUT_BYTES],
                "device": np.minimum(rows[OUT_DEVICE], MAX_DEVICES - 1),
                "depth": rows[OUT_DEPTH],
                "op": np.minimum(rows[OUT_OP], len(OPS)),
            }
        ).with_columns(took=pl.col("complete") - pl.col("issue"))
        sums = frame.group_by(_GROUP).agg(**{name: first for name, (first, _) in _SUMS.items()})
        # where one batch ends and the next begins, one request may follow the other
        across = (pl.col("starts") == pl.col("ends").shift(1)).sum().cast(pl.Int64)
        both = {name: fold(pl.col(name)) for name, (_, fold) in _SUMS.items()}
        self._add("sums", sums, _GROUP, {**both, "sequential": both["sequential"] + across})
        timed = frame.filter(_TOOK.is_not_null())
        bins = fio_bin_index(np.clip(timed["took"].to_numpy(), 0, MAX_LATENCY - 1), BITS)
        for name, part in (("bytes", frame), ("bin", timed.with_columns(bin=bins))):
            counts = part.group_by(*_GROUP, name).agg(n=pl.len().cast(pl.Int64))
            self._add(name, counts, (*_GROUP, name), {"n": pl.col("n").sum()})
        many = pl.len().over(_GROUP) > N_SIZES
        size = pl.when(many).then(OTHER_SIZES).otherwise("bytes")
        self._tables["bytes"] = self._tables["bytes"].with_columns(bytes=size)

    def _add(
        self, name: str, new: pl.DataFrame, keys: tuple[str, ...], both: dict[str, pl.Expr]
    ) -> None:
        old = self._tables.get(name, new.clear())
        self._tables[name] = pl.concat([old, new]).group_by(keys, maintain_order=True).agg(**both)

    def measurements(self) -> tuple[Measurement, ...]:
        """One measurement for each device that did anything."""
        devices = self._tables["sums"].sort(_GROUP).partition_by("device", maintain_order=True)
        bins = self._tables["bin"].sort("bin").partition_by(_GROUP, as_dict=True)
        sizes = self._tables["bytes"].partition_by("device", as_dict=True)
        return tuple(self._measurement(list(d.iter_rows(named=True)), bins, sizes) for d in devices)

    def _measurement(
        self, groups: list[dict[str, Any]], bins: dict[tuple[Any, ...], pl.DataFrame],
        sizes: dict[tuple[Any, ...], pl.DataFrame],
    ) -> Measurement:  # fmt: skip
        device = groups[0]["device"]
        by_op = {group["op"]: group for group in groups}
        counts = [by_op[op]["count"] if op in by_op else 0 for op in range(len(OPS) + 1)]
        total, known = sum(counts), sum(counts[: len(OPS)])
        span_s = (max(g["last"] for g in groups) - min(g["first"] for g in groups)) * S_PER_NS
        warnings = [f"{counts[-1]} requests of unknown operation"] if counts[-1] else []
        if not any(group["timed"] for group in groups):
            warnings.append("no latencies in this format: arrivals only")
        warnings += [
            Warning("few-requests", f"{n} {op}{'' if n == 1 else 's'}: too few for a rate")
            for op, n in zip(OPS, counts, strict=False)
            if 0 < n < FEWEST
        ]
        has_depth = any(group["deepest"] for group in groups)
        share = sum(group["sequential"] for group in groups) / total
        access: Access | None = "sequential" if share >= SEQUENTIAL_SHARE else None
        results = {op: _op_result(g, bins.get((device, op)), span_s) for op, g in by_op.items()}
        return Measurement(
            label="others" if device == MAX_DEVICES - 1 else self._names[device],
            conditions=Conditions(
                read_fraction=counts[0] / known if known else None,
                access="random" if share <= RANDOM_SHARE else access,
                block_size=_block_size(sizes[device,], total),
                targets=1,
                duration_s=span_s if span_s > 0 else None,
                depth_mean=sum(group["depths"] for group in groups) / total if has_depth else None,
            ),
            ops={op: results[at] for at, op in enumerate(OPS) if at in results},
            warnings=tuple(warnings),
            mixed=results.get(len(OPS)),
        )


def _op_result(group: Mapping[str, Any], bins: pl.DataFrame | None, span_s: float) -> OpResult:
    has_rate = span_s > 0 and group["count"] >= FEWEST
    return OpResult(
        count=group["count"],
        bytes=group["bytes"],
        iops=group["count"] / span_s if has_rate else 0.0,
        bytes_per_s=group["bytes"] / span_s if has_rate else 0.0,
        clat=None if bins is None else _latency(group, bins),
    )


def _latency(group: Mapping[str, Any], bins: pl.DataFrame) -> Latency:
    timed, low, high = group["timed"], group["shortest"], group["longest"]
    mean = group["latency"] / timed
    at, counts = bins["bin"].to_numpy(), bins["n"].to_numpy()
    middles = fio_bin_value(at, BITS) - 0.5 * (at >= 2 << BITS)  # of the whole ns in each
    values = np.clip(middles, low, high) * S_PER_NS
    return Latency(
        count=timed,
        mean_s=mean * S_PER_NS,
        min_s=low * S_PER_NS,
        max_s=high * S_PER_NS,
        stddev_s=max(group["squares"] / timed - mean * mean, 0.0) ** 0.5 * S_PER_NS,
        percentiles_s=percentiles_of_bins(values, counts, PERCENTILES),
        bin_s=values,
        bin_count=counts,
    )


def _block_size(sizes: pl.DataFrame, total: int) -> int | dict[int, float] | None:
    """The one size, or size -> fraction; None when there are more sizes than were counted."""
    mix: dict[int, float] = {}
    for _, _, size, count in sizes.sort("bytes", "n").iter_rows():
        mix[size] = mix.get(size, 0.0) + count / total
    if OTHER_SIZES in mix:
        return None
    return next(iter(mix)) if len(mix) == 1 else mix
