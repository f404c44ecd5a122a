"""`Network.check` rejects what the kernel would read out of bounds."""

from dataclasses import fields, replace

import numpy as np
import pytest

from nvmesim.errors import NetworkError
from nvmesim.network.check import check
from nvmesim.network.network import HORIZON_PS, Network, Op
from tests.engines import builder as b
from tests.engines.mutations import array_names, changed
from tests.engines.strategies import random_network

SEEDS = range(12)
UNUSED_WITHOUT_ROUND_ROBIN = {"thread_first"}
ARRAYS = [item.name for item in fields(Network) if item.type == "Ints" and item.name != "ops"]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("value", [-2, 1 << 62])
def test_out_of_range_is_rejected(name: str, value: int) -> None:
    if value > 0 and name in UNUSED_WITHOUT_ROUND_ROBIN:
        pytest.skip("a thread whose users have fixed targets ignores it")
    tried = 0
    for net in map(random_network, SEEDS):
        if name not in array_names(net):
            continue
        size = getattr(net, name).size
        for at in {0, size // 2, size - 1}:
            tried += 1
            with pytest.raises(NetworkError, match="network: "):
                check(changed(net, name, at, value))
    assert tried


@pytest.mark.parametrize("name", ARRAYS)
def test_wrong_type_or_layout_is_rejected(name: str) -> None:
    net = random_network(0)
    for array in (getattr(net, name).astype(np.int32), np.repeat(getattr(net, name), 2)[::2]):
        if array.size > 1:
            with pytest.raises(NetworkError, match=name):
                check(replace(net, **{name: array}))


def test_structures_are_checked_for_their_times_and_delays_that_are_alike() -> None:
    net = one_program(b.visit(2, 3)).build()
    check(net)
    for row, column, value in ((0, 3, -1), (0, 3, HORIZON_PS), (1, 5, 1 << 50)):
        ops = net.ops.copy()
        ops[row, column] = value
        with pytest.raises(NetworkError, match="service"):
            check(replace(net, ops=ops))
    for delay in (-1, HORIZON_PS):
        ops = net.ops.copy()
        ops[0, 4] = delay
        with pytest.raises(NetworkError, match="delay"):
            check(replace(net, ops=ops))
    falling = net.dist[:, ::-1].copy()
    falling[:, 0] += 1
    with pytest.raises(NetworkError, match="dist"):
        check(replace(net, dist=falling))
    net = one_program(b.visit(0, 3), b.visit(0, 3)).build()

    def with_delays(*delays: int) -> bytes:
        ops = net.ops.copy()
        ops[: len(delays), 4] = delays
        return check(replace(net, ops=ops))

    assert with_delays(5, 5, 9) == with_delays(7, 7, 8)
    assert with_delays(5, 5, 9) != with_delays(5, 6, 9)
    assert with_delays(0, 5, 9) != with_delays(3, 5, 9)


def one_program(*rows: b.Row) -> b.NetworkBuilder:
    """Stations: 0 FIFO, 1 gate of 2, 2 die, 3 FIFO with a scale; distribution 0; series 0."""
    net = b.NetworkBuilder()
    net.fifo()
    net.gate(2)
    net.dies(1, net.uniform(1, 2))
    net.fifo(2, scale=[1 << 16, 1 << 17])
    net.samples([1, 2])
    net.closed(net.program(b.visit(0, 5), *rows), 1)
    return net


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (b.visit(1), "a visit to a gate"),
        (b.visit(9), "station of a visit.* is 9"),
        (b.visit(0, ps=-1), "service of a visit.* is -1"),
        (b.visit(0, ps=HORIZON_PS), "service"),
        (b.visit(0, dist=1), "distribution of a visit.* is 1"),
        (b.visit(0, after=-1), "delay behind a visit.* is -1"),
        (b.visit(3, after=1), "delay behind a scale"),
        (b.visit(0, per_child=1 << 40), "service"),
        (b.bank(5, 2), "end of a bank.* is 7"),
        (b.bank(0, 2), "a gate is not a bank"),
        (b.lane(0, 0), "stations of a bank.* is 0"),
        (b.sample(0, 1), "series of a visit.* is 1"),
        (b.sample(0, -1), "series of a visit.* is -1"),
        (b.acquire(0), "slots of what is no gate"),
        (b.acquire(1, 3), "more slots than the gate has"),
        (b.release(1, 0), "slots of a gate.* is 0"),
        (b.acquire_thread(-1), "setup.* is -1"),
        (b.acquire_thread(shared=-1), "handler.* is -1"),
        (b.destage(0, 1), "not every station is a die"),
        (b.destage(2, 1, 5000), "programs at once.* is 5000"),
        (b.fork(0), "fewer than 1 phases"),
        (b.fork(-1), "phase.* is -1"),
        (b.split(0, 0), "units.* is 0"),
        (b.split(1, 99), "program of a unit.* is 99"),
        (b.split(1, 0), "a unit forks or splits"),
        ((99, 0, 0, 0, 0, 0), "ops.code"),
    ],
)
def test_bad_operation(row: b.Row, text: str) -> None:
    with pytest.raises(NetworkError, match=text):
        check(one_program(row).build())


def test_children_do_not_fork_and_loops_take_time() -> None:
    net = b.NetworkBuilder()
    station = net.fifo()
    child = net.program(b.visit(station, 1), b.fork(0))
    net.closed(net.program(b.fork(0)), 1, plan=net.plan([[(child, 0)]]))
    with pytest.raises(NetworkError, match="a child forks"):
        check(net.build())
    net = b.NetworkBuilder()
    net.closed(net.program(b.MARK, b.fork(0)), 1, plan=net.plan([]))
    with pytest.raises(NetworkError, match="takes no time"):
        check(net.build())
    net = b.NetworkBuilder()
    child = net.program(b.visit(net.fifo(), 1))
    net.closed(net.program(b.fork(0)), 1, plan=net.plan([[(child, 0)]]))
    check(net.build())


def test_thread_gates_rows_and_columns_of_shared_interrupts() -> None:
    net = one_program().build()
    for mutant, text in (
        (replace(net, thread_gate=np.zeros(1, np.int64)), "thread_gate names no gate"),
        (replace(net, thread_cpu=np.ones(1, np.int64)), "thread_cpu names a gate"),
        (replace(net, user_target=np.zeros(0, np.int64)), "user_target has not 1 rows"),
        (replace(net, station_names=("a",)), "station_names"),
        (replace(net, ops=net.ops[:-1].copy()), "the last operation is not END"),
        (replace(net, dist=net.dist[:, :-1].copy()), "columns"),
    ):
        with pytest.raises(NetworkError, match=text):
            check(mutant)
    net = b.NetworkBuilder()
    station = net.fifo()
    program = net.program(b.acquire_thread(shared=1), b.visit(station, 1), b.RELEASE_THREAD)
    plan = net.plan()
    net.group([[b.Flow(program, [plan])]] * 3, [b.User(net.thread())])
    with pytest.raises(NetworkError, match="n_batch_targets"):
        check(replace(net.build(), n_batch_targets=2))


def test_every_operation_is_in_the_random_networks() -> None:
    codes = np.concatenate([random_network(seed).ops[:, 0] for seed in range(30)])
    assert set(np.unique(codes).tolist()) == set(Op)
