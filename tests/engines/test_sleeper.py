"""A server that sleeps and is woken, by hand."""

from __future__ import annotations

import pytest

from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Acc
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.errors import NetworkError
from nvmesim.network.check import check
from nvmesim.network.network import HORIZON_PS, Network
from tests.engines import builder as b

WAKE, EACH = 40, 10


def sleeper(arrivals: list[int], half: int) -> Network:
    """Requests of 10 each at a server whose wake-up takes 40 at most."""
    net = b.NetworkBuilder()
    thread = net.sleeper(WAKE, half)
    flow = b.Flow(net.program(b.visit(thread, EACH)), [net.plan()])
    net.group([[flow]], [b.User(net.thread(), arrivals=[(at, 0) for at in arrivals])], replay=True)
    return net.build()


@pytest.mark.parametrize("engine", [CompiledEngine, ReferenceEngine])
@pytest.mark.parametrize(
    ("arrivals", "half", "ends"),
    [
        ([0, 5, 12, 20], 0, [10, 20, 30, 40]),  # it never sleeps: 20 finds it at work
        ([0, 30], 0, [10, 80]),  # asleep for 20: woken, then served
        ([0, 30], 20, [10, 60]),  # half a wake-up after a sleep of 20
        ([0, 30, 35], 60, [10, 50, 60]),  # a quarter of it; the next finds it awake
        ([0, 10], 60, [10, 20]),  # it was about to sleep
    ],
)
def test_only_who_finds_it_asleep_wakes_it(
    engine: type[CompiledEngine] | type[ReferenceEngine],
    arrivals: list[int],
    half: int,
    ends: list[int],
) -> None:
    run = engine(sleeper(arrivals, half), record=True)
    acc = run.advance(9, HORIZON_PS).stations[0]
    records = run.records()
    assert records[records[:, 0].argsort(), 6].tolist() == ends
    # a wake-up is service, and no work: one that is kept busy has none
    assert acc[Acc.WORK] == len(arrivals) * EACH
    assert acc[Acc.WAIT] + acc[Acc.SERVICE] == sum(ends) - sum(arrivals)


def test_it_has_one_server() -> None:
    net = sleeper([0], 0)
    net.station_servers[0] = 2
    with pytest.raises(NetworkError, match="one server"):
        check(net)
