"""From blocks of requests to a `Capture`: the table, kept or read again, and its statistics.

A reader of a request-level format is a function ``blocks(source, notes)`` that yields `Block`s in
file order. It runs once for the statistics; the table is kept while it is small, else it is the
same function again behind a lazy frame, so that a trace larger than memory is read in batches.
Where a file gives issue and latency on one line, the depth is worked out here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from nvmesim.capture.capture import OPS, REQUEST_SCHEMA, Capture, lazy_table
from nvmesim.capture.lines import STEPS_BACK, Notes
from nvmesim.capture.requests import UNKNOWN_TIME
from nvmesim.capture.requests import pairing_kernel as kernel
from nvmesim.capture.requests.tally import Tally
from nvmesim.capture.text import Source

KEEP_ROWS: Final = 2_000_000
"""Rows kept in memory (about 60 bytes each); a longer table is read again when asked for."""
LONGEST_NS: Final = kernel.LONGEST_NS
LARGEST_BYTES: Final = 2**40
LARGEST_OFFSET: Final = 2**62
LARGEST_TIME: Final = 4 * 10**18
STEP_NS: Final = 10**9


@dataclass(frozen=True)
class Block:
    """Some requests. rows: int64[N_OUT, n] as in the pairing kernel; names: device by index.

    `UNKNOWN_TIME` stands for an unknown issue, completion or offset, 0 for an unknown depth and
    2 or more for an unknown operation.
    """

    rows: np.ndarray
    names: list[str]


Blocks = Callable[[Source, Notes], Iterator[Block]]


def block_frame(block: Block) -> pl.DataFrame:
    """The rows of *block* as a frame of `REQUEST_SCHEMA`."""
    rows = block.rows
    issue, complete = rows[kernel.OUT_ISSUE], rows[kernel.OUT_COMPLETE]
    ops = pl.Series([*OPS, None], dtype=REQUEST_SCHEMA["op"])
    names = pl.Series([*block.names, None], dtype=pl.String)
    issues, completes = _known(issue), _known(complete)
    depth = pl.Series(rows[kernel.OUT_DEPTH].astype(np.int32))
    return pl.DataFrame(
        [
            issues.alias("issue_ns"),
            completes.alias("complete_ns"),
            (completes - issues).alias("latency_ns"),
            ops.gather(np.minimum(rows[kernel.OUT_OP], len(OPS))).alias("op"),
            pl.Series("bytes", rows[kernel.OUT_BYTES]),
            _known(rows[kernel.OUT_OFFSET]).alias("offset"),
            names.gather(rows[kernel.OUT_DEVICE]).alias("device"),
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
        requests=lazy_table(frames, REQUEST_SCHEMA),
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
    issue, complete = rows[kernel.OUT_ISSUE], rows[kernel.OUT_COMPLETE]
    n_bytes, offset, op = rows[kernel.OUT_BYTES], rows[kernel.OUT_OFFSET], rows[kernel.OUT_OP]
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
    times = [kernel.OUT_ISSUE, kernel.OUT_COMPLETE]
    for batch in batches:
        good = _sane(batch.rows, has_latency)
        notes.skipped += int((~good).sum())
        rows = np.ascontiguousarray(batch.rows[:, good])
        if rows.shape[1] == 0:
            continue
        start = int(rows[kernel.OUT_ISSUE, 0]) if start is None else start
        rows[times] -= np.where(rows[times] == UNKNOWN_TIME, 0, start)
        border = np.concatenate((last, rows[times, :1]), axis=1)
        back += steps_back(*rows[times]) + steps_back(*border)
        last = rows[times, -1:]
        if not (rows[kernel.OUT_COMPLETE] == UNKNOWN_TIME).any():
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
    devices = rows[kernel.OUT_DEVICE]
    starts = np.zeros(int(devices.max()) + 2, np.int64)
    members = np.empty(devices.size, np.int64)
    kernel.group(devices, starts, members)
    for device in np.flatnonzero(np.diff(starts)).tolist():
        mine = members[starts[device] : starts[device + 1]]
        mine = mine[np.argsort(rows[kernel.OUT_ISSUE, mine], kind="stable")]
        issue = rows[kernel.OUT_ISSUE, mine]
        earlier = flying.get(device, np.empty(0, np.int64))
        ends = np.sort(np.concatenate((earlier, rows[kernel.OUT_COMPLETE, mine])))
        depth = np.empty(issue.size, np.int64)
        kernel.depths(issue, ends, earlier.size, depth)
        rows[kernel.OUT_DEPTH, mine] = depth
        flying[device] = ends[np.searchsorted(ends, issue[-1], side="right") :]
