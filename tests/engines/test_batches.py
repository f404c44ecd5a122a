"""Threads that work in batches, and interrupts that last longer for what they serve, by hand."""

from __future__ import annotations

import pytest

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.errors import NetworkError
from nvmesim.network.check import check
from nvmesim.network.network import HORIZON_PS, Network
from tests.engines import builder as b

Engines = type[CompiledEngine] | type[ReferenceEngine]
ENGINES = (CompiledEngine, ReferenceEngine)
BASE, SUBMIT, REAP = 100, 7, 3


def ends(engine: Engines, net: Network, n: int = 9) -> list[int]:
    run = engine(net, record=True)
    run.advance(n, HORIZON_PS)
    records = run.records()
    return [int(end) for end in records[records[:, 0].argsort(), 6]]


def arriving(arrivals: list[int], most: int) -> Network:
    """Requests of 3 at a thread whose batches cost 100 besides, and that all stay to its end."""
    net = b.NetworkBuilder()
    gate = net.batcher(most, BASE)
    program = net.program(b.acquire_thread(), b.on_cpu(REAP), b.STAY)
    user = b.User(net.thread(gate), arrivals=[(at, 0) for at in arrivals])
    net.group([[b.Flow(program, [net.plan()])]], [user], replay=True)
    return net.build()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("arrivals", "most", "expected"),
    [
        # the first by itself; those that came meanwhile as one batch, together
        ([0, 5, 20, 55], 9, [103, 212, 212, 212]),
        # two at a time
        ([0, 5, 20, 55], 2, [103, 209, 209, 312]),
        ([0, 5, 20, 55], 1, [103, 206, 309, 412]),
        # it falls idle between two
        ([0, 300], 9, [103, 403]),
    ],
)
def test_batches(engine: Engines, arrivals: list[int], most: int, expected: list[int]) -> None:
    assert ends(engine, arriving(arrivals, most)) == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_one_doorbell_for_all_that_a_batch_submits(engine: Engines) -> None:
    """Three users of a thread: reaped as one batch, submitted one by one, sent together."""
    net = b.NetworkBuilder()
    gate, disk = net.batcher(8, BASE), net.delay()
    program = net.program(
        b.acquire_thread(first=1), b.on_cpu(SUBMIT), b.STAY, b.MARK, b.visit(disk, 50),
        b.acquire_thread(), b.on_cpu(REAP), b.RELEASE_THREAD,
    )  # fmt: skip
    thread = net.thread(gate)
    net.group([[b.Flow(program, [net.plan()])]], [b.User(thread) for _ in range(3)])
    run = engine(net.build(), record=True)
    run.advance(6, HORIZON_PS)
    records = run.records()
    records = records[records[:, 0].argsort()]
    assert records[:3, 5].tolist() == [21] * 3
    # all are back at 71: the first finds the thread idle, the others are the next batch
    assert records[:3, 6].tolist() == [174, 277, 280]
    # then what all three submit, 3 x 7, and one doorbell
    assert records[3:6, 5].tolist() == [301] * 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("handler", "charged"),
    [
        (0, [10, 0, 10, 10]),  # 10 long: what comes at 12 needs another, and so does 24
        (3, [10, 0, 0, 10]),  # to 13, 16 with the one at 5, 19 with the one at 12
        (8, [10, 0, 0, 0]),  # to 18, 26, 34
    ],
)
def test_an_interrupt_lasts_longer_for_each_that_it_serves(
    engine: Engines, handler: int, charged: list[int]
) -> None:
    net = b.NetworkBuilder()
    program = net.program(
        b.acquire_thread(interrupt_ps=10, shared=1 + handler), b.on_cpu(1), b.RELEASE_THREAD
    )
    arrivals = [0, 5, 12, 24]
    user = b.User(net.thread(), arrivals=[(at, 0) for at in arrivals])
    net.group([[b.Flow(program, [net.plan()])]], [user], replay=True)
    found = ends(engine, net.build())
    assert [end - at - 1 for end, at in zip(found, arrivals, strict=True)] == charged


def test_a_batcher_has_one_slot_and_is_nobody_elses_gate() -> None:
    net = arriving([0], 1)
    net.station_servers[0] = 2
    with pytest.raises(NetworkError, match="one server"):
        check(net)
    other = b.NetworkBuilder()
    gate = other.batcher()
    other.closed(other.program(b.acquire(gate), b.visit(other.fifo(), 1)), 1)
    with pytest.raises(NetworkError, match="gate 0"):
        check(other.build())
