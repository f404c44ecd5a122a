"""Requests whose file gives issue and latency on one line: their depth is worked out here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nvmesim.capture.lines import Notes
from nvmesim.capture.requests import pairing_kernel as pairs
from nvmesim.capture.requests.table import Block
from nvmesim.capture.requests.tally_kernel import UNKNOWN_TIME

LONGEST_NS: Final = pairs.LONGEST_NS
LARGEST_BYTES: Final = 2**40
LARGEST_OFFSET: Final = 2**62
LARGEST_TIME: Final = 4 * 10**18
STEP_NS: Final = 10**9


@dataclass(frozen=True)
class Timed:
    """Some requests as arrays, int64[n]: ns, ns or `UNKNOWN_TIME`, 0/1, bytes, bytes, index."""

    issue: np.ndarray
    complete: np.ndarray
    op: np.ndarray
    bytes: np.ndarray
    offset: np.ndarray
    device: np.ndarray
    names: list[str]
    """Device by index."""

    def where(self, good: np.ndarray) -> Timed:
        """The rows at which *good*, bool[n], is true."""
        if good.all():
            return self
        columns = {name: column[good] for name, column in vars(self).items() if name != "names"}
        return Timed(**columns, names=self.names)

    def since(self, start: int) -> Timed:
        """The same with all (known) times counted from *start*."""
        return replace(self, issue=self.issue - start, complete=self.complete - start)


def sane_rows(timed: Timed, *, latency: bool) -> np.ndarray:
    """bool[n], whether a row is possible; with *latency* it must have one."""
    took = timed.complete - timed.issue
    right: np.ndarray = (timed.issue >= -LARGEST_TIME) & (timed.issue <= LARGEST_TIME)
    within = (took >= 0) & (took <= LONGEST_NS)
    right &= within if latency else within | (timed.complete == UNKNOWN_TIME)
    right &= (timed.bytes >= 1) & (timed.bytes <= LARGEST_BYTES)
    right &= (timed.offset >= 0) & (timed.offset <= LARGEST_OFFSET)
    right &= (timed.op == 0) | (timed.op == 1)
    return right


def timed_rows(batches: Iterator[Timed], notes: Notes) -> Iterator[Block]:
    """Blocks of *batches*, in order of the file.

    The depth is exact while requests do not overlap the border of two batches (some 60,000 rows)
    out of order of issue.
    """
    flying: dict[int, np.ndarray] = {}
    back = 0
    last = np.empty((2, 0), np.int64)
    for batch in batches:
        if batch.issue.size == 0:
            continue
        rows = np.zeros((pairs.N_OUT, batch.issue.size), np.int64)
        rows[pairs.OUT_ISSUE] = batch.issue
        rows[pairs.OUT_COMPLETE] = batch.complete
        rows[pairs.OUT_OFFSET] = batch.offset
        rows[pairs.OUT_BYTES] = batch.bytes
        rows[pairs.OUT_OP] = batch.op
        rows[pairs.OUT_DEVICE] = batch.device
        issue, complete = rows[pairs.OUT_ISSUE], rows[pairs.OUT_COMPLETE]
        border = np.concatenate((last, [issue[:1], complete[:1]]), axis=1)
        back += steps_back(issue, complete) + steps_back(*border)
        last = np.array([issue[-1:], complete[-1:]])
        if not (complete == UNKNOWN_TIME).any():
            _fill_depth(rows, flying)
        yield Block(rows, batch.names)
    notes.say(back, "places where the time steps back by more than a second (depths unreliable)")


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
    devices = rows[pairs.OUT_DEVICE]
    starts = np.zeros(int(devices.max()) + 2, np.int64)
    members = np.empty(devices.size, np.int64)
    pairs.group(devices, starts, members)
    for device in np.flatnonzero(np.diff(starts)).tolist():
        mine = members[starts[device] : starts[device + 1]]
        mine = mine[np.argsort(rows[pairs.OUT_ISSUE, mine], kind="stable")]
        issue = rows[pairs.OUT_ISSUE, mine]
        earlier = flying.get(device, np.empty(0, np.int64))
        ends = np.sort(np.concatenate((earlier, rows[pairs.OUT_COMPLETE, mine])))
        depth = np.empty(issue.size, np.int64)
        pairs.depths(issue, ends, earlier.size, depth)
        rows[pairs.OUT_DEPTH, mine] = depth
        flying[device] = ends[np.searchsorted(ends, issue[-1], side="right") :]
