"""Measured runs: when they end, where they are steady, and distributions of latency."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import stdtrit

from nvmesim.array_types import Ints
from nvmesim.engine.compiled.engine import CompiledEngine
from nvmesim.engine.contract import HIST_BINS, Batch, Status, bin_index
from nvmesim.measure.control import Controller, Measured, RunGoal, backlog_growth
from nvmesim.measure.latency import CLAT, Samples, distribution, enough, samples, tail_warnings
from nvmesim.measure.steady import (
    MAX_RECORDS,
    MAX_SNAPSHOTS,
    Col,
    Collector,
    RunLoad,
    Snapshot,
    Window,
    half_width,
    mser,
    ratio_interval,
    relative_half,
    two_sided,
)
from nvmesim.network.network import HORIZON_PS
from nvmesim.units import PS_PER_S
from tests.predict.networks import MEAN_PS, measure, mm1, network, plain_reducer


class Interrupting(CompiledEngine):
    """Somebody presses Ctrl-C in the 21st batch, or sooner."""

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


def test_precision_that_is_reached_or_not_is_said() -> None:
    measured = watched(0.7, RunGoal(0.01))
    assert measured.converged
    assert measured.window.requests >= 200_000
    assert relative_half(measured.window.iops()) <= 0.01
    data = samples(measured.window, None)
    assert data.relative_half(0.99) <= 0.05
    assert not measured.warnings
    measured = watched(0.7, RunGoal(0.0001, most=250_000))
    assert not measured.converged
    assert measured.warnings[-1].code == "imprecise"
    assert "the precision of 0.01 % was not reached: simulated IOPS are" in measured.warnings[-1]


def test_a_wall_limit_or_an_interrupt_keeps_what_was_finished() -> None:
    measured = measure(mm1(0.7), RunGoal(0.0001, wall_s=0.2), is_open=True)
    assert not measured.converged
    engine = Interrupting(mm1(0.5))
    measured = Controller(engine, plain_reducer(), RunGoal(None, 64_000), queue_load()).run()
    assert measured.interrupted
    assert not measured.converged
    assert measured.window.requests + measured.warmup_requests == 20_000
    assert measured.warnings[0].startswith("interrupted: ")
    engine = Interrupting(mm1(0.5))
    engine.calls = 20
    with pytest.raises(KeyboardInterrupt):  # nothing to report yet
        Controller(engine, plain_reducer(), RunGoal(None, 64_000), queue_load()).run()


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


def test_close_to_its_bound_and_with_many_outstanding_a_run_is_longer() -> None:
    measured = watched(0.9995, RunGoal(0.01, most=3_000_000))
    assert not measured.converged
    assert measured.backlog_per_s is None or measured.backlog_per_s < 2000
    users = 20_000
    net = network([MEAN_PS], users=users)
    measured = measure(net, RunGoal(0.01, least=20_000), is_open=False, users=users)
    assert measured.converged
    assert measured.window.mean_latency_s(None).value == pytest.approx(users * 1e-6, rel=0.05)


def test_a_backlog_must_grow_steadily() -> None:
    records = np.ones((64, len(Col)))
    records[:, Col.READS] = 1000
    records[:, Col.DURATION] = PS_PER_S / 1000
    assert backlog_growth(records) is None
    records[:, Col.OUTSTANDING] = np.arange(64) * 100
    assert backlog_growth(records) == pytest.approx(100_000)
    records[44:52, Col.OUTSTANDING] = 0
    assert backlog_growth(records) is None


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


BIN = 1 / 128
"""Width of a bin, relative: what a percentile may be off by."""


def window_of(values: np.ndarray, groups: int = 24, writes: bool = False) -> Window:
    """A window whose snapshots hold *values* (ps), in order."""
    snapshots = []
    for part in np.array_split(values, groups):
        histogram = np.zeros((2, 2, HIST_BINS), np.int64)
        for value in part.tolist():
            histogram[int(writes), :, bin_index(value)] += 1
        most = np.full((2, 2), part.max(), np.int64)
        snapshots.append(
            Snapshot(
                *(1, 1e6, most, histogram, np.zeros(1, np.int64), np.zeros(0), np.zeros((1, 4))),
                np.zeros(HIST_BINS, np.int64),
            )
        )
    records = np.ones((groups, 10))
    return Window(0.0, records, tuple(snapshots))


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, Samples]:
    rng = np.random.default_rng(7)
    values = np.maximum(1, rng.lognormal(18, 1, 30_000)).astype(np.int64)
    data = samples(window_of(values), None)
    assert data is not None
    return values, data


@pytest.mark.parametrize("p", [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_quantiles_are_those_of_the_samples(drawn: tuple[np.ndarray, Samples], p: float) -> None:
    values, data = drawn
    assert data.quantile(p) == pytest.approx(np.quantile(values, p), rel=1.5 * BIN)
    assert data.quantile(p) <= values.max()


def test_small_values_are_exact() -> None:
    data = samples(window_of(np.full(1000, 77)), None)
    assert data.quantile(0.5) == 77
    assert data.interval(0.5) == (77, 77)


def test_shares_below_add_up_and_intervals_are_binomial(drawn: tuple[np.ndarray, Samples]) -> None:
    values, data = drawn
    assert data.below(data.quantile(0.9)).sum() == pytest.approx(0.9 * len(values), abs=1)
    # 1.96 sqrt(p (1 - p) / n), within what 24 to 6 groups scatter.
    expected = 1.96 * np.sqrt(0.9 * 0.1 / len(values))
    assert 0.7 * expected < data.half_share(0.9) < 2 * expected


def test_too_few_samples_or_those_of_one_episode_give_no_percentile() -> None:
    assert enough(100_000, 99.9)
    assert not enough(99_000, 99.9)
    values = np.random.default_rng(1).permutation(np.arange(1000, 10_999))
    found = distribution(window_of(values), None)
    assert found.percentiles[90.0] is not None
    assert found.percentiles[99.0] is None
    assert "p99" not in found.intervals
    (said,) = tail_warnings(found)
    assert said.code == "few-samples"
    assert "p99 of 9,999 requests is not shown: 100 must lie beyond" in said
    assert "10,000 requests are needed" in said
    enough_of_it = distribution(window_of(np.arange(1000, 31_000)), None)
    assert enough_of_it is not None
    assert not [w for w in tail_warnings(enough_of_it) if w.code == "few-samples"]
    values = np.full(24_000, 1000)
    values[5000:5400] = np.arange(400) + 2000  # all that lies beyond p99 in one stretch
    found = distribution(window_of(values), None)
    assert found.percentiles[99.0] is None
    assert distribution(window_of(np.arange(1, 1001)), 1) is None
    assert distribution(window_of(np.arange(1, 1001), writes=True), 1, CLAT) is not None


def test_a_steep_quantile_whose_share_moves_is_bounded_by_its_groups():
    """The slow mode holds 2 % or 80 % of a group: its place is known, its share is not."""
    groups = np.zeros((24, 3), np.int64)
    for i, share in enumerate(np.repeat([0.02, 0.8, 0.02, 0.02, 0.8, 0.02], 4)):
        slow = int(share * 200_000)
        groups[i] = [200_000 - slow, slow // 2, slow - slow // 2]
    low = np.array([100.0, 5000.0, 5010.0])
    data = Samples(groups, low, np.full(3, 10.0), low + 5, 5020.0)
    assert 0.99 + data.half_share(0.99) > 1
    low_ps, high_ps = data.interval(0.99)
    assert 5000 < low_ps < data.quantile(0.99) < high_ps < 5040
    few = Samples(groups // 400, low, np.full(3, 10.0), low + 5, 5020.0)
    assert few.quantile(0.99) < few.interval(0.99)[1] < 5020
    alone = np.array([[1000, 0, 0]] * 23 + [[700, 150, 150]])
    assert replace(few, groups=alone).interval(0.99)[1] == math.inf


def batch(number: int, count: int = 10) -> Batch:
    """A made-up batch that completes *count* reads of *number* + 1 ps each."""
    histogram = np.zeros((2, 2, HIST_BINS), np.int64)
    histogram[0, :, number % 100] = count
    latency = np.array([[count * (number + 1)] * 2, [0, 0]], np.int64)
    return Batch(
        Status.COMPLETED, number * 100, number * 100 + 100, np.array([count, 0]), latency,
        np.full((2, 2), number, np.int64), histogram, np.array([count]), np.zeros(0, np.int64),
        np.full((3, 4), number, np.int64), number,
    )  # fmt: skip


def collected(n: int) -> Collector:
    kept = Collector(plain_reducer(), 10)
    for i in range(n):
        kept.add(batch(i))
    return kept


@pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 127, 1023, 1024, 1025, 2500, 5000])
def test_memory_is_flat_and_nothing_is_lost(n: int) -> None:
    kept = collected(n)
    window = kept.window(0)
    assert len(kept) <= MAX_RECORDS
    assert len(window.snapshots) <= MAX_SNAPSHOTS
    assert sum(s.n_records for s in window.snapshots) == len(kept)
    assert window.requests == 10 * n
    assert window.duration_ps == 100 * n
    assert window.records[:, Col.READ_LAT].sum() == sum(10 * (i + 1) for i in range(n))
    assert window.records[-1, Col.OUTSTANDING] == n - 1
    total = window.total
    assert total.histogram[0, 0].sum() == 10 * n
    assert total.duration_ps == 100 * n
    assert total.latency_max_ps.max() == n - 1
    assert total.stations[0, 0] == n * (n - 1) / 2


@pytest.mark.parametrize("n", [100, 1500, 3000])
def test_records_and_snapshots_are_cut_at_the_same_place(n: int) -> None:
    kept = collected(n)
    cut, _ = kept.warmup()
    window = kept.window(cut)
    assert window.total.histogram[0, 0].sum() == window.requests
    assert window.warmup_ps + window.duration_ps == 100 * n
    kept.drop(cut)
    assert kept.window(0).requests == window.requests
    for i in range(n, n + 1200):
        kept.add(batch(i))
    assert kept.window(0).total.duration_ps == kept.window(0).duration_ps
    assert kept.window(0).warmup_ps == window.warmup_ps


def test_batches_grow_and_their_parts_are_one_record_but_for_the_head() -> None:
    assert collected(1023).batch == 10
    assert collected(1024).batch == 20
    kept = Collector(plain_reducer(), 20)
    kept.add(batch(0), batch(1))
    assert len(kept) == 1
    assert kept.requests == 20
    assert kept.window(0).snapshots[0].n_records == 1
    kept = collected(3000)
    assert len(kept.head) == MAX_RECORDS
    assert all(row[Col.READS] == 10 for row in kept.head)


def test_a_transient_is_cut_and_never_more_than_half() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(10, 1, 400)
    assert mser(noise, np.arange(201)) < 60
    decaying = noise + 50 * np.exp(-np.arange(400) / 20)
    assert 40 <= mser(decaying, np.arange(201)) <= 140
    kept = collected(400)  # latency grows for ever
    cut, warm = kept.warmup()
    assert cut <= 200
    assert not warm


def test_nothing_and_one_batch_have_no_interval() -> None:
    zeros = np.zeros(5)
    assert ratio_interval(zeros, zeros).value == 0
    assert relative_half(ratio_interval(zeros, zeros)) == np.inf
    assert half_width(np.array([3.0])) == np.inf
    assert ratio_interval(np.array([3.0]), np.array([2.0])).high == np.inf


@pytest.mark.parametrize("share", [0.7, 0.9, 0.95, 0.999])
def test_students_t_is_scipys(share):
    for freedom in [*range(1, 40), 99, 1023]:
        assert two_sided(freedom, share) == pytest.approx(stdtrit(freedom, (1 + share) / 2), 1e-12)


@pytest.mark.parametrize("users", [1, 2000])
def test_warm_up_is_found_from_empty_and_from_full(users: int) -> None:
    """All users submit at once: the slow second queue is empty, the fast first one full."""
    net = network([0.5 * MEAN_PS, MEAN_PS], users=users)
    measured = measure(net, RunGoal(None, 100_000), is_open=False, users=users)
    assert measured.converged
    assert measured.window.requests == 100_000
    rate = measured.window.iops()
    exact = 1e6 if users == 2000 else 1e6 / 1.5
    assert rate.low <= exact <= rate.high
