"""The reference engine: the same network in SimPy processes, written to be read and extended.

Every request, child and unit is a SimPy process that walks its program (`_walk`); what it meets are
the stations of `stations.py`. Completion times and statistics equal those of the compiled engine.

A station of your own takes the place of the one of that name::

    class Flaky(Fifo):
        def served(self, work_ps):
            return super().served(work_ps) + (5_000_000 if self.account.visits % 100 == 0 else 0)

    ReferenceEngine(net, stations={"drive 0 controller": Flaky})
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import numpy as np
import simpy

from nvmesim.array_types import Ints
from nvmesim.engine import contract
from nvmesim.engine.contract import Batch, Status, chained
from nvmesim.engine.reference import tokens
from nvmesim.engine.reference.shared_gates import KINDS, Batcher, Turn
from nvmesim.engine.reference.stations import Die, Gate, Station, World
from nvmesim.engine.reference.tokens import (
    BatchTally,
    Instant,
    Request,
    Step,
    Steps,
    Token,
    Visit,
)
from nvmesim.errors import nearest
from nvmesim.network.builder import Row
from nvmesim.network.check import check
from nvmesim.network.network import GATES, HORIZON_PS, VISITS, Kind, Network, Op
from nvmesim.rng import below, mix, quantile

Walk = Generator[simpy.Event, Any, None]
Factory = Callable[[World, int], Station]


class ReferenceEngine:
    """A network run by SimPy; see `contract.Engine`.

    Every step of the first *timeline* requests is recorded; *stations* replaces stations by name.
    """

    def __init__(
        self, net: Network, *, seed: int = 1, replication: int = 0, record: bool = False,
        timeline: int = 0, stations: Mapping[str, Factory] | None = None,
    ) -> None:  # fmt: skip
        check(net)
        self.net = net
        self.env = simpy.Environment()
        self.instant = Instant(self.env)
        self._ops = [Row(*row) for row in net.ops.tolist()]
        self._request_key = contract.run_key(seed, replication, 0)
        self._background_key = contract.run_key(seed, replication, 1)
        own = [s for s, name in enumerate(net.station_names) if name in (stations or {})]
        self._chained = chained(net, own).tolist()
        self._make_stations(dict(stations or {}))
        self._records: list[tuple[int, ...]] | None = [] if record else None
        self._timeline = Steps(timeline)
        self._n_requests = 0
        self._live = 0
        self._member_load = [0] * max(1, net.n_members)
        self._interrupt_end: dict[tuple[int, int], int] = {}
        self._target_count = [0] * len(net.flow_program)
        self._stream = net.stream_start.tolist()
        self._thread_next = net.thread_first.tolist()
        self._thread_due = [0] * len(net.thread_gate)
        self._phase = [(0, 0)] * len(net.user_group)
        self._tally = BatchTally(net, 0)
        submits = (self._closed_user, self._open_user, self._replayed_user)
        for user, group in enumerate(net.user_group.tolist()):
            self.env.process(submits[int(net.group_open[group])](user))

    def _make_stations(self, replaced: dict[str, Factory]) -> None:
        net = self.net
        self.gates: dict[int, Gate] = {}
        # gates first: a die keeps the gate that its programs release
        made: dict[int, Station] = {}
        for s in sorted(range(net.n_stations), key=lambda s: net.station_kind[s] not in GATES):
            factory = replaced.pop(net.station_names[s], KINDS[Kind(net.station_kind[s])])
            made[s] = station = factory(self, s)
            if isinstance(station, Gate):
                self.gates[s] = station
        if replaced:
            unknown = next(iter(replaced))
            raise KeyError(
                f"no station is called {unknown!r}; {nearest(unknown, net.station_names)}"
            )
        self.stations = [made[s] for s in range(net.n_stations)]

    @property
    def now(self) -> int:
        """The clock, ps."""
        return int(self.env.now)

    # Running.

    def advance(self, completions: int, until_ps: int = HORIZON_PS) -> Batch:
        """Run until so many measured requests have completed, or the clock would pass until_ps.

        DeadlockError when requests are left and no event is.
        """
        self._tally = BatchTally(self.net, self.now)
        status = self._run(completions, until_ps)
        if status == Status.IDLE and self._live:
            waiting = (s.number for s in self.stations if s.waiting)
            raise contract.deadlock(self.net, waiting, self._live)
        accounts = [station.close_batch() for station in self.stations]
        rows = [(a.visits, a.wait_ps, a.service_ps, a.work_ps) for a in accounts]
        array = np.array(rows, np.int64).reshape(-1, 4)
        return self._tally.batch(status, self.now, array, self._live)

    def _run(self, completions: int, until_ps: int) -> Status:
        while self._tally.done < completions:
            instant = self.env.peek()
            if instant == float("inf"):
                return Status.IDLE
            if instant > until_ps:
                return Status.TIME
            while self.env.peek() == instant:
                self.env.step()
        return Status.COMPLETED

    def records(self) -> Ints:
        """Return and forget int64[n, 7], a row a completion: see `contract.REQUEST_FIELDS`."""
        rows = self._records or []
        if self._records is not None:
            self._records = []
        n_fields = len(contract.REQUEST_FIELDS)
        return contract.by_completion(np.array(rows, np.int64).reshape(-1, n_fields))

    def steps(self) -> list[Step]:
        """Every step so far of the first *timeline* requests, by start."""
        return self._timeline.ordered()

    def note(self, visit: Visit, station: Station, start_ps: int, depart_ps: int) -> None:
        """Record a step of the first *timeline* requests."""
        self._timeline.note(visit, station.number, start_ps, depart_ps)

    def note_release(self, token: Token, station: Station) -> None:
        """Close the step that holds the gate."""
        self._timeline.release(token, station.number, self.now)

    # Users: they submit in phase B, by user number, behind all stations.

    def _closed_user(self, user: int) -> Walk:
        think = int(self.net.group_think_ps[self.net.user_group[user]])
        while True:
            request = yield self._turn(user, self._pace)
            yield request.process
            if think:
                yield self.env.timeout(think)

    def _open_user(self, user: int) -> Walk:
        row = int(self.net.group_gap_dist[self.net.user_group[user]])
        while True:
            request = yield self._turn(user, self._submit)
            gap = max(1, self._draw(row, request.key, contract.PURPOSE_GAP))
            yield self.env.timeout(self._stretched(user, gap))

    def _stretched(self, user: int, gap: int) -> int:
        """Time that a *gap* of *user* takes from now on through its group's bursts and pauses."""
        net, group = self.net, int(self.net.user_group[user])
        rows = (int(net.group_off_dist[group]), int(net.group_on_dist[group]))
        slow = (int(net.group_off_slow[group]), int(net.group_on_slow[group]))
        if rows[1] < 0:
            return gap
        key = self._key(group, contract.PURPOSE_BURST)
        now = self.now
        while True:
            phase, end = self._phase[user]
            while end <= now:
                phase += 1
                end += max(1, self._draw(rows[phase % 2], key, phase))
            self._phase[user] = (phase, end)
            gap, used = contract.stretched_ps(gap, now, end, slow[phase % 2])
            now += used
            if gap < 0:
                return max(1, now - self.now)

    def _replayed_user(self, user: int) -> Walk:
        net = self.net
        for at in range(int(net.user_arrival_ptr[user]), int(net.user_arrival_ptr[user + 1])):
            wait = int(net.arrival_ps[at]) - self.now
            if wait > 0:
                yield self.env.timeout(wait)
            yield self._turn(user, partial(self._submit, flow=int(net.arrival_flow[at])))

    def _turn(self, user: int, action: Callable[[int, simpy.Event], None]) -> simpy.Event:
        """Enlist *user* at the source; the event's value is the request that it submits."""
        turn = self.env.event()
        self.instant.add(self.net.n_stations + 1, user, lambda: action(user, turn))
        return turn

    def _pace(self, user: int, turn: simpy.Event) -> None:
        """Submit, or wait for the next submission that the thread's rate limit allows."""
        thread = int(self.net.user_thread[user])
        interval = int(self.net.thread_interval_ps[thread])
        if interval == 0:
            self._submit(user, turn)
            return
        due = max(self.now, self._thread_due[thread])
        self._thread_due[thread] = due + interval
        if due == self.now:
            self._submit(user, turn)
            return
        timer = self.env.timeout(due - self.now)
        source = self.net.n_stations + 1
        submit = partial(self._submit, user, turn)
        assert timer.callbacks is not None
        timer.callbacks.append(lambda _: self.instant.add(source, user, submit))

    def _submit(self, user: int, turn: simpy.Event, flow: int | None = None) -> None:
        net, group = self.net, int(self.net.user_group[user])
        place = self._choose_place(user, flow)
        first = int(net.group_flow[group] + place * net.group_kinds[group])
        number = self._target_count[first]
        self._target_count[first] += 1
        key = mix(mix(self._request_key, first), number)
        if flow is None:
            flow = first + self._choose_kind(group, key)
        plan = self._choose_plan(user, flow, key)
        phases = net.plan_phase_ptr[plan : plan + 2]
        first, end = net.phase_child_ptr[phases].tolist()
        request = Request(
            number=self._n_requests,
            key=key,
            user=user,
            group=group,
            thread=int(net.user_thread[user]),
            flow=flow,
            place=place,
            plan=plan,
            n_children=end - first,
            submit_ps=self.now,
            issue_ps=self.now,
        )
        self._n_requests += 1
        self._live += 1
        tokens.check_memory(self._live, request.n_children)
        request.process = self.env.process(self._request(request))
        turn.succeed(request)

    def _choose_place(self, user: int, flow: int | None) -> int:
        """Target of the request: that of a replayed *flow*, the user's own, or the next in turn."""
        net, group = self.net, int(self.net.user_group[user])
        if flow is not None:
            return (flow - int(net.group_flow[group])) // int(net.group_kinds[group])
        place = int(net.user_target[user])
        if place < 0:
            thread = int(net.user_thread[user])
            place = self._thread_next[thread]
            self._thread_next[thread] = (place + 1) % int(net.group_targets[group])
        return place

    def _choose_kind(self, group: int, key: int) -> int:
        """Draw the kind of request."""
        net, first = self.net, int(self.net.group_threshold_ptr[group])
        kinds = int(net.group_kinds[group])
        u = below(mix(key, contract.PURPOSE_KIND), 1 << 32)
        return int(np.searchsorted(net.threshold[first : first + kinds - 1], u, side="right"))

    def _choose_plan(self, user: int, flow: int, key: int) -> int:
        """Next of the user's sequential stream, or drawn."""
        net = self.net
        length = int(net.flow_order_len[flow])
        if net.flow_stream[flow] >= 0:
            stream = int(net.flow_stream[flow] + net.user_stream[user])
            at = self._stream[stream] % length
            self._stream[stream] += 1
        else:
            at = below(mix(key, contract.PURPOSE_PLAN), length)
        return int(net.order[net.flow_order_ptr[flow] + at])

    # Tokens.

    def _request(self, request: Request) -> Walk:
        token = Token(request.number << contract.ORDER_SHIFT, request.key, request)
        yield from self._walk(token, int(self.net.flow_program[request.flow]))
        self._live -= 1
        if request.answer_ps < 0:
            self._answer(request)
        else:
            self._tally.end(request, self.now)

    def _walk(self, token: Token, pc: int) -> Walk:
        """Follow the program at operation *pc* to its end."""
        while (op := self._ops[pc]).code != Op.END:
            pc += 1
            if op.code in VISITS:
                visit = self._station(token, op).arrive(token, op)
                while self._chained[pc - 1]:
                    then = self._ops[pc]
                    visit.chain.append((self._station(token, then), then))
                    pc += 1
                yield visit
            elif op.code == Op.ACQUIRE or op.code == Op.ACQUIRE_THREAD:
                yield self._gate(token, op).arrive(token, op)
            elif op.code == Op.RELEASE or op.code == Op.RELEASE_THREAD:
                gate = self._gate(token, op)
                gate.release(op.b if op.code == Op.RELEASE else 1)
                self.note_release(token, gate)
                if op.code == Op.RELEASE_THREAD and op.a == 1 and isinstance(gate, Batcher):
                    yield gate.stay(token, op)
            elif op.code == Op.DESTAGE:
                self._destage(token, op)
            elif op.code == Op.MARK:
                token.request.issue_ps = self.now
            elif op.code == Op.ANSWER:
                self._answer(token.request)
            elif op.code == Op.JOIN:
                pc += yield self.gates[op.a].arrive(token, op)
            elif op.code == Op.CLOSE or op.code == Op.LEAVE:
                turn = self.gates[op.a]
                assert isinstance(turn, Turn)
                if op.code == Op.CLOSE:
                    turn.close()
                else:
                    turn.release(1)
                    self.note_release(token, turn)
                    pc += op.b
            else:
                children = self._fork(token, op) if op.code == Op.FORK else self._split(token, op)
                if children:
                    yield self.env.all_of(children)

    def _station(self, token: Token, op: Row) -> Station:
        if op.code == Op.VISIT_CPU:
            return self.stations[int(self.net.thread_cpu[token.request.thread])]
        if op.code == Op.VISIT_BANK:
            token.lane = below(mix(token.key, op.purpose), op.d)
        if op.code == Op.VISIT_BANK or op.code == Op.VISIT_LANE:
            return self.stations[op.a + token.lane % op.d]
        return self.stations[op.a]

    def _gate(self, token: Token, op: Row) -> Gate:
        if op.code == Op.ACQUIRE or op.code == Op.RELEASE:
            return self.gates[op.a]
        return self.gates[int(self.net.thread_gate[token.request.thread])]

    def _destage(self, token: Token, op: Row) -> None:
        for unit in range(op.b):
            bits = mix(mix(token.key, contract.PURPOSE_DESTAGE), unit)
            die = self.stations[op.a + below(bits, op.d)]
            assert isinstance(die, Die)
            die.destage()

    def _split(self, token: Token, op: Row) -> list[simpy.Process]:
        if op.d > 0:
            token.lane = below(mix(token.key, op.purpose), op.d)
        step = int(op.d > 0)
        tokens = [
            Token(token.order + u, mix(token.key, -u), token.request, token.lane + step * u)
            for u in range(1, op.a + 1)
        ]
        return [self.env.process(self._walk(unit, op.b)) for unit in tokens]

    def _fork(self, token: Token, op: Row) -> list[simpy.Process]:
        net, request = self.net, token.request
        first_phase = int(net.plan_phase_ptr[request.plan])
        first_child = int(net.phase_child_ptr[first_phase])
        start, end = net.phase_child_ptr[first_phase + op.a : first_phase + op.a + 2].tolist()
        processes = []
        for child in range(start, end):
            word = (child - first_child + 1) << contract.CHILD_SHIFT
            order = (request.number << contract.ORDER_SHIFT) + word
            walker = Token(order, mix(request.key, word), request)
            processes.append(self.env.process(self._child(walker, child)))
        return processes

    def _child(self, token: Token, child: int) -> Walk:
        first, end = self.net.child_alt_ptr[child : child + 2].tolist()
        if end - first == 1:
            self._take(first)
            chosen = first
        else:
            choice = self.env.event()
            choose = partial(self._choose, choice, range(first, end))
            self.instant.add(self.net.n_stations, token.order, choose)
            chosen = yield choice
        yield from self._walk(token, int(self.net.alt_program[chosen]))
        self._member_load[self.net.alt_member[chosen]] -= 1

    def _choose(self, choice: simpy.Event, alternatives: range) -> None:
        """Phase B: the member with the fewest outstanding children; a tie goes to the first."""
        chosen = min(alternatives, key=lambda alt: self._member_load[self.net.alt_member[alt]])
        self._take(chosen)
        choice.succeed(chosen)

    def _take(self, alternative: int) -> None:
        self._tally.alternatives[alternative] += 1
        self._member_load[self.net.alt_member[alternative]] += 1

    # Draws.

    def _key(self, number: int, purpose: int) -> int:
        """Key of what background process *number* draws."""
        return int(mix(mix(self._background_key, number), purpose))

    def _draw(self, row: int, key: int, word: int) -> int:
        return int(quantile(self.net.dist, row, mix(key, word)))

    def work_ps(self, visit: Visit, station: Station) -> int:
        """Service of *visit* before any load-dependent factor; at least 1 ps."""
        token, op = visit.token, visit.op
        work = op.c
        if op.code == Op.VISIT_SERIES:
            work += self._sample(op.b, station)
        elif op.b >= 0 and op.code != Op.VISIT_UNORDERED:
            work += self._draw(op.b, token.key, op.purpose + 1)
        if op.code == Op.VISIT_CPU:
            work += token.setup_ps
            token.setup_ps = 0
            return max(1, work + op.e * max(0, token.request.n_children - 1))
        return max(1, work + op.e * token.request.n_children)

    def wait_factor(self, visit: Visit) -> int:
        """Factor x `SCALE_ONE` of a wait where nobody is taken in order."""
        return self._draw(visit.op.b, visit.token.key, visit.op.purpose + 1)

    def _sample(self, series: int, station: Station) -> int:
        """Next sample of a station's block bootstrap of *series*."""
        net, first = self.net, int(self.net.series_ptr[series])
        block, offset = divmod(station.n_series, int(net.series_block[series]))
        station.n_series += 1
        room = int(net.series_ptr[series + 1]) - first - int(net.series_block[series]) + 1
        key = self._key(station.number, contract.PURPOSE_SERIES)
        return int(net.series[first + below(mix(key, block), room) + offset])

    def program_ps(self, station: Station, number: int, slow: bool) -> int:
        """Time of a die's *number*-th program, if it starts now; *slow*: within a batch."""
        rows = self.net.die_slow_dist if slow else self.net.die_dist
        key = self._key(station.number, contract.PURPOSE_PROGRAM)
        return max(1, self._draw(int(rows[station.number]), key, number))

    def batch_ps(self, station: Station, number: int) -> int:
        """Length of a die's *number*-th batch of garbage collection."""
        key = self._key(station.number, contract.PURPOSE_BATCH)
        return self._draw(int(self.net.die_batch_dist[station.number]), key, number)

    def round_ps(self, station: Station, number: int) -> int:
        """Time of a station's *number*-th round, without its members'."""
        base = int(self.net.round_base_ps[station.number])
        row = int(self.net.round_base_dist[station.number])
        key = self._key(station.number, contract.PURPOSE_ROUND)
        return base + self._draw(row, key, number) if row >= 0 else base

    def interrupt_ps(self, visit: Visit) -> int:
        """Time of the interrupt that *visit* raises now, 0 if one of its thread and target runs."""
        request, handler = visit.token.request, visit.op.c - 1
        key = (request.thread, request.place)
        end = self._interrupt_end.get(key, 0)
        raised = 0 if self.now < end else visit.op.b
        self._interrupt_end[key] = (end if self.now < end else self.now + raised) + handler
        return raised

    # Statistics of a batch.

    def _answer(self, request: Request) -> None:
        """Count the request as completed now."""
        request.answer_ps = self.now
        self._tally.answer(request, self.now)
        if self._records is not None:
            self._records.append(
                (request.number, request.group, request.user, request.flow,
                 request.submit_ps, request.issue_ps, self.now)
            )  # fmt: skip
