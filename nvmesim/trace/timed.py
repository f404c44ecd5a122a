"""Requests whose file gives issue and latency on one line: their depth is worked out here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from nvmesim.trace import pairing_kernel as pairs
from nvmesim.trace.pairing import Notes
from nvmesim.trace.request_table import Block
from nvmesim.trace.tally_kernel import UNKNOWN_TIME

LONGEST_NS: Final = pairs.LONGEST_NS
LARGEST_BYTES: Final = 2**40
LARGEST_OFFSET: Final = 2**62
LARGEST_TIME: Final = 4 * 10**18
UNKNOWN_OP: Final = 4

COLUMNS: Final = ("issue", "complete", "op", "bytes", "offset", "device")
"""What a parser gives: ns, ns or null, 0/1 or null, bytes, bytes or null, name."""


def sane(*, latency: bool) -> pl.Expr:
    """Whether a row of `COLUMNS` is possible; with *latency* it must have one."""
    took = pl.col("complete") - pl.col("issue")
    timed = took.is_between(0, LONGEST_NS)
    return (
        pl.col("issue").is_between(-LARGEST_TIME, LARGEST_TIME)
        & (timed if latency else timed.fill_null(True))
        & pl.col("bytes").is_between(1, LARGEST_BYTES)
        & pl.col("offset").is_between(0, LARGEST_OFFSET).fill_null(True)
        & pl.col("device").is_not_null()
    ).fill_null(False)


def timed_blocks(frames: Iterator[pl.DataFrame], notes: Notes) -> Iterator[Block]:
    """Blocks of frames of `COLUMNS`, in order of completion within each frame.

    The depth is exact while requests do not overlap the border of two frames (some 100,000 rows)
    out of order of issue.
    """
    devices: dict[str, int] = {}
    flying: dict[int, np.ndarray] = {}
    back = 0
    last: int | None = None
    for frame in frames:
        if frame.height == 0:
            continue
        for name in frame["device"].unique(maintain_order=True):
            devices.setdefault(name, len(devices))
        rows = _rows(frame, devices)
        first = int(rows[pairs.OUT_ISSUE, 0])
        back += int(last is not None and first < last - 10**9)
        last = int(rows[pairs.OUT_ISSUE].max())
        timed = rows[pairs.OUT_COMPLETE] != UNKNOWN_TIME
        if timed.all():
            _fill_depth(rows, flying)
            rows = rows[:, np.argsort(rows[pairs.OUT_COMPLETE], kind="stable")]
        yield Block(rows, list(devices))
    notes.say(back, "places where the time steps back by more than a second (depths unreliable)")


def _rows(frame: pl.DataFrame, devices: dict[str, int]) -> np.ndarray:
    rows = np.zeros((pairs.N_OUT, frame.height), np.int64)
    rows[pairs.OUT_ISSUE] = frame["issue"].to_numpy()
    rows[pairs.OUT_COMPLETE] = frame["complete"].fill_null(UNKNOWN_TIME).to_numpy()
    rows[pairs.OUT_OFFSET] = frame["offset"].fill_null(UNKNOWN_TIME).to_numpy()
    rows[pairs.OUT_BYTES] = frame["bytes"].to_numpy()
    rows[pairs.OUT_OP] = frame["op"].fill_null(UNKNOWN_OP).to_numpy()
    numbers = frame["device"].replace_strict(devices, return_dtype=pl.Int64)
    rows[pairs.OUT_DEVICE] = numbers.to_numpy()
    return rows


def _fill_depth(rows: np.ndarray, flying: dict[int, np.ndarray]) -> None:
    """Outstanding at each issue, this request included: issued so far less completed so far.

    *flying*: completion times of earlier frames' requests that may still be outstanding.
    """
    by_device = np.argsort(rows[pairs.OUT_DEVICE], kind="stable")
    numbers, starts = np.unique(rows[pairs.OUT_DEVICE][by_device], return_index=True)
    for number, members in zip(
        numbers.tolist(), np.split(by_device, starts[1:].tolist()), strict=True
    ):
        order = members[np.argsort(rows[pairs.OUT_ISSUE][members], kind="stable")]
        issue = rows[pairs.OUT_ISSUE][order]
        earlier = flying.get(number, np.empty(0, np.int64))
        ends = np.sort(np.concatenate((earlier, rows[pairs.OUT_COMPLETE][order])))
        done = np.searchsorted(ends, issue, side="right")
        # A request that ends as it starts is outstanding at its own issue.
        rows[pairs.OUT_DEPTH, order] = np.maximum(
            np.arange(1, issue.size + 1) + earlier.size - done, 1
        )
        flying[number] = ends[ends > issue[-1]]
