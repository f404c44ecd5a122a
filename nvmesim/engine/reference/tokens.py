"""Tokens of the reference engine, the order of an instant, and what is counted and recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import simpy
from simpy.events import NORMAL, EventPriority

from nvmesim.array_types import Ints
from nvmesim.engine.contract import CHILD_SHIFT, HIST_BINS, ORDER_SHIFT, Batch, Status, bin_index
from nvmesim.limits import need
from nvmesim.network.builder import Row
from nvmesim.network.network import Network

LATE: Final = EventPriority(NORMAL + 1)
"""SimPy priority of the end of an instant: behind everything that ends in it."""


@dataclass(eq=False)
class Token:
    """Token that walks through a program: a request, or a child or unit of one."""

    order: int
    key: int
    request: Request
    lane: int = 0
    setup_ps: int = 0  # cycles that the gate of its thread charged; its next CPU visit pays them

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
    place: int  # target within the group
    plan: int
    n_children: int
    submit_ps: int
    issue_ps: int
    process: simpy.Process | None = None
    answer_ps: int = -1  # when it was counted as completed, if it goes on; -1: it was not yet


@dataclass
class Account:
    """Sums of a station in a batch; see `contract.Acc`."""

    visits: int = 0
    wait_ps: int = 0
    service_ps: int = 0
    work_ps: int = 0


class Visit(simpy.Event):
    """A token's stay at a station: the event that its process waits for."""

    def __init__(self, env: simpy.Environment, token: Token, op: Row) -> None:
        super().__init__(env)
        self.token = token
        self.op = op
        self.arrive_ps = int(env.now)
        self.chain: list[tuple[Any, Row]] = []
        """Stations where the token goes on at once, see `contract.chained`."""

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
    """Phase B of an instant: what arrived in it, dispatched by (rank, order) when it is quiet."""

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


class BatchTally:
    """Completions of a batch that started at *start_ps*; the fields are those of `Batch`."""

    def __init__(self, net: Network, start_ps: int) -> None:
        self._net = net
        self.start_ps = start_ps
        self.done = 0
        """Measured completions."""
        self.count = np.zeros(2, np.int64)
        self.latency_sum = np.zeros((2, 2), np.int64)
        self.latency_max = np.zeros((2, 2), np.int64)
        self.histogram = np.zeros((2, 2, HIST_BINS), np.int64)
        self.syncs = np.zeros(HIST_BINS, np.int64)
        self.classes = np.zeros((net.n_classes, HIST_BINS), np.int64)
        self.flows = np.zeros(len(net.flow_program), np.int64)
        self.alternatives = np.zeros(max(1, len(net.alt_program)), np.int64)

    def answer(self, request: Request, now: int) -> None:
        """Count *request* as completed *now*."""
        net = self._net
        self.flows[request.flow] += 1
        if not net.group_measured[request.group]:
            return
        self.done += 1
        w = int(net.flow_write[request.flow])
        self.count[w] += 1
        for i, since in enumerate((request.submit_ps, request.issue_ps)):
            latency = now - since
            self.latency_sum[w, i] += latency
            self.latency_max[w, i] = max(self.latency_max[w, i], latency)
            self.histogram[w, i, bin_index(latency)] += 1
        own = int(net.flow_class[request.flow])
        if own >= 0:
            self.classes[own, bin_index(now - request.submit_ps)] += 1

    def end(self, request: Request, now: int) -> None:
        """Note that a *request* that was answered before has ended *now*."""
        if self._net.group_measured[request.group]:
            self.syncs[bin_index(now - request.answer_ps)] += 1

    def batch(self, status: Status, now: int, stations: Ints, live: int) -> Batch:
        """All of it, with the accounts of the *stations* and *live* requests in flight."""
        return Batch(
            status, self.start_ps, now, self.count, self.latency_sum, self.latency_max,
            self.histogram, self.flows, self.alternatives, stations, live, self.syncs, self.classes,
        )  # fmt: skip


class Step(NamedTuple):
    """A token's stay at a station, or its hold of a gate's slots.

    ``depart_ps`` is -1 while a gate is held, and for good if a program releases it.
    """

    request: int
    child: int
    unit: int
    station: int
    arrive_ps: int
    start_ps: int
    depart_ps: int


class Steps:
    """Every step of the first *requests*."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._steps: list[Step] = []
        self._open: dict[tuple[int, int], list[int]] = {}

    def note(self, visit: Visit, station: int, start_ps: int, depart_ps: int) -> None:
        """Record a step; departure -1: a gate, left by `release`."""
        request, child, unit = visit.token.name
        if request >= self._requests:
            return
        if depart_ps < 0:
            self._open.setdefault((visit.token.order, station), []).append(len(self._steps))
        self._steps.append(
            Step(request, child, unit, station, visit.arrive_ps, start_ps, depart_ps)
        )

    def release(self, token: Token, station: int, now: int) -> None:
        """Close the step that holds the gate *station*: the token's own, else its request's."""
        for order in (token.order, token.request.number << ORDER_SHIFT):
            held = self._open.get((order, station))
            if held:
                at = held.pop(0)
                self._steps[at] = self._steps[at]._replace(depart_ps=now)
                return

    def ordered(self) -> list[Step]:
        """By start."""
        return sorted(self._steps, key=lambda step: (step.start_ps, step))
