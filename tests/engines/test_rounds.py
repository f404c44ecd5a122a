"""A server that works in rounds, and dies that begin with a backlog, by hand."""

from __future__ import annotations

import pytest

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Acc
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.errors import NetworkError
from nvmesim.network.check import check
from nvmesim.network.network import HORIZON_PS, Network
from tests.engines import builder as b

ENGINES = (CompiledEngine, ReferenceEngine)
Engines = type[CompiledEngine] | type[ReferenceEngine]

BASE, EACH = 46, 10


def rounds(arrivals: list[int], most: int = 100, in_order: int = 0, gathers: int = 0) -> Network:
    """Requests of 10 each at a server whose rounds take 46 besides."""
    net = b.NetworkBuilder()
    disk = net.rounds(most, BASE, in_order=in_order, gathers=gathers)
    flow = b.Flow(net.program(b.visit(disk, EACH)), [net.plan()])
    user = b.User(net.thread(), arrivals=[(at, 0) for at in arrivals])
    net.group([[flow]], [user], replay=True)
    return net.build()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("arrivals", "most", "in_order", "ends"),
    [
        # the first alone; the three that came meanwhile, together
        ([0, 5, 20, 55], 100, 0, [56, 132, 132, 132]),
        ([0, 5, 20, 55], 100, 1, [56, 112, 122, 132]),
        # one that is submitted as a round ends comes too late for the next
        ([0, 5, 20, 56], 100, 0, [56, 122, 122, 178]),
        # rounds of two
        ([0, 0, 0, 3], 2, 0, [66, 66, 132, 132]),
        # it falls idle, and a later one is a round of its own
        ([0, 300], 2, 0, [56, 356]),
    ],
)
def test_rounds(
    engine: Engines, arrivals: list[int], most: int, in_order: int, ends: list[int]
) -> None:
    run = engine(rounds(arrivals, most, in_order), record=True)
    batch = run.advance(9, HORIZON_PS)
    records = run.records()
    assert records[records[:, 0].argsort(), 6].tolist() == ends
    acc = batch.stations[0]
    n_rounds = len(set(ends)) if not in_order else 2
    assert acc[Acc.VISITS] == len(arrivals)
    # the server is busy for its rounds; and what is not service of a stay is waiting
    assert acc[Acc.SERVICE] == n_rounds * BASE + len(arrivals) * EACH
    assert acc[Acc.WAIT] == sum(ends) - sum(arrivals) - acc[Acc.SERVICE]
    assert acc[Acc.WORK] == len(arrivals) * (EACH + BASE // most)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("users", [1, 4, 32])
def test_a_closed_loop_settles_in_full_rounds(engine: Engines, users: int) -> None:
    """n outstanding are served in rounds of n: n requests in 46 + 10 n."""
    net = b.NetworkBuilder()
    net.closed(net.program(b.visit(net.rounds(1 << 20, BASE), EACH)), users)
    run = engine(net.build())
    run.advance(2 * users, HORIZON_PS)
    batch = run.advance(40 * users, HORIZON_PS)
    assert batch.end_ps - batch.start_ps == 40 * (BASE + EACH * users)


def writes(backlogs: list[int], slots: int) -> Network:
    """Writes of 1 into a buffer of *slots*, behind it two dies with programs of 100."""
    net = b.NetworkBuilder()
    buffer = net.gate(slots, "buffer")
    dies = net.dies(2, net.uniform(100, 100), gate=buffer, backlogs=backlogs)
    program = net.program(b.acquire(buffer), b.visit(net.delay(), 1), b.destage(dies, 2))
    net.closed(program, 1)
    return net.build()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_buffer_at_the_start(engine: Engines) -> None:
    empty, full = engine(writes([0, 0], 6)), engine(writes([4, 2], 6))
    assert empty.advance(6, HORIZON_PS).end_ps == 6
    assert full.advance(1, HORIZON_PS).end_ps == 101
    # a write a program from now on, two dies at most
    batch = full.advance(400, HORIZON_PS)
    assert batch.end_ps - batch.start_ps >= 200 * 100
    assert batch.stations[0, Acc.SERVICE] > 5.9 * (batch.end_ps - batch.start_ps)


def test_a_backlog_fits_its_gate() -> None:
    with pytest.raises(NetworkError, match="die_backlog exceeds its gate"):
        check(writes([4, 3], 6))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("arrivals", "in_order", "ends"),
    [
        # what comes while the first one's base passes is of its round; as it ends is too late
        ([0, 5, 46, 55], 0, [66, 66, 132, 132]),
        ([0, 5, 46, 55], 1, [56, 66, 122, 132]),
        # all come back together, so that four take 46 + 40 again and again
        ([0, 0, 0, 0, 86, 86, 90, 100], 0, [86, 86, 86, 86, 172, 172, 172, 172]),
    ],
)
def test_rounds_that_gather(
    engine: Engines, arrivals: list[int], in_order: int, ends: list[int]
) -> None:
    run = engine(rounds(arrivals, in_order=in_order, gathers=1), record=True)
    batch = run.advance(9, HORIZON_PS)
    records = run.records()
    assert records[records[:, 0].argsort(), 6].tolist() == ends
    acc = batch.stations[0]
    assert acc[Acc.SERVICE] == 2 * BASE + len(arrivals) * EACH
    assert acc[Acc.WAIT] == sum(ends) - sum(arrivals) - acc[Acc.SERVICE]
