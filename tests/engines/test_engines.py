"""Beyond completion times: growing, recording, timelines, a user's own stations."""

import numpy as np
import pytest

from nvmesim import rng
from nvmesim.engine.compiled import engine as compiled
from nvmesim.engine.compiled import kernel_state as state
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.compiled.kernel_draws import below, mix, quantile
from nvmesim.engine.compiled.kernel_requests import bin_of
from nvmesim.engine.contract import Engine, Status, bin_index, bin_middle
from nvmesim.engine.reference.engine import ReferenceEngine
from nvmesim.engine.reference.stations import Fifo, Station
from nvmesim.engine.reference.tokens import Step, Visit
from nvmesim.errors import DeadlockError
from nvmesim.network.network import HORIZON_PS, Network
from tests.engines import builder as b
from tests.engines.strategies import random_network
from tests.engines.test_equality import assert_equal

ENGINES = (CompiledEngine, ReferenceEngine)


def two_children() -> Network:
    """One request at a time: a CPU of 2, a fork to two disks (5, and 3 behind a gate), CPU of 1."""
    net = b.NetworkBuilder()
    cpu, disk, other, gate = net.fifo(name="cpu"), net.fifo(), net.fifo(), net.gate()
    left = net.program(b.visit(disk, 5))
    right = net.program(b.acquire(gate), b.visit(other, 3), b.release(gate))
    plan = net.plan([[(left, 0)], [(right, 1)]])
    net.closed(net.program(b.visit(cpu, 2), b.MARK, b.fork(), b.visit(cpu, 1)), 1, plan=plan)
    return net.build()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_step_by_step_and_why_it_stopped(
    engine: type[CompiledEngine] | type[ReferenceEngine],
) -> None:
    run = engine(two_children(), record=True)
    batch = run.advance(2, HORIZON_PS)
    assert run.records().tolist() == [[0, 0, 0, 0, 0, 2, 8], [1, 0, 0, 0, 8, 10, 16]]
    assert batch.latency_sum_ps.tolist() == [[16, 12], [0, 0]]
    # the third request is at the CPU
    assert batch.stations[0].tolist() == [5, 0, 8, 8]
    assert batch.stations[3].tolist() == [2, 0, 6, 0]
    assert (batch.status, batch.end_ps, batch.outstanding) == (Status.COMPLETED, 16, 1)
    net = b.NetworkBuilder()
    program = net.program(b.visit(net.fifo(), 10))
    net.group([[b.Flow(program, [net.plan()])]],
              [b.User(net.thread(), arrivals=[(5, 0), (5, 0), (90, 0)])], replay=True)  # fmt: skip
    run: Engine = engine(net.build())
    stops = [run.advance(n, until) for n, until in ((1, 4), (0, 99), (1, 99), (9, 30), (9, 200))]
    assert [(s.status, s.end_ps, s.outstanding, s.completions) for s in stops] == [
        (Status.TIME, 0, 0, 0),
        (Status.COMPLETED, 0, 0, 0),
        (Status.COMPLETED, 15, 1, 1),
        (Status.TIME, 25, 0, 1),
        (Status.IDLE, 100, 0, 1),
    ]


def test_timeline() -> None:
    run = ReferenceEngine(two_children(), timeline=1)
    run.advance(2, HORIZON_PS)
    assert run.steps() == [
        Step(request=0, child=0, unit=0, station=0, arrive_ps=0, start_ps=0, depart_ps=2),
        Step(request=0, child=1, unit=0, station=1, arrive_ps=2, start_ps=2, depart_ps=7),
        Step(request=0, child=2, unit=0, station=2, arrive_ps=2, start_ps=2, depart_ps=5),
        Step(request=0, child=2, unit=0, station=3, arrive_ps=2, start_ps=2, depart_ps=5),
        Step(request=0, child=0, unit=0, station=0, arrive_ps=7, start_ps=7, depart_ps=8),
    ]


class TwiceAsSlow(Fifo):
    def served(self, work_ps: int) -> int:
        return 2 * super().served(work_ps)


class LastComeFirstServed(Station):
    """One server that takes the youngest: a queue of its own, so departures are not known early."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.queue: list[Visit] = []
        self.busy = False

    @property
    def waiting(self) -> int:
        return len(self.queue)

    def dispatch(self, visit: Visit) -> None:
        self.queue.append(visit)
        self.request_touch()

    def touch(self) -> None:
        if not self.busy and self.queue:
            self.busy = True
            visit = self.queue.pop()
            work = self.world.work_ps(visit, self)
            self.depart(visit, self.now, work, work)

    def left(self) -> None:
        self.busy = False
        self.request_touch()


def test_a_station_of_a_user_replaces_one() -> None:
    slow = b.NetworkBuilder()
    station = slow.fifo(name="disk")
    slow.closed(slow.program(b.visit(station, 8, dist=slow.uniform(4, 4))), 3)
    fast = b.NetworkBuilder()
    station = fast.fifo(name="disk")
    fast.closed(fast.program(b.visit(station, 4, dist=fast.uniform(2, 2))), 3)
    theirs = ReferenceEngine(fast.build(), record=True, stations={"disk": TwiceAsSlow})
    ours = CompiledEngine(slow.build(), record=True)
    theirs.advance(50, HORIZON_PS)
    ours.advance(50, HORIZON_PS)
    np.testing.assert_array_equal(theirs.records(), ours.records())


def test_stations_of_a_user_with_queues_of_their_own_and_unknown_ones() -> None:
    net = b.NetworkBuilder()
    station = net.fifo(name="disk")
    program = net.program(b.visit(station, 10))
    arrivals = [(0, 0), (1, 0), (2, 0)]
    net.group([[b.Flow(program, [net.plan()])]], [b.User(net.thread(), arrivals=arrivals)],
              replay=True)  # fmt: skip
    run = ReferenceEngine(net.build(), record=True, stations={"disk": LastComeFirstServed})
    assert run.advance(3, HORIZON_PS).end_ps == 30
    assert run.records()[:, [0, 6]].tolist() == [[0, 10], [2, 20], [1, 30]]
    with pytest.raises(KeyError, match="dsik"):
        ReferenceEngine(two_children(), stations={"dsik": TwiceAsSlow})


@pytest.mark.parametrize("engine", ENGINES)
def test_deadlock(engine: type[CompiledEngine] | type[ReferenceEngine]) -> None:
    net = b.NetworkBuilder()
    station, x, y = net.fifo(), net.gate(name="x"), net.gate(name="y")
    one = net.program(b.acquire(x), b.visit(station, 1), b.acquire(y), b.release(y), b.release(x))
    two = net.program(b.acquire(y), b.visit(station, 1), b.acquire(x), b.release(x), b.release(y))
    for program in (one, two):
        net.closed(program, 1)
    with pytest.raises(DeadlockError, match="deadlock: 2 requests wait at x, y"):
        engine(net.build()).advance(10, HORIZON_PS)


def test_room_for_bursts_backlogs_and_many_submissions_is_made() -> None:
    """Forks of 60 that split in 40, and an open loop that outruns its station."""
    net = b.NetworkBuilder()
    disk, slow = net.fifo(3), net.fifo()
    unit = net.program(b.visit(disk, 1))
    child = net.program(b.split(40, unit), b.visit(slow, 1))
    plan = net.plan([[(child, 0)]] * 60)
    net.closed(net.program(b.fork(), b.visit(slow, 2)), 2, plan=plan)
    net.opened(net.program(b.visit(slow, 9)), gap=net.uniform(1, 3), plan=net.plan([]))
    built = net.build()
    batches, _, _ = assert_equal(built)
    assert batches[-1].outstanding > 200
    run = CompiledEngine(built)
    run.advance(10, HORIZON_PS)
    assert len(run._room.tokens) > 2 * 60 * 40
    net = b.NetworkBuilder()
    flow = b.Flow(net.program(b.visit(net.fifo(), 9)), [net.plan()])
    thread, gap = net.thread(), net.uniform(5, 5)
    net.group([[flow]], [b.User(thread) for _ in range(40)], gap=gap)
    batches, _, _ = assert_equal(net.build())
    assert batches[-1].outstanding > 80


def queue(users: int = 4) -> Network:
    net = b.NetworkBuilder()
    net.closed(net.program(b.visit(net.fifo(2), dist=net.exponential(1000))), users)
    return net.build()


def test_records_that_do_not_fit_stop_the_run() -> None:
    run, n = CompiledEngine(queue(), record=True), 700_000
    rows, left, statuses = [], n, []
    while left > 0:
        batch = run.advance(left, HORIZON_PS)
        left -= batch.completions
        statuses.append(batch.status)
        rows.append(run.records())
    assert statuses[:2] == [Status.RECORD_FULL] * 2
    assert statuses[-1] == Status.COMPLETED
    records = np.concatenate(rows)
    assert len(records) == n - left
    # nothing is lost between two batches
    assert (np.diff(records[:, 6]) >= 0).all()
    assert np.isin(np.arange(n - 10), records[:, 0]).all()


def test_bins() -> None:
    middle = bin_middle()
    for value in [*range(300), *(3**k for k in range(5, 39)), (1 << 61) + 12345]:
        at = bin_index(value)
        assert bin_of(value) == at
        assert abs(middle[at] - value) <= value / 256 + 0.5


def test_draws_of_both_modes_agree() -> None:
    words = np.random.default_rng(1).integers(-(1 << 63), 1 << 63, (500, 2)).tolist()
    net = b.NetworkBuilder()
    net.exponential(12345)
    net.uniform(3, 1 << 40)
    table = np.array(net.tables)
    for key, word in [*words, (0, 0), (-1, -1), (5, -9)]:
        bits = mix(key, word)
        assert bits == rng.mix(key, word)
        assert below(bits, 48) == rng.below(bits, 48)
        assert below(bits, 1 << 32) == rng.below(bits, 1 << 32)
        for row in range(2):
            assert quantile(table, row, bits) == rng.quantile(table, row, bits)
    top = -1  # all ones: the last cell of the last cell
    assert quantile(table, 0, top) == rng.quantile(table, 0, top)


@pytest.mark.parametrize("shift", [0, 3, 8, 40])
def test_the_width_of_a_slot_changes_nothing(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "FIRST_SHIFT", shift)  # times are 1 to 1,500 ps here
    for seed in range(20):
        assert_equal(random_network(seed), seed)


def test_a_new_width_keeps_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    net = b.NetworkBuilder()
    disks = net.fifos([1] * 8)
    net.closed(net.program(b.bank(disks, 8, 0, net.exponential(10**8)), b.visit(net.fifo(), 7)), 99)
    built = net.build()
    widening = CompiledEngine(built, record=True)
    monkeypatch.setattr(CompiledEngine, "_widen", lambda self, duration: None)
    fixed = CompiledEngine(built, record=True)
    before = int(fixed._room.wheel[state.SHIFT])
    for _ in range(3):
        fixed.advance(2000)
    monkeypatch.undo()
    for _ in range(3):
        widening.advance(2000)
    assert abs(int(widening._room.wheel[state.SHIFT]) - before) > 1
    np.testing.assert_array_equal(widening.records(), fixed.records())
