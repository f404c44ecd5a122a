from dataclasses import replace

import numpy as np
import pytest

from nvmesim.array_types import Ints
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import Batch
from nvmesim.measure.control import Controller, Measured, RunGoal, backlog_growth
from nvmesim.measure.latency import samples
from nvmesim.measure.steady import Col, RunLoad, relative_half
from nvmesim.network.network import HORIZON_PS
from nvmesim.units import PS_PER_S
from tests.predict.networks import MEAN_PS, measure, mm1, network, plain_reducer


class Interrupting(CompiledEngine):
    """Somebody presses Ctrl-C in the 21st batch."""

    calls = 0

    def advance(self, completions: int, until_ps: int = HORIZON_PS) -> Batch:
        self.calls += 1
        if self.calls > 20:
            raise KeyboardInterrupt
        return super().advance(completions, until_ps)


def queue_load(**more: object) -> RunLoad:
    return RunLoad(is_open=True, servers=np.array([1, 0, 1]), **more)  # type: ignore[arg-type]


def watched(load: float, goal: RunGoal) -> Measured:
    engine = CompiledEngine(mm1(load), seed=5)
    return Controller(engine, plain_reducer(), goal, queue_load()).run()


def test_exactly_so_many_requests_after_the_warm_up() -> None:
    net = network([0.5 * MEAN_PS, MEAN_PS], users=1000)  # the second queue fills first
    measured = measure(net, RunGoal(None, 12_345), is_open=False)
    assert measured.converged
    assert measured.window.requests == 12_345
    assert measured.window.warmup_ps > 0
    assert measured.warmup_requests > 0


@pytest.mark.parametrize("requests", [1, 2, 7, 63, 100])
def test_a_handful_of_requests(requests: int) -> None:
    measured = measure(mm1(0.5), RunGoal(None, requests), is_open=True)
    assert measured.window.requests == requests
    assert measured.window.snapshots


def test_so_much_simulated_time_after_the_warm_up() -> None:
    goal = RunGoal(None, None, PS_PER_S // 10)
    measured = measure(mm1(0.5), goal, is_open=True)
    assert measured.converged
    # the window ends with the last event before its end
    assert measured.window.duration_ps == pytest.approx(PS_PER_S / 10, rel=1e-3)
    assert measured.window.iops().value == pytest.approx(5e5, rel=0.03)


def test_stops_at_the_precision_of_iops_and_of_the_tail() -> None:
    measured = watched(0.7, RunGoal(0.01))
    assert measured.converged
    assert measured.window.requests >= 200_000
    assert relative_half(measured.window.iops()) <= 0.01
    data = samples(measured.window, None)
    assert data.relative_half(0.99) <= 0.05
    assert not measured.warnings


def test_says_so_when_the_precision_is_not_reached() -> None:
    measured = watched(0.7, RunGoal(0.0001, most=250_000))
    assert not measured.converged
    assert measured.warnings[-1].code == "imprecise"
    assert "the precision of 0.01 % was not reached: simulated IOPS are" in measured.warnings[-1]


def test_a_wall_limit_ends_the_run() -> None:
    measured = measure(mm1(0.7), RunGoal(0.0001, wall_s=0.2), is_open=True)
    assert not measured.converged


def test_an_interrupt_keeps_what_was_finished() -> None:
    engine = Interrupting(mm1(0.5))
    measured = Controller(engine, plain_reducer(), RunGoal(None, 64_000), queue_load()).run()
    assert measured.interrupted
    assert not measured.converged
    assert measured.window.requests + measured.warmup_requests == 20_000
    assert measured.warnings[0].startswith("interrupted: ")


def test_recording_keeps_every_request_and_the_batches_whole() -> None:
    rows: list[Ints] = []
    engine = CompiledEngine(mm1(0.5), record=True)
    measured = Controller(
        engine, plain_reducer(), RunGoal(None, 600_000), queue_load(), record=rows.append
    ).run()
    found = np.concatenate(rows)
    total = measured.window.requests + measured.warmup_requests
    assert len(found) == total
    assert len(np.unique(found[:, 0])) == total
    latency = (found[:, 6] - found[:, 4])[-measured.window.requests :]
    mean = measured.window.mean_latency_s(None).value * PS_PER_S
    assert latency.mean() == pytest.approx(mean, rel=1e-9)
    plain = measure(mm1(0.5), RunGoal(None, 600_000), is_open=True)
    np.testing.assert_array_equal(plain.window.records, measured.window.records)


@pytest.mark.parametrize("load", [1.02, 1.2, 3.0])
def test_an_open_loop_above_its_bound_is_unstable(load: float) -> None:
    measured = watched(load, RunGoal(0.01))
    assert not measured.converged
    assert measured.backlog_per_s is not None
    # arrivals and services of this stretch scatter by 1 % at most (4 standard deviations)
    assert measured.backlog_per_s == pytest.approx((load - 1) * 1e6, abs=0.02 * load * 1e6)
    assert measured.window.requests < 500_000


@pytest.mark.parametrize("load", [0.3, 0.9, 0.95])
def test_a_busy_open_loop_is_not_called_unstable(load: float) -> None:
    for seed in range(20):
        measured = measure(mm1(load), RunGoal(None, 50_000), is_open=True, seed=seed)
        assert measured.backlog_per_s is None


def test_close_to_the_bound_the_answer_is_not_called_good() -> None:
    measured = watched(0.9995, RunGoal(0.01, most=3_000_000))
    assert not measured.converged
    assert measured.backlog_per_s is None or measured.backlog_per_s < 2000


def test_a_backlog_must_grow_steadily() -> None:
    records = np.ones((64, len(Col)))
    records[:, Col.READS] = 1000
    records[:, Col.DURATION] = PS_PER_S / 1000
    assert backlog_growth(records) is None
    records[:, Col.OUTSTANDING] = np.arange(64) * 100
    assert backlog_growth(records) == pytest.approx(100_000)
    records[44:52, Col.OUTSTANDING] = 0
    assert backlog_growth(records) is None


def test_many_outstanding_lengthen_the_least_run() -> None:
    users = 20_000
    net = network([MEAN_PS], users=users)
    measured = measure(net, RunGoal(0.01, least=20_000), is_open=False, users=users)
    assert measured.converged
    assert measured.window.mean_latency_s(None).value == pytest.approx(users * 1e-6, rel=0.05)


@pytest.mark.parametrize(("requests", "rounds"), [(14_000, 7), (42_000, 21)])
def test_a_start_is_not_called_converged(requests: int, rounds: int) -> None:
    users = 2000
    measured = measure(
        network([MEAN_PS], users=users), RunGoal(None, requests), is_open=False, users=users
    )
    assert measured.converged == (rounds > 10)
    assert ("short" in {w.code for w in measured.warnings}) == (rounds < 10)


def test_a_replayed_trace_is_simulated_whole_and_has_no_warm_up() -> None:
    arrivals = np.cumsum(np.random.default_rng(1).exponential(2 * MEAN_PS, 5000)).astype(np.int64)
    net = replace(
        network([MEAN_PS]), group_open=np.array([2]), arrival_ps=arrivals,
        arrival_flow=np.zeros(5000, np.int64), user_arrival_ptr=np.array([0, 5000]),
    )  # fmt: skip
    load = RunLoad(is_open=True, replayed=True)
    measured = Controller(CompiledEngine(net), plain_reducer(), RunGoal(0.01), load).run()
    assert measured.converged
    assert measured.window.requests == 5000
    assert measured.window.warmup_ps == 0
    assert not measured.warnings


SLOTS = 10_000


class Filling(CompiledEngine):
    """Queue 0's accumulator plays a write buffer's: full after 40 batches."""

    calls = 0

    def advance(self, completions: int, until_ps: int = HORIZON_PS) -> Batch:
        batch = super().advance(completions, until_ps)
        self.calls += 1
        share = min(1.0, self.calls / 120)
        batch.stations[0, 2] = round(share * SLOTS * (batch.end_ps - batch.start_ps))
        return batch


def test_a_run_goes_on_until_write_buffers_have_filled() -> None:
    load = RunLoad(buffers=np.array([0]), buffer_slots=np.array([SLOTS]))
    net = network([MEAN_PS], users=4)
    goal = RunGoal(0.01, least=20_000)
    measured = Controller(Filling(net), plain_reducer(), goal, load).run()
    assert measured.converged
    total = measured.window.requests + measured.warmup_requests
    assert total >= 120 * goal.batch
    short = Controller(
        Filling(net), plain_reducer(), RunGoal(0.01, least=20_000, most=30_000), load
    ).run()
    assert not short.converged
    assert "a write buffer was still filling" in short.warnings[0]
