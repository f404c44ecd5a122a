"""What waits and when it ends, by hand: rounds, batches, sleepers, buckets."""

from collections.abc import Callable

import pytest

from nvmesim.array_types import Ints
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Acc
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.errors import NetworkError
from nvmesim.network.check import check
from nvmesim.network.network import HORIZON_PS, IN_ORDER, SCALE_ONE, Kind, Network
from tests.engines import builder as b

Engines = type[CompiledEngine] | type[ReferenceEngine]
both_engines = pytest.mark.parametrize("engine", [CompiledEngine, ReferenceEngine])
BASE, EACH, WAKE, SUBMIT, REAP = 46, 10, 40, 7, 3


def arriving(
    at: list[int], station: Callable[[b.NetworkBuilder], int], takes: int = EACH
) -> Network:
    """Requests that come at the times *at* and visit one station."""
    net = b.NetworkBuilder()
    return replayed(net, at, [b.visit(station(net), takes)])


def replayed(net: b.NetworkBuilder, at: list[int], rows: list[b.Row], gate: int = -1) -> Network:
    user = b.User(net.thread(gate) if gate >= 0 else net.thread(), arrivals=[(t, 0) for t in at])
    net.group([[b.Flow(net.program(*rows), [net.plan()])]], [user], replay=True)
    return net.build()


def ends(engine: Engines, net: Network, n: int = 9) -> tuple[list[int], Ints]:
    """When each request ended, and the accounts of station 0."""
    run = engine(net, record=True)
    batch = run.advance(n, HORIZON_PS)
    records = run.records()
    return records[records[:, 0].argsort(), 6].tolist(), batch.stations[0]


FOUR = [0, 5, 20, 55]


@both_engines
@pytest.mark.parametrize(
    ("at", "most", "gathers", "n_rounds", "expected"),
    [
        # the first alone; the three that came meanwhile, together
        (FOUR, 100, 0, 2, [56, 132, 132, 132]),
        # one that is submitted as a round ends comes too late for the next
        ([0, 5, 20, 56], 100, 0, 3, [56, 122, 122, 178]),
        ([0, 0, 0, 3], 2, 0, 2, [66, 66, 132, 132]),  # rounds of two
        ([0, 300], 2, 0, 2, [56, 356]),  # it falls idle, and a later one is a round of its own
        # what comes while the first one's base passes is of its round; as it ends is too late
        ([0, 5, 46, 55], 100, 1, 2, [66, 66, 132, 132]),
        # all come back together, so that four take 46 + 40 again and again
        ([0, 0, 0, 0, 86, 86, 90, 100], 100, 1, 2, [86] * 4 + [172] * 4),
    ],
)
def test_rounds(
    engine: Engines, at: list[int], most: int, gathers: int, n_rounds: int,
    expected: list[int],
) -> None:  # fmt: skip
    net = arriving(at, lambda net: net.rounds(most, BASE, gathers=gathers))
    found, acc = ends(engine, net)
    assert found == expected
    assert acc[Acc.VISITS] == len(at)
    # the server is busy for its rounds; and what is not service of a stay is waiting
    assert acc[Acc.SERVICE] == n_rounds * BASE + len(at) * EACH
    assert acc[Acc.WAIT] == sum(found) - sum(at) - acc[Acc.SERVICE]
    assert acc[Acc.WORK] == len(at) * (EACH + BASE // most)


@both_engines
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
    net.closed(net.program(b.acquire(buffer), b.visit(net.delay(), 1), b.destage(dies, 2)), 1)
    return net.build()


@both_engines
def test_a_full_buffer_at_the_start(engine: Engines) -> None:
    empty, full = engine(writes([0, 0], 6)), engine(writes([4, 2], 6))
    assert empty.advance(6, HORIZON_PS).end_ps == 6
    assert full.advance(1, HORIZON_PS).end_ps == 101
    # a write a program from now on, two dies at most
    batch = full.advance(400, HORIZON_PS)
    assert batch.end_ps - batch.start_ps >= 200 * 100
    assert batch.stations[0, Acc.SERVICE] > 5.9 * (batch.end_ps - batch.start_ps)


@both_engines
@pytest.mark.parametrize(
    ("at", "most", "expected"),
    [
        (FOUR, 9, [103, 212, 212, 212]),  # those that came meanwhile as one batch, together
        (FOUR, 2, [103, 209, 209, 312]),  # two at a time
        (FOUR, 1, [103, 206, 309, 412]),
        ([0, 300], 9, [103, 403]),  # it falls idle between two
    ],
)
def test_batches(engine: Engines, at: list[int], most: int, expected: list[int]) -> None:
    """Requests of 3 at a thread whose batches cost 100 besides, and that all stay to its end."""
    net = b.NetworkBuilder()
    rows = [b.acquire_thread(), b.on_cpu(REAP), b.STAY]
    assert ends(engine, replayed(net, at, rows, net.batcher(most, 100)))[0] == expected


@both_engines
def test_one_doorbell_for_all_that_a_batch_submits(engine: Engines) -> None:
    """Three users of a thread: reaped as one batch, submitted one by one, sent together."""
    net = b.NetworkBuilder()
    gate, disk = net.batcher(8, 100), net.delay()
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


@both_engines
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
    at = [0, 5, 12, 24]
    rows = [b.acquire_thread(interrupt_ps=10, shared=1 + handler), b.on_cpu(1), b.RELEASE_THREAD]
    found, _ = ends(engine, replayed(b.NetworkBuilder(), at, rows))
    assert [end - start - 1 for end, start in zip(found, at, strict=True)] == charged


@both_engines
@pytest.mark.parametrize(
    ("at", "half", "expected"),
    [
        ([0, 5, 12, 20], 0, [10, 20, 30, 40]),  # it never sleeps: 20 finds it at work
        ([0, 30], 0, [10, 80]),  # asleep for 20: woken, then served
        ([0, 30], 20, [10, 60]),  # half a wake-up after a sleep of 20
        ([0, 30, 35], 60, [10, 50, 60]),  # a quarter of it; the next finds it awake
        ([0, 10], 60, [10, 20]),  # it was about to sleep
    ],
)
def test_only_who_finds_it_asleep_wakes_it(
    engine: Engines, at: list[int], half: int, expected: list[int]
) -> None:
    found, acc = ends(engine, arriving(at, lambda net: net.sleeper(WAKE, half)))
    assert found == expected
    # a wake-up is service, and no work: one that is kept busy has none
    assert acc[Acc.WORK] == len(at) * EACH
    assert acc[Acc.WAIT] + acc[Acc.SERVICE] == sum(found) - sum(at)


@both_engines
@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (SCALE_ONE, [90, 100, 110, 120, 130]),
        (SCALE_ONE // 2, [90, 95, 100, 105, 130]),
        (0, [90, 90, 90, 90, 130]),
    ],
)
def test_waits_without_order_scatter(engine: Engines, factor: int, expected: list[int]) -> None:
    """Beyond the first eight services; the last finds it at work until 120, whoever left before."""
    at = [0] * (IN_ORDER + 4) + [95]
    net = b.NetworkBuilder()
    rows = [b.unordered(net.fifo(), EACH, net.uniform(factor, factor))]
    found, acc = ends(engine, replayed(net, at, rows), len(at))
    assert sorted(found) == [*range(10, 90, 10), *expected]
    assert acc[Acc.SERVICE] == acc[Acc.WORK] == EACH * len(at)
    assert acc[Acc.WAIT] + acc[Acc.SERVICE] == sum(found) - sum(at)


@both_engines
@pytest.mark.parametrize(
    ("at", "saved", "expected"),
    [
        # nothing saved up: the first at once (1 ps later), then one each 10
        ([0, 0, 0, 35], 0, [1, 11, 21, 36]),
        ([0, 0, 0, 0, 0], 30, [1, 1, 1, 11, 21]),  # three at once; then the bucket refills
        # what is saved up ends at the bucket's size, however long the pause
        ([0, 1000, 1000, 1000, 1000], 30, [1, 1001, 1001, 1001, 1011]),
        # refilled by half: two wait, the first for the other half
        ([0, 0, 5, 5], 20, [1, 1, 11, 21]),
        ([0, 0], 5, [1, 11]),  # one that takes more than the bucket holds leaves when it was full
    ],
)
def test_a_token_bucket(engine: Engines, at: list[int], saved: int, expected: list[int]) -> None:
    found, acc = ends(engine, arriving(at, lambda net: net.limit(saved)), 99)
    assert found == expected
    assert acc[Acc.VISITS] == len(at)
    assert acc[Acc.SERVICE] == acc[Acc.WORK] == EACH * len(at)
    assert acc[Acc.WAIT] == sum(found) - sum(at) - len(at)


def two_sleepers() -> Network:
    net = arriving([0], lambda net: net.sleeper(WAKE, 0))
    net.station_servers[0] = 2
    return net


def two_batchers() -> Network:
    building = b.NetworkBuilder()
    rows = [b.acquire_thread(), b.on_cpu(REAP), b.STAY]
    net = replayed(building, [0], rows, building.batcher(1, BASE))
    net.station_servers[0] = 2
    return net


def gated_by_a_batcher() -> Network:
    net = b.NetworkBuilder()
    net.closed(net.program(b.acquire(net.batcher()), b.visit(net.fifo(), 1)), 1)
    return net.build()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (two_sleepers, "one server"),
        (two_batchers, "one server"),
        (gated_by_a_batcher, "slots of what is no gate"),
        (lambda: writes([4, 3], 6), "die_backlog exceeds its gate"),
    ],
)
def test_what_cannot_be(make: Callable[[], Network], text: str) -> None:
    with pytest.raises(NetworkError, match=text):
        check(make())


@both_engines
@pytest.mark.parametrize(
    ("units", "expected"), [(3, EACH), (4, EACH), (5, 2 * EACH), (9, 3 * EACH)]
)
def test_units_on_neighbouring_lanes_meet_only_when_the_bank_is_full(
    engine: Engines, units: int, expected: int
) -> None:
    net = b.NetworkBuilder()
    first, *_ = (net.station(Kind.FIFO) for _ in range(4))
    unit = net.program(b.lane(first, 4, EACH))
    found, _ = ends(engine, replayed(net, [0], [b.split(units, unit, lanes=4)]))
    assert found == [expected]
