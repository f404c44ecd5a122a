"""Gates where one token works for others, in the reference engine, and the class of each kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from nvmesim.engine.reference.stations import (
    Die,
    Fifo,
    Gate,
    Limit,
    RoundsState,
    Sleeper,
    Station,
    World,
)
from nvmesim.engine.reference.tokens import Token, Visit
from nvmesim.network.builder import Row
from nvmesim.network.network import Kind


class Turn(Gate):
    """Work that one token does for all who wait for it when it closes (`Kind.TURN`)."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._members = 0
        self._closed_ps = -1

    def dispatch(self, visit: Visit) -> None:
        """Lead if nobody does, go on alone in the tick of the last turn, or wait."""
        self.account.visits += 1
        if not self.free or self._queue:
            self._queue.append(visit)
        elif self._is_same_tick(visit):
            self._go_on(visit, visit.op.c)
        else:
            self._grant(visit)

    def _is_same_tick(self, visit: Visit) -> bool:
        tick = visit.op.d
        return tick > 0 and visit.arrive_ps // tick == self._closed_ps // tick

    def _go_on(self, visit: Visit, further: int) -> None:
        self.account.wait_ps += self.now - visit.arrive_ps
        visit.end(0, further)

    def close(self) -> None:
        """Phase A: those who wait are the members."""
        self._members = len(self._queue)
        self._closed_ps = self.now

    def touch(self) -> None:
        """Let the members go on, and of the others the first lead, or all go on alone."""
        members, self._members = self._members, 0
        for _ in range(members):
            visit = self._queue.popleft()
            self._go_on(visit, visit.op.b)
        while self._queue and self._is_same_tick(self._queue[0]):
            visit = self._queue.popleft()
            self._go_on(visit, visit.op.c)
        if self._queue:
            self._grant(self._queue.popleft())


class Batcher(Gate):
    """The gate of a thread that works in batches (`Kind.BATCHER`)."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._most = int(world.net.batch_most[number])
        self._base = int(world.net.batch_ps[number])
        self._left = 0
        """Of the batch in work, those that still wait."""
        self._front: deque[Visit] = deque()
        self._staying: list[Visit] = []

    @property
    def waiting(self) -> int:
        """Tokens in both queues."""
        return len(self._queue) + len(self._front)

    def stay(self, token: Token, op: Row) -> Visit:
        """Phase A: keep *token*, which has just released, until the doorbell."""
        visit = Visit(self.world.env, token, op)
        self._staying.append(visit)
        return visit

    def _passes(self, visit: Visit) -> bool:
        front = visit.op.e == 1
        if not self.free or self.waiting or (self._staying and not front):
            return False
        if not front:
            visit.token.setup_ps += self._base
        return True

    def _wait(self, visit: Visit, front: bool) -> None:
        (self._front if front else self._queue).append(visit)

    def release(self, slots: int) -> None:
        """Phase A: the thread is free; it looks for more to do."""
        super().release(slots)
        self.request_touch()

    def touch(self) -> None:
        """Go on with the batch, with what it submits, with the doorbell, with the next batch."""
        if not self.free:
            return
        if self._left == 0 and self._front:
            self._grant(self._front.popleft())
            return
        if self._left == 0:
            self._ring()
            if not self._queue:
                return
            self._left = min(self._most, len(self._queue))
            self._queue[0].token.setup_ps += self._base
        self._left -= 1
        self._grant(self._queue.popleft())

    def _ring(self) -> None:
        staying, self._staying = self._staying, []
        for visit in staying:
            self.account.wait_ps += self.now - visit.arrive_ps
            visit.end(0)


KINDS: Final[dict[Kind, Callable[[World, int], Station]]] = {
    Kind.FIFO: Fifo,
    Kind.DELAY: Station,
    Kind.GATE: Gate,
    Kind.DIE: Die,
    Kind.ROUNDS: RoundsState,
    Kind.LIMIT: Limit,
    Kind.SLEEPER: Sleeper,
    Kind.TURN: Turn,
    Kind.BATCHER: Batcher,
}
"""Class of each kind of station."""
