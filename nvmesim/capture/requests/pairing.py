"""Issues and completions become requests: latency, and how many were outstanding at issue.

Key: (device, sector, sectors), oldest issue first. The operation is not part of it: a write
queued as FWS is issued as W. A device without D events (md, dm) is matched from Q to the last C
that covers the bio. What cannot be matched is counted and said, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nvmesim.capture.lines import Notes
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
    letter (Q D C R) and the operation of `blkparse_kernel`.
    """

    rows: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        return int(self.rows.shape[0])


class Pairer:
    """Matches a stream of events in memory that grows with what is in flight only."""

    def __init__(self) -> None:
        self._ids = np.zeros(MAX_DEVICES, np.int64)
        self._n_devices = 0
        self._counters = np.zeros(kernel.N_COUNTERS, np.int64)
        self._pool, self._heads = _empty_pool(1 << 12)
        self._devices = _empty_devices()
        self._clear()
        self._shift = 0
        self._last: int | None = None
        self._before: int | None = None
        self._checked: int | None = None
        self._steps = 0
        self._spikes = 0
        self._disordered = 0
        self._foreign = 0

    @property
    def command_devices(self) -> np.ndarray:
        """int64[n], ids of the devices known to show D events: their Q events are not needed."""
        known = self._devices[kernel.COMMANDS, : self._n_devices] == 1
        ids: np.ndarray = self._ids[: self._n_devices][known]
        return ids

    @property
    def device_ids(self) -> list[int]:
        """Device ids in the order of the indices that `feed` puts out."""
        return [int(i) for i in self._ids[: self._n_devices]]

    def feed(self, events: Events) -> np.ndarray:
        """Requests that end within *events*: int64[N_OUT, n], rows as named in the kernel."""
        if len(events) == 0:
            return np.empty((kernel.N_OUT, 0), np.int64)
        blocks = []
        for rows, codes, is_step in self._in_time(events):
            if is_step:
                self._clear()
            self._n_devices = int(kernel.index_devices(rows, self._ids, self._n_devices))
            inside = rows[:, 1] >= 0
            if not inside.all():
                self._foreign += int((~inside).sum())
                rows, codes = rows[inside], codes[:, inside]
            blocks.append(self._pair(np.ascontiguousarray(rows), np.ascontiguousarray(codes)))
        self._forget()
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)

    def finish(self, notes: Notes) -> None:
        """Say in *notes* what did not match, once every event was fed."""
        c = self._counters
        notes.skipped += self._spikes
        notes.say(int(c[kernel.UNMATCHED]), "completions with no issue (left out)")
        left = int(c[kernel.LOST] + c[kernel.IN_FLIGHT])
        notes.say(left, "issues with no completion (left out; depths after them may be too high)")
        notes.say(int(c[kernel.DUPLICATES]), "duplicate events (left out)")
        notes.say(int(c[kernel.REQUEUES]), "requeued commands (timed from their last issue)")
        notes.say(int(c[kernel.OTHERS]), "flushes, discards or other commands (not in the table)")
        notes.say(self._spikes, "events at an impossible time (left out)")
        notes.say(self._disordered, "events out of order (sorted by time)")
        notes.say(self._foreign, f"events of devices beyond the first {MAX_DEVICES} (left out)")
        notes.say(
            self._steps,
            "steps back of the clock, or several traces in one file "
            "(time goes on from there; nothing is paired across)",
        )

    def _clear(self) -> None:
        """Forget what is in flight; it counts as lost. The devices' kinds are kept."""
        self._counters[kernel.LOST] += self._counters[kernel.IN_FLIGHT]
        self._renew(self._pool.shape[0])

    def _renew(self, room: int) -> None:
        self._pool, self._heads = _empty_pool(room)
        kinds = self._devices[kernel.COMMANDS].copy()
        self._devices = _empty_devices()
        self._devices[kernel.COMMANDS] = kinds
        self._counters[kernel.FREE] = 0
        self._counters[kernel.IN_FLIGHT] = 0

    def _in_time(self, events: Events) -> list[tuple[np.ndarray, np.ndarray, bool]]:
        """*events* cut at steps of the clock, each part in time order and shifted to go on."""
        rows, codes = events.rows, events.codes
        times = rows[:, 0]
        start = self._before if self._before is not None else int(times[0])
        if times[0] >= start and bool((times[1:] >= times[:-1]).all()):
            self._before = int(times[-1])
            return [self._shifted(rows, codes, False)]
        keep = ~_spikes(start, times)
        self._spikes += int((~keep).sum())
        rows, codes = rows[keep], codes[:, keep]
        if rows.shape[0] == 0:
            return []
        times = rows[:, 0]
        gaps = np.diff(times, prepend=start)
        steps = np.flatnonzero(gaps <= -CLOCK_STEP_NS)
        self._disordered += int(((gaps < 0) & (gaps > -CLOCK_STEP_NS)).sum())
        if len(steps) > MAX_STEPS:
            self._disordered += len(steps)
            steps = steps[:0]
        self._before = int(times[-1])
        parts = []
        for first, stop in zip([0, *steps.tolist()], [*steps.tolist(), rows.shape[0]], strict=True):
            if stop > first:
                order = np.argsort(rows[first:stop, 0], kind="stable")
                is_step = bool(first in steps)
                parts.append(
                    self._shifted(rows[first:stop][order], codes[:, first:stop][:, order], is_step)
                )
        return parts

    def _shifted(
        self, rows: np.ndarray, codes: np.ndarray, is_step: bool
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        if is_step:
            self._steps += 1
            self._shift = (self._last or 0) - int(rows[0, 0])
            if self._shift > MAX_SHIFT_NS:
                raise CaptureError(
                    "the clock steps back by more than a century in all; found damaged times; "
                    "capture again, or cut the damaged lines out"
                )
        if self._shift:
            rows = rows.copy()
            rows[:, 0] += self._shift
        self._last = max(int(rows[-1, 0]), self._last or int(rows[-1, 0]))
        return rows, codes, is_step

    def _pair(self, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        out = np.empty((kernel.N_OUT, rows.shape[0]), np.int64)
        done, i = 0, 0
        while True:
            n, i = kernel.pair_events(
                rows,
                codes,
                i,
                self._pool,
                self._heads,
                self._devices,
                self._counters,
                out[:, done:],
            )
            done += int(n)
            if i >= rows.shape[0]:
                # A copy: a view would keep the room for all events alive.
                return np.ascontiguousarray(out[:, :done])
            self._enlarge()

    def _enlarge(self) -> None:
        room = self._pool.shape[0] * 2
        if room > MAX_POOL:
            self._clear()
        else:
            self._rebuild(room, np.iinfo(np.int64).min)

    def _forget(self) -> None:
        """Drop issues so old that their completion must have been lost."""
        if self._last is not None and self._counters[kernel.IN_FLIGHT] > 0:
            horizon = self._last - STALE_NS
            if self._checked is None or self._last - self._checked >= STALE_NS:
                self._checked = self._last
                if bool((self._flying()[:, kernel.ISSUE] < horizon).any()):
                    self._rebuild(self._pool.shape[0], horizon)

    def _flying(self) -> np.ndarray:
        """Pool rows of what is in flight, in order of issue."""
        free = np.zeros(self._pool.shape[0], np.bool_)
        kernel.find_free(self._pool, self._counters, free)
        used: np.ndarray = self._pool[~free]
        return used[np.argsort(used[:, kernel.ISSUE], kind="stable")]

    def _rebuild(self, room: int, horizon: int) -> None:
        flying = np.ascontiguousarray(self._flying())
        self._renew(room)
        kernel.keep_younger(flying, self._pool, self._heads, self._devices, self._counters, horizon)


def _empty_pool(room: int) -> tuple[np.ndarray, np.ndarray]:
    pool = np.zeros((room, kernel.N_FIELDS), np.int64)
    pool[:, kernel.NEXT] = np.arange(1, room + 1)
    pool[-1, kernel.NEXT] = -1
    return pool, np.full(2 * room, -1, np.int64)


def _empty_devices() -> np.ndarray:
    devices = np.zeros((kernel.N_DEVICE_FIELDS, MAX_DEVICES), np.int64)
    devices[kernel.HEAD] = -1
    devices[kernel.TAIL] = -1
    return devices


def _spikes(start: int, times: np.ndarray) -> np.ndarray:
    """bool[n]: times far off both neighbours that agree with each other: damage, not a clock."""
    padded = np.concatenate(([start], times, [times[-1]]))
    before, after = padded[:-2], padded[2:]
    high = (times - before >= CLOCK_STEP_NS) & (times - after >= CLOCK_STEP_NS)
    low = (before - times >= CLOCK_STEP_NS) & (after - times >= CLOCK_STEP_NS)
    spikes: np.ndarray = (high | low) & (np.abs(after - before) < CLOCK_STEP_NS)
    return spikes
