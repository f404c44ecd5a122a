"""From bios to commands: the block layer's plug, as it merges what md issues to its members.

A plug holds the requests of one submitter until it is done; a new bio is merged with a request of
the same member there if they touch. Which request is tried, and when the plug is flushed early,
decides how many commands a member sees.
Source: Linux block/blk-merge.c and blk-mq.c, 6.1 (newest request first) and 6.12 (a FIFO list: the
tail, else the oldest request of that member); checked against the md ground truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from nvmesim.raid.map import BLOCK, KIB

FLUSH_BYTES: Final = 128 * KIB
"""A plug is flushed before an add when its newest request is this large (BLK_PLUG_FLUSH_SIZE)."""
MAX_REQUESTS: Final = 32
"""Requests in a plug; twice as many if several members are in it (BLK_MAX_REQUEST_COUNT)."""

Bio = tuple[int, int, int]
"""Member, member offset (bytes), length (bytes)."""

RowRun = tuple[tuple[int, ...], int, int]
"""Members in submission order, first row, number of rows: each row is one 4 KiB bio a member."""


@dataclass
class Command:
    """A request in the making: member, byte range and the bios in it."""

    member: int
    start: int
    end: int
    bios: int


@dataclass
class Plug:
    """One plug; `add` merges or appends, `done` holds every command in order of appearance."""

    newest_first: bool
    max_bytes: int
    done: list[Command] = field(default_factory=list)
    _held: list[Command] = field(default_factory=list)
    _oldest: dict[int, Command] = field(default_factory=dict)
    _newest: dict[int, Command] = field(default_factory=dict)

    def candidate(self, member: int) -> Command | None:
        """The only request of *member* that the kernel tries to merge with."""
        if self.newest_first:
            return self._newest.get(member)
        if self._held and self._held[-1].member == member:
            return self._held[-1]
        return self._oldest.get(member)

    def add(self, member: int, start: int, length: int) -> None:
        """Submit one bio."""
        found = self.candidate(member)
        if found is not None and found.end - found.start + length <= self.max_bytes:
            if found.end == start:
                found.end += length
                found.bios += 1
                return
            if start + length == found.start:
                found.start = start
                found.bios += 1
                return
        self._append(Command(member, start, start + length, 1))

    def _append(self, command: Command) -> None:
        held = self._held
        if held:
            limit = MAX_REQUESTS * (2 if len(self._newest) > 1 else 1)
            if len(held) >= limit or held[-1].end - held[-1].start >= FLUSH_BYTES:
                self.flush()
        self._held.append(command)
        self._newest[command.member] = command
        self._oldest.setdefault(command.member, command)
        self.done.append(command)

    def flush(self) -> None:
        """Send what is held to the members; nothing merges with it any more."""
        self._held = []
        self._oldest = {}
        self._newest = {}


def merge_bios(bios: Iterable[Bio], newest_first: bool, max_bytes: int) -> list[Command]:
    """Commands that the members see when *bios* are submitted in this order under one plug.

    >>> [c.bios for c in merge_bios([(0, 0, 65536), (1, 0, 65536), (0, 65536, 65536)], True, 2**20)]
    [2, 1]
    """
    plug = Plug(newest_first, max_bytes)
    for member, start, length in bios:
        plug.add(member, start, length)
    return plug.done


def merge_rows(runs: Iterable[RowRun], newest_first: bool, max_bytes: int) -> list[Command]:
    """Commands that the members see when md submits rows of 4 KiB bios under one plug.

    The same as `merge_bios` bio by bio, but long runs are extended at once.

    >>> [(c.member, c.bios) for c in merge_rows([((1, 0), 0, 16)], True, 512 * 1024)]
    [(1, 16), (0, 16)]
    """
    plug = Plug(newest_first, max_bytes)
    for members, first, n_rows in runs:
        row, end = first, first + n_rows
        while row < end:
            for member in members:
                plug.add(member, row * BLOCK, BLOCK)
            row += 1
            if row < end:
                row += _extend(plug, members, row, end - row)
    return plug.done


def _extend(plug: Plug, members: tuple[int, ...], row: int, n_rows: int) -> int:
    """Let every member's request grow by up to *n_rows* rows; 0 when some bio would not merge."""
    found: list[Command] = []
    for member in members:
        command = plug.candidate(member)
        if command is None or command.end != row * BLOCK:
            return 0
        n_rows = min(n_rows, (plug.max_bytes - (command.end - command.start)) // BLOCK)
        found.append(command)
    for command in found:
        command.end += n_rows * BLOCK
        command.bios += n_rows
    return n_rows


def joined(
    children: Sequence[tuple[tuple[int, ...], bool, int, int, int]], max_bytes: int
) -> list[tuple[tuple[int, ...], bool, int, int, int]]:
    """Neighbouring blocks as one command of one bio: an engine that plans whole strips.

    >>> joined([((0,), True, 4096, 4096, 1), ((0,), True, 0, 4096, 1)], 8192)
    [((0,), True, 0, 8192, 1)]
    """
    done: list[tuple[tuple[int, ...], bool, int, int, int]] = []
    for members, is_write, start, size, _ in sorted(children):
        if done:
            last = done[-1]
            touches = last[:2] == (members, is_write) and last[2] + last[3] == start
            if touches and last[3] + size <= max_bytes:
                done[-1] = (members, is_write, last[2], last[3] + size, 1)
                continue
        done.append((members, is_write, start, size, 1))
    return done
