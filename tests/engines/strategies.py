"""Random networks that use every feature, with times so small that exact ties abound.

A network is a function of the numbers that a `Roll` gives: NumPy's for bulk, Hypothesis' so that a
failure shrinks.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from hypothesis import strategies as st

from nvmesim.network.network import SCALE_ONE, Network
from tests.engines import builder as b

NO_BURSTS = (-1, -1, SCALE_ONE, SCALE_ONE)
PLACES = ("make_gates", "make_queues", "make_banks", "make_dies")
Roll = Callable[[int, int], int]  # a whole number between two, both included


def numpy_roll(seed: int) -> Roll:
    rng = np.random.default_rng(seed)
    return lambda low, high: int(rng.integers(low, high + 1))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    return RandomNetwork(lambda low, high: draw(st.integers(low, high))).build()


@lru_cache(maxsize=128)
def random_network(seed: int, first: int = 0, most_kinds: int = 2) -> Network:
    """The network of a *seed*; its stations are numbered from those of PLACES[first] on."""
    return RandomNetwork(numpy_roll(seed), first, most_kinds).build()


class RandomNetwork:
    """A valid network; most finish, some deadlock."""

    def __init__(self, roll: Roll, first: int = 0, most_kinds: int = 2) -> None:
        self.roll, self.first, self.most_kinds = roll, first, most_kinds
        self.b = b.NetworkBuilder()

    def build(self) -> Network:
        self.times()
        self.places()
        self.programs()
        self.load()
        return self.b.build()

    def some(self, things: list[int]) -> int:
        return things[self.roll(0, len(things) - 1)]

    def chance(self, percent: int) -> bool:
        return self.roll(0, 99) < percent

    # What there is.

    def times(self) -> None:
        roll, net = self.roll, self.b
        self.dists = [net.uniform(0, roll(0, 6)) for _ in range(2)]
        self.dists.append(net.exponential(roll(1, 5)))
        self.gaps = net.uniform(roll(0, 4), roll(5, 40))
        self.long = net.uniform(5, roll(10, 80))
        self.series = [
            net.samples([roll(0, 5) for _ in range(roll(block, 9))], block)
            for block in (1, roll(2, 4))
        ]

    def places(self) -> None:
        """Stations are numbered in this order; PLACES again, from another one on."""
        for kind in PLACES[self.first :] + PLACES[: self.first]:
            getattr(self, kind)()

    def make_gates(self) -> None:
        self.gates = [self.b.gate(self.roll(1, 6)) for _ in range(self.roll(1, 3))]

    def make_queues(self) -> None:
        roll, net = self.roll, self.b
        self.fifos = [self.fifo() for _ in range(roll(1, 4))]
        self.plain = [net.fifo(roll(1, 3)), net.delay(), self.rounds(), self.rounds()]
        self.plain += [net.limit(roll(0, 12)) for _ in range(2)]
        self.plain += [net.sleeper(roll(0, 6), roll(0, 4))]
        self.unordered = [net.fifo(), net.fifo(roll(1, 3)), *self.plain[-2:]]
        self.turns = [net.turn() for _ in range(roll(1, 2))]
        self.cpus = [self.fifo(), net.delay(), self.rounds()]

    def make_banks(self) -> None:
        roll, net = self.roll, self.b
        self.banks = []
        for _ in range(roll(1, 2)):
            n = roll(1, 4)
            self.banks.append((net.fifos([roll(1, 2) for _ in range(n)]), n))

    def make_dies(self) -> None:
        roll, net = self.roll, self.b
        self.die_banks = []
        for _ in range(roll(0, 2)):
            n, slots = roll(1, 4), roll(1, 5)
            buffer = net.gate(slots)
            backlogs, left = [], slots
            for _ in range(n):
                backlogs.append(roll(0, left) if self.chance(40) else 0)
                left -= backlogs[-1]
            first = net.dies(
                n,
                self.some(self.dists),
                gate=buffer,
                suspend_ps=roll(-1, 3),
                backlogs=backlogs,
                batches=(roll(1, 5), self.long, self.some(self.dists))
                if self.chance(40)
                else (0, -1, -1),
            )
            self.die_banks.append((first, n, buffer, slots))

    def fifo(self) -> int:
        servers = self.roll(1, 4)
        scale = [self.roll(SCALE_ONE // 3, 2 * SCALE_ONE) for _ in range(servers)]
        return self.b.fifo(servers, scale=scale if self.chance(40) else ())

    def rounds(self) -> int:
        roll = self.roll
        return self.b.rounds(
            roll(1, 5),
            roll(0, 3),
            self.some([-1, -1, *self.dists]),
            gathers=roll(0, 1),
        )

    # What tokens do.

    def work(self) -> dict[str, int]:
        return {"ps": self.roll(0, 4), "dist": self.some([-1, *self.dists])}

    def step(self) -> list[b.Row]:
        """A visit, or a few within a gate."""
        roll = self.roll
        kind = roll(0, 10)
        if kind == 10 and self.chance(50):
            factor = self.b.uniform(0, roll(0, 2) * SCALE_ONE)
            return [b.unordered(self.some(self.unordered), roll(0, 5), factor, roll(0, 3))]
        if kind == 10:
            return self.turn()
        if kind <= 2:
            return [b.visit(self.some(self.fifos), **self.work())]
        if kind == 3:
            return [
                b.visit(
                    self.some(self.plain), after=roll(0, 3), per_child=roll(0, 1), **self.work()
                )
            ]
        if kind == 4:
            return [b.sample(self.some(self.plain), self.some([0, 1]), roll(0, 1))]
        if kind <= 6:
            first, n = self.banks[roll(0, len(self.banks) - 1)]
            if self.die_banks and self.chance(60):
                first, n, _, _ = self.die_banks[roll(0, len(self.die_banks) - 1)]
            other, m = self.banks[roll(0, len(self.banks) - 1)]
            again = b.lane(other, m, **self.work())
            return [again] if self.chance(20) else [b.bank(first, n, **self.work()), again]
        if kind == 7 and self.die_banks:
            first, n, buffer, slots = self.die_banks[roll(0, len(self.die_banks) - 1)]
            amount = roll(1, slots)
            return [b.acquire(buffer, amount), b.destage(first, n, amount)]
        gate = self.some(self.gates)
        amount = roll(1, self.b.stations[gate].servers)
        inner = self.steps(1) if self.chance(80) else []
        return [b.acquire(gate, amount), *inner, b.release(gate, amount)]

    def turn(self) -> list[b.Row]:
        """Work that one does for all who wait; other turns, forks and the like are not inside."""
        stay = [b.visit(self.some(self.fifos), **self.work())]
        parts = [stay if self.chance(60) else [] for _ in range(3)]
        tick = self.roll(1, 12) if self.chance(50) else 0
        return b.in_turn(self.some(self.turns), *parts, tick=tick)

    def steps(self, most: int) -> list[b.Row]:
        return [row for _ in range(self.roll(0, most)) for row in self.step()]

    def programs(self) -> None:
        roll, net = self.roll, self.b
        first, n = self.banks[0]
        follow = b.lane(first, n, **self.work())
        units = [net.program(follow, *self.steps(1)), net.program(*self.steps(2))]
        self.child_programs = []
        for _ in range(roll(1, 4)):
            rows = self.steps(3)
            if self.chance(30):
                lanes = n if self.chance(50) else 0
                rows += [b.split(roll(1, 4), self.some(units), lanes), *self.steps(1)]
            if self.chance(15):
                rows = self.threaded(rows)
            self.child_programs.append(net.program(*rows))
        self.n_phases = roll(0, 3)
        self.plans = [
            net.plan(*([self.child() for _ in range(roll(0, 4))] for _ in range(self.n_phases)))
            for _ in range(roll(1, 4))
        ]
        self.units = units

    def child(self) -> b.Child:
        n = self.roll(1, 3) if self.chance(40) else 1
        return [(self.some(self.child_programs), self.roll(0, 3)) for _ in range(n)]

    def threaded(self, rows: list[b.Row]) -> list[b.Row]:
        setup = b.acquire_thread(
            self.roll(0, 3), self.roll(0, 3), self.roll(0, 3), self.roll(0, 3), self.roll(0, 1)
        )
        cpu = b.on_cpu(per_child=self.roll(0, 2), **self.work())
        return [setup, cpu, b.STAY if self.chance(50) else b.RELEASE_THREAD, *rows]

    def request(self) -> int:
        rows = self.threaded([]) if self.chance(60) else [b.on_cpu(self.roll(0, 2))]
        outer = self.some(self.gates) if self.chance(30) else -1
        if outer >= 0:
            rows.append(b.acquire(outer))
        rows.append(b.MARK)
        for phase in range(self.n_phases):
            if phase and b.ANSWER not in rows and self.chance(12):
                rows.append(b.ANSWER)
            rows += [b.fork(phase), *self.steps(1)]
        if self.chance(20):
            rows.append(b.split(self.roll(1, 3), self.some(self.units)))
        if outer >= 0:
            rows.append(b.release(outer))
        if self.chance(60):
            rows += self.threaded([])
        return self.b.program(*rows)

    # Who submits.

    def load(self) -> None:
        roll = self.roll
        flows = [self.request() for _ in range(roll(1, 3))]
        gates = [
            self.b.batcher(roll(1, 4), roll(0, 3)) if self.chance(40) else self.b.gate(roll(1, 2))
            for _ in range(roll(1, 2))
        ]
        for number in range(roll(1, 3)):
            self.group(flows, gates, measured=1 if number == 0 else roll(0, 1))

    def group(self, programs: list[int], gates: list[int], measured: int) -> None:
        roll, net = self.roll, self.b
        n_targets, n_kinds = roll(1, 3), roll(1, self.most_kinds)
        stream = net.stream(3) if self.chance(40) else -1
        targets = [
            [
                b.Flow(
                    self.some(programs),
                    [self.some(self.plans) for _ in range(roll(1, 5))],
                    write=roll(0, 1),
                    stream=stream,
                    own=roll(-1, 1),
                )
                for _ in range(n_kinds)
            ]
            for _ in range(n_targets)
        ]
        threads = [
            net.thread(
                self.some(gates),
                self.some(self.cpus),
                interval_ps=roll(1, 9) if self.chance(25) else 0,
                first=roll(0, n_targets - 1),
            )
            for _ in range(roll(1, 3))
        ]
        kind = roll(0, 3)
        users = [
            b.User(
                self.some(threads),
                target=roll(-1, n_targets - 1),
                stream=roll(0, 2) if stream >= 0 else 0,
                arrivals=self.arrivals(n_targets * n_kinds) if kind == 3 else [],
            )
            for _ in range(roll(1, 6) if kind < 2 else roll(1, 2))
        ]
        net.group(
            targets,
            users,
            shares=self.shares(n_kinds),
            gap=self.gaps if kind == 2 else -1,
            think_ps=roll(0, 5) if kind == 1 else 0,
            replay=kind == 3,
            measured=measured,
            bursts=self.bursts() if kind == 2 else NO_BURSTS,
        )

    def shares(self, n_kinds: int) -> list[float]:
        """Of what is left each kind takes some, also nothing or all; the last takes the rest."""
        left, found = 1.0, []
        for _ in range(n_kinds - 1):
            found.append(left * self.roll(0, 4) / 4)
            left -= found[-1]
        return [*found, left]

    def bursts(self) -> tuple[int, int, int, int]:
        """Now and then: how long bursts and pauses last, and how slowly gaps pass in each."""
        if self.chance(50):
            return NO_BURSTS
        slow = self.roll(SCALE_ONE, 9 * SCALE_ONE) if self.chance(60) else 0
        return (self.long, self.gaps, self.roll(SCALE_ONE // 9, SCALE_ONE), slow)

    def arrivals(self, n_flows: int) -> list[tuple[int, int]]:
        """Arrivals with ties, not always in order: a late one is submitted at once."""
        at, rows = self.roll(0, 3), []
        for _ in range(self.roll(0, 12)):
            at = max(0, at + self.roll(-1, 6))
            rows.append((at, self.roll(0, n_flows - 1)))
        return rows
