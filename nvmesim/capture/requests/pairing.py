"""Issues and completions become requests: latency, and how many were outstanding at issue.

Key: (device, sector, sectors), oldest issue first. The operation is not part of it: a write
queued as FWS is issued as W. A device without D events (md, dm) is matched from Q to the last C
that covers the bio. What cannot be matched is counted and said, never guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.capture.lines import OTHER_COMMANDS, STEPS_BACK, Notes
from nvmesim.capture.requests import N_OUT
from nvmesim.capture.requests import pairing_kernel as kernel
from nvmesim.errors import CaptureError

NS_PER_S: Final = 10**9
CLOCK_STEP_NS: Final = NS_PER_S
"""Events of several CPUs are merged with less disorder than this; a longer step back is a clock
step or a second trace in the same file."""
STALE_NS: Final = 120 * NS_PER_S
"""Linux gives an NVMe command up after 30 s and resets after twice that; longer ago is lost."""
MAX_POOL: Final = 1 << 18
MAX_DEVICES: Final = 1024
MAX_SHIFT_NS: Final = 4 * 10**18
"""Above, shifted times could leave int64."""
MAX_STEPS: Final = 100
"""Per batch; a file with more is in no order at all and is sorted as a whole."""


@dataclass(frozen=True)
class Events:
    """Some block events in file order.

    rows: int64[n, 4]: time ns, device id, sector, sectors >= 1. codes: uint8[2, n]: the action's
    letter (Q D C R) and the operation by `capture.requests`.
    """

    rows: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        return int(self.rows.shape[0])


class Pairer:
    """Matches a stream of events in memory that grows with what is in flight only."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._counters = np.zeros(kernel.N_COUNTERS, np.int64)
        self._devices = np.zeros((kernel.N_DEVICE_FIELDS, MAX_DEVICES), np.int64)
        self._renew(1 << 12)
        self._shift = 0
        self._last: int | None = None
        self._before: int | None = None
        self._checked: int | None = None
        self._steps = 0
        self._spikes = 0
        self._disordered = 0
        self._foreign = 0

    @property
    def device_ids(self) -> list[int]:
        """Device ids in the order of the indices that `feed` puts out."""
        return list(self._index)

    def feed(self, events: Events) -> np.ndarray:
        """Requests that end within *events*: int64[N_OUT, n], rows as named in the kernel."""
        if len(events) == 0:
            return np.empty((N_OUT, 0), np.int64)
        blocks = []
        for part in self._in_time(events):
            rows, codes = np.array(part.rows), part.codes
            rows[:, 1] = self._indices(rows[:, 1])
            inside = rows[:, 1] >= 0
            if not inside.all():
                self._foreign += int((~inside).sum())
                rows, codes = rows[inside], codes[:, inside]
            blocks.append(self._pair(np.ascontiguousarray(rows), np.ascontiguousarray(codes)))
        self._forget()
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)

    def _indices(self, ids: np.ndarray) -> np.ndarray:
        """Number of each device in the order that they came in; -1 beyond `MAX_DEVICES`."""
        distinct, first, which = np.unique(ids, return_index=True, return_inverse=True)
        for device in distinct[np.argsort(first)].tolist():
            if len(self._index) < MAX_DEVICES:
                self._index.setdefault(device, len(self._index))
        return np.array([self._index.get(d, -1) for d in distinct.tolist()], np.int64)[which]

    def finish(self, notes: Notes) -> None:
        """Say in *notes* what did not match, once every event was fed."""
        c = self._counters
        notes.skipped += self._spikes
        left = int(c[kernel.LOST] + c[kernel.IN_FLIGHT])
        for count, code, text in (
            (c[kernel.UNMATCHED], "no-issue", "completions with no issue (left out)"),
            (left, "no-completion",
             "issues with no completion (left out; depths after them may be too high)"),
            (c[kernel.DUPLICATES], "duplicates", "duplicate events (left out)"),
            (c[kernel.REQUEUES], "requeued", "requeued commands (timed from their last issue)"),
            (c[kernel.OTHERS], OTHER_COMMANDS,
             "flushes, discards or other commands (not in the table)"),
            (self._spikes, "impossible-times", "events at an impossible time (left out)"),
            (self._disordered, "disorder", "events out of order (sorted by time)"),
            (self._foreign, "too-many-devices",
             f"events of devices beyond the first {MAX_DEVICES} (left out)"),
            (self._steps, STEPS_BACK, "steps back of the clock, or several traces in one file "
             "(time goes on from there; nothing is paired across)"),
        ):  # fmt: skip
            notes.say(int(count), code, text)

    def _clear(self) -> None:
        """Forget what is in flight; it counts as lost. The devices' kinds are kept."""
        self._counters[kernel.LOST] += self._counters[kernel.IN_FLIGHT]
        self._renew(self._pool.shape[0])

    def _renew(self, room: int) -> None:
        self._pool = np.zeros((room, kernel.N_FIELDS), np.int64)
        self._pool[:, kernel.NEXT] = np.arange(1, room + 1)
        self._pool[-1, kernel.NEXT] = -1
        self._heads = np.full(2 * room, -1, np.int64)
        self._devices[kernel.FLYING] = 0
        self._devices[[kernel.HEAD, kernel.TAIL]] = -1
        self._counters[[kernel.FREE, kernel.IN_FLIGHT]] = 0

    def _in_time(self, events: Events) -> Iterator[Events]:
        """*events* cut at steps of the clock, each part in time order and shifted to go on.

        What is in flight at a step is forgotten.
        """
        rows, codes = events.rows, events.codes
        start = self._before if self._before is not None else int(rows[0, 0])
        if rows[0, 0] < start or (rows[1:, 0] < rows[:-1, 0]).any():
            keep = ~_spikes(start, rows[:, 0])
            self._spikes += int((~keep).sum())
            rows, codes = rows[keep], codes[:, keep]
        if rows.shape[0] == 0:
            return
        gaps = np.diff(rows[:, 0], prepend=start)
        steps = np.flatnonzero(gaps <= -CLOCK_STEP_NS).tolist()
        self._disordered += int(((gaps < 0) & (gaps > -CLOCK_STEP_NS)).sum())
        if len(steps) > MAX_STEPS:
            self._disordered += len(steps)
            steps = []
        self._before = int(rows[-1, 0])
        for first, stop in itertools.pairwise(sorted({0, *steps, rows.shape[0]})):
            part, kinds = rows[first:stop], codes[:, first:stop]
            if (part[1:, 0] < part[:-1, 0]).any():
                order = np.argsort(part[:, 0], kind="stable")
                part, kinds = part[order], kinds[:, order]
            if first in steps:
                self._step(int(part[0, 0]))
            if self._shift:
                part = part + np.array([self._shift, 0, 0, 0])
            self._last = max(int(part[-1, 0]), self._last or int(part[-1, 0]))
            yield Events(part, kinds)

    def _step(self, time: int) -> None:
        """The clock steps back to *time*: forget what is in flight, and shift times to go on."""
        self._steps += 1
        self._shift = (self._last or 0) - time
        if self._shift > MAX_SHIFT_NS:
            raise CaptureError(
                "the clock steps back by more than a century in all; found damaged times; "
                "capture again, or cut the damaged lines out"
            )
        self._clear()

    def _pair(self, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        out = np.empty((N_OUT, rows.shape[0]), np.int64)
        done, i = 0, 0
        while True:
            n, i = kernel.pair_events(
                rows, codes, i, self._pool, self._heads, self._devices, self._counters,
                out[:, done:],
            )  # fmt: skip
            done += int(n)
            if i >= rows.shape[0]:
                # A copy: a view would keep the room for all events alive.
                return np.ascontiguousarray(out[:, :done])
            room = self._pool.shape[0] * 2
            if room > MAX_POOL:
                self._clear()
            else:
                self._rebuild(room, np.iinfo(np.int64).min)

    def _forget(self) -> None:
        """Drop issues so old that their completion must have been lost."""
        if self._last is None or not self._counters[kernel.IN_FLIGHT]:
            return
        if self._checked is None or self._last - self._checked >= STALE_NS:
            self._checked = self._last
            self._rebuild(self._pool.shape[0], self._last - STALE_NS)

    def _rebuild(self, room: int, horizon: int) -> None:
        """Keep what was issued from *horizon* on in a pool of that *room*."""
        is_used = np.ones(self._pool.shape[0], np.bool_)
        node = int(self._counters[kernel.FREE])
        while node >= 0:
            is_used[node] = False
            node = int(self._pool[node, kernel.NEXT])
        used = self._pool[is_used]
        flying = np.ascontiguousarray(used[np.argsort(used[:, kernel.ISSUE], kind="stable")])
        self._renew(room)
        kernel.keep_younger(flying, self._pool, self._heads, self._devices, self._counters, horizon)


def _spikes(start: int, times: np.ndarray) -> np.ndarray:
    """bool[n]: times far off both neighbours that agree with each other: damage, not a clock."""
    padded = np.concatenate(([start], times, [times[-1]]))
    before, after = padded[:-2], padded[2:]
    high = (times - before >= CLOCK_STEP_NS) & (times - after >= CLOCK_STEP_NS)
    low = (before - times >= CLOCK_STEP_NS) & (after - times >= CLOCK_STEP_NS)
    spikes: np.ndarray = (high | low) & (np.abs(after - before) < CLOCK_STEP_NS)
    return spikes
