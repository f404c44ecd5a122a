"""Requests on raid0, raid1 and raid10: cut, copied, and merged again.

The block layer first cuts a request into pieces of the volume's max_sectors counted from the
request's own start (for raid0 that is the chunk), then md cuts each at chunk boundaries. Hence a
misaligned request of k chunks on raid0 is 2k bios. Source: md ground truth, kernel 6.1.192.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from nvmesim.errors import LimitError
from nvmesim.limits import MOST_COMMANDS, MOST_PLANNED, need
from nvmesim.raid.geometry import Op, RaidGeometry
from nvmesim.raid.map import BLOCK, KIB, Place

# -- what one scenario may have planned -----------------------------------------------------------
#
# Pieces of requests, and the commands that are kept of them, are counted while plans are made, so
# that a small file is refused before it takes the machine.

COMMAND_BYTES: Final = 512
"""Memory of one command of a plan, from the planner to the engine. Measured, rounded up."""
REQUEST_PIECES: Final = 8
"""Planning a request takes as long as planning so many pieces more. Measured."""
OFFSET_BYTES: Final = 64
"""Memory of one place where requests may start, while places of one class are found."""


@dataclass
class _Budget:
    most: int
    pieces: int = 0
    commands: int = 0


_budget: Final[ContextVar[_Budget | None]] = ContextVar("what has been planned", default=None)


@contextmanager
def planning(most: int = MOST_PLANNED) -> Iterator[None]:
    """Let the body plan so many pieces of requests in all, then raise LimitError.

    A piece is a row of 4 KiB where the level has a stripe cache, else a chunk of each copy.

    >>> with planning(16):
    ...     spend(17)
    Traceback (most recent call last):
    ...
    nvmesim.errors.LimitError: requests are cut into too many pieces in too many ways to be \
planned: more than 16 in all; a smaller block_size, a larger chunk or align, or fewer sizes
    """
    token = _budget.set(_Budget(most))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(pieces: int, ahead: int = 0) -> None:
    """Count *pieces* that are about to be planned; LimitError if `planning` allows no more.

    *ahead*: as many more would follow, so what is too much is refused before any of it is done.
    """
    budget = _budget.get()
    if budget is None:
        return
    budget.pieces += pieces
    if budget.pieces + ahead > budget.most:
        raise LimitError(
            "requests are cut into too many pieces in too many ways to be planned: more than "
            f"{budget.most:,} in all; a smaller block_size, a larger chunk or align, or fewer sizes"
        )


def keep(commands: int) -> None:
    """Count *commands* of plans that are about to be kept; LimitError if they take too much."""
    budget = _budget.get()
    if budget is None:
        return
    budget.commands += commands
    need(budget.commands * COMMAND_BYTES, f"{budget.commands:,} commands of all plans")


def check_commands(commands: int) -> None:
    """Raise LimitError if one request is more *commands* than an engine has under way at once."""
    if commands > MOST_COMMANDS and _budget.get() is not None:
        raise LimitError(
            f"a request is {commands:,} commands at once; {MOST_COMMANDS:,} at most: a smaller "
            "block_size, or a larger chunk"
        )


def check_offsets(count: int) -> None:
    """Raise LimitError if *count* places where requests may start take too much memory."""
    if _budget.get() is not None:
        need(count * OFFSET_BYTES, f"{count:,} places where requests may start")


# -- from bios to commands ------------------------------------------------------------------------
#
# A plug holds the requests of one submitter until it is done; a new bio is merged with a request
# of the same member there if they touch. Which request is tried, and when the plug is flushed
# early, decides how many commands a member sees. Source: Linux block/blk-merge.c and blk-mq.c,
# 6.1 (newest request first) and 6.12 (a FIFO list: the tail, else the oldest request of that
# member); checked against the md ground truth.

FLUSH_BYTES: Final = 128 * KIB
"""A plug is flushed before an add when its newest request is this large (BLK_PLUG_FLUSH_SIZE)."""
MAX_REQUESTS: Final = 32
"""Requests in a plug; twice as many if several members are in it (BLK_MAX_REQUEST_COUNT)."""

Bio = tuple[int, int, int]  # member, member offset (bytes), length (bytes)

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


def children_of(commands: Iterable[Command], *, is_write: bool) -> list[RawChild]:
    """*commands* as children of a plan."""
    return [((c.member,), is_write, c.start, c.end - c.start, c.bios) for c in commands]


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


RawChild = tuple[tuple[int, ...], bool, int, int, int]
"""Member alternatives, is a write, member offset, bytes, bios."""


def joined(children: Iterable[RawChild], max_bytes: int, gap: int = 0) -> list[RawChild]:
    """Neighbouring blocks, but for a *gap*, as one command of one bio, *max_bytes* at most.

    >>> joined([((0,), True, 4096, 4096, 1), ((0,), True, 0, 4096, 1)], 8192)
    [((0,), True, 0, 8192, 1)]
    """
    done: list[RawChild] = []
    for members, is_write, start, size, _ in sorted(children):
        if done and done[-1][:2] == (members, is_write):
            begin, end = done[-1][2], done[-1][2] + done[-1][3]
            if 0 <= start - end <= gap and start + size - begin <= max_bytes:
                done[-1] = (members, is_write, begin, start + size - begin, 1)
                continue
        done.append((members, is_write, start, size, 1))
    return done


BARRIER_UNIT: Final = 64 << 20
"""Source: Linux drivers/md/raid1.h, BARRIER_UNIT_SECTOR_SIZE, since 4.11."""

Piece = tuple[int, int]  # start on the volume and length, bytes


def submission_pieces(offset: int, length: int, cut: int, chunk: int | None) -> list[Piece]:
    """Pieces of a request in the order in which raid1, 10, 5 and 6 submit them.

    A remainder is queued behind what was cut off before it, and newer remainders before older ones,
    so the tails of misaligned pieces come last and backwards.
    Source: Linux block/blk-core.c, __submit_bio_noacct.

    >>> [start for start, _ in submission_pieces(32, 128, cut=64, chunk=64)]
    [32, 96, 128, 64]
    """
    work = [(offset, length)]
    done: list[Piece] = []
    while work:
        start, left = work.pop(0)
        rest: list[tuple[int, int]] = []
        if left > cut:
            rest.append((start + cut, left - cut))
            left = cut
        if chunk is not None:
            inside = chunk - start % chunk
            if left > inside:
                rest.append((start + inside, left - inside))
                left = inside
        done.append((start, left))
        work = rest + work
    return done


def striped_pieces(offset: int, length: int, cut: int, chunk: int) -> list[Piece]:
    """Pieces of a raid0 request in order: of each piece that crosses a chunk the tail comes first.

    Source: Linux drivers/md/raid0.c, raid0_make_request as of 6.1.192 and 6.12.

    >>> [start for start, _ in striped_pieces(32, 128, cut=64, chunk=64)]
    [64, 32, 128, 96]
    """
    done: list[Piece] = []
    for start in range(offset, offset + length, cut):
        left = min(cut, offset + length - start)
        inside = chunk - start % chunk
        if left > inside:
            done.append((start + inside, left - inside))
        done.append((start, min(left, inside)))
    return done


def split_unit(geometry: RaidGeometry) -> int | None:
    """Bytes at whose multiples md splits a request; None: nowhere.

    raid1 splits where its barriers change hands; raid10 at chunks, unless every member holds a copy
    of every chunk. Source: Linux drivers/md/raid1.c, align_to_barrier_unit_end; raid10.c,
    raid10_make_request.

    >>> [split_unit(RaidGeometry(10, n, 65536)) for n in (2, 3)]
    [None, 65536]
    """
    if geometry.level == 1:
        return BARRIER_UNIT if geometry.kernel != "none" else None
    kind, copies = geometry.record.copies_of(geometry.members, geometry.layout_name)
    return None if kind == "near" and copies == geometry.members else geometry.chunk


def crosses_barriers(geometry: RaidGeometry, block_size: int, step: int, offset: int) -> bool:
    """True if some of the requests at offset + k * step cross a barrier unit of a raid1.

    >>> mirror = RaidGeometry(1, 2)
    >>> [crosses_barriers(mirror, 65536, *at) for at in ((65536, 65536), (4096, 0), (65536, 4096))]
    [False, True, True]
    """
    if geometry.level != 1 or split_unit(geometry) is None:
        return False
    grid = math.gcd(step, BARRIER_UNIT)
    return offset % grid + block_size > grid


def plan_pieces(
    geometry: RaidGeometry, op: Op, offset: int, length: int, cache: object, below: bool
) -> list[list[RawChild]]:
    """The one phase of a request on a raid0, raid1 or raid10, which have no stripe *cache*.

    *below* says that the request lies where rebuilding members are good already.
    """
    level = geometry.level
    if level == 0 and geometry.kernel != "none":
        cut = min(geometry.chunk, geometry.max_sectors)
        pieces = striped_pieces(offset, length, cut, geometry.chunk)
    else:
        pieces = submission_pieces(offset, length, geometry.max_sectors, split_unit(geometry))
    if op == "read":
        found = []
        for start, size in pieces:
            order = read_order(geometry, geometry.address_map.locate(start), below)
            found.append((tuple(member for member, _ in order), False, order[0][1], size, 1))
        return [found]
    bios = [
        (member, member_offset, size)
        for start, size in pieces
        for member, member_offset in geometry.address_map.locate(start)
        if member not in geometry.degraded
    ]
    # Kernel 6.1 plugs a write as a whole; 6.12 does so only for the sake of a bitmap.
    newest_first = geometry.kernel == "6.1"
    if not newest_first and (level == 0 or geometry.bitmap == "none"):
        return [[((member,), True, start, size, 1) for member, start, size in bios]]
    return [children_of(merge_bios(bios, newest_first, geometry.max_sectors), is_write=True)]


def read_order(geometry: RaidGeometry, places: Sequence[Place], below: bool) -> list[Place]:
    """Copies that a read may go to, md's preference first.

    raid10 reads only non-rotational copies if members are mixed, and of a far or offset layout on
    rotational members always the first copy.
    """
    lost = geometry.degraded if below else geometry.lost
    live = [place for place in places if place[0] not in lost]
    if geometry.level == 1:
        live = [p for p in live if p[0] not in geometry.write_mostly] or live
    elif geometry.level == 10 and geometry.rotational:
        flags = geometry.rotational
        fast = [place for place in live if not flags[place[0]]]
        if fast:
            live = fast
        elif not geometry.layout_name.startswith("near"):
            live = live[:1]
    return live[:1] if geometry.read_policy == "first" else live
