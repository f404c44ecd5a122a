"""Chained visits: the same completions as with an event at each, and only where that is so."""

import random

import numpy as np
import pytest

from nvmesim.array_types import Ints
from nvmesim.engine.compiled import engine as compiled
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import chained
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.engine.reference.stations import Fifo
from nvmesim.network.network import SCALE_ONE, Network
from tests.engines import builder as b
from tests.engines.test_equality import assert_equal

EVERYTHING = 1 << 40


def tandem(seed: int) -> Network:
    """Two drives and what they share, with times of few ticks, so that ties abound.

    Each drive is a server, a bank behind it (all visits of one delay, or not), two servers in a
    row, and a delay; some programs go another way and break a chain.
    """
    chance = random.Random(seed)

    def ticks(most: int) -> int:
        return chance.randint(1, most)

    net = b.NetworkBuilder()
    shared = net.fifo(servers=chance.choice([1, 2]))
    dists = [-1, net.uniform(1, 4), net.exponential(5)]
    factor = net.uniform(0, 2 * SCALE_ONE)
    for _ in range(2):
        first, width = net.fifo(), chance.choice([1, 3])
        banks = net.fifos([chance.choice([1, 2])] * width)
        second, third, delay = net.fifo(), net.fifo(servers=chance.choice([1, 1, 3])), net.delay()
        after = ticks(3)
        for _ in range(ticks(3)):
            if chance.random() < 0.2:
                after = ticks(3)
            rows = [
                b.visit(shared, ticks(3), chance.choice(dists)),
                b.visit(first, ticks(4), chance.choice(dists), after=after),
                b.bank(banks, width, ticks(9), chance.choice(dists)),
                b.visit(second, ticks(4), chance.choice(dists)),
                b.visit(third, ticks(4), chance.choice(dists)),
                b.visit(delay, ticks(6), chance.choice(dists)),
            ]
            if chance.random() < 0.3:  # the third in no order: its waits change, what follows waits
                rows[4] = b.unordered(third, ticks(4), factor)
            if chance.random() < 0.1:
                rows.pop(chance.randrange(len(rows)))
            net.closed(net.program(*rows), ticks(4), think_ps=chance.choice([0, 0, 5]))
    return net.build()


def by_request(engine: CompiledEngine) -> tuple[Ints, Ints]:
    """Rows of all requests that complete in a time, and visits and work of all stations."""
    acc = engine.advance(EVERYTHING, 1500).stations
    rows = engine.records()
    return rows[np.argsort(rows[:, 0])], acc


@pytest.mark.parametrize("block", range(4))
def test_engines_agree_and_chains_change_no_completion(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_chained = 0
    for seed in range(60 * block, 60 * block + 60):
        net = tandem(seed)
        n_chained += int(chained(net).sum())
        assert_equal(net, seed)
        rows, acc = by_request(CompiledEngine(net, seed=seed, record=True))
        with monkeypatch.context() as without:
            without.setattr(compiled, "chained", lambda net: np.zeros(len(net.ops), bool))
            expected, events = by_request(CompiledEngine(net, seed=seed, record=True))
        np.testing.assert_array_equal(rows, expected)
        # a chained visit is accounted when the first of its chain is dispatched: by then some more
        ahead = acc[:, 0] - events[:, 0]
        assert (ahead >= 0).all()
        assert (ahead <= len(net.user_group)).all()
    assert n_chained > 300


def drive(*more: b.Row, after: int = 3, servers: int = 1) -> tuple[b.NetworkBuilder, list[int]]:
    """Stations: 0 a server, 1 and 2 a bank, 3 a queue, 4 a delay; one program through them all."""
    net = b.NetworkBuilder()
    net.fifo(servers)
    net.fifos([1, 1])
    net.fifo(name="queue")
    net.delay()
    start = net.program(
        b.visit(0, 5, after=after), b.bank(1, 2, 7), b.visit(3, 2), b.visit(4, 9), *more
    )
    net.closed(start, 3)
    return net, [start, start + 2]


def chains(net: b.NetworkBuilder) -> list[int]:
    return np.flatnonzero(chained(net.build())).tolist()


def test_what_is_chained_and_a_station_of_ones_own_is_not() -> None:
    net, (first, queue) = drive()
    # the bank behind the server, and the delay behind the queue; the queue has two sources
    assert chains(net) == [first, queue]
    other = net.program(b.visit(0, 1, after=3), b.visit(2, 4))  # the same source
    net.closed(other, 1)
    assert chains(net) == [first, queue, other]
    waits = net.uniform(0, 2 * SCALE_ONE)
    follows = net.program(b.visit(0, 1, after=3), b.unordered(2, 4, waits), b.visit(4, 9))
    net.closed(follows, 1)  # whoever is taken in no order is taken along, and takes nobody
    assert chains(net) == [first, queue, other, follows]
    net, (_, queue) = drive(servers=2)  # several servers keep no order
    assert chains(net) == [queue]
    net = drive()[0].build()
    assert not chained(net, apart=[0, 3]).any()

    class Own(Fifo):
        """Serves as any queue does."""

    own = ReferenceEngine(net, record=True, stations={"queue": Own})
    plain = ReferenceEngine(net, record=True)
    for engine in (own, plain):
        engine.advance(50)
    np.testing.assert_array_equal(own.records(), plain.records())


@pytest.mark.parametrize(
    "other",
    [
        (b.visit(1, 4),),  # a visit to the bank from elsewhere
        (b.visit(0, 5, after=2), b.visit(1, 4)),  # by another delay
        (b.visit(0, 5, after=3), b.MARK, b.visit(1, 4)),  # with something in between
    ],
)
def test_a_second_source_breaks_a_chain(other: tuple[b.Row, ...]) -> None:
    net, (_, queue) = drive()
    net.closed(net.program(*other), 1)
    assert chains(net) == [queue]
