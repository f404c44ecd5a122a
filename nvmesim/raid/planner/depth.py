"""Streams of writes at depth on raid5 and raid6: rows gather data while earlier work is under way.

With many requests outstanding a row often has more of its stripe by the time md handles it, so the
parity of several requests is written once. How often is a matter of timing, so this is a model, not
a rule: time goes in rounds of one member access; what arrives together is handled together, and
what arrives just as a row's reads are done makes it into the same write with probability `JOIN`.
Calibrated on the md ground truth (sequential writes, queue depth 32); its device delay of 20 us to
3 ms changed little, hence rounds.
"""

import math
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from nvmesim.raid.geometry import RAID5_MAX_REQUEST, RaidGeometry
from nvmesim.raid.map import BLOCK
from nvmesim.raid.planner.parity import N_BUCKETS, ParityPlanner, Span
from nvmesim.raid.planner.pieces import RawChild, RowRun, check_commands, children_of, keep, spend

JOIN: Final = 0.5
"""Chance that data joins the rows of a stripe whose reads end in the same round: an even race.
0.4 to 0.6 fit the md ground truth alike."""
FREE_SHARE: Final = 4
"""A writer that met a full stripe cache goes on once more than a quarter of it is free.
Source: Linux drivers/md/raid5.c, is_inactive_blocked."""
TAKEN: Final = 0.75
"""Share of the cache that it then fills before it has caught up with what is being freed and waits
again, and md handles what it has added. Calibrated as above: a writer half as fast again as md
frees; 0.75 is off by 11 % at most in the measured cases of 512 KiB chunks."""
WARM: Final = 4  # depths that are run before a cycle is recorded
CELL_PIECES: Final = 4  # pieces whose planning takes as long as following a cell. Measured.
LEAST: Final = 2048
MOST: Final = 1 << 15


@dataclass
class _Cell:
    """Rows of one stripe that every request covers alike."""

    key: int
    stripe: int
    first_row: int  # on the members
    cached: int = 0
    waiting: dict[int, list[int]] = field(default_factory=dict)  # data index -> requests
    covered: dict[int, int] = field(default_factory=dict)  # data index -> bytes
    busy: str = ""  # "", "read" or "write"
    writing: tuple[int, ...] = ()  # requests


@dataclass
class _Share:
    """Share of one request in the rows it shares."""

    reads: list[RowRun] = field(default_factory=list)
    writes: list[RowRun] = field(default_factory=list)
    cells_left: int = 0
    plan: list[list[RawChild]] = field(default_factory=list)


class DepthModel:
    """Runs a stream and hands out what each request reads and writes.

    A row's reads belong to its first request, its parity to the last, each data block to its own:
    so the bytes add up, and every request has work of its own unless several write one block.
    """

    def __init__(
        self, geometry: RaidGeometry, block_size: int, depth: int, *, below: bool = False,
        seed: int = 0, starts: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """*starts*, (align, how many): requests start at random multiples; None: a stream."""
        self._planner = ParityPlanner(geometry)
        self._geometry = geometry
        self._block = block_size
        self._depth = depth
        self._below = below
        self._random = random.Random(seed)
        self._cells: dict[int, _Cell] = {}
        self._events: dict[int, list[tuple[_Cell, str]]] = {}
        self._shares: list[_Share] = []
        self._in_flight = 0
        self._finished = 0
        self._unit = BLOCK
        self._capacity = 0
        self._active = 0  # cells that md works on
        self._idle: OrderedDict[int, None] = OrderedDict()  # cells in the cache, oldest first
        self._is_blocked = False
        self._parts: list[tuple[_Cell, int, int, int]] = []  # of a request that is let in
        self._start = 0
        self._starts = starts
        self._offsets = random.Random(seed + 1)

    def cycle(self, offset: int) -> list[list[list[RawChild]]]:
        """Plans of the requests of a whole number of layout periods, after a warm-up."""
        geometry = self._geometry
        period = geometry.data_disks * geometry.chunk * len(geometry.stripe_roles)
        per_period = math.lcm(period, self._block) // self._block
        wanted = min(per_period * -(-LEAST // per_period), MOST)
        warm = per_period * -(-WARM * self._depth // per_period)
        tail = WARM * self._depth  # so that the last ones recorded still share rows
        return self.run(offset, warm + wanted + tail)[warm : warm + wanted]

    def run(self, offset: int, n_requests: int) -> list[list[list[RawChild]]]:
        """Plans of the first *n_requests* of a stream from *offset*, nothing cached at first.

        Raises LimitError where `budget.planning` allows no more.
        """
        self._start = offset
        chunk = self._geometry.chunk
        step = self._block if self._starts is None else self._starts[0]
        unit = math.gcd(self._block, chunk, offset or chunk, step)
        # Fine enough that a quarter of the stripe cache is some cells: a power of two of rows.
        finest = 1 << ((self._geometry.stripe_cache // N_BUCKETS).bit_length() - 1)
        self._unit = max(math.gcd(unit, finest * BLOCK), BLOCK)
        spend(n_requests * CELL_PIECES * (1 + self._block // self._unit))
        self._shares = [_Share() for _ in range(n_requests)]
        self._capacity = max(1, self._geometry.stripe_cache * BLOCK // self._unit)
        now = 0
        self._round(now)
        while self._finished < n_requests:
            now += 1
            self._round(now)
        return [share.plan for share in self._shares]

    def _round(self, now: int) -> None:
        """One round: ends of writes, ends of reads that win the race, arrivals, the rest."""
        ended = self._events.pop(now, [])
        for cell, _ in ended:
            if cell.busy == "write":
                self._complete(cell)
        late: list[_Cell] = []
        joins: dict[int, bool] = {}
        for cell, what in ended:
            cell.busy = ""
            if what == "read" and cell.stripe not in joins:
                joins[cell.stripe] = self._random.random() < JOIN
            if what == "read" and joins[cell.stripe]:
                late.append(cell)
            else:
                self._start_cell(cell, now)
        for cell in [*late, *self._arrivals(now)]:
            self._start_cell(cell, now)

    def _arrivals(self, now: int) -> list[_Cell]:
        """Let requests in until the queue depth or the stripe cache is full; cells to handle."""
        room = self._capacity - self._active
        if self._is_blocked:
            if room * FREE_SHARE <= self._capacity:
                return []
            for cell in self._fill(min(room, round(self._capacity * TAKEN))):
                self._start_cell(cell, now)
            room = self._capacity - self._active
            if self._is_blocked and room * FREE_SHARE <= self._capacity:
                return []
        return self._fill(room)

    def _fill(self, room: int) -> list[_Cell]:
        """Add requests to their cells as long as new cells fit into *room*."""
        touched: list[_Cell] = []
        self._is_blocked = False
        while True:
            if not self._parts:
                request = self._finished + self._in_flight
                if self._in_flight >= self._depth or request >= len(self._shares):
                    return touched
                self._in_flight += 1
                self._parts = self._split(request)
            while self._parts:
                cell, data, request, n_bytes = self._parts[-1]
                if not cell.busy and not cell.waiting:
                    if room == 0:
                        self._is_blocked = True
                        return touched
                    room -= 1
                    self._take(cell)
                cell.waiting.setdefault(data, []).append(request)
                cell.covered[data] = cell.covered.get(data, 0) + n_bytes
                touched.append(cell)
                self._parts.pop()

    def _split(self, request: int) -> list[tuple[_Cell, int, int, int]]:
        """Cells that a request covers, last first: 1 MiB at a time, all data of a row together."""
        geometry, unit = self._geometry, self._unit
        first = self._start + request * self._block
        if self._starts is not None:
            align, count = self._starts
            first = self._start + self._offsets.randrange(count) * align
        end = first + self._block
        parts: list[tuple[int, int, int, int, int]] = []
        start = first
        while start < end:
            stop = min(end, start // unit * unit + unit)
            chunk, inside = divmod(start, geometry.chunk)
            stripe, data = divmod(chunk, geometry.data_disks)
            key = (stripe * geometry.chunk + inside) // unit
            parts.append(((start - first) // RAID5_MAX_REQUEST, key, data, stripe, stop - start))
            start = stop
        self._shares[request].cells_left = len(parts)
        return [
            (self._cell(key, stripe), data, request, n_bytes)
            for _, key, data, stripe, n_bytes in sorted(parts, reverse=True)
        ]

    def _cell(self, key: int, stripe: int) -> _Cell:
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell(key, stripe, key * (self._unit // BLOCK))
        return cell

    def _start_cell(self, cell: _Cell, now: int) -> None:
        """Handle a cell: read what its write needs, or write."""
        if cell.busy or not cell.waiting:
            return
        turn = cell.stripe % len(self._geometry.stripe_roles)
        full = sum(1 << data for data, n in cell.covered.items() if n >= self._unit)
        partial = sum(1 << data for data, n in cell.covered.items() if n < self._unit)
        rows = self._unit // BLOCK
        span = Span(cell.stripe, 0, rows, full, partial)
        work = self._planner.decide("write", turn, span, cell.cached, self._below)
        owners = sorted({owner for group in cell.waiting.values() for owner in group})
        if work.reads:
            self._shares[owners[0]].reads.append((work.reads, cell.first_row, rows))
            cell.cached |= sum(1 << member for member in work.reads)
            cell.busy = "read"
        else:
            self._write(cell, turn, work.writes, owners, rows)
            cell.cached = work.cached
            cell.writing = tuple(owner for group in cell.waiting.values() for owner in group)
            cell.waiting, cell.covered = {}, {}
            cell.busy = "write"
        self._events.setdefault(now + 1, []).append((cell, cell.busy))

    def _write(
        self, cell: _Cell, turn: int, members: Sequence[int], owners: Sequence[int], rows: int
    ) -> None:
        data_members = self._geometry.stripe_roles[turn][0]
        data = {member: index for index, member in enumerate(data_members)}
        holders = {
            owner
            for index, group in cell.waiting.items()
            if data_members[index] in members
            for owner in group
        }
        idle = [owner for owner in owners if owner not in holders]
        # Parity goes to requests that would otherwise have nothing to write, else to the last.
        takers = idle or owners[-1:]
        n_parity = 0
        by_owner: dict[int, list[int]] = {}
        for member in members:
            index = data.get(member)
            if index is None:
                owner = takers[n_parity % len(takers)]
                n_parity += 1
            else:
                owner = cell.waiting[index][-1]
            by_owner.setdefault(owner, []).append(member)
        for owner, theirs in by_owner.items():
            self._shares[owner].writes.append((tuple(theirs), cell.first_row, rows))

    def _complete(self, cell: _Cell) -> None:
        for request in cell.writing:
            share = self._shares[request]
            share.cells_left -= 1
            if share.cells_left == 0:
                share.plan = self._plan(share)
                self._in_flight -= 1
                self._finished += 1
        cell.writing = ()
        if not cell.waiting:
            self._active -= 1
            self._idle[cell.key] = None

    def _take(self, cell: _Cell) -> None:
        """Work on a cell; to make room in the stripe cache the oldest idle one is forgotten."""
        self._active += 1
        if cell.key in self._idle:
            del self._idle[cell.key]
        elif self._active + len(self._idle) > self._capacity:
            oldest, _ = self._idle.popitem(last=False)
            self._cells.pop(oldest).cached = 0
        self._cells[cell.key] = cell

    def _plan(self, share: _Share) -> list[list[RawChild]]:
        """What a request that has finished did; its rows are not needed any more."""
        reads, writes = (
            children_of(
                self._planner.commands(sorted(runs, key=lambda run: run[1])), is_write=is_write
            )
            for runs, is_write in ((share.reads, False), (share.writes, True))
        )
        plan = [reads, writes]
        commands = sum(map(len, plan))
        check_commands(commands)
        keep(commands)
        share.reads, share.writes = [], []
        return plan
