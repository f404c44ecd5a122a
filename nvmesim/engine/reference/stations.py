"""Stations of the reference engine: one class a kind, in SimPy, to be read and extended.

A token *arrives* at a station while an instant runs; the station *dispatches* it when the instant's
arrivals are all in (`contract.py`, rules 1 to 3). Your own station is a subclass: override
`Station.start_of` when only the queueing differs, or `Station.dispatch` when everything does, and
call `Station.depart` for every token. `reference.ReferenceEngine(stations={"name": MyStation})`
puts it in the place of the station of that name.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator
from typing import Any, Protocol

import simpy

from nvmesim.engine.contract import TOUCH_ORDER, wake_up_ps
from nvmesim.engine.reference.tokens import Account, Instant, Token, Visit
from nvmesim.network.builder import Row
from nvmesim.network.network import IN_ORDER, SCALE_ONE, Network, Op


class World(Protocol):
    """The engine as a station sees it."""

    net: Network
    env: simpy.Environment
    instant: Instant
    gates: dict[int, Gate]

    def work_ps(self, visit: Visit, station: Station) -> int:
        """Service of *visit* before any load-dependent factor: base, draw, setup, children."""
        ...

    def program_ps(self, station: Station, number: int, slow: bool) -> int:
        """Time of a die's *number*-th program, if it starts now; *slow*: within a batch."""
        ...

    def batch_ps(self, station: Station, number: int) -> int:
        """Length of a die's *number*-th batch of garbage collection."""
        ...

    def round_ps(self, station: Station, number: int) -> int:
        """Time of a station's *number*-th round, without its members'."""
        ...

    def wait_factor(self, visit: Visit) -> int:
        """Factor x `SCALE_ONE` of a wait where nobody is taken in order."""
        ...

    def interrupt_ps(self, visit: Visit) -> int:
        """Time of the interrupt that *visit* raises now, 0 if one of its thread and target runs."""
        ...

    def note(self, visit: Visit, station: Station, start_ps: int, depart_ps: int) -> None:
        """Record a step, if the timeline wants it; depart -1: a gate, left by `note_release`."""
        ...

    def note_release(self, token: Token, station: Station) -> None:
        """Record that *token* released slots of a gate."""
        ...


class Station:
    """Infinitely many servers (the DELAY kind), and the base of all stations.

    A subclass may override `start_of` (when does this service start?), `served` (how long does so
    much work take?), `left` (a token has gone), or `dispatch` (everything): then it must `depart`
    every token that it gets, now or later.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = world.net.station_names[number]
        self.servers = int(world.net.station_servers[number])
        self.account = Account()
        self.n_series = 0
        """Visits so far whose service came from a series."""
        self._touched = False
        self._ahead_ps: int | None = None

    @property
    def now(self) -> int:
        """The clock, ps; while a chained visit is dispatched, when its token will arrive."""
        return int(self.world.env.now) if self._ahead_ps is None else self._ahead_ps

    @property
    def waiting(self) -> int:
        """Tokens that wait with no departure in sight: only gates have them."""
        return 0

    def arrive(self, token: Token, op: Row) -> Visit:
        """Phase A: enlist *token* for dispatch; return the event that its process waits for."""
        visit = Visit(self.world.env, token, op)
        self.world.instant.add(self.number, token.order, lambda: self.dispatch(visit))
        return visit

    def dispatch(self, visit: Visit) -> None:
        """Phase B: fix the service of a visit."""
        work = self.world.work_ps(visit, self)
        service = self.served(work)
        self.depart(visit, self.start_of(service), service, work)

    def dispatch_ahead(self, visit: Visit) -> None:
        """Dispatch a chained visit, whose token arrives later."""
        self._ahead_ps = visit.arrive_ps
        self.dispatch(visit)
        self._ahead_ps = None

    def served(self, work_ps: int) -> int:
        """Service time of *work_ps* that arrives now."""
        return work_ps

    def start_of(self, service_ps: int) -> int:
        """When a service of *service_ps* that is dispatched now starts; takes the server."""
        return self.now

    def left(self) -> None:
        """Phase A: a token has departed."""

    def depart(self, visit: Visit, start_ps: int, service_ps: int, work_ps: int) -> None:
        """Account a visit and schedule its end, *service_ps* after *start_ps*, not before now."""
        if visit.op.code == Op.VISIT_UNORDERED:
            first = visit.arrive_ps + IN_ORDER * service_ps
            if start_ps > first:
                waits = (start_ps - first) * self.world.wait_factor(visit)
                start_ps = first + waits // SCALE_ONE
        self.account.visits += 1
        self.account.wait_ps += start_ps - visit.arrive_ps
        self.account.service_ps += service_ps
        self.account.work_ps += work_ps
        end = start_ps + service_ps
        self.world.note(visit, self, start_ps, end)
        assert visit.callbacks is not None
        visit.callbacks.append(lambda _: self.left())
        end += visit.op.d if visit.op.code in (Op.VISIT, Op.VISIT_UNORDERED) else 0
        if visit.chain:
            station, visit.op = visit.chain.pop(0)
            visit.arrive_ps = end
            station.dispatch_ahead(visit)
        else:
            visit.end(end - int(self.world.env.now))

    def request_touch(self) -> None:
        """Phase A: call `touch` once, behind this round's arrivals."""
        if not self._touched:
            self._touched = True
            self.world.instant.add(self.number, TOUCH_ORDER, self._touch)

    def touch(self) -> None:
        """Phase B: something became free here."""

    def _touch(self) -> None:
        self._touched = False
        self.touch()

    def close_batch(self) -> Account:
        """Return what was added up since the last call."""
        account, self.account = self.account, Account()
        return account


class Fifo(Station):
    """``servers`` servers and one first-come-first-served queue.

    A service is fixed at dispatch and nothing overtakes, so its start is known at once: the
    earliest time that a server is free. With a scale, the speed depends on the number busy.
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._free_at = [0] * self.servers
        self._inside = 0
        first = int(world.net.station_scale[number])
        self._factors: list[int] = []
        if first >= 0:
            self._factors = world.net.scale[first : first + self.servers].tolist()

    def served(self, work_ps: int) -> int:
        """Scale the work by the number busy, this one included."""
        self._inside += 1
        if not self._factors:
            return work_ps
        busy = min(self._inside, self.servers)
        return max(1, work_ps * self._factors[busy - 1] // SCALE_ONE)

    def start_of(self, service_ps: int) -> int:
        """Take the server that is free first."""
        start = max(self.now, self._free_at[0])
        heapq.heapreplace(self._free_at, start + service_ps)
        return start

    def left(self) -> None:
        """Count the token out."""
        self._inside -= 1


class Gate(Station):
    """Slots, and a first-come-first-served queue of those who want some.

    The gate of a thread also charges the setup of its CPU (`Op.ACQUIRE_THREAD`): a wake-up that
    grows with the time the thread slept, and an interrupt, which serves all tokens of its thread
    and target that arrive while it runs, and runs longer for each.
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.free = self.servers
        self._since = 0
        self._queue: deque[Visit] = deque()
        self._idle_since = 0

    @property
    def waiting(self) -> int:
        """Tokens in the queue."""
        return len(self._queue)

    def dispatch(self, visit: Visit) -> None:
        """Grant the slots, or queue behind those who wait (or before them, `Op.ACQUIRE_THREAD`)."""
        self.account.visits += 1
        by_thread = visit.op.code == Op.ACQUIRE_THREAD
        if by_thread and visit.op.c > 0:
            visit.token.setup_ps += self.world.interrupt_ps(visit)
        if self._passes(visit):
            if by_thread and visit.op.a > 0:
                slept = self.now - self._idle_since
                visit.token.setup_ps += wake_up_ps(visit.op.a, slept, visit.op.d)
            self._grant(visit)
        else:
            self._wait(visit, by_thread and visit.op.e == 1)

    def _passes(self, visit: Visit) -> bool:
        """True if *visit*, which arrives, need not wait."""
        return not self._queue and self.free >= _slots(visit.op)

    def _wait(self, visit: Visit, front: bool) -> None:
        if front:
            self._queue.appendleft(visit)
        else:
            self._queue.append(visit)

    def touch(self) -> None:
        """Grant slots to those who wait, in order, while there are enough."""
        while self._queue and self.free >= _slots(self._queue[0].op):
            self._grant(self._queue.popleft())

    def release(self, slots: int) -> None:
        """Phase A: take *slots* back."""
        self._settle()
        self.free += slots
        self._idle_since = self.now
        if self._queue:
            self.request_touch()

    def close_batch(self) -> Account:
        """Return what was added up, slots still held included."""
        self._settle()
        return super().close_batch()

    def _settle(self) -> None:
        """Account the slot-time held since the slots last changed."""
        self.account.service_ps += (self.servers - self.free) * (self.now - self._since)
        self._since = self.now

    def _grant(self, visit: Visit) -> None:
        self._settle()
        self.free -= _slots(visit.op)
        self.account.wait_ps += self.now - visit.arrive_ps
        self.world.note(visit, self, self.now, -1)
        visit.end(0)


def _slots(op: Row) -> int:
    return op.b if op.code == Op.ACQUIRE else 1


class Die(Station):
    """One server for tokens, first come first served; programs start only when it falls idle.

    At most one program is in service. A token waits for its end, or, on a drive that suspends
    programs, for the suspension; the program then ends so much later. After every so many programs
    comes a batch of garbage collection, in which programs are slower (`Kind.DIE`).
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._free_at = 0
        self._backlog = 0
        self._started = 0
        self._program_end = -1
        self._batch_end = 0
        self._every = int(world.net.die_every[number])
        self._wakes = False
        self._suspend = int(world.net.die_suspend_ps[number])
        self._buffer = world.gates.get(int(world.net.die_gate[number]))
        self._begin(int(world.net.die_backlog[number]))

    def _begin(self, backlog: int) -> None:
        """Start with programs that wait, each in a slot of the buffer."""
        self._backlog = backlog
        if self._buffer is not None:
            self._buffer.free -= backlog
        if backlog:
            self.request_touch()

    def start_of(self, service_ps: int) -> int:
        """Wait for earlier tokens and for the program in service, or suspend it."""
        now, free = self.now, self._free_at
        start = max(now, free)
        rest = self._program_end - now
        if rest > 0:
            if free <= now and 0 <= self._suspend < rest:
                start = now + self._suspend
                self._program_end += self._suspend + service_ps
            elif free <= now:
                start = self._program_end
            elif free < self._program_end:  # it is suspended
                self._program_end += service_ps
        self._free_at = start + service_ps
        return start

    def destage(self) -> None:
        """Phase A: one more program waits for this die."""
        self._backlog += 1
        self.request_touch()

    def touch(self) -> None:
        """Start a program if one waits and the die is idle, or look again when it will be."""
        if self._program_end >= 0 or self._backlog == 0 or self._wakes:
            return
        if self._free_at > self.now:
            self._wakes = True
            self.world.env.process(self._wake())
            return
        self._backlog -= 1
        self._started += 1
        slow = self.now < self._batch_end
        work = self.world.program_ps(self, self._started, slow)
        self._program_end = self.now + work
        if self._every and self._started % self._every == 0:
            number = self._started // self._every
            self._batch_end = self._program_end + self.world.batch_ps(self, number)
        self.account.service_ps += work
        self.account.work_ps += work
        self.world.env.process(self._program())

    def _wake(self) -> Generator[simpy.Event, Any, None]:
        yield self.world.env.timeout(self._free_at - self.now)
        self._wakes = False
        self.request_touch()

    def _program(self) -> Generator[simpy.Event, Any, None]:
        while self._program_end > self.now:  # again, if tokens suspended it meanwhile
            yield self.world.env.timeout(self._program_end - self.now)
        self._program_end = -1
        if self._buffer is not None:
            self._buffer.release(1)
        self.request_touch()


class RoundsState(Station):
    """One server that, when it is idle, takes all that wait (up to a maximum) as one round.

    A round lasts its base and the services of its members, one after the other; they leave
    together at its end. If it gathers, its base comes before the taking (`Kind.ROUNDS`).
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._most = int(world.net.round_most[number])
        self._gathers = bool(world.net.round_gathers[number])
        self._gathered = 0
        self._queue: deque[tuple[Visit, int]] = deque()
        self._started = 0
        self._busy = False

    @property
    def waiting(self) -> int:
        """Tokens in the queue."""
        return len(self._queue)

    def dispatch(self, visit: Visit) -> None:
        """Queue with the service that it will take; a round starts when all of now are in."""
        self._queue.append((visit, self.world.work_ps(visit, self)))
        if not self._busy:
            self.request_touch()

    def touch(self) -> None:
        """Start a round if one waits and none is in service."""
        if self._busy or not self._queue:
            return
        gathered, self._gathered = self._gathered, 0
        base = gathered
        if not gathered:
            self._started += 1
            base = self.world.round_ps(self, self._started)
            if self._gathers and base > 0:
                self._gathered, self._busy = base, True
                self.world.env.process(self._round(base))
                return
        members = [self._queue.popleft() for _ in range(min(self._most, len(self._queue)))]
        services = [work for _, work in members]
        services[0] += base
        end = self.now - gathered + sum(services)
        for (visit, _), service in zip(members, services, strict=True):
            self.depart(visit, end - service, service, 0)
        self.account.work_ps += sum(work + base // self._most for _, work in members)
        self._busy = True
        self.world.env.process(self._round(end - self.now))

    def _round(self, length_ps: int) -> Generator[simpy.Event, Any, None]:
        yield self.world.env.timeout(length_ps)
        self._busy = False
        self.request_touch()


class Limit(Station):
    """A token bucket (`Kind.LIMIT`): who finds too little in it leaves when there is enough.

    What a request takes and what is saved up are times of the rate at which the bucket fills, as
    in the virtual scheduling of ITU-T I.371 (generic cell rate algorithm).
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._full_at = 0
        self._saved = int(world.net.limit_saved_ps[number])

    def dispatch(self, visit: Visit) -> None:
        """Leave when the bucket holds what this takes."""
        takes = self.world.work_ps(visit, self)
        saved = max(self._saved, takes)
        start = max(self.now, self._full_at + takes - saved)
        self._full_at = max(self._full_at, start) + takes
        self.depart(visit, start, 1, takes)
        self.account.service_ps += takes - 1


class Sleeper(Station):
    """One server that sleeps when nobody waits, and is woken (`Kind.SLEEPER`).

    The wake-up is part of the service, not of the work: a server that is kept busy has none.
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._free_at = 0
        self._wake = int(world.net.wake_ps[number])
        self._half = int(world.net.wake_half_ps[number])

    def dispatch(self, visit: Visit) -> None:
        """Serve behind those before, or wake up first."""
        work = self.world.work_ps(visit, self)
        start = max(self.now, self._free_at)
        slept = start - self._free_at
        service = work + (wake_up_ps(self._wake, slept, self._half) if slept else 0)
        self._free_at = start + service
        self.depart(visit, start, service, work)
