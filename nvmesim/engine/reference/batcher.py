"""The gate of a thread that works in batches, in the reference engine."""

from __future__ import annotations

from collections import deque
from typing import Final

from nvmesim.engine.reference.stations import KINDS, Gate, World
from nvmesim.engine.reference.tokens import Operation, Token, Visit
from nvmesim.network.network import Kind


class Batcher(Gate):
    """The gate of a thread that works in batches (`Kind.BATCHER`).

    It takes what waits as one batch, then submits what that made it submit, and rings the doorbell:
    those that stayed go on together.
    """

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

    def stay(self, token: Token, op: Operation) -> Visit:
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


ALL_KINDS: Final = {**KINDS, Kind.BATCHER: Batcher}
"""Class of each kind of station."""
