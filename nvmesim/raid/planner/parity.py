"""Requests on raid5 and raid6: healthy reads, reads and writes through the stripe cache.

A request is cut into runs of 4 KiB rows that are covered alike; md decides row by row, so one
decision serves a run. Source: md ground truth, kernel 6.1.192; Linux drivers/md/raid5.c.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from nvmesim.raid.geometry import RAID5_MAX_REQUEST, Op, RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.pieces import (
    Command,
    RawChild,
    RowRun,
    children_of,
    merge_rows,
    submission_pieces,
)

# -- one 4 KiB row: read-modify-write or reconstruct-write ----------------------------------------
#
# A row is handled as md's handle_stripe does it: fill (fetch_block), then the choice between rmw
# and rcw (handle_stripe_dirtying), again and again until the write can start. Members are bits of
# an int. Source: Linux drivers/md/raid5.c, 6.1; checked against the md ground truth.

N_BUCKETS: Final = 8


class StripeCache:
    """Which blocks of which rows md still holds: members (bits of an int) for each cached row.

    Rows live in eight buckets (row modulo 8), each an LRU list with an eighth of
    ``stripe_cache_size``. Source: Linux drivers/md/raid5.c, stripe_hash_locks_hash and
    get_free_stripe.

    >>> cache = StripeCache(256)
    >>> cache.put(7, 0b1011)
    >>> cache.get(7), cache.get(8)
    (11, 0)
    """

    def __init__(self, n_rows: int) -> None:
        self._depth = max(1, n_rows // N_BUCKETS)
        self._buckets: list[OrderedDict[int, int]] = [OrderedDict() for _ in range(N_BUCKETS)]

    def get(self, row: int) -> int:
        """Members whose block of *row* is up to date; 0 when the row is not cached."""
        return self._buckets[row % N_BUCKETS].get(row, 0)

    def put(self, row: int, members: int) -> None:
        """Note what is up to date in *row* after its use; the least recently used row goes."""
        bucket = self._buckets[row % N_BUCKETS]
        bucket[row] = members
        bucket.move_to_end(row)
        if len(bucket) > self._depth:
            bucket.popitem(last=False)


@dataclass(frozen=True)
class RowTask:
    """State of a row and the request to it; every field but three is a set of members."""

    members: int  # how many
    rmw_level: int
    parity_p: int
    parity_q: int  # 0 for raid5
    lost: int  # cannot be read
    absent: int  # cannot be written either
    cached: int = 0  # up to date in the stripe cache
    overwrite: int = 0  # data blocks that the request covers in full
    partial: int = 0  # data blocks that it covers in part
    to_read: int = 0  # data blocks that a read wants


@dataclass(frozen=True)
class RowWork:
    """Md's actions on a row: members read, then members written, and the cache after it."""

    reads: tuple[int, ...]  # members, in the order in which md submits them
    writes: tuple[int, ...]
    cached: int


@dataclass
class _Row:
    task: RowTask
    cached: int
    reads: int = 0
    active: bool = False  # STRIPE_PREREAD_ACTIVE: md holds pre-reads back for a moment
    pending: int = 0
    failed: list[int] = field(default_factory=list)


def settle_row(task: RowTask) -> RowWork:
    """Run a row to its end.

    >>> settle_row(RowTask(4, 1, parity_p=8, parity_q=0, lost=0, absent=0, overwrite=1))
    RowWork(reads=(2, 1), writes=(3, 0), cached=15)
    """
    bits = [1 << member for member in range(task.members)]
    row = _Row(task, task.cached, failed=[bit for bit in bits if bit & task.lost])
    to_write = task.overwrite | task.partial
    while True:
        row.pending = 0
        _fill(row)
        started = False
        if to_write:
            started = _dirty(row)
        elif not task.to_read & ~row.cached:
            started = True
        if started:
            break
        if row.pending:
            row.reads |= row.pending
            row.cached |= row.pending
        else:  # held back: md comes again at once, and decides
            row.active = True
    after = row.cached
    writes = 0
    if to_write:
        parity = task.parity_p | task.parity_q
        writes = (to_write | parity) & ~task.absent
        after |= to_write | parity
    return RowWork(_members(row.reads, task.members), _members(writes, task.members), after)


def _members(mask: int, n_members: int) -> tuple[int, ...]:
    """Members in *mask*, highest first, as md's ops_run_io submits them."""
    return tuple(member for member in range(n_members - 1, -1, -1) if mask >> member & 1)


def _fill(row: _Row) -> None:
    """Fetch the blocks that are needed whatever the parity update will be (handle_stripe_fill)."""
    task = row.task
    to_write = task.overwrite | task.partial
    wanted = task.to_read & ~row.cached
    if not (wanted or task.partial or (to_write and row.failed)):
        return
    for member in range(task.members - 1, -1, -1):
        bit = 1 << member
        if not _needed(row, bit, to_write):
            continue
        known = row.cached.bit_count()
        computable = bit & task.lost or (task.parity_q and bit == task.parity_p)
        if known == task.members - 1 and computable:
            row.cached |= bit
            return
        if known == task.members - 2 and len(row.failed) >= 2:
            row.cached = (1 << task.members) - 1
            return
        if not bit & task.lost:
            row.pending |= bit


def _needed(row: _Row, bit: int, to_write: int) -> bool:
    """True if md must have this block (need_this_block)."""
    task = row.task
    if bit & (row.pending | row.cached):
        return False
    wanted = task.to_read & ~row.cached
    if bit & (wanted | task.partial) or wanted & task.lost:
        return True
    if not row.failed or not to_write:
        return False
    if not bit & task.lost and not row.active:
        return False
    stale = [failed for failed in row.failed if not failed & row.cached]
    if any(failed & task.partial for failed in stale):
        return True
    parity = task.parity_p | task.parity_q
    forced = task.rmw_level == 0 or (
        len(row.failed) >= 2 and any(failed & (to_write | parity) for failed in stale)
    )
    return forced and any(not failed & (parity | task.overwrite) for failed in stale)


def _dirty(row: _Row) -> bool:
    """Choose rmw or rcw, fetch what it needs; True when the write starts."""
    task = row.task
    parity = task.parity_p | task.parity_q
    data = ((1 << task.members) - 1) & ~parity
    unknown = ~(row.cached | row.pending)
    for_rmw = (task.overwrite | task.partial | parity) & unknown
    for_rcw = data & ~task.overwrite & unknown
    if task.rmw_level == 0:
        rmw, rcw = 2, 1
    else:
        rmw, rcw = _cost(for_rmw, task), _cost(for_rcw, task)
    modify = rmw < rcw or (rmw == rcw and task.rmw_level == 2)
    if row.active:
        fetch = for_rmw if modify and rmw > 0 else for_rcw if not modify else 0
        row.pending |= fetch & ~task.lost
    return not row.pending and (rmw == 0 or not for_rcw)


def _cost(blocks: int, task: RowTask) -> int:
    """Blocks to read; one that cannot be read counts as two of every member."""
    lost = (blocks & task.lost).bit_count()
    return (blocks & ~task.lost).bit_count() + 2 * task.members * lost


@dataclass(frozen=True)
class Span:
    """Rows of one stripe that a request covers alike; blocks are sets of data indices."""

    stripe: int
    first_row: int  # in the stripe
    n_rows: int
    full: int
    partial: int


@dataclass(frozen=True)
class RowRange:
    """Rows that md treats alike, by their number on the members."""

    first_row: int
    n_rows: int
    work: RowWork


def _covered(first: int, last: int, chunk: int) -> Iterator[tuple[int, int, int]]:
    """Data index and byte range in its chunk, for each chunk of [first, last) of one stripe."""
    index = first // chunk
    while index * chunk < last:
        start = max(first - index * chunk, 0)
        yield index, start, min(last - index * chunk, chunk)
        index += 1


def spans(offset: int, length: int, chunk: int, data: int) -> Iterator[Span]:
    """Runs of rows of a request, in row order, with the data blocks that each covers.

    >>> [(s.n_rows, bin(s.full)) for s in spans(32768, 131072, chunk=65536, data=3)]
    [(8, '0b110'), (8, '0b11')]
    """
    stripe_bytes = chunk * data
    end = offset + length
    for stripe in range(offset // stripe_bytes, -(-end // stripe_bytes)):
        base = stripe * stripe_bytes
        first, last = max(offset - base, 0), min(end - base, stripe_bytes)
        covered = list(_covered(first, last, chunk))
        edges = {0, chunk // BLOCK}
        for _, start, stop in (covered[0], covered[-1]):
            edges |= {start // BLOCK, -(-start // BLOCK), stop // BLOCK, -(-stop // BLOCK)}
        for low, high in itertools.pairwise(sorted(edges)):
            full = partial = 0
            for index, start, stop in covered:
                if start <= low * BLOCK and high * BLOCK <= stop:
                    full |= 1 << index
                elif start < high * BLOCK and low * BLOCK < stop:
                    partial |= 1 << index
            if full or partial:
                yield Span(stripe, low, high - low, full, partial)


class ParityPlanner:
    """Plans requests on one raid5 or raid6; remembers the decisions it has made."""

    def __init__(self, geometry: RaidGeometry) -> None:
        self.geometry = geometry
        self._works: dict[tuple[int, int, int, int, int, bool], RowWork] = {}
        self._masks: dict[tuple[int, int], int] = {}
        self._roles = geometry.stripe_roles
        self._rows = geometry.chunk // BLOCK
        self._absent = _mask(geometry.degraded)
        self._lost = _mask(geometry.lost)
        # a command holds a segment for each page, unlike those of a user's huge pages
        limit = min(geometry.max_sectors, geometry.max_segments * BLOCK)
        self._max_bytes = limit // BLOCK * BLOCK

    def commands(self, runs: list[RowRun]) -> list[Command]:
        """Commands of rows that are submitted together, as the block layer merges them."""
        return merge_rows(runs, self.geometry.kernel == "6.1", self._max_bytes)

    def read(
        self, offset: int, length: int, cache: StripeCache | None = None, *, below: bool = False
    ) -> list[RawChild]:
        """Children of a read; they bypass the stripe cache as long as no member is lost."""
        if not self._lost:  # a bio a chunk; over 1 MiB cut there first, from its own start
            chunk, data_disks = self.geometry.chunk, self.geometry.data_disks
            cut = min(RAID5_MAX_REQUEST, self.geometry.max_sectors)
            children: list[RawChild] = []
            for start, size in submission_pieces(offset, length, cut, chunk):
                stripe, data = divmod(start // chunk, data_disks)
                member = self._roles[stripe % len(self._roles)][0][data]
                children.append(((member,), False, stripe * chunk + start % chunk, size, 1))
            return children
        ranges = self.ranges("read", offset, length, cache, below=below)
        runs = [(r.work.reads, r.first_row, r.n_rows) for r in ranges if r.work.reads]
        return children_of(self.commands(runs), is_write=False)

    def write(
        self, offset: int, length: int, cache: StripeCache | None = None, *, below: bool = False
    ) -> list[list[RawChild]]:
        """Phases of a write: reads, writes."""
        ranges = self.ranges("write", offset, length, cache, below=below)
        reads = [(r.work.reads, r.first_row, r.n_rows) for r in ranges if r.work.reads]
        phases = [children_of(self.commands(reads), is_write=False)]
        # Rows that need no read are written at once, the others later: the two never merge.
        commands = []
        for waited in (False, True):
            runs = [
                (r.work.writes, r.first_row, r.n_rows)
                for r in ranges
                if bool(r.work.reads) is waited and r.work.writes
            ]
            commands += self.commands(runs)
        return [*phases, children_of(commands, is_write=True)]

    def ranges(
        self, op: Op, offset: int, length: int, cache: StripeCache | None, *, below: bool
    ) -> list[RowRange]:
        """Md's actions on each row of a request; *cache*, if given, is read and updated."""
        geometry = self.geometry
        done: list[RowRange] = []
        for span in spans(offset, length, geometry.chunk, geometry.data_disks):
            turn = span.stripe % len(self._roles)
            first = span.stripe * self._rows + span.first_row
            if cache is None:
                work = self.decide(op, turn, span, 0, below)
                done.append(RowRange(first, span.n_rows, work))
                continue
            for row in range(first, first + span.n_rows):
                work = self.decide(op, turn, span, cache.get(row), below)
                cache.put(row, work.cached)
                last = done[-1] if done else None
                if last and last.work is work and last.first_row + last.n_rows == row:
                    done[-1] = RowRange(last.first_row, last.n_rows + 1, work)
                else:
                    done.append(RowRange(row, 1, work))
        return done

    def decide(self, op: Op, turn: int, span: Span, cached: int, below: bool) -> RowWork:
        """Md's actions on a row of *span*, of the stripe *turn* of the layout's period."""
        is_read = op == "read"
        key = (turn, span.full, span.partial, cached, is_read, below)
        work = self._works.get(key)
        if work is None:
            geometry = self.geometry
            parity = self._roles[turn][1]
            full, partial = self._to_members(turn, span.full), self._to_members(turn, span.partial)
            task = RowTask(
                members=geometry.members,
                rmw_level=geometry.rmw_level,
                parity_p=1 << parity[0],
                parity_q=1 << parity[1] if len(parity) == 2 else 0,
                lost=self._absent if below else self._lost,
                absent=self._absent,
                cached=cached,
                overwrite=0 if is_read else full,
                partial=0 if is_read else partial,
                to_read=full | partial if is_read else 0,
            )
            work = self._works[key] = settle_row(task)
        return work

    def _to_members(self, turn: int, blocks: int) -> int:
        """Members that hold the data indices in *blocks*."""
        key = (turn, blocks)
        found = self._masks.get(key)
        if found is None:
            data = self._roles[turn][0]
            found = self._masks[key] = _mask(m for i, m in enumerate(data) if blocks >> i & 1)
        return found


def _mask(members: Iterator[int] | tuple[int, ...]) -> int:
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask
