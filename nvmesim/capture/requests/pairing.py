"""Issues and completions become requests: latency, and how many were outstanding at issue.

Key: (device, sector, sectors), oldest issue first. The operation is not part of it: a write
queued as FWS is issued as W. Commands of a batch are sorted by key and matched as arrays, but for
keys that were requeued or issued twice at once. A device without D events (md, dm) is matched bio
by bio, from Q to the last C that covers it. What cannot be matched is counted and said, never
guessed.
"""

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nvmesim.capture.lines import OTHER_COMMANDS, STEPS_BACK, Notes
from nvmesim.capture.requests import LONGEST_NS, N_OUT, OTHER, WRITE
from nvmesim.errors import CaptureError

NS_PER_S: Final = 10**9
CLOCK_STEP_NS: Final = NS_PER_S
"""Events of several CPUs are merged with less disorder than this; a longer step back is a clock
step or a second trace in the same file."""
STALE_NS: Final = 120 * NS_PER_S
"""Linux gives an NVMe command up after 30 s and resets after twice that; longer ago is lost."""
MAX_FLYING: Final = 1 << 18
MAX_BIOS: Final = 1 << 12
"""Of one device: each completion that is no whole bio looks through them."""
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


@dataclass(slots=True)
class _Bio:
    issue: int
    sector: int
    end: int
    op: int
    depth: int
    left: int
    """Sectors still to complete."""


@dataclass
class _Bios:
    """Bios in flight of one device, oldest first, and their numbers by sector and end."""

    every: dict[int, _Bio] = field(default_factory=dict)
    by_range: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    number: int = 0

    def add(self, time: int, sector: int, end: int, op: int) -> bool:
        """Take a bio; False if it is the last one again."""
        numbers = self.by_range.setdefault((sector, end), [])
        if self.number - 1 in numbers and self.every[self.number - 1].issue == time:
            return False
        self.every[self.number] = _Bio(time, sector, end, op, len(self.every) + 1, end - sector)
        numbers.append(self.number)
        self.number += 1
        return True

    def cover(self, sector: int, end: int) -> tuple[_Bio | None, bool]:
        """Return the bio that a completion is of, and whether it is its last one.

        An equal range is preferred to a larger one that holds it, the older to the newer.
        """
        if equal := self.by_range.get((sector, end)):
            found: int | None = equal[0]
        else:
            holders = (n for n, b in self.every.items() if b.sector <= sector and end <= b.end)
            found = next(holders, None)
        if found is None:
            return None, False
        bio = self.every[found]
        bio.left -= end - sector
        if bio.left > 0:
            return bio, False
        self.remove(found)
        return bio, True

    def remove(self, number: int) -> None:
        """Forget a bio."""
        bio = self.every.pop(number)
        numbers = self.by_range[bio.sector, bio.end]
        numbers.remove(number)
        if not numbers:
            del self.by_range[bio.sector, bio.end]


ISSUE, DEVICE, SECTOR, SECTORS, OP, DEPTH, N_FLYING = range(7)
"""Columns of what is in flight."""
DUPLICATES, LOST, OTHERS, REQUEUES, UNMATCHED = range(5)
"""Counts. OTHERS: flushes, discards and the like that were paired."""


ISSUED, COMPLETED, QUEUED, REQUEUED = b"DCQR"


class Pairer:
    """Matches a stream of events in memory that grows with what is in flight only."""

    def __init__(self) -> None:
        self.devices: dict[int, int] = {}
        """Device id -> its index in what `feed` puts out."""
        self._counts: Counter[int] = Counter()
        self._commands: set[int] = set()
        """Devices that have shown a D event: their Q events say nothing about the drive."""
        self._flying = np.empty((0, N_FLYING), np.int64)
        """Commands in flight, in the order of their issues."""
        self._bios: defaultdict[int, _Bios] = defaultdict(_Bios)
        self._shift = 0
        self._last: int | None = None
        self._before: int | None = None
        self._checked: int | None = None
        self._steps = 0
        self._spikes = 0
        self._disordered = 0
        self._foreign = 0

    def feed(self, events: Events) -> np.ndarray:
        """Requests that end within *events*: int64[N_OUT, n], rows as in `capture.requests`."""
        if len(events) == 0:
            return np.empty((N_OUT, 0), np.int64)
        blocks = []
        for part in self._in_time(events):
            rows, codes = np.array(part.rows), part.codes
            devices, first, which = np.unique(rows[:, 1], return_index=True, return_inverse=True)
            for device in devices[np.argsort(first)].tolist():  # numbered as they came in
                if len(self.devices) < MAX_DEVICES:
                    self.devices.setdefault(device, len(self.devices))
            rows[:, 1] = np.array([self.devices.get(d, -1) for d in devices.tolist()])[which]
            inside = rows[:, 1] >= 0
            if not inside.all():
                self._foreign += int((~inside).sum())
                rows, codes = rows[inside], codes[:, inside]
            blocks.append(self._pair(rows, codes.astype(np.int64)))
        self._forget()
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)

    def finish(self, notes: Notes) -> None:
        """Say in *notes* what did not match, once every event was fed."""
        c = self._counts
        notes.skipped += self._spikes
        left = c[LOST] + self._in_flight
        for count, code, text in (
            (c[UNMATCHED], "no-issue", "completions with no issue (left out)"),
            (left, "no-completion",
             "issues with no completion (left out; depths after them may be too high)"),
            (c[DUPLICATES], "duplicates", "duplicate events (left out)"),
            (c[REQUEUES], "requeued", "requeued commands (timed from their last issue)"),
            (c[OTHERS], OTHER_COMMANDS,
             "flushes, discards or other commands (not in the table)"),
            (self._spikes, "impossible-times", "events at an impossible time (left out)"),
            (self._disordered, "disorder", "events out of order (sorted by time)"),
            (self._foreign, "too-many-devices",
             f"events of devices beyond the first {MAX_DEVICES} (left out)"),
            (self._steps, STEPS_BACK, "steps back of the clock, or several traces in one file "
             "(time goes on from there; nothing is paired across)"),
        ):  # fmt: skip
            notes.say(count, code, text)

    @property
    def _in_flight(self) -> int:
        return len(self._flying) + sum(len(bios.every) for bios in self._bios.values())

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
        self._counts[LOST] += self._in_flight
        self._flying = self._flying[:0]
        self._bios.clear()

    def _pair(self, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Match events in order of time; requests in order of completion."""
        action, device = codes[0], rows[:, 1]
        is_command = np.isin(device, list(self._commands))
        new = set(device[action == ISSUED].tolist()) - self._commands
        for one in new:
            mine = device == one
            first = int(np.argmax(mine & (action == ISSUED)))
            is_command[first:] |= mine[first:]
        found = self._bio_pairs(rows, codes, np.flatnonzero(~is_command))
        for one in new:
            self._bios.pop(one, None)
        self._commands |= new
        commands = np.flatnonzero(is_command & np.isin(action, list(b"DCR")))
        at, flown = self._command_pairs(rows[commands], codes[:, commands])
        every = np.array([(i, *bio) for i, bio in found], np.int64).reshape(-1, 1 + N_FLYING)
        at = np.concatenate((every[:, 0], commands[at]))
        flown = np.concatenate((every[:, 1:], flown))
        order = np.argsort(at, kind="stable")
        return self._requests(rows[at[order], 0], flown[order])

    def _requests(self, time: np.ndarray, flown: np.ndarray) -> np.ndarray:
        """Return what was in flight until *time* as requests; what is none is counted."""
        took, op = time - flown[:, ISSUE], flown[:, OP]
        is_lost, is_early = took > LONGEST_NS, took < 0  # of two batches, each in order of time
        is_kind = (op <= WRITE) | (op > OTHER)
        self._counts[LOST] += int((is_lost | is_early).sum())
        self._counts[UNMATCHED] += int(is_early.sum())
        good = ~(is_lost | is_early)
        self._counts[OTHERS] += int((good & ~is_kind).sum())
        good &= is_kind
        f = flown[good].T
        columns = (f[ISSUE], time[good], f[SECTOR] * 512, f[SECTORS] * 512, f[DEVICE], f[DEPTH],
                   f[OP])  # fmt: skip
        return np.array(columns, np.int64)

    def _bio_pairs(
        self, rows: np.ndarray, codes: np.ndarray, at: np.ndarray
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Match events of devices that have shown no command: places of completions, and bios."""
        found: list[tuple[int, tuple[int, ...]]] = []
        actions, ops = codes[:, at].tolist()
        for i, row, action, op in zip(at.tolist(), rows[at].tolist(), actions, ops, strict=True):
            time, device, sector, sectors = row
            bios = self._bios[device]
            if action == QUEUED:
                if not bios.add(time, sector, sector + sectors, op):
                    self._counts[DUPLICATES] += 1
                elif len(bios.every) > MAX_BIOS:
                    bios.remove(next(iter(bios.every)))
                    self._counts[LOST] += 1
            elif action == COMPLETED:
                b, is_whole = bios.cover(sector, sector + sectors)
                if b is None:
                    self._counts[UNMATCHED] += 1
                elif is_whole:
                    flown = (b.issue, device, b.sector, b.end - b.sector, b.op, b.depth)
                    found.append((i, flown))
        return found

    def _command_pairs(self, rows: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Match commands: places of completions, ascending, and what was in flight, int64[k, 6]."""
        old = len(self._flying)
        table = np.zeros((old + len(rows), N_FLYING), np.int64)
        table[:old], table[old:, : SECTORS + 1], table[old:, OP] = self._flying, rows, codes[1]
        action = np.concatenate((np.full(old, ISSUED), codes[0]))
        is_issue = action == ISSUED
        order = np.lexsort((table[:, SECTORS], table[:, SECTOR], table[:, DEVICE]))
        key = table[order, DEVICE : SECTORS + 1]
        starts = np.ones(len(order), np.bool_)
        starts[1:] = (key[1:] != key[:-1]).any(axis=1)
        group = np.cumsum(starts) - 1
        issues, of = order[is_issue[order]], group[is_issue[order]]
        twice = (table[issues[1:], ISSUE] == table[issues[:-1], ISSUE]) & (of[1:] == of[:-1])
        odd = np.zeros(int(group[-1]) + 1 if len(group) else 0, np.bool_)
        odd[of[1:][twice]] = True
        odd[group[action[order] == REQUEUED]] = True
        if old and len(rows) and rows[0, 0] <= self._flying[:, ISSUE].max():
            odd[:] = True  # batches are each in order of time, not all together
        issue_of = np.full(len(table), -1)
        plain = ~odd[group]
        _match_plain(order[plain], group[plain], is_issue, issue_of)
        counts = self._counts
        is_flying = is_issue.copy()
        bounds = [*np.flatnonzero(starts).tolist(), len(order)]
        for number in np.flatnonzero(odd).tolist():
            queue: deque[int] = deque()
            times: set[int] = set()
            for at in order[bounds[number] : bounds[number + 1]].tolist():
                time = int(table[at, ISSUE])
                if is_issue[at] and time in times:
                    is_flying[at] = False
                    counts[DUPLICATES] += 1
                elif is_issue[at]:
                    queue.append(at)
                    times.add(time)
                elif queue:
                    is_requeue = bool(action[at] == REQUEUED)
                    issue_of[at] = queue.pop() if is_requeue else queue.popleft()
                    times.discard(int(table[issue_of[at], ISSUE]))
                    counts[REQUEUES] += is_requeue
        is_done = action == COMPLETED
        counts[UNMATCHED] += int((is_done & (issue_of < 0)).sum())
        change = is_flying.astype(np.int64) - (issue_of >= 0)
        for device in np.unique(table[:, DEVICE]):
            mine = table[:, DEVICE] == device
            depth = np.cumsum(change[mine])
            table[mine, DEPTH] = np.where(np.flatnonzero(mine) < old, table[mine, DEPTH], depth)
        done = np.flatnonzero(is_done & (issue_of >= 0))
        is_flying[issue_of[issue_of >= 0]] = False
        self._flying = table[is_flying]
        if len(self._flying) > MAX_FLYING:
            counts[LOST] += len(self._flying)
            self._flying = self._flying[:0]
        return done - old, table[issue_of[done]]

    def _forget(self) -> None:
        """Drop issues so old that their completion must have been lost."""
        if self._last is None or not self._in_flight:
            return
        if self._checked is None or self._last - self._checked >= STALE_NS:
            self._checked = self._last
            horizon = self._last - STALE_NS
            before = self._in_flight
            self._flying = self._flying[self._flying[:, ISSUE] >= horizon]
            for bios in self._bios.values():
                old = [n for n, bio in bios.every.items() if bio.issue < horizon]
                for number in old:
                    bios.remove(number)
            self._counts[LOST] += before - self._in_flight


def _match_plain(
    order: np.ndarray, group: np.ndarray, is_issue: np.ndarray, issue_of: np.ndarray
) -> None:
    """Match completions with issues first in, first out; *order*: places sorted by *group*.

    The k-th completion that finds something in flight is that of the k-th issue of its key.
    issue_of: int64[n], filled at the places of completions.
    """
    if not len(order):
        return
    step = np.where(is_issue[order], 1, -1)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    number = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    total = np.cumsum(step)
    total -= (total[starts] - step[starts])[number]
    # groups go down by more than they rise, so that the least so far is that of the own group
    fall = number * (2 * len(order) + 2)
    least = np.minimum(np.minimum.accumulate(total - fall) + fall, 0)
    before = np.concatenate(([0], least[:-1]))
    before[starts] = 0
    is_match = (step < 0) & (total >= before)
    mine, theirs = number[is_match], number[step > 0]
    rank = np.arange(len(mine)) - np.searchsorted(mine, mine)
    issue_of[order[is_match]] = order[step > 0][np.searchsorted(theirs, mine) + rank]


def _spikes(start: int, times: np.ndarray) -> np.ndarray:
    """bool[n]: times far off both neighbours that agree with each other: damage, not a clock."""
    padded = np.concatenate(([start], times, [times[-1]]))
    before, after = padded[:-2], padded[2:]
    high = (times - before >= CLOCK_STEP_NS) & (times - after >= CLOCK_STEP_NS)
    low = (before - times >= CLOCK_STEP_NS) & (after - times >= CLOCK_STEP_NS)
    return np.asarray((high | low) & (np.abs(after - before) < CLOCK_STEP_NS))
