"""Tokens that walk through a network in the reference engine, and the order of an instant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

import simpy
from simpy.events import NORMAL, EventPriority

from nvmesim.engine.contract import CHILD_SHIFT, ORDER_SHIFT
from nvmesim.limits import need

LATE: Final = EventPriority(NORMAL + 1)
"""SimPy priority of the end of an instant: behind everything that ends in it."""


class Operation(NamedTuple):
    """A row of `Network.ops`."""

    code: int
    a: int
    b: int
    c: int
    d: int
    e: int
    purpose: int


@dataclass(eq=False)
class Token:
    """Token that walks through a program: a request, or a child or unit of one."""

    order: int
    key: int
    request: Request
    lane: int = 0
    setup_ps: int = 0
    """Cycles that the gate of its thread charged; its next CPU visit pays them."""

    @property
    def name(self) -> tuple[int, int, int]:
        """Request, child and unit number."""
        low = (1 << CHILD_SHIFT) - 1
        return self.order >> ORDER_SHIFT, (self.order >> CHILD_SHIFT) & low, self.order & low


@dataclass(eq=False)
class Request:
    """Request that a user submitted."""

    number: int
    key: int
    user: int
    group: int
    thread: int
    flow: int
    place: int
    """Target within the group."""
    plan: int
    n_children: int
    submit_ps: int
    issue_ps: int
    process: simpy.Process | None = None
    answer_ps: int = -1
    """When it was counted as completed, if it goes on; -1: it was not yet."""


@dataclass
class Account:
    """Sums of a station in a batch; see `contract.Acc`."""

    visits: int = 0
    wait_ps: int = 0
    service_ps: int = 0
    work_ps: int = 0


class Visit(simpy.Event):
    """A token's stay at a station: the event that its process waits for."""

    def __init__(self, env: simpy.Environment, token: Token, op: Operation) -> None:
        super().__init__(env)
        self.token = token
        self.op = op
        self.arrive_ps = int(env.now)
        self.chain: list[tuple[Any, Operation]] = []
        """Stations where the token goes on at once, see `chains.py`."""

    def end(self, delay_ps: int, further: int = 0) -> None:
        """Let the token go on in *delay_ps*, as a `simpy.Timeout` does, operations *further*."""
        self._ok = True
        self._value = further
        self.env.schedule(self, delay=delay_ps)


PROCESS_BYTES: Final = 3072
"""Of a token with its process, its event and its place in the queue (CPython 3.11, measured)."""


def check_memory(live: int, n_children: int) -> None:
    """Raise LimitError, looked at every 1,024 requests, if so many under way may not be had."""
    if live % 1024 == 0:
        n_bytes = live * PROCESS_BYTES * (1 + n_children)
        need(n_bytes, f"{live:,} requests in flight at once (outstanding, block_size, rate)")


class _EndOfInstant(simpy.Event):
    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=LATE)


class Instant:
    """Phase B of an instant: what arrived in it, dispatched by (rank, order) when it is quiet.

    The event at its end has the lowest priority, so it comes after all that phase A does in zero
    time; what it lets pass arrives in a further round, with an end of its own.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._pending: list[tuple[int, int, Callable[[], None]]] = []

    def add(self, rank: int, order: int, action: Callable[[], None]) -> None:
        """Call *action* at the end of this round; ranks are stations, then chooser, then source."""
        if not self._pending:
            end = _EndOfInstant(self._env)
            assert end.callbacks is not None
            end.callbacks.append(self._dispatch)
        self._pending.append((rank, order, action))

    def _dispatch(self, _: simpy.Event) -> None:
        todo, self._pending = self._pending, []
        for _rank, _order, action in sorted(todo, key=itemgetter(0, 1)):
            action()
