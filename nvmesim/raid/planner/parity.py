"""Requests on raid5 and raid6: healthy reads, reads and writes through the stripe cache.

A request is cut into runs of 4 KiB rows that are covered alike; md decides row by row, so one
decision serves a run. Source: md ground truth, kernel 6.1.192; Linux drivers/md/raid5.c.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nvmesim.raid.geometry import RAID5_MAX_REQUEST, Op, RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.merge import Command, RowRun, merge_rows
from nvmesim.raid.planner.pieces import RawChild, submission_pieces
from nvmesim.raid.planner.row import RowTask, RowWork, StripeCache, settle_row

PPL_BATCH: Final = 8
"""Rows that share one partial parity log write. Source: md raid5.h, MAX_STRIPE_BATCH; the md
ground truth has 2 log writes for the 16 rows of a 64 KiB chunk."""


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
    logged: bool  # not a full stripe: a partial parity log keeps a block of each row
    parity: int  # member


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
        marks = sorted(edges)
        for low, high in itertools.pairwise(marks):
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
        if not self._lost:
            return self._direct_read(offset, length)
        ranges = self.ranges("read", offset, length, cache, below=below)
        runs = [(r.work.reads, r.first_row, r.n_rows) for r in ranges if r.work.reads]
        return children_of(self.commands(runs), is_write=False)

    def _direct_read(self, offset: int, length: int) -> list[RawChild]:
        """One bio a chunk; a request over 1 MiB is cut there first, from its own start."""
        geometry = self.geometry
        cut = min(RAID5_MAX_REQUEST, geometry.max_sectors)
        children: list[RawChild] = []
        for start, size in submission_pieces(offset, length, cut, geometry.chunk):
            index, inside = divmod(start, geometry.chunk)
            stripe, data = divmod(index, geometry.data_disks)
            member = self._roles[stripe % len(self._roles)][0][data]
            children.append(((member,), False, stripe * geometry.chunk + inside, size, 1))
        return children

    def write(
        self, offset: int, length: int, cache: StripeCache | None = None, *, below: bool = False
    ) -> list[list[RawChild]]:
        """Phases of a write: reads, the partial parity log if there is one, writes."""
        ranges = self.ranges("write", offset, length, cache, below=below)
        reads = [(r.work.reads, r.first_row, r.n_rows) for r in ranges if r.work.reads]
        phases = [children_of(self.commands(reads), is_write=False)]
        if self.geometry.journal == "ppl":
            log, commands = self._log_and_write(ranges)
            return [*phases, log, children_of(commands, is_write=True)]
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
            logged = span.full != (1 << geometry.data_disks) - 1
            parity = self._roles[turn][1][0]
            if cache is None:
                work = self.decide(op, turn, span, 0, below)
                done.append(RowRange(first, span.n_rows, work, logged, parity))
                continue
            for row in range(first, first + span.n_rows):
                work = self.decide(op, turn, span, cache.get(row), below)
                cache.put(row, work.cached)
                last = done[-1] if done else None
                if last and last.work is work and last.first_row + last.n_rows == row:
                    done[-1] = RowRange(last.first_row, last.n_rows + 1, work, logged, parity)
                else:
                    done.append(RowRange(row, 1, work, logged, parity))
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

    def _log_and_write(self, ranges: list[RowRange]) -> tuple[list[RawChild], list[Command]]:
        """Partial parity log writes, a block of header and a block for each row that is not full.

        md hands over rows in batches; each has its log write, on the parity member, and its data
        writes merge only within it.
        """
        log: list[RawChild] = []
        commands: list[Command] = []
        for batch in _batches(ranges):
            for parity in dict.fromkeys(part.parity for part in batch):
                rows = sum(p.n_rows for p in batch if p.logged and p.parity == parity)
                if not self._absent >> parity & 1:
                    log.append(((parity,), True, 0, (1 + rows) * BLOCK, 1))
            commands += self.commands([(p.work.writes, p.first_row, p.n_rows) for p in batch])
        return log, commands


def _batches(ranges: list[RowRange]) -> Iterator[list[RowRange]]:
    """Ranges cut into batches of eight rows."""
    batch: list[RowRange] = []
    room = PPL_BATCH
    for part in ranges:
        row, end = part.first_row, part.first_row + part.n_rows
        while row < end:
            taken = min(room, end - row)
            batch.append(RowRange(row, taken, part.work, part.logged, part.parity))
            row += taken
            room -= taken
            if room == 0:
                yield batch
                batch, room = [], PPL_BATCH
    if batch:
        yield batch


def _mask(members: Iterator[int] | tuple[int, ...]) -> int:
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def children_of(commands: list[Command], *, is_write: bool) -> list[RawChild]:
    """*commands* as children of a plan."""
    return [((c.member,), is_write, c.start, c.end - c.start, c.bios) for c in commands]
