"""One 4 KiB stripe row of raid5 and raid6: read-modify-write or reconstruct-write.

A row is handled as md's handle_stripe does it: fill (fetch_block), then the choice between rmw and
rcw (handle_stripe_dirtying), again and again until the write can start. Members are bits of an int.
Source: Linux drivers/md/raid5.c, 6.1; checked against the md ground truth.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

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
